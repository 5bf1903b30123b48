"""Goal: a channel reads only while it may, and its bytes are in the budget until they are gone.

Method: a session that records, and a transport whose peer takes bytes on the test's command.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import pytest

from dragoman.errors import RemoteProtocolError
from dragoman.limits import (
    CLOSE_DELIVERY_S,
    ENDED_GRACE_S,
    SEND_BUFFER_BYTES_MAX,
    SHORT_READ_BYTES_MAX,
)
from dragoman.net.admission import (
    ConnectionCaps,
    ConnectionCount,
    DescriptorShare,
    MemoryBudget,
)
from dragoman.net.channel import Channel, Channels, Reason
from dragoman.testing.sim.scheduler import SimScheduler
from worlds.broker import FakeTransport


class Recorder:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.pending_bytes = 0
        self.received: list[int] = []
        self.hints: list[int] = []
        self.largest = 100
        self.writable_calls = 0
        self.closed_calls = 0
        self.ended_calls = 0
        self.is_due = False
        self.error: Exception | None = None

    def get_buffer(self, size_hint: int) -> memoryview:
        self.hints.append(size_hint)
        return memoryview(bytearray(self.largest))

    def buffer_updated(self, count: int) -> None:
        self.received.append(count)
        if self.error is not None:
            raise self.error

    def writable(self) -> None:
        self.writable_calls += 1

    def ended(self) -> None:
        self.ended_calls += 1

    def closed(self) -> None:
        self.closed_calls += 1


class Rig:
    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self.scheduler = SimScheduler()
        self.budget = budget if budget is not None else MemoryBudget(1000)
        self.channels = Channels(self.budget, self.scheduler)
        self.channel, self.session, self.transport = self.connect()

    def connect(
        self,
        channels: Channels | None = None,
        peer: str = "10.0.0.9",
        connected: socket.socket | None = None,
    ) -> tuple[Channel, Recorder, FakeTransport]:
        sessions: list[Recorder] = []

        def make(channel: Channel) -> Recorder:
            sessions.append(Recorder(channel))
            return sessions[0]

        channel = Channel(channels or self.channels, make, self.scheduler)  # type: ignore[arg-type]
        transport = FakeTransport(lambda: channel.connection_lost(None), ("127.0.0.1", 9092), peer)
        transport.channel = channel
        transport.connected = connected
        channel.connection_made(transport)  # type: ignore[arg-type]
        return channel, sessions[0] if sessions else Recorder(channel), transport


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_addresses_and_counters(rig: Rig) -> None:
    assert rig.channel.local_address == ("127.0.0.1", 9092)
    assert rig.channel.peer_address == ("10.0.0.9", 5)
    rig.connect()
    assert (rig.channels.accepted, len(rig.channels.open)) == (2, 2)
    rig.channel.buffer_updated(7)
    rig.channel.send([b"abc", b"de"])
    rig.channel.send([b"f"])
    assert not rig.transport.sent
    rig.scheduler.advance(0.0)
    assert (rig.channels.bytes_in, rig.channels.bytes_out) == (7, 6)
    assert rig.transport.sent == b"abcdef"


def test_large_replies_are_not_joined_but_all_arrive_in_order(rig: Rig) -> None:
    pieces = [bytes([index]) * 9000 for index in range(5)]
    rig.channel.send(list(pieces))
    rig.scheduler.advance(0.0)
    assert rig.transport.sent == b"".join(pieces)


def test_forbidden_bytes_close_the_connection_and_say_why(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.session.error = RemoteProtocolError("not my protocol")
    with caplog.at_level(logging.INFO, "dragoman.net"):
        rig.channel.buffer_updated(5)
    assert rig.transport.is_closed
    assert "closing 10.0.0.9:5: not my protocol" in caplog.text
    rig.channel.buffer_updated(5)
    assert rig.session.received == [5]


def test_closing_hands_the_session_its_end_once(rig: Rig) -> None:
    rig.channel.close()
    rig.channel.close()
    rig.channel.send([b"too late"])
    assert rig.session.closed_calls == 1
    assert not rig.channels.open
    assert not rig.transport.sent


def test_close_waits_for_the_peer_and_abort_does_not(rig: Rig) -> None:
    rig.transport.is_stuck = True
    rig.channel.send([b"reply"])
    rig.channel.close()
    assert rig.session.closed_calls == 0
    rig.transport.unsent.clear()
    rig.channel.abort()
    assert rig.session.closed_calls == 1


def test_peer_that_sends_no_more_and_wants_nothing_is_closed(rig: Rig) -> None:
    rig.channel.send([b"reply"])
    assert rig.channel.eof_received()
    assert rig.session.ended_calls == 1
    assert (rig.transport.is_closed, bytes(rig.transport.sent)) == (True, b"reply")
    assert not rig.channel.eof_received()


def test_peer_that_sends_no_more_is_answered_and_then_closed(rig: Rig) -> None:
    rig.session.is_due = True
    assert rig.channel.eof_received()
    rig.channel.close_if_answered()
    # Reading is over: there is nothing to stop or to resume.
    rig.channel.pause(Reason.READ_AHEAD)
    rig.channel.unpause(Reason.READ_AHEAD)
    assert rig.channel.eof_received(), "some loops say it again"
    assert rig.session.ended_calls == 1
    assert not rig.transport.is_closed
    rig.channel.send([b"reply"])
    rig.session.is_due = False
    rig.channel.close_if_answered()
    assert (rig.transport.is_closed, bytes(rig.transport.sent)) == (True, b"reply")
    rig.scheduler.advance(10 * ENDED_GRACE_S)


def test_what_is_not_answered_in_time_is_dropped(rig: Rig) -> None:
    rig.session.is_due = True
    rig.channel.eof_received()
    rig.scheduler.advance(ENDED_GRACE_S)
    assert rig.transport.is_closed
    assert rig.session.closed_calls == 1


def test_replies_that_are_not_taken_in_time_are_dropped(rig: Rig) -> None:
    rig.transport.is_stuck = True
    rig.session.is_due = True
    rig.channel.send([b"reply"])
    rig.channel.eof_received()
    rig.scheduler.advance(ENDED_GRACE_S)
    assert rig.session.closed_calls == 0, "the peer may take it still"
    rig.scheduler.advance(CLOSE_DELIVERY_S)
    assert rig.session.closed_calls == 1


@pytest.mark.parametrize("ends", [Channel.close, Channel.eof_received])
def test_peer_that_takes_nothing_cannot_keep_a_closed_connection(
    rig: Rig, ends: Callable[[Channel], object]
) -> None:
    rig.transport.is_stuck = True
    rig.channel.send([bytes(2 * SEND_BUFFER_BYTES_MAX)])
    ends(rig.channel)
    assert rig.budget.used == 2 * SEND_BUFFER_BYTES_MAX
    for _ in range(3):
        rig.scheduler.advance(CLOSE_DELIVERY_S - 1)
        assert rig.session.closed_calls == 0, "it takes some, however slowly"
        del rig.transport.unsent[:1000]
    rig.scheduler.advance(2 * CLOSE_DELIVERY_S)
    assert (rig.session.closed_calls, rig.budget.used, len(rig.channels.open)) == (1, 0, 0)


# ---- reasons not to read


def test_reading_goes_on_only_when_no_reason_is_left(rig: Rig) -> None:
    rig.channel.pause(Reason.READ_AHEAD)
    rig.channel.pause(Reason.NO_MEMORY)
    assert not rig.transport.is_reading
    rig.channel.unpause(Reason.READ_AHEAD)
    assert not rig.transport.is_reading
    rig.channel.unpause(Reason.READ_AHEAD)
    rig.channel.unpause(Reason.NO_MEMORY)
    assert rig.transport.is_reading
    rig.channel.unpause(Reason.NO_MEMORY)


def test_closed_channel_does_not_read_on(rig: Rig) -> None:
    rig.transport.is_stuck = True
    rig.channel.send([b"x"])
    rig.channel.pause(Reason.READ_AHEAD)
    rig.channel.close()
    rig.channel.unpause(Reason.READ_AHEAD)
    assert not rig.transport.is_reading


def test_slow_peer_stops_reading_until_it_takes_its_replies(rig: Rig) -> None:
    rig.transport.is_stuck = True
    rig.channel.send([bytes(SEND_BUFFER_BYTES_MAX)])
    assert rig.channel.is_writable
    assert rig.transport.is_reading
    rig.channel.send([b"x"])
    rig.scheduler.advance(0.0)
    assert not rig.channel.is_writable
    assert not rig.transport.is_reading
    rig.transport.take()
    assert rig.transport.is_reading
    assert rig.session.writable_calls == 1


def test_replies_that_are_not_taken_are_in_the_budget(rig: Rig) -> None:
    rig.transport.is_stuck = True
    rig.channel.send([bytes(SEND_BUFFER_BYTES_MAX + 1)])
    rig.channel.send([bytes(500)])
    rig.scheduler.advance(0.0)
    assert rig.budget.used == SEND_BUFFER_BYTES_MAX + 501
    rig.transport.take()
    assert rig.budget.used == 0
    rig.channel.send([bytes(SEND_BUFFER_BYTES_MAX + 1)])
    rig.channel.connection_lost(None)
    assert rig.budget.used == 0


def test_message_that_is_arriving_is_in_the_budget(rig: Rig) -> None:
    rig.session.pending_bytes = 300
    rig.channel.buffer_updated(10)
    assert rig.budget.used == 300
    rig.session.pending_bytes = 700
    rig.channel.buffer_updated(10)
    assert rig.budget.used == 700
    rig.session.pending_bytes = 0
    rig.channel.buffer_updated(10)
    assert rig.budget.used == 0
    rig.session.pending_bytes = 300
    rig.channel.buffer_updated(10)
    rig.channel.connection_lost(None)
    assert rig.budget.used == 0


def test_past_the_budget_a_channel_stops_reading_until_there_is_room(rig: Rig) -> None:
    rig.budget.take(1000)
    rig.channel.buffer_updated(10)
    assert not rig.transport.is_reading
    rig.budget.give_back(1000)
    assert rig.transport.is_reading


def test_past_the_budget_a_message_that_is_arriving_may_finish(rig: Rig) -> None:
    rig.session.pending_bytes = 1500
    rig.channel.buffer_updated(10)
    assert rig.budget.is_exhausted
    assert rig.transport.is_reading
    # Another connection with nothing under way has to wait.
    other, _, transport = rig.connect()
    other.buffer_updated(10)
    assert not transport.is_reading
    rig.session.pending_bytes = 0
    rig.channel.buffer_updated(10)
    assert transport.is_reading


def test_past_the_budget_a_read_brings_little_and_is_the_last(rig: Rig) -> None:
    rig.session.largest = 1 << 20
    assert len(rig.channel.get_buffer(-1)) == 1 << 20
    rig.budget.take(750)
    assert len(rig.channel.get_buffer(-1)) == SHORT_READ_BYTES_MAX
    assert rig.session.hints[-1] == SHORT_READ_BYTES_MAX
    rig.session.pending_bytes = 10
    rig.channel.buffer_updated(10)
    assert not rig.transport.is_reading, "although its message is open"
    rig.budget.give_back(750)
    assert rig.transport.is_reading


def test_what_a_message_grows_by_is_charged_before_it_is_read(rig: Rig) -> None:
    rig.session.pending_bytes = 10
    rig.channel.buffer_updated(10)
    rig.session.pending_bytes = 500
    rig.channel.get_buffer(-1)
    assert rig.budget.used == 500


def test_those_that_work_have_memory_that_others_do_not_get(rig: Rig) -> None:
    rig.channel.send([b"an answer"])
    rig.scheduler.advance(0.0)
    new, _, transport = rig.connect()
    rig.budget.take(900)
    for channel in (rig.channel, new):
        channel.buffer_updated(10)
    assert (rig.transport.is_reading, transport.is_reading) == (True, False)
    # In the middle of a message it has a quarter more.
    rig.budget.take(300)
    rig.session.pending_bytes = 100
    rig.channel.buffer_updated(10)
    assert rig.transport.is_reading
    rig.budget.take(50)
    rig.channel.buffer_updated(10)
    assert not rig.transport.is_reading


def test_connections_are_capped_in_all_and_by_address(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caps = ConnectionCaps(in_all=5, per_address=2, overrides={"10.0.0.7": 3})
    channels = Channels(rig.budget, rig.scheduler, connections=ConnectionCount(lambda: caps))
    addresses = ["10.0.0.9"] * 3 + ["10.0.0.7"] * 4 + ["10.0.0.8"]
    made = [rig.connect(channels, address) for address in addresses]
    assert [not transport.is_closed for _, _, transport in made] == [
        *(True, True, False),
        *(True, True, True, False),
        False,
    ]
    assert (channels.accepted, channels.refused, len(channels.open)) == (8, 3, 5)
    assert "refusing 10.0.0.9:5: max.connections.per.ip is 2 for this address" in caplog.text
    assert "refusing 10.0.0.8:5: max.connections is 5" in caplog.text
    made[0][0].abort()
    assert not rig.connect(channels, "10.0.0.9")[2].is_closed


def test_connection_with_a_descriptor_that_others_need_is_closed(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    connected = socket.socket()
    number = connected.fileno()
    for most, is_refused in ((number, False), (number - 1, True)):
        share = DescriptorShare(lambda most=most: most)
        channels = Channels(rig.budget, rig.scheduler, descriptors=share)
        _, _, transport = rig.connect(channels, connected=connected)
        assert transport.is_closed == is_refused
        assert channels.refused == is_refused
    assert f"refusing 10.0.0.9:5: {number - 1} files are open" in caplog.text
    connected.close()


def test_lost_channel_does_not_wait_for_room(rig: Rig) -> None:
    rig.budget.take(1000)
    rig.channel.buffer_updated(10)
    rig.channel.connection_lost(None)
    rig.budget.give_back(1000)
    assert not rig.transport.is_reading


# ---- all channels


def test_idle_connections_are_closed_and_busy_ones_kept(rig: Rig) -> None:
    rig.scheduler.advance(10)
    _, busy, transport = rig.connect()
    rig.scheduler.advance(5)
    busy.channel.buffer_updated(1)
    rig.scheduler.advance(5)
    assert rig.channels.close_idle(before=rig.scheduler.time() - 10) == 1
    assert rig.transport.is_closed
    assert not transport.is_closed


def test_idle_connections_are_kept_where_clients_only_listen(rig: Rig) -> None:
    rig.channels.closes_idle = False
    rig.scheduler.advance(10)
    assert rig.channels.close_idle(before=rig.scheduler.time()) == 0
    assert not rig.transport.is_closed


def test_channel_that_keeps_little_unsent_stops_being_writable_early(rig: Rig) -> None:
    rig.channel.keep_unsent_small(100)
    rig.transport.is_stuck = True
    rig.channel.send([bytes(101)])
    rig.scheduler.run_ready()
    assert not rig.channel.is_writable
    rig.transport.take()
    assert rig.channel.is_writable


def test_waiter_for_the_last_connection_is_called(rig: Rig) -> None:
    emptied: list[bool] = []
    rig.channels.on_empty = lambda: emptied.append(True)
    _, _, stuck = rig.connect()
    stuck.is_stuck = True
    stuck.channel.send([b"reply"])  # type: ignore[union-attr]
    rig.channels.close_all()
    assert not emptied
    stuck.unsent.clear()
    rig.channels.abort_all()
    assert emptied == [True]
