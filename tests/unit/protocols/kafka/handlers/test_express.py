"""Goal: requests like earlier ones take the express; whatever changes takes them off it again."""

from __future__ import annotations

import random

import pytest

from dragoman.limits import KAFKA_PRODUCE_ROUTES_MAX, READ_AHEAD_REQUESTS_MAX
from dragoman.log.store import Durability
from dragoman.outcome import start
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers import express, produce
from dragoman.testing.memory import MemoryDisk
from dragoman.types import Buffer
from worlds.broker import Outcome, Wire, World, batch_of, only_produced, produce_request


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[m.ProduceRequest]:
    """The requests that took the ordinary way."""
    seen: list[m.ProduceRequest] = []
    start = produce._Produce.start

    def spy(self: produce._Produce) -> None:
        seen.append(self._request)
        start(self)

    monkeypatch.setattr(produce._Produce, "start", spy)
    return seen


def ask(wire: Wire, topic: str = "t", batch: Buffer | None = None, **more: int) -> tuple[int, int]:
    """Error code and base offset."""
    request = produce_request(topic, batch or batch_of(b"v"), **more)
    part = only_produced(wire.ask(request, 9, m.ProduceResponse))
    return part.error_code, part.base_offset


def answers(wire: Wire) -> list[tuple[int, int]]:
    parts = []
    for reply in wire.replies():
        assert isinstance(reply.message, m.ProduceResponse)
        part = only_produced(reply.message)
        parts.append((part.error_code, part.base_offset))
    return parts


def test_only_the_first_request_of_a_kind_is_decoded(
    world: World, wire: Wire, ordinary: list[m.ProduceRequest]
) -> None:
    world.create("t", 2)
    world.create("another")
    for number in range(5):
        assert ask(wire) == (0, number)
        assert ask(wire, partition=1) == (0, number)
        assert ask(wire, "another") == (0, number)
    assert len(ordinary) == 3


def test_a_turns_requests_are_answered_in_order_with_others_between_them(
    world: World, wire: Wire, ordinary: list[m.ProduceRequest]
) -> None:
    world.create("t")
    ask(wire)
    for number in range(1, 7):
        wire.send(produce_request("t", batch_of(b"%d" % number)), 9)
        if number == 3:
            wire.send(produce_request("t", batch_of(b"bad")[:-1]), 9)
            wire.send(m.MetadataRequest(topics=None), 9)
    world.settle()
    replies = [reply.message for reply in wire.replies()]
    assert isinstance(replies.pop(4), m.MetadataResponse)
    found = [only_produced(each) for each in replies if isinstance(each, m.ProduceResponse)]
    assert [each.error_code for each in found] == [0, 0, 0, ErrorCode.CORRUPT_MESSAGE, 0, 0, 0]
    assert [each.base_offset for each in found] == [1, 2, 3, -1, 4, 5, 6]
    assert len(ordinary) == 2, "the first and the bad one"


def test_a_deleted_topic_is_not_written_to(
    world: World, wire: Wire, ordinary: list[m.ProduceRequest]
) -> None:
    (replica,) = world.create("t")
    ask(wire)
    assert ask(wire) == (0, 1)
    outcome = Outcome()
    start(world.broker.topics.delete("t")).then(outcome)
    world.settle()
    assert ask(wire) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    (again,) = world.create("t")
    assert ask(wire) == (0, 0)
    assert (replica.log.log_end_offset, again.log.log_end_offset) == (2, 1)
    assert len(ordinary) == 3


def test_a_changed_configuration_holds_at_once(world: World, wire: Wire) -> None:
    world.create("t")
    large = batch_of(b"x" * 2000)
    ask(wire)
    assert ask(wire, batch=large) == (0, 1)
    outcome = Outcome()
    start(world.broker.topics.change_config("t", {"max.message.bytes": "1000"})).then(outcome)
    world.settle()
    assert outcome.error is None
    assert ask(wire, batch=large) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert ask(wire) == (0, 2)


def test_deletion_fails_waiting_requests_of_that_topic_alone() -> None:
    world = World(durability=Durability.FSYNC)
    wire = Wire(world)
    world.create("t")
    world.create("other")
    ask(wire)
    ask(wire, "other")
    wire.send(produce_request("t", batch_of(b"v")), 9)
    wire.send(produce_request("other", batch_of(b"v")), 9)
    replica = world.broker.partitions.find("t", 0)
    replica.fail_waiters(produce.InvalidRecord("gone"))
    world.settle()
    assert answers(wire) == [(ErrorCode.INVALID_RECORD, -1), (0, 1)]


def test_what_had_failed_is_not_there_because_others_have_written_since(
    world: World, wire: Wire
) -> None:
    """A leader that follows by now has records of the new leader where its own were."""
    world.create("t")
    ask(wire)
    replica = world.broker.partitions.find("t", 0)
    session = wire.channel._session
    route = next(iter(session._express._routes.values()))
    run = express.Run(session, [(route, 7, 1)], 0)
    run.wait({replica: 2})
    replica.fail_waiters(produce.InvalidRecord("another node leads"))
    replica.log.stable_end = replica.log.high_watermark = 5
    (reply,) = run.take_reply() or []
    assert ErrorCode.INVALID_RECORD.to_bytes(2, "big") in bytes(reply)


def test_on_a_full_disk_each_is_refused() -> None:
    world = World(disk=MemoryDisk((1 << 20) + (96 << 10)), durability=Durability.OS)
    wire = Wire(world)
    world.create("t")
    ask(wire)
    for _ in range(3):
        wire.send(produce_request("t", batch_of(b"v" * (60 << 10))), 9)
    world.settle()
    assert answers(wire) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 3


def test_a_lost_connection_leaves_nothing_behind(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    ask(wire)
    for _ in range(3):
        wire.send(produce_request("t", batch_of(b"v")), 9)
    assert world.budget.used > 0
    wire.lose()
    assert world.budget.used == 0
    world.settle()
    assert replica.log.high_watermark == 4


def test_reading_ahead_is_bounded_by_requests_not_by_reads() -> None:
    world = World(durability=Durability.FSYNC)
    wire = Wire(world)
    world.create("t")
    ask(wire)
    request = produce_request("t", batch_of(b"v"))
    for _ in range(READ_AHEAD_REQUESTS_MAX):
        wire.send(request, 9)
    assert wire.transport.is_reading
    wire.send(request, 9)
    assert not wire.transport.is_reading
    world.settle()
    assert wire.transport.is_reading
    assert len(answers(wire)) == READ_AHEAD_REQUESTS_MAX + 1


def test_routes_are_bounded(world: World, wire: Wire) -> None:
    partitions = KAFKA_PRODUCE_ROUTES_MAX + 10
    world.create("t", partitions)
    for index in (*range(partitions), 0, partitions - 1):
        ask(wire, partition=index)
    routes = wire.channel._session._express._routes  # type: ignore[union-attr]
    assert 10 <= len(routes) <= KAFKA_PRODUCE_ROUTES_MAX


def test_topic_names_of_many_lengths(
    world: World, wire: Wire, ordinary: list[m.ProduceRequest]
) -> None:
    names = ["t" * length for length in range(1, express._ENDS_MAX + 5)]
    for name in names:
        world.create(name)
    for offset in range(3):
        for name in names:
            assert ask(wire, name) == (0, offset)
    assert len(ordinary) > len(names)


@pytest.mark.parametrize("version", [5, 8, 9, 12])
def test_a_mutated_request_is_answered_as_on_another_connection(version: int) -> None:
    rng = random.Random(version)
    worlds = World(), World()
    for world in worlds:
        world.create("t")
    request = produce_request("t", batch_of(b"v" * 130))
    frame = codec.join(codec.encode_request(request, version, 0, "test"))
    for _ in range(400):
        mutated = bytearray(frame)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(4, 110)] = rng.choice((0, 1, 2, 127, 128, 255))
        outcomes = []
        for world, is_same in zip(worlds, (True, False), strict=True):
            first = Wire(world)
            first.feed(frame)
            world.settle()
            second = first if is_same else Wire(world)
            second.transport.sent.clear()
            second.feed(mutated)
            world.settle()
            outcomes.append((second.is_closed, bytes(second.transport.sent)))
        assert outcomes[0] == outcomes[1]
