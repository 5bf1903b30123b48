"""Goal: CreateTopics and DeleteTopics do what they say and refuse each topic for itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import Event
from dragoman.config.settings import Settings
from dragoman.log.store import Durability
from dragoman.outcome import Outcome
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from worlds.broker import Wire, World

CREATE_VERSIONS = range(2, 8)
DELETE_VERSIONS = range(1, 7)


def topic(
    name: str = "t",
    partitions: int = 1,
    factor: int = 1,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, list[int]] | None = None,
) -> m.CreateTopicsRequestTopic:
    return m.CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[m.CreateTopicsRequestConfig(key, value) for key, value in (configs or {}).items()],
        assignments=[
            m.CreateTopicsRequestAssignment(index, nodes)
            for index, nodes in (assignments or {}).items()
        ],
    )


def create(
    wire: Wire, *topics: m.CreateTopicsRequestTopic, version: int = 7, validate_only: bool = False
) -> list[m.CreateTopicsResponseTopic]:
    request = m.CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return wire.ask(request, version, m.CreateTopicsResponse).topics


def delete(wire: Wire, *names: str, version: int = 5) -> list[m.DeleteTopicsResponseTopic]:
    if version >= 6:
        asked = [m.DeleteTopicsRequestTopic(name=name) for name in names]
        request = m.DeleteTopicsRequest(topics=asked)
    else:
        request = m.DeleteTopicsRequest(topic_names=list(names))
    return wire.ask(request, version, m.DeleteTopicsResponse).responses


# ---- create


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_create_in_every_version(world: World, wire: Wire, version: int) -> None:
    (made,) = create(wire, topic(partitions=3, configs={"retention.ms": "5"}), version=version)
    assert (made.name, made.error_code, made.error_message) == ("t", 0, None)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert made.configs is not None
        values = {each.name: (each.value, each.config_source) for each in made.configs}
        assert values["retention.ms"] == ("5", 1)
        assert values["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert made.topic_id == world.broker.image.topics["t"].topic_id
    # At once, with leaders.
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")])
    (seen,) = wire.ask(request, 9, m.MetadataResponse).topics
    assert [each.leader_id for each in seen.partitions] == [1, 1, 1]


def test_configured_default_of_the_node_is_shown_as_such() -> None:
    settings = Settings(log_segment_bytes=1 << 20, explicit=frozenset({"log.segment.bytes"}))
    (made,) = create(Wire(World(settings)), topic())
    assert made.configs is not None
    (shown,) = [each for each in made.configs if each.name == "segment.bytes"]
    assert (shown.value, shown.config_source) == ("1048576", 4)


def test_minus_1_means_the_defaults() -> None:
    world = World(Settings(num_partitions=4))
    (made,) = create(Wire(world), topic(partitions=-1, factor=-1))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 4, 1)


@pytest.mark.parametrize("version", CREATE_VERSIONS)
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("old"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(partitions=10_001), ErrorCode.INVALID_PARTITIONS),
        (topic(factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (topic(configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (topic(configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic(assignments={0: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(partitions=-1, factor=-1, assignments={0: [9]}), 39),
        (topic(partitions=-1, factor=-1, assignments={0: [1, 1]}), 39),
        (topic(partitions=-1, factor=-1, assignments={0: []}), 39),
        (topic(partitions=-1, factor=-1, assignments={1: [1]}), 39),
        (topic(partitions=-1, factor=-1, assignments={0: [1], 2: [1]}), 39),
    ],
)
def test_each_refusal_has_its_code_and_a_text(
    world: World, wire: Wire, version: int, asked: m.CreateTopicsRequestTopic, code: int
) -> None:
    world.create("old")
    good = topic("good")
    for validate_only in (True, False):
        refused, made = create(wire, asked, good, version=version, validate_only=validate_only)
        assert (refused.name, refused.error_code) == (asked.name, code)
        assert refused.error_message
        assert made.error_code == 0
    assert set(world.broker.image.topics) == {"old", "good"}


def test_assignment_is_taken_in_any_order(world: World, wire: Wire) -> None:
    assignments = {1: [1], 0: [1]}
    (made,) = create(wire, topic(partitions=-1, factor=-1, assignments=assignments))
    assert (made.error_code, made.num_partitions) == (0, 2)


def test_same_name_twice_refuses_both(world: World, wire: Wire) -> None:
    found = create(wire, topic("a"), topic("b"), topic("a", 2))
    assert [each.error_code for each in found] == [ErrorCode.INVALID_REQUEST, 0, 42]
    assert set(world.broker.image.topics) == {"b"}


def test_validation_alone_creates_nothing(world: World, wire: Wire) -> None:
    (made,) = create(wire, topic(partitions=3), validate_only=True)
    assert (made.error_code, made.num_partitions, made.topic_id) == (0, 3, m.NO_ID)
    assert not world.broker.image.topics


def test_two_clients_create_the_same_topic_at_the_same_time(world: World, wire: Wire) -> None:
    other = Wire(world)
    request = m.CreateTopicsRequest(topics=[topic()])
    for each in (wire, other):
        each.send(request, 7)
    world.settle()
    codes = []
    for each in (wire, other):
        (reply,) = each.replies()
        assert isinstance(reply.message, m.CreateTopicsResponse)
        codes.append(reply.message.topics[0].error_code)
    # The second may try again, and will find it then.
    assert codes == [0, ErrorCode.REQUEST_TIMED_OUT]


def test_nothing_asked_nothing_done(wire: Wire) -> None:
    assert create(wire) == []
    assert delete(wire) == []


# ---- delete


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_delete_by_name_in_every_version(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    topic_id = world.broker.image.topics["t"].topic_id
    found = delete(wire, "t", "nowhere", version=version)
    assert [(each.name, each.error_code) for each in found] == [
        ("t", 0),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    if version >= 6:
        assert found[0].topic_id == topic_id
    assert not world.broker.image.topics


def test_delete_by_id(world: World, wire: Wire) -> None:
    world.create("t")
    topic_id = world.broker.image.topics["t"].topic_id
    ids = (topic_id, b"\1" * 16, m.NO_ID)
    asked = [m.DeleteTopicsRequestTopic(name=None, topic_id=each) for each in ids]
    request = m.DeleteTopicsRequest(topics=asked)
    found = wire.ask(request, 6, m.DeleteTopicsResponse).responses
    assert [(each.name, each.topic_id, each.error_code) for each in found] == [
        ("t", topic_id, 0),
        (None, b"\1" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, m.NO_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_deletion_can_be_switched_off() -> None:
    world = World(Settings(delete_topic_enable=False))
    world.create("t")
    (found,) = delete(Wire(world), "t")
    assert found.error_code == ErrorCode.TOPIC_DELETION_DISABLED


def test_internal_topics_cannot_be_deleted(world: World, wire: Wire) -> None:
    assert world.create_outcome(NewTopic(name="__in", is_internal=True)) is None
    (found,) = delete(wire, "__in")
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "__in" in world.broker.image.topics


class Rules(AllowAll):
    def __init__(self, forbidden: Operation) -> None:
        self.forbidden = forbidden

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return operation is not self.forbidden


def test_authorizer_is_asked() -> None:
    wire = Wire(World(authorizer=Rules(Operation.CREATE)))
    assert create(wire, topic())[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world = World(authorizer=Rules(Operation.DELETE))
    world.create("t")
    (found,) = delete(Wire(world), "t")
    assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "t" in world.broker.image.topics


# ---- how long clients want to wait


def changes(timeout_ms: int) -> list[tuple[m.Message, int]]:
    """One request of each kind, and its version."""
    new = m.CreateTopicsRequestTopic(name="new", num_partitions=1, replication_factor=1)
    more = m.CreatePartitionsRequestTopic(name="t", count=2, assignments=None)
    return [
        (m.CreateTopicsRequest(topics=[new], timeout_ms=timeout_ms), 7),
        (m.CreatePartitionsRequest(topics=[more], timeout_ms=timeout_ms), 3),
        (m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestTopic("t")], timeout_ms=timeout_ms), 6),
    ]


def outcomes(wire: Wire) -> list[tuple[str | None, int]]:
    found: list[tuple[str | None, int]] = []
    for reply in wire.replies():
        match reply.message:
            case m.CreateTopicsResponse(topics=topics):
                found += [(each.name, each.error_code) for each in topics]
            case m.CreatePartitionsResponse(results=results):
                found += [(each.name, each.error_code) for each in results]
            case m.DeleteTopicsResponse(responses=responses):
                found += [(each.name, each.error_code) for each in responses]
    return found


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("timeout_ms", [-1, 0, 1000])
def test_change_that_is_durable_in_the_same_turn_is_in_time(
    world: World, wire: Wire, kind: int, timeout_ms: int
) -> None:
    world.create("t")
    request, version = changes(timeout_ms)[kind]
    wire.send(request, version)
    world.settle()
    assert [code for _, code in outcomes(wire)] == [0]


@pytest.mark.parametrize("kind", range(3))
def test_request_times_out_while_the_change_still_happens(
    world: World, wire: Wire, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("t")
    held: list[Callable[[], None]] = []
    propose = world.broker.quorum.propose

    def slow(events: list[Event]) -> Outcome[None]:
        outcome: Outcome[None] = Outcome()
        held.append(lambda: propose(events).then(outcome.settle))
        return outcome

    monkeypatch.setattr(world.broker.quorum, "propose", slow)
    request, version = changes(500)[kind]
    wire.send(request, version)
    world.advance(0.4)
    assert outcomes(wire) == []
    world.advance(0.2)
    (outcome,) = outcomes(wire)
    assert outcome == ("new" if kind == 0 else "t", ErrorCode.REQUEST_TIMED_OUT)
    held[0]()
    world.settle()
    assert wire.replies() == []
    topics = world.broker.image.topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == [
        {"t": 1, "new": 1},
        {"t": 2},
        {},
    ][kind]


# ---- how many partitions one request may make


def test_request_for_more_partitions_than_one_may_make_creates_none() -> None:
    world = World(Settings(max_partitions_per_request=100), durability=Durability.OS)
    wire = Wire(world)
    topics = [
        m.CreateTopicsRequestTopic(name=f"t{at}", num_partitions=60, replication_factor=1)
        for at in range(2)
    ]
    reply = wire.ask(m.CreateTopicsRequest(topics=topics), 5, m.CreateTopicsResponse)
    assert {each.error_code for each in reply.topics} == {ErrorCode.POLICY_VIOLATION}
    assert not world.broker.image.topics
    reply = wire.ask(m.CreateTopicsRequest(topics=topics[:1]), 5, m.CreateTopicsResponse)
    assert reply.topics[0].error_code == 0


def test_growing_topics_beyond_what_one_request_may_make_is_refused() -> None:
    world = World(Settings(max_partitions_per_request=100), durability=Durability.OS)
    wire = Wire(world)
    for at in range(2):
        world.create(f"t{at}", 10)
    grown = [
        m.CreatePartitionsRequestTopic(name=f"t{at}", count=70, assignments=None) for at in range(2)
    ]
    reply = wire.ask(m.CreatePartitionsRequest(topics=grown), 2, m.CreatePartitionsResponse)
    assert {each.error_code for each in reply.results} == {ErrorCode.POLICY_VIOLATION}
    assert len(world.broker.image.topics["t0"].partitions) == 10
