"""Goal: a connection whose replies come in any order takes bounded memory of what a peer does.

Method: a session that answers as the test says, on a channel whose peer takes data or does not.
"""

from __future__ import annotations

import pytest

from dragoman.errors import RemoteProtocolError
from dragoman.framing import FrameReader, Scratch
from dragoman.limits import SEND_BUFFER_BYTES_MAX, UNANSWERED_REQUESTS_MAX
from dragoman.net.channel import Channel
from dragoman.net.matched import MatchedSession
from worlds.broker import Pipe, World

ANSWER = bytes(SEND_BUFFER_BYTES_MAX // 2)


class Answering(MatchedSession):
    """Answers each frame at once with much, unless it is told to wait."""

    def __init__(self, channel: Channel, world: World) -> None:
        super().__init__(channel, FrameReader(1 << 20, Scratch()), world.budget)
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
        self.made: list[Answering] = []

        def session(channel: Channel) -> Answering:
            self.made.append(Answering(channel, world))
            return self.made[-1]

        super().__init__(world, session)

    @property
    def session(self) -> Answering:
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


def test_requests_wait_while_the_peer_takes_nothing(peer: Peer) -> None:
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
