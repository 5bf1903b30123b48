"""Goal: replies leave in their order, and what a peer makes a connection hold is bounded.

Method: sessions that answer, and a transport whose peer takes bytes, on the test's command. First
ordered sessions, then matched ones, on the same pipe.
"""

from __future__ import annotations

import pytest

from dragoman.broker.broker import Broker
from dragoman.errors import RemoteProtocolError
from dragoman.framing import FrameReader, Scratch
from dragoman.limits import (
    FRAME_GROWTH_BYTES_MIN,
    READ_AHEAD_REQUESTS_MAX,
    SEND_BUFFER_BYTES_MAX,
    UNANSWERED_REQUESTS_MAX,
)
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel, Channels
from dragoman.protocols.service import Service
from dragoman.protocols.session import MatchedSession, OrderedSession, Place
from dragoman.testing.sim.scheduler import SimScheduler
from worlds.broker import FakeTransport, Pipe, World

ANSWER = bytes(SEND_BUFFER_BYTES_MAX // 2)


class Ordered(OrderedSession[Service[Broker]]):
    def __init__(self, channel: Channel, service: Service[Broker]) -> None:
        super().__init__(channel, FrameReader(1 << 20, Scratch()), service)
        self.requests: list[tuple[bytes, Place]] = []
        self.told: list[str] = []

    def may_begin(self, frame: bytearray) -> bool:
        return not (frame.startswith(b"alone") and self.has_unanswered)

    def received(self, frame: bytearray, place: Place) -> None:
        if frame == b"bad":
            raise RemoteProtocolError("bad")
        self.requests.append((bytes(frame), place))
        if frame == b"alone, at once":
            place.reply(b"!")

    def on_writable(self) -> None:
        self.told.append("writable")

    def on_closed(self) -> None:
        self.told.append("closed")


class Rig:
    def __init__(self) -> None:
        self.scheduler = SimScheduler()
        self.budget = MemoryBudget(1 << 30)
        self.service = Service(World().broker, self.budget, lambda _: ("", 0))
        self.channels = Channels(self.budget, self.scheduler)
        self.sessions: list[Ordered] = []
        self.channel = Channel(self.channels, self._make, self.scheduler)  # type: ignore[arg-type]
        self.transport = FakeTransport(lambda: self.channel.connection_lost(None), ("127.0.0.1", 1))
        self.transport.channel = self.channel
        self.channel.connection_made(self.transport)  # type: ignore[arg-type]

    def _make(self, channel: Channel) -> Ordered:
        self.sessions.append(Ordered(channel, self.service))
        return self.sessions[0]

    @property
    def session(self) -> Ordered:
        return self.sessions[0]

    def ask(self, *requests: bytes) -> list[Place]:
        for each in requests:
            data = len(each).to_bytes(4, "big") + each
            self.channel.get_buffer(-1)[: len(data)] = data
            self.channel.buffer_updated(len(data))
        return [place for _, place in self.session.requests]

    def sent(self) -> bytes:
        self.scheduler.run_ready()
        return bytes(self.transport.sent)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_replies_leave_in_the_order_of_the_requests(rig: Rig) -> None:
    first, second, third = rig.ask(b"1", b"2", b"3")
    third.reply(b"c")
    second.reply(b"b", b"b")
    assert rig.sent() == b""
    first.reply(b"a")
    assert rig.sent() == b"abbc"
    assert rig.budget.used == 0


def test_a_request_may_have_no_reply_and_only_one(rig: Rig) -> None:
    first, second = rig.ask(b"1", b"2")
    first.reply()
    second.reply(b"b")
    second.reply(b"again")
    assert rig.sent() == b"b"


def test_pushes_pass_replies_that_are_not_ready(rig: Rig) -> None:
    (first,) = rig.ask(b"1")
    rig.session.push(b"p")
    assert rig.sent() == b"p"
    first.reply(b"a")
    assert rig.sent() == b"pa"


def test_a_push_does_not_pass_a_reply_that_was_ready_before_it(rig: Rig) -> None:
    first, second = rig.ask(b"1", b"2")
    first.reply(b"a")
    rig.session.push(b"p")
    second.reply(b"b")
    assert rig.sent() == b"apb"


def test_replies_that_are_ready_leave_before_the_connection_closes(rig: Rig) -> None:
    first, _ = rig.ask(b"1", b"2")
    first.reply(b"a")
    rig.ask(b"bad")
    assert rig.transport.is_closed
    assert rig.transport.sent == b"a"


def test_answers_that_fill_a_buffer_do_not_wait_for_the_turns_end(rig: Rig) -> None:
    rig.transport.is_stuck = True
    first, second = rig.ask(b"1", b"2")
    first.reply(bytes(SEND_BUFFER_BYTES_MAX + 1))
    assert not rig.session.can_send
    second.reply(b"b")
    rig.transport.is_stuck = False
    rig.transport.take()
    assert rig.sent() == bytes(SEND_BUFFER_BYTES_MAX + 1) + b"b"
    assert rig.budget.used == 0


def test_reading_stops_at_the_bound_and_goes_on(rig: Rig) -> None:
    places = rig.ask(*[b"x"] * (READ_AHEAD_REQUESTS_MAX + 1))
    assert not rig.transport.is_reading
    for place in places:
        place.reply(b".")
    rig.scheduler.run_ready()
    assert rig.transport.is_reading


def test_requests_wait_while_the_peer_takes_nothing(rig: Rig) -> None:
    rig.transport.is_stuck = True
    (first,) = rig.ask(b"1")
    first.reply(bytes(SEND_BUFFER_BYTES_MAX + 1))
    rig.scheduler.run_ready()
    assert not rig.session.can_send
    rig.ask(b"2")
    assert len(rig.session.requests) == 1
    rig.transport.take()
    assert [each for each, _ in rig.session.requests] == [b"1", b"2"]
    assert rig.session.told == ["writable"]
    assert rig.session.can_send


def test_what_the_protocol_forbids_closes(rig: Rig) -> None:
    rig.ask(b"bad")
    assert rig.transport.is_closed


def test_answers_for_a_connection_that_is_gone_are_dropped(rig: Rig) -> None:
    (first,) = rig.ask(b"1")
    rig.channel.connection_lost(None)
    assert rig.session.told == ["closed"]
    first.reply(b"late")
    assert rig.sent() == b""
    assert rig.budget.used == 0


def test_half_a_frame_is_released_with_its_connection(rig: Rig) -> None:
    start = (1 << 20).to_bytes(4, "big") + b"half"
    rig.channel.get_buffer(-1)[: len(start)] = start
    rig.channel.buffer_updated(len(start))
    assert rig.session.pending_bytes == rig.budget.used == len(b"half")
    rig.channel.get_buffer(-1)
    assert rig.session.pending_bytes == rig.budget.used == 4 + FRAME_GROWTH_BYTES_MIN
    rig.channel.connection_lost(None)
    assert rig.session.pending_bytes == rig.budget.used == 0


def test_a_request_may_wait_for_those_before_it(rig: Rig) -> None:
    rig.ask(b"1", b"2", b"alone", b"3")
    (_, first), (_, second) = rig.session.requests
    first.reply(b"a")
    rig.scheduler.run_ready()
    assert len(rig.session.requests) == 2
    second.reply(b"b")
    rig.scheduler.run_ready()
    assert [each for each, _ in rig.session.requests] == [b"1", b"2", b"alone", b"3"]


def test_many_that_are_answered_at_once_after_waiting(rig: Rig) -> None:
    rig.ask(b"1", *[b"alone, at once"] * READ_AHEAD_REQUESTS_MAX)
    assert not rig.transport.is_reading
    rig.session.requests[0][1].reply(b"a")
    assert rig.sent() == b"a" + b"!" * READ_AHEAD_REQUESTS_MAX
    assert rig.transport.is_reading


def test_what_is_forbidden_closes_also_when_it_had_to_wait(rig: Rig) -> None:
    rig.ask(b"1", b"alone", b"bad")
    rig.session.requests[0][1].reply(b"a")
    assert rig.sent() == b"a"
    assert rig.transport.is_closed


def test_what_came_behind_a_forbidden_request_holds_no_memory(rig: Rig) -> None:
    rig.transport.is_stuck = True
    (first,) = rig.ask(b"1")
    first.reply(bytes(100))
    requests = b"".join(len(each).to_bytes(4, "big") + each for each in (b"2", b"bad", bytes(50)))
    rig.channel.get_buffer(-1)[: len(requests)] = requests
    rig.channel.buffer_updated(len(requests))
    assert rig.transport.is_closed
    assert rig.budget.used == len(b"2") + len(b"bad"), "what has begun waits for the end"
    rig.transport.take()
    rig.channel.connection_lost(None)
    assert rig.budget.used == 0


def test_replies_that_wait_for_an_earlier_one_count_as_memory(rig: Rig) -> None:
    first, second = rig.ask(b"1", b"2")
    second.reply(bytes(1000))
    assert rig.budget.used == 1002
    first.reply(b"a")
    rig.scheduler.run_ready()
    assert rig.budget.used == 0


# ---- matched


class Matched(MatchedSession[Service[Broker]]):
    """Answers each frame at once with much, unless a test holds it."""

    def __init__(self, channel: Channel, world: World) -> None:
        super().__init__(channel, FrameReader(1 << 20, Scratch()), world.service)
        self.begun_frames: list[bytes] = []
        self.waits = False
        self.was_writable = 0

    def received(self, frame: bytearray) -> None:
        if frame == b"bad":
            raise RemoteProtocolError("for the test")
        self.begun_frames.append(bytes(frame))
        self.begun(len(frame))
        if not self.waits:
            self.answer(len(frame))

    def answer(self, size: int) -> None:
        self.finished(size)
        self.send(ANSWER)

    def on_writable(self) -> None:
        self.was_writable += 1


class Peer(Pipe):
    def __init__(self, world: World) -> None:
        self.made: list[Matched] = []

        def session(channel: Channel) -> Matched:
            self.made.append(Matched(channel, world))
            return self.made[-1]

        super().__init__(world, session)

    @property
    def session(self) -> Matched:
        return self.made[0]

    def tell(self, *texts: bytes) -> None:
        self.feed(b"".join(len(each).to_bytes(4, "big") + each for each in texts))
        self.world.settle()


@pytest.fixture
def peer() -> Peer:
    return Peer(World())


def test_requests_begin_as_they_arrive(peer: Peer) -> None:
    peer.tell(b"a", b"b", b"c")
    assert peer.session.begun_frames == [b"a", b"b", b"c"]
    assert len(peer.received()) == 3 * len(ANSWER)
    assert peer.world.budget.used == 0


def test_matched_requests_wait_while_the_peer_takes_nothing(peer: Peer) -> None:
    peer.transport.is_stuck = True
    texts = [b"%d" % number for number in range(100)]
    peer.tell(*texts)
    begun = len(peer.session.begun_frames)
    assert 0 < begun < 5
    assert not peer.transport.is_reading
    waiting = sum(map(len, texts[begun:]))
    assert peer.session.waiting_bytes == waiting
    peer.transport.take()
    peer.world.settle()
    assert begun < len(peer.session.begun_frames) < 10, "until it is stuck again"
    peer.transport.is_stuck = False
    peer.transport.take()
    peer.world.settle()
    assert peer.session.begun_frames == texts
    assert peer.session.was_writable
    assert peer.transport.is_reading
    assert peer.world.budget.used == 0


def test_what_waits_goes_with_the_connection(peer: Peer) -> None:
    peer.transport.is_stuck = True
    peer.tell(*(b"%d" % number for number in range(100)))
    begun = len(peer.session.begun_frames)
    peer.lose()
    assert len(peer.session.begun_frames) == begun
    assert peer.world.budget.used == 0


def test_bad_frame_that_has_waited_ends_the_connection(peer: Peer) -> None:
    peer.transport.is_stuck = True
    peer.tell(b"a", b"b", b"c", b"d", b"bad", b"e")
    assert not peer.is_closed
    peer.transport.is_stuck = False
    peer.transport.take()
    peer.world.settle()
    assert peer.is_closed
    assert b"e" not in peer.session.begun_frames


def test_bad_frame_ends_the_connection(peer: Peer) -> None:
    peer.tell(b"a", b"bad", b"e")
    assert peer.is_closed
    assert peer.session.begun_frames == [b"a"]


def test_peer_with_many_unanswered_requests_is_not_read(peer: Peer) -> None:
    session = peer.session
    session.waits = True
    peer.tell(*([b"x"] * UNANSWERED_REQUESTS_MAX))
    assert peer.transport.is_reading
    peer.tell(b"x")
    assert not peer.transport.is_reading
    assert peer.world.budget.used == UNANSWERED_REQUESTS_MAX + 1
    for _ in range(UNANSWERED_REQUESTS_MAX // 2 + 1):
        session.answer(1)
    assert peer.transport.is_reading
    peer.lose()
    assert peer.world.budget.used == 0
    session.answer(1)
    assert peer.world.budget.used == 0
