"""Codes in responses: what the compiled expressions find is what a walk over the message finds."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from dragoman.protocols.kafka import notation
from dragoman.protocols.kafka.error_codes import CODES_IN
from dragoman.protocols.kafka.messages import Message, MetadataResponse, MetadataResponseTopic
from protocols.kafka_messages import all_versions, random_message

RESPONSES = [name for name in notation.message_names() if name.endswith("Response")]


def walked(message: Message) -> Iterator[int]:
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code"):
            if value:
                yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    yield from walked(each)


@pytest.mark.parametrize("name", RESPONSES)
def test_every_code_of_a_response_is_found(name: str) -> None:
    rng = random.Random(name)
    for version in all_versions(name):
        for _ in range(5):
            message = random_message(rng, name, version)
            assert sorted(CODES_IN[type(message)](message)) == sorted(walked(message))


def test_codes_of_a_part_are_found() -> None:
    topic = MetadataResponseTopic(error_code=3)
    assert CODES_IN[MetadataResponseTopic](topic) == [3]
    response = MetadataResponse(topics=[topic, MetadataResponseTopic()])
    assert CODES_IN[MetadataResponse](response) == [3]
