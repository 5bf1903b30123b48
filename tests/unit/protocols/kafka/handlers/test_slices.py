"""Goal: no single request, and no single read of a connection, keeps the loop for long.

Method: the real session on virtual time. A probe is a callback that runs once in every loop turn;
what happens between two of its runs is what other connections have to wait for.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.limits import KAFKA_REQUESTS_PER_TURN_MAX, WORK_ITEMS_PER_TURN
from dragoman.protocols.kafka import codec, notation
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers import log_offsets, metadata, offsets
from dragoman.protocols.kafka.handlers.session import HANDLERS
from worlds.broker import Wire, World

MANY = 20 * WORK_ITEMS_PER_TURN


class Turn:
    """Counts calls of a function per loop turn while the world settles."""

    def __init__(
        self, world: World, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
    ) -> None:
        self.counts = [0]
        self._world = world
        original: Callable[..., object] = getattr(owner, name)

        def counted(*args: object, **named: object) -> object:
            self.counts[-1] += 1
            return original(*args, **named)

        monkeypatch.setattr(owner, name, counted)

    def settle(self) -> None:
        def tick() -> None:
            is_idle = not self.counts[-1] and len(self.counts) > 3
            self.counts.append(0)
            if not is_idle:
                self._world.scheduler.call_soon(tick)

        tick()
        self._world.settle()


def test_metadata_of_many_names_is_described_over_turns(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Turn(world, monkeypatch, metadata, "_by_name")
    names = [m.MetadataRequestTopic(name=f"t{at}") for at in range(MANY)]
    wire.send(m.MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    turn.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.MetadataResponse)
    assert [each.name for each in reply.message.topics] == [each.name for each in names]
    assert sum(turn.counts) == MANY
    assert max(turn.counts) <= WORK_ITEMS_PER_TURN


def test_metadata_names_a_topic_once(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("t")
    turn = Turn(world, monkeypatch, metadata, "describe")
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")] * MANY)
    assert [each.name for each in wire.ask(request, 5, m.MetadataResponse).topics] == ["t"]
    assert sum(turn.counts) == 1


def test_metadata_of_all_topics_is_described_over_turns(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(30):
        world.create(f"t{at}", 100)
    turn = Turn(world, monkeypatch, metadata, "describe")
    wire.send(m.MetadataRequest(topics=None), 9)
    turn.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.MetadataResponse)
    assert sum(len(each.partitions) for each in reply.message.topics) == 3000
    # A topic of a hundred partitions is worth a hundred items.
    assert max(turn.counts) <= WORK_ITEMS_PER_TURN // 100


@pytest.mark.parametrize("version", [5, 9])
def test_offsets_are_fetched_over_turns(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    wire.ask(m.FindCoordinatorRequest(key="g"), 0, m.FindCoordinatorResponse)
    turn = Turn(world, monkeypatch, offsets, "_Found")
    indexes = list(range(MANY))
    if version < 8:
        topics = [m.OffsetFetchRequestTopic(name="t", partition_indexes=indexes)]
        request = m.OffsetFetchRequest(group_id="g", topics=topics)
    else:
        topic = m.OffsetFetchRequestGroupTopic(name="t", partition_indexes=indexes)
        group = m.OffsetFetchRequestGroup(group_id="g", topics=[topic])
        request = m.OffsetFetchRequest(groups=[group])
    wire.send(request, version)
    turn.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.OffsetFetchResponse)
    assert sum(turn.counts) == MANY
    assert max(turn.counts) <= WORK_ITEMS_PER_TURN


def test_offsets_by_time_are_looked_up_over_turns(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("t")
    turn = Turn(world, monkeypatch, log_offsets, "_listed")
    asked = [m.ListOffsetsRequestPartition(partition_index=0, timestamp=1)] * 1000
    topics = [m.ListOffsetsRequestTopic(name="t", partitions=asked)]
    wire.send(m.ListOffsetsRequest(replica_id=-1, topics=topics), 7)
    turn.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.ListOffsetsResponse)
    assert len(reply.message.topics[0].partitions) == 1000
    assert max(turn.counts) <= 20


def test_group_is_described_and_its_offsets_are_listed_once(wire: Wire) -> None:
    wire.ask(m.FindCoordinatorRequest(key="g"), 0, m.FindCoordinatorResponse)
    described = wire.ask(m.DescribeGroupsRequest(groups=["g"] * 1000), 1, m.DescribeGroupsResponse)
    assert len(described.groups) == 1
    asked = [m.OffsetFetchRequestGroup(group_id="g", topics=None)] * 1000
    found = wire.ask(m.OffsetFetchRequest(groups=asked), 8, m.OffsetFetchResponse)
    assert len(found.groups) == 1
    consumers = m.ConsumerGroupDescribeRequest(group_ids=["g"] * 1000)
    assert len(wire.ask(consumers, 0, m.ConsumerGroupDescribeResponse).groups) == 1


def test_topics_are_created_over_turns(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Turn(world, monkeypatch, world.broker.topics, "check_new")
    topics = [
        m.CreateTopicsRequestTopic(name=f"t{at}", num_partitions=1, replication_factor=9)
        for at in range(5000)
    ]
    wire.send(m.CreateTopicsRequest(topics=topics, validate_only=True), 5)
    turn.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.CreateTopicsResponse)
    assert {each.error_code for each in reply.message.topics} == {
        ErrorCode.INVALID_REPLICATION_FACTOR
    }
    assert max(turn.counts) <= WORK_ITEMS_PER_TURN


def test_connection_that_goes_while_its_request_is_worked_on_costs_no_more(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Turn(world, monkeypatch, metadata, "_by_name")
    names = [m.MetadataRequestTopic(name=f"t{at}") for at in range(MANY)]
    wire.send(m.MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    wire.lose()
    turn.settle()
    assert sum(turn.counts) <= WORK_ITEMS_PER_TURN
    assert world.budget.used == 0


def test_requests_of_one_read_are_begun_over_turns_and_answered_in_order(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [0]
    handler = HANDLERS[3]

    def counted(call: object) -> None:
        counts[-1] += 1
        handler(call)  # type: ignore[arg-type]

    monkeypatch.setitem(HANDLERS, 3, counted)
    request = m.MetadataRequest(topics=[])
    sent = b"".join(
        codec.join(codec.encode_request(request, 1, number, "x")) for number in range(1000)
    )

    def tick() -> None:
        counts.append(0)
        if len(counts) < 100:
            world.scheduler.call_soon(tick)

    tick()
    wire.feed(sent)
    world.settle()
    assert sum(counts) == 1000
    assert max(counts) <= KAFKA_REQUESTS_PER_TURN_MAX
    data, ids = wire.received(), []
    while data:
        size = int.from_bytes(data[:4], "big")
        ids.append(int.from_bytes(data[4:8], "big"))
        data = data[4 + size :]
    assert ids == list(range(1000))


# ---- encoding piece by piece

ARRAYS = (
    (m.MetadataResponse, "topics", m.MetadataResponseTopic(name="t"), range(14)),
    (m.DescribeGroupsResponse, "groups", m.DescribeGroupsResponseGroup(group_id="g"), range(6)),
    (m.ListGroupsResponse, "groups", m.ListGroupsResponseGroup(group_id="g"), range(6)),
    (
        m.DescribeConfigsResponse,
        "results",
        m.DescribeConfigsResponseResource(resource_name="r", error_message=None),
        range(1, 5),
    ),
    (
        m.ListTransactionsResponse,
        "transaction_states",
        m.ListTransactionsResponseTransaction(transactional_id="x"),
        range(3),
    ),
)


@pytest.mark.parametrize(("kind", "field", "element", "versions"), ARRAYS)
def test_array_encoded_piece_by_piece_is_the_same_as_at_once(
    kind: type[m.Message], field: str, element: m.Message, versions: range
) -> None:
    assert notation.versions_of(kind.__name__).low == versions.start
    for version in versions:
        encoder = codec.array_encoder(kind, field, version)
        for count in (0, 1, 2, 200):
            whole = kind(**{field: [element] * count})
            pieces = encoder.frame(kind(), [encoder.element(element)] * count, 7)
            assert codec.join(pieces) == codec.join(codec.encode_response(whole, version, 7))


def test_requests_behind_one_that_is_worked_on_wait_for_it(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would hold their replies in memory until it is answered."""
    begun: list[int] = []
    handler = HANDLERS[3]

    def counted(call: object) -> None:
        begun.append(len(world.broker.work))
        handler(call)  # type: ignore[arg-type]

    monkeypatch.setitem(HANDLERS, 3, counted)
    names = [m.MetadataRequestTopic(name=f"t{at}") for at in range(5 * WORK_ITEMS_PER_TURN)]
    request = m.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    for _ in range(5):
        wire.send(request, 9)
    assert len(begun) == 1
    world.settle()
    # At most the remains of the one before are in the queue when the next begins.
    assert len(begun) == 5
    assert max(begun) <= 1
    assert len(wire.replies()) == 5
    # Another connection does not wait.
    wire.send(request, 9)
    other = Wire(world)
    other.send(m.MetadataRequest(topics=[]), 9)
    world.settle()
    assert len(wire.replies()) == len(other.replies()) == 1


def test_requests_that_wait_for_their_turn_are_answered_although_the_client_sends_no_more(
    world: World, wire: Wire
) -> None:
    count = 3 * KAFKA_REQUESTS_PER_TURN_MAX
    request = m.ApiVersionsRequest()
    wire.feed(
        b"".join(
            codec.join(codec.encode_request(request, 0, number, "x")) for number in range(count)
        )
    )
    wire.channel.eof_received()
    world.settle()
    data, replies = wire.received(), 0
    while data:
        data = data[4 + int.from_bytes(data[:4], "big") :]
        replies += 1
    assert replies == count
    assert wire.is_closed
    assert world.budget.used == 0
