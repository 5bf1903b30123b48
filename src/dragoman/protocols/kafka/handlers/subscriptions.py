"""The topics that a member of a classic group wants to read, out of the metadata it joined with."""

from __future__ import annotations

from typing import Final

from dragoman.errors import DecodeError
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.messages import ConsumerProtocolSubscription
from dragoman.types import TopicName

#: The protocol type of groups whose metadata is a subscription.
CONSUMER: Final = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[TopicName] | None:
    """None when the metadata cannot be read: clients may send what they like."""
    try:
        subscription = codec.decode_versioned(ConsumerProtocolSubscription, metadata)
    except DecodeError:
        return None
    return frozenset(map(TopicName, subscription.topics))
