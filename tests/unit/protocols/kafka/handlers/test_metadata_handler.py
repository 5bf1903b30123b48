"""Goal: Metadata says what every client generation expects of it, version by version."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import Event, NodeFenced, NodeRegistered
from dragoman.config.settings import Settings
from dragoman.limits import KAFKA_FENCED_NODE_LISTED_S
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from worlds.broker import Outcome, Wire, World

ALL_VERSIONS = range(14)


def ask(
    wire: Wire, version: int, *names: str, create: bool = False
) -> list[m.MetadataResponseTopic]:
    topics = [m.MetadataRequestTopic(name=name) for name in names]
    request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    return wire.ask(request, version, m.MetadataResponse).topics


def brokers(wire: Wire) -> tuple[list[int], list[int]]:
    """Those of Metadata, and of DescribeCluster."""
    listed = wire.ask(m.MetadataRequest(topics=[]), 12, m.MetadataResponse).brokers
    described = wire.ask(m.DescribeClusterRequest(), 1, m.DescribeClusterResponse).brokers
    return [each.node_id for each in listed], [each.broker_id for each in described]


def test_a_node_that_was_fenced_stays_listed_for_a_while(world: World, wire: Wire) -> None:
    def happens(event: Event) -> None:
        outcome = Outcome()
        world.broker.changes.make(lambda: [event]).then(outcome)
        world.settle()
        assert outcome.error is None

    addresses = {"kafka": "two.example:9092"}
    there = NodeRegistered(node_id=2, incarnation=1, addresses=addresses)
    happens(there)
    assert brokers(wire) == ([1, 2], [1, 2])
    # librdkafka forgets a coordinator that is not listed, and waits for it nevertheless.
    happens(NodeFenced(node_id=2, incarnation=1))
    assert brokers(wire) == ([1, 2], [1])
    world.advance(KAFKA_FENCED_NODE_LISTED_S - 1)
    assert brokers(wire) == ([1, 2], [1])
    world.advance(1)
    assert brokers(wire) == ([1], [1])
    happens(msgspec.structs.replace(there, incarnation=2))
    assert brokers(wire) == ([1, 2], [1, 2])


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_known_topic_in_every_version(world: World, wire: Wire, version: int) -> None:
    world.create("t", 2)
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")])
    response = wire.ask(request, version, m.MetadataResponse)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "broker.example", 9092)
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(p.partition_index, p.leader_id, p.error_code) for p in topic.partitions] == [
        (0, 1, 0),
        (1, 1, 0),
    ]
    assert [(p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [([1], [1])] * 2
    if version >= 1:
        assert response.controller_id == 1
        assert not topic.is_internal
    if version >= 2:
        assert response.cluster_id == world.broker.image.cluster_id
    if version >= 7:
        assert [p.leader_epoch for p in topic.partitions] == [0, 0]
    if version >= 8:
        assert topic.topic_authorized_operations == -(1 << 31)
    if version >= 10:
        assert topic.topic_id == world.broker.image.topics["t"].topic_id != m.NO_ID


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics_are_asked_for_by_null_and_in_version_0_by_an_empty_list(
    world: World, wire: Wire, version: int
) -> None:
    world.create("a")
    world.create("b")
    everything = m.MetadataRequest(topics=None if version else [])
    topics = wire.ask(everything, version, m.MetadataResponse).topics
    assert [topic.name for topic in topics] == ["a", "b"]
    if version:
        nothing = wire.ask(m.MetadataRequest(topics=[]), version, m.MetadataResponse)
        assert nothing.topics == []
        assert len(nothing.brokers) == 1


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_unknown_topic_is_created_when_the_client_wants_it(
    world: World, wire: Wire, version: int
) -> None:
    (topic,) = ask(wire, version, "new", create=True)
    assert (topic.error_code, len(topic.partitions)) == (0, 1)
    assert "new" in world.broker.image.topics


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata_without_auto_create_returns_unknown_topic(
    world: World, wire: Wire, version: int
) -> None:
    (topic,) = ask(wire, version, "new", create=False)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "new" not in world.broker.image.topics


@pytest.mark.parametrize("version", [0, 4, 13])
def test_node_that_does_not_create_topics_says_unknown(version: int) -> None:
    world = World(Settings(auto_create_topics_enable=False))
    (topic,) = ask(Wire(world), version, "new", create=True)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_created_topics_have_the_default_partitions() -> None:
    world = World(Settings(num_partitions=5))
    (topic,) = ask(Wire(world), 9, "new", create=True)
    assert len(topic.partitions) == 5


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "größe", "x" * 250, "a/b", "a\n"])
@pytest.mark.parametrize("create", [False, True])
def test_name_that_kafka_forbids_is_invalid(
    world: World, wire: Wire, name: str, create: bool
) -> None:
    (topic,) = ask(wire, 9, name, create=create)
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not world.broker.image.topics


def test_answers_keep_the_order_of_the_request(world: World, wire: Wire) -> None:
    world.create("b")
    topics = ask(wire, 9, "z", "b", "a b", "y", create=True)
    assert [topic.name for topic in topics] == ["z", "b", "a b", "y"]
    assert [bool(topic.error_code) for topic in topics] == [False, False, True, False]


def test_same_new_topic_twice_in_one_request(world: World, wire: Wire) -> None:
    topics = ask(wire, 9, "new", "new", create=True)
    # Each topic once, as in Kafka.
    assert [topic.error_code for topic in topics] == [0]
    assert len(world.broker.image.topics) == 1


def test_two_clients_that_name_a_new_topic_at_the_same_time(world: World, wire: Wire) -> None:
    other = Wire(world)
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="new")])
    for each in (wire, other):
        each.send(request, 9)
    world.settle()
    for each in (wire, other):
        (reply,) = each.replies()
        assert isinstance(reply.message, m.MetadataResponse)
        assert reply.message.topics[0].error_code == 0


@pytest.mark.parametrize("name", [None, ""])
def test_topic_is_found_by_id(world: World, wire: Wire, name: str | None) -> None:
    """Without a name as the specification has it, or with an empty one as Java sends it."""
    world.create("t")
    topic_id = world.broker.image.topics["t"].topic_id
    for version in (12, 13):
        request = m.MetadataRequest(topics=[m.MetadataRequestTopic(topic_id=topic_id, name=name)])
        (topic,) = wire.ask(request, version, m.MetadataResponse).topics
        assert (topic.name, topic.topic_id, topic.error_code) == ("t", topic_id, 0)


@pytest.mark.parametrize("topic_id", [m.NO_ID, b"\x01" * 16])
def test_id_that_is_not_known(wire: Wire, topic_id: bytes) -> None:
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(topic_id=topic_id, name=None)])
    (topic,) = wire.ask(request, 12, m.MetadataResponse).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (topic.name, topic.topic_id) == (None, topic_id)


def test_recreated_topic_has_another_id(world: World, wire: Wire) -> None:
    (before,) = ask(wire, 12, "t", create=True)
    start(world.broker.topics.delete("t")).then(lambda _: None)
    world.settle()
    (after,) = ask(wire, 12, "t", create=True)
    assert before.topic_id != after.topic_id


def test_ids_and_epochs_stay_over_a_restart(world: World, wire: Wire) -> None:
    (before,) = ask(wire, 12, "t", create=True)
    wire.lose()
    (after,) = ask(Wire(world.reopened()), 12, "t")
    assert after == before


def test_topics_with_names_that_kafka_cannot_say_are_hidden(world: World, wire: Wire) -> None:
    world.create("visible")
    assert world.create_outcome(NewTopic(name="%RETRY%group")) is None
    topics = wire.ask(m.MetadataRequest(topics=None), 9, m.MetadataResponse).topics
    assert [topic.name for topic in topics] == ["visible"]
    (topic,) = ask(wire, 9, "%RETRY%group")
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_internal_topics_are_marked(world: World, wire: Wire) -> None:
    assert world.create_outcome(NewTopic(name="__inside", is_internal=True)) is None
    (topic,) = ask(wire, 9, "__inside")
    assert topic.is_internal


def test_impossible_topic_creation_is_reported(world: World, wire: Wire) -> None:
    world.broker.topics._settings = msgspec.structs.replace(
        world.settings, default_replication_factor=3
    )
    (topic,) = ask(wire, 9, "new", create=True)
    assert topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


class Rules(AllowAll):
    """Allows everything but one operation."""

    def __init__(self, forbidden: Operation) -> None:
        self.forbidden = forbidden

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return operation is not self.forbidden


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.DESCRIBE])
def test_authorizer_is_asked(operation: Operation) -> None:
    world = World(authorizer=Rules(operation))
    wire = Wire(world)
    if operation is Operation.DESCRIBE:
        world.create("t")
    (topic,) = ask(wire, 9, "t", create=True)
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert topic.partitions == []
    assert isinstance(world.broker.image.topics.get("t"), type(None)) == (
        operation is Operation.CREATE
    )


def test_advertised_address_is_that_of_the_connection(world: World) -> None:
    world.service.advertised = lambda channel: channel.local_address
    for local in (("10.0.0.1", 9092), ("10.0.0.2", 9093)):
        response = Wire(world, local).ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse)
        assert (response.brokers[0].host, response.brokers[0].port) == local
