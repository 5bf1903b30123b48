"""Goal: the table is read as written, and what is made from it is current.

Method: small tables of our own notation where the real one lacks a case, facts about known
messages, and a comparison of `messages.pyi` with what the generator makes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dragoman.protocols.kafka import generate, messages, notation
from dragoman.protocols.kafka.constants import (
    ACCEPTED_VERSIONS,
    ADVERTISED_VERSIONS,
    ApiKey,
    is_accepted,
)
from dragoman.protocols.kafka.notation import FieldSpec, Versions


def field(message: str, *path: str) -> FieldSpec:
    struct = notation.message(message).struct
    for name in path:
        found = next(item for item in struct.fields if item.name == name)
        inner = found.type.element or found.type
        if inner.struct is not None:
            struct = inner.struct
    return found


def test_stub_is_what_the_generator_makes() -> None:
    path = Path(messages.__file__).with_suffix(".pyi")
    assert path.read_text() == generate.render()


def test_all_56_client_facing_apis_and_two_of_our_own_are_there_in_both_directions() -> None:
    assert len(ApiKey) == 56 + 2
    for key in ApiKey:
        assert notation.name_of(key, "Request") is not None
        assert notation.name_of(key, "Response") is not None
    # And four structures without a key.
    assert len(notation.message_names()) == 2 * (56 + 2) + 4


def test_names_of_keys_match_the_table() -> None:
    for key in ApiKey:
        name = notation.name_of(key, "Request")
        assert name is not None
        assert notation.snake_case(name) == f"{key.name.lower()}_request"


def test_every_structure_has_its_class_with_the_same_fields() -> None:
    for name in notation.message_names():
        struct = notation.message(name).struct
        kind = getattr(messages, struct.class_name)
        assert [item.name for item in struct.fields] == list(kind.__struct_fields__)


def test_nested_versions_are_cut_to_the_enclosing_ones() -> None:
    assert field("OffsetFetchRequest", "topics", "name").versions == Versions(1, 7)
    assert field("OffsetFetchRequest", "groups", "topics", "topic_id").versions == Versions(10, 10)
    assert field("OffsetFetchRequest", "topics").nullable == Versions(2, 7)


def test_attributes() -> None:
    leader = field("ProduceResponse", "responses", "partition_responses", "current_leader")
    assert (leader.tag, leader.versions, leader.ignorable) == (0, Versions(10, 13), False)
    rack = field("MetadataResponse", "brokers", "rack")
    assert (rack.default, rack.nullable, rack.ignorable) == ("null", Versions(1, 13), True)
    assert field("FetchRequest", "max_bytes").default == "2147483647"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", Versions(3, 3)),
        ("3+", Versions(3, 9)),
        ("0-4", Versions(2, 4)),
        ("12+", Versions(12, 9)),
    ],
)
def test_ranges(text: str, expected: Versions) -> None:
    assert Versions(2, 9).intersect(text) == expected


def test_snake_case() -> None:
    assert notation.snake_case("TimeoutMs") == "timeout_ms"
    assert notation.snake_case("V3AndBelowTopics") == "v3_and_below_topics"


def test_defaults_reach_the_classes() -> None:
    request = messages.FetchRequest()
    assert (request.max_bytes, request.session_epoch, request.replica_id) == (2147483647, -1, -1)
    assert request.cluster_id is None
    assert messages.MetadataRequest().allow_auto_topic_creation is True
    assert messages.FetchResponsePartition().records is None
    assert messages.MetadataResponseTopic().topic_id == bytes(16)


def test_lists_are_not_shared_between_messages() -> None:
    assert messages.FetchRequest().topics is not messages.FetchRequest().topics


def test_names_that_kafka_does_not_have_are_attribute_errors() -> None:
    for name in ("ProduceRequestNothing", "Nothing", "__path__"):
        with pytest.raises(AttributeError, match=name):
            getattr(messages, name)


def test_messages_are_frozen() -> None:
    with pytest.raises(AttributeError):
        messages.HeartbeatRequest().group_id = "g"  # type: ignore[misc]
    assert issubclass(messages.HeartbeatRequest, msgspec.Struct)


def test_advertised_versions_differ_from_kafka_where_intended() -> None:
    different = {
        key: (ADVERTISED_VERSIONS[key].low, ADVERTISED_VERSIONS[key].high)
        for key in ApiKey
        if ADVERTISED_VERSIONS[key] != notation.versions_of(notation.name_of(key, "Request") or "")
    }
    assert different == {
        ApiKey.PRODUCE: (0, 13),
        ApiKey.FETCH: (4, 17),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    }
    assert ACCEPTED_VERSIONS[ApiKey.PRODUCE] == Versions(3, 13)


@pytest.mark.parametrize(
    ("api_key", "version", "expected"),
    [(0, 2, False), (0, 3, True), (0, 13, True), (0, 14, False), (1, 18, False), (4, 0, False)],
)
def test_is_accepted(api_key: int, version: int, expected: bool) -> None:
    assert is_accepted(api_key, version) is expected
    assert is_accepted(-1, version) is False
