"""Goal: memory that others wait for is taken from those who hold it and do not move, and only then.

Method: channels with sessions that hold what the test says, and virtual time.
"""

from __future__ import annotations

import logging

import pytest

from dragoman.limits import SEND_BUFFER_BYTES_MAX, STALL_LOOK_INTERVAL_S, STALL_MOVED_BYTES_MIN
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel, Channels, Reason
from dragoman.net.stalled import StalledPeers
from dragoman.testing.sim.scheduler import SimScheduler
from worlds.broker import FakeTransport

BUDGET = 100 << 20


class Holding:
    """A session that holds what a test gives it."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.waiting_bytes = 0

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(bytearray(1 << 20))

    def buffer_updated(self, count: int) -> None: ...

    def writable(self) -> None: ...

    def closed(self) -> None: ...


class Rig:
    def __init__(self) -> None:
        self.scheduler = SimScheduler()
        self.budget = MemoryBudget(BUDGET)
        self.channels = {"one": self._channels(), "other": self._channels()}
        self.stalled = StalledPeers(self.budget, self.channels, self.scheduler)
        self.stalled.watch()

    def _channels(self) -> Channels:
        return Channels(self.budget, self.scheduler)

    def connect(self, name: str = "one") -> Peer:
        return Peer(self.channels[name], self.scheduler)

    def look(self) -> None:
        self.scheduler.advance(STALL_LOOK_INTERVAL_S)


class Peer:
    def __init__(self, channels: Channels, scheduler: SimScheduler) -> None:
        self.session = Holding()
        self.channel = Channel(channels, lambda _: self.session, scheduler)  # type: ignore[arg-type]
        self.transport = FakeTransport(
            lambda: self.channel.connection_lost(None), ("127.0.0.1", 9092)
        )
        self.transport.channel = self.channel
        self.channel.connection_made(self.transport)  # type: ignore[arg-type]

    def begin_frame(self, size: int) -> None:
        self.session.pending_bytes = size
        self.send(1)

    def send(self, count: int) -> None:
        self.channel.buffer_updated(count)

    def ignore_reply(self, size: int) -> None:
        self.transport.is_stuck = True
        self.channel.send([bytes(size)])
        self.channel.hand_over()

    @property
    def is_gone(self) -> bool:
        return self.transport.is_closed


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_stalled_connection_stays_while_there_is_memory(rig: Rig) -> None:
    peer = rig.connect()
    peer.begin_frame(BUDGET - 1)
    for _ in range(5):
        rig.look()
    assert not peer.is_gone


def test_connection_stalled_in_a_frame_is_closed_so_that_others_proceed(rig: Rig) -> None:
    peer, other = rig.connect(), rig.connect("other")
    peer.begin_frame(BUDGET)
    other.send(1)
    assert not other.transport.is_reading
    rig.look()
    # It may be about to send the rest.
    assert not peer.is_gone
    rig.look()
    assert (peer.is_gone, other.is_gone) == (True, False)
    assert other.transport.is_reading
    assert rig.budget.used == 0


def test_connection_with_unread_replies_is_closed_so_that_others_proceed(rig: Rig) -> None:
    peer, other = rig.connect(), rig.connect()
    peer.ignore_reply(BUDGET)
    other.send(1)
    rig.look()
    rig.look()
    assert peer.is_gone
    assert other.transport.is_reading


def test_requests_and_replies_that_wait_for_an_earlier_one_count(rig: Rig) -> None:
    peer = rig.connect()
    peer.session.waiting_bytes = BUDGET
    rig.budget.take(BUDGET)
    rig.look()
    rig.look()
    assert peer.is_gone


def test_what_the_node_does_not_read_is_not_held_against_its_peer(rig: Rig) -> None:
    peer = rig.connect()
    peer.begin_frame(BUDGET)
    peer.channel.pause(Reason.READ_AHEAD)
    for _ in range(5):
        rig.look()
    assert not peer.is_gone


def test_connections_that_make_progress_are_kept(rig: Rig) -> None:
    sender, taker, trickler = rig.connect(), rig.connect(), rig.connect()
    sender.begin_frame(BUDGET // 2)
    taker.ignore_reply(BUDGET // 4)
    trickler.begin_frame(BUDGET // 4)
    for _ in range(5):
        rig.look()
        sender.send(STALL_MOVED_BYTES_MIN)
        del taker.transport.unsent[:STALL_MOVED_BYTES_MIN]
        trickler.send(1)
    assert (sender.is_gone, taker.is_gone, trickler.is_gone) == (False, False, True)


def test_the_largest_go_until_there_is_enough(rig: Rig) -> None:
    peers = [rig.connect() for _ in range(10)]
    for number, peer in enumerate(peers):
        peer.channel.is_working = True
        peer.begin_frame(BUDGET // 100 * (6 + number))
    rig.look()
    rig.look()
    assert [peer.is_gone for peer in peers] == [False] * 8 + [True] * 2
    assert rig.budget.missing == 0


def test_those_that_are_not_read_for_lack_of_memory_go_last_and_those_that_work_after_them(
    rig: Rig,
) -> None:
    stalled, working, new = rig.connect(), rig.connect(), rig.connect()
    working.channel.is_working = True
    percent = BUDGET // 100
    stalled.begin_frame(60 * percent)
    # What the node works on leaves no room for the others, and is then half done.
    rig.budget.take(100 * percent)
    working.begin_frame(5 * percent)
    new.begin_frame(30 * percent)
    rig.budget.give_back(55 * percent)
    assert (working.transport.is_reading, new.transport.is_reading) == (False, False)
    rig.look()
    rig.look()
    assert (stalled.is_gone, new.is_gone, working.is_gone) == (True, True, False)


def test_one_that_holds_all_that_is_left_reads_on(rig: Rig) -> None:
    """Its own memory keeps the budget used up, and it alone can change that."""
    peer = rig.connect()
    peer.begin_frame(BUDGET * 9 // 10)
    rig.budget.take(BUDGET)
    peer.send(1)
    assert not peer.transport.is_reading
    rig.budget.give_back(BUDGET)
    other = rig.connect()
    other.send(1)
    assert not other.transport.is_reading
    rig.look()
    assert peer.transport.is_reading


def test_nodes_are_not_cut_off_for_the_sake_of_clients(rig: Rig) -> None:
    rig.channels["peer"] = Channels(MemoryBudget(BUDGET), rig.scheduler)
    node, client = rig.connect("peer"), rig.connect()
    node.begin_frame(BUDGET)
    client.begin_frame(BUDGET)
    client.send(1)
    rig.look()
    rig.look()
    assert (node.is_gone, client.is_gone) == (False, True)


def test_stall_check_spares_connections_that_hold_no_memory(rig: Rig) -> None:
    quiet, small = rig.connect(), rig.connect()
    small.transport.is_stuck = True
    small.channel.send([bytes(SEND_BUFFER_BYTES_MAX // 2)])
    rig.budget.take(BUDGET)
    for _ in range(5):
        rig.look()
    assert not quiet.is_gone
    assert not small.is_gone


def test_nothing_is_looked_for_after_the_end(rig: Rig) -> None:
    peer = rig.connect()
    peer.begin_frame(BUDGET)
    rig.stalled.stop()
    for _ in range(5):
        rig.look()
    assert not peer.is_gone


def test_shortage_of_memory_is_logged_once_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.net")
    rig = Rig()
    rig.budget.take(BUDGET)
    for _ in range(3):
        rig.look()
    rig.budget.give_back(BUDGET)
    for _ in range(3):
        rig.look()
    short, room = caplog.records
    assert short.message == "memory budget exhausted: sockets are not read"
    assert vars(short)["bytes"] == BUDGET
    assert room.message == "memory budget has room again"
    assert vars(room)["ms"] == 3 * STALL_LOOK_INTERVAL_S * 1000
