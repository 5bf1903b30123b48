"""Goal: records are pushed as fast as they are taken, memory stays bounded, replies come through.

Method: a broker on virtual time, a transport that takes bytes on the test's command, and a model of
the original client: a queue of 256 records, and a connection that is not read while it is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from dragoman.broker.errors import NotLeader
from dragoman.limits import (
    PUSH_PATIENCE_COMMITTING_S,
    PUSH_PATIENCE_S,
    PUSH_PORTION_BYTES_MAX,
    PUSH_WINDOW_RECORDS,
    PUSHED_UNSENT_BYTES_MAX,
)
from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.errors import is_unasked, reader_failed
from dragoman.protocols.minibroker.handlers.session import refusal
from worlds.broker import World
from worlds.minibroker import Peer

JOIN = m.SubscribeGroup(topic="t", group="g")
FROM_START = m.SubscribeOffset(topic="t", partition=1, offset=0)


def fill(peer: Peer, count: int, payload: bytes = b"v") -> None:
    """Records of partition 1."""
    peer.publish("t", *[payload] * count, key=b"k1")


def test_peer_that_takes_nothing_costs_little(connect: Callable[[], Peer], world: World) -> None:
    writer, slow = connect(), connect()
    for _ in range(30):
        fill(writer, 10, bytes(10_000))
    slow.transport.is_stuck = True
    slow.send(FROM_START)
    world.settle()
    assert len(slow.transport.unsent) <= PUSHED_UNSENT_BYTES_MAX + PUSH_PORTION_BYTES_MAX + 11_000
    fill(writer, 10, bytes(10_000))
    before = len(slow.transport.unsent)
    world.settle()
    assert len(slow.transport.unsent) == before
    slow.transport.is_stuck = False
    slow.transport.take()
    assert [each.offset for each in slow.deliveries()] == list(range(310))
    assert world.budget.used == 0


def test_taking_in_small_steps_loses_and_repeats_nothing(
    connect: Callable[[], Peer], world: World
) -> None:
    writer, slow = connect(), connect()
    for _ in range(20):
        fill(writer, 20, bytes(1000))
    slow.transport.is_stuck = True
    slow.send(FROM_START)
    for _ in range(20):
        world.settle()
        slow.transport.take()
    assert [each.offset for each in slow.deliveries()] == list(range(400))


def test_partitions_are_served_in_turns(connect: Callable[[], Peer], world: World) -> None:
    writer, reader = connect(), connect()
    writer.publish("t", *[bytes(20_000)] * 40)
    reader.send(JOIN)
    pushed = [each.partition for each in reader.deliveries()]
    assert len(pushed) == 40
    assert set(pushed[:16]) == {0, 1, 2, 3}


def test_record_larger_than_all_bounds_is_pushed(peer: Peer) -> None:
    fill(peer, 1, bytes(500_000))
    fill(peer, 1)
    peer.send(FROM_START)
    assert [len(each.payload) for each in peer.deliveries()] == [500_000, 1]


def test_requests_of_a_peer_that_takes_nothing_wait(peer: Peer, world: World) -> None:
    for _ in range(20):
        fill(peer, 1, bytes(30_000))
    peer.transport.is_stuck = True
    peer.send(FROM_START)
    world.settle()
    peer.send(m.Publish(topic="t", payload=b"late"))
    world.settle()
    assert world.broker.partitions.find("t", 0).log.log_end_offset == 0
    peer.transport.take()
    world.settle()
    assert world.broker.partitions.find("t", 0).log.log_end_offset == 1


def test_reply_comes_before_the_records_that_are_not_sent_yet(peer: Peer, world: World) -> None:
    for _ in range(100):
        fill(peer, 1, bytes(30_000))
    peer.transport.is_stuck = True
    peer.send(FROM_START)
    world.settle()
    peer.send(m.Publish(topic="t", payload=b""))
    for _ in range(200):
        peer.transport.take()
        world.settle()
    events = peer.events()
    (at,) = [index for index, each in enumerate(events) if isinstance(each, m.Published)]
    assert at <= 1 + 2 * (PUSHED_UNSENT_BYTES_MAX + PUSH_PORTION_BYTES_MAX) // 30_000
    assert len(events) == 102


def test_assignments_do_not_pile_up_for_a_peer_that_takes_nothing(
    connect: Callable[[], Peer], world: World
) -> None:
    slow, others = connect(), [connect() for _ in range(3)]
    for _ in range(20):
        slow.publish("t", bytes(30_000))
    slow.transport.is_stuck = True
    slow.send(JOIN)
    world.settle()
    for _ in range(50):
        for each in others:
            each.send(JOIN)
            each.events()
        for each in others:
            each.send(m.Unsubscribe(topic="t"))
            each.events()
    slow.transport.is_stuck = False
    slow.transport.take()
    told = [each for each in slow.events() if isinstance(each, m.Rebalanced)]
    assert [each.partitions for each in told] == [(0, 1, 2, 3)]


# ---- the original client


class Original:
    """Reads while its queue of 256 has room; its handler works record by record."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._unread: deque[m.Message] = deque()
        self.queue: deque[m.Delivered] = deque()
        self.handled: list[int] = []

    def read(self) -> m.Message | None:
        """Read until a reply comes or the queue is full."""
        self._unread.extend(self._peer.events())
        while self._unread:
            if isinstance(self._unread[0], m.Delivered):
                if len(self.queue) == 256:
                    return None
                self.queue.append(self._unread.popleft())  # type: ignore[arg-type]
            else:
                return self._unread.popleft()
        return None

    def request(self, request: m.Request) -> None:
        self._peer.send(request)
        while (reply := self.read()) is not None:
            if not isinstance(reply, m.Rebalanced):
                return
        raise AssertionError("deadlock: the reply is behind records that are not read")

    def handle(self, count: int, commit_every: int) -> None:
        for _ in range(count):
            self.read()
            record = self.queue.popleft()
            self.handled.append(record.offset)
            if len(self.handled) % commit_every == 0:
                self.request(m.Commit(topic="t", group="g", partition=1, offset=record.offset + 1))


@pytest.mark.parametrize("commit_every", [1, 7, 100, 200])
def test_handler_that_commits_does_not_deadlock(peer: Peer, commit_every: int) -> None:
    for _ in range(5):
        fill(peer, 400)
    original = Original(peer)
    original.request(JOIN)
    original.handle(2000, commit_every)
    assert original.handled == list(range(2000))


def test_slow_handler_of_a_group_that_commits_does_not_deadlock(peer: Peer, world: World) -> None:
    for _ in range(5):
        fill(peer, 400)
    peer.ask(m.Commit(topic="t", group="g", partition=0, offset=0))
    original = Original(peer)
    original.request(JOIN)
    for _ in range(3):
        original.read()
        world.advance(5)
        original.request(m.Heartbeat(topic="t", group="g"))
        original.handle(1, 1)


def test_members_that_never_commit_are_held_back_for_moments_only(peer: Peer, world: World) -> None:
    for _ in range(50):
        fill(peer, 400)
    peer.send(JOIN)
    received = [len(peer.deliveries())]
    assert received == [PUSH_WINDOW_RECORDS]
    while sum(received) < 20_000:
        world.advance(PUSH_PATIENCE_S)
        peer.send(m.Heartbeat(topic="t", group="g"))
        received.append(len(peer.deliveries()))
    assert len(received) <= 5


def test_member_that_commits_rarely_is_given_what_it_needs(peer: Peer, world: World) -> None:
    for _ in range(20):
        fill(peer, 400)
    peer.send(JOIN)
    seen: list[int] = []
    pauses = 0
    for goal in range(1000, 8001, 1000):
        while len(seen) < goal:
            new = [each.offset for each in peer.deliveries()]
            if not new:
                pauses += 1
                world.advance(PUSH_PATIENCE_S)
            seen += new
        peer.send(m.Commit(topic="t", group="g", partition=1, offset=goal))
    assert seen[:8000] == list(range(8000))
    assert pauses <= 3


def test_member_that_stops_committing_is_not_held_back_for_ever(peer: Peer, world: World) -> None:
    for _ in range(3):
        fill(peer, 400)
    peer.send(JOIN)
    assert len(peer.deliveries()) == PUSH_WINDOW_RECORDS
    peer.send(m.Commit(topic="t", group="g", partition=1, offset=1))
    assert len(peer.deliveries()) == 2
    world.advance(PUSH_PATIENCE_S)
    assert peer.deliveries() == []
    world.advance(PUSH_PATIENCE_COMMITTING_S)
    assert len(peer.deliveries()) > PUSH_WINDOW_RECORDS


def test_partitions_that_are_taken_away_make_room(connect: Callable[[], Peer]) -> None:
    first, second = connect(), connect()
    first.publish("t", *[b"v"] * 400)
    first.send(JOIN)
    received = first.deliveries()
    assert len(received) == PUSH_WINDOW_RECORDS
    lost = sum(1 for each in received if each.partition in (1, 3))
    assert lost
    second.send(JOIN)
    second.events()
    assert len(first.deliveries()) == min(lost, 200 - (len(received) - lost))


# ---- what goes wrong


def test_leader_elsewhere_is_said_in_the_words_that_clients_look_for() -> None:
    error = NotLeader("node 2 leads t-0", 2)
    told = codec.decode_failure(refusal(error, lambda _: None)[4:])
    assert told == m.Failed(reason="not leader; leader=")
    told = codec.decode_failure(refusal(error, lambda node: ("there", 4220 + node))[4:])
    assert told == m.Failed(reason="not leader; leader=there:4222")


def test_reader_error_has_the_documented_form() -> None:
    text = reader_failed("seg", 0, "offset 0 out of range (oldest=3)")
    frame = codec.encode(m.Failed(reason=text))
    assert frame.hex() == (
        "0000003211002f69746572617465207365672f303a206f66667365742030206f7574206f662072616e"
        "676520286f6c646573743d3329"
    )
    assert is_unasked(text)


def test_connection_that_is_lost_stops_its_readers(peer: Peer, world: World) -> None:
    fill(peer, 1)
    peer.send(m.SubscribeHead(topic="t", partition=1))
    peer.events()
    assert world.broker.partitions.find("t", 1).parked
    peer.lose()
    assert not world.broker.partitions.find("t", 1).parked
