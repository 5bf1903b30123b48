"""Goal: a connection to `any` gets the session of its protocol, with every byte it has sent.

Method: the routing session on a fake transport and virtual time, with sessions that remember what
they were given; then real ones of a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import pytest

from dragoman.broker.broker import Broker
from dragoman.framing import FrameReader, Scratch
from dragoman.limits import DETECTION_BYTES_MAX
from dragoman.net.channel import Channel, Session
from dragoman.net.detection import DetectionSession
from dragoman.protocols.kafka.handlers.session import KafkaSession
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.handlers.service import MlogService
from dragoman.protocols.mlog.handlers.session import MlogSession
from dragoman.protocols.service import Service
from dragoman.protocols.session import OrderedSession, Place
from protocols.mlog_vectors import JSON_FRAMES
from worlds.broker import Pipe, World

API_VERSIONS = bytes.fromhex("0000000a0012000000000001ffff")
QUIT = bytes.fromhex("0000000105")


class Remembering(OrderedSession[Service[Broker]]):
    def __init__(self, channel: Channel, world: World) -> None:
        super().__init__(channel, FrameReader(1 << 20, Scratch()), world.service)
        self.frames: list[bytes] = []
        self.told: list[str] = []

    def received(self, frame: bytearray, place: Place) -> None:
        self.frames.append(bytes(frame))
        place.reply(frame)

    def on_closed(self) -> None:
        self.told.append("closed")


class Rig:
    def __init__(self) -> None:
        self.world = World()
        self.made: list[Remembering] = []
        self.pipe = Pipe(self.world, self._session)

    def _session(self, channel: Channel) -> DetectionSession:
        def make(channel: Channel) -> Remembering:
            self.made.append(Remembering(channel, self.world))
            return self.made[-1]

        return DetectionSession(channel, {"kafka": make}, self.world.scheduler, 10.0)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_bytes_before_the_decision_are_not_lost(rig: Rig) -> None:
    for byte in API_VERSIONS:
        assert not rig.pipe.is_closed
        rig.pipe.feed(bytes([byte]))
    (session,) = rig.made
    assert session.frames == [API_VERSIONS[4:]]
    rig.pipe.feed(API_VERSIONS + API_VERSIONS[:6])
    assert len(session.frames) == 2
    rig.world.advance(60)
    assert not rig.pipe.is_closed
    rig.pipe.lose()
    assert session.told == ["closed"]


def test_many_frames_at_once_are_all_there(rig: Rig) -> None:
    rig.pipe.feed(API_VERSIONS * 200)
    assert rig.made[0].frames == [API_VERSIONS[4:]] * 200


def test_large_first_frame_arrives_whole(rig: Rig) -> None:
    body = API_VERSIONS[4:] + bytes(50_000)
    rig.pipe.feed(len(body).to_bytes(4, "big") + body)
    assert rig.made[0].frames == [body]
    rig.world.settle()
    assert rig.world.budget.used == 0


def test_silent_connection_is_closed_in_time(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.pipe.feed(API_VERSIONS[:5])
    with caplog.at_level(logging.INFO, "dragoman.net"):
        rig.world.advance(9.9)
        assert not rig.pipe.is_closed
        rig.world.advance(0.2)
    assert rig.pipe.is_closed
    assert "was not known after 10 s" in caplog.text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01\x02\x00", "TLS is not served"),
        (QUIT, "protocol minibroker is not served"),
        (b"GET / HTTP/1.1\r\n", "no protocol begins with"),
    ],
)
def test_what_is_not_served_is_closed_with_a_line(
    rig: Rig, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    with caplog.at_level(logging.INFO, "dragoman.net"):
        rig.pipe.feed(data)
    assert rig.pipe.is_closed
    assert reason in caplog.text
    assert rig.made == []


def test_bytes_that_tell_nothing_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.net.detection.detect", lambda _first: None)
    rig.pipe.feed(bytes(DETECTION_BYTES_MAX - 1))
    assert not rig.pipe.is_closed
    rig.pipe.feed(b"x")
    assert rig.pipe.is_closed


def test_connection_that_goes_early_leaves_no_timer(rig: Rig) -> None:
    rig.pipe.feed(API_VERSIONS[:3])
    rig.pipe.lose()
    rig.world.advance(60)


def test_real_services_answer_their_own() -> None:
    world = World()
    mlog = MlogService(world.broker, world.budget, lambda _: ("127.0.0.1", 7070))
    services: dict[str, Callable[[Channel], Session]] = {
        "kafka": partial(KafkaSession, service=world.service),
        "mlog": partial(MlogSession, service=mlog),
    }

    def connect() -> Pipe:
        return Pipe(
            world, lambda channel: DetectionSession(channel, services, world.scheduler, 10.0)
        )

    kafka = connect().exchange(API_VERSIONS)
    assert kafka[4:8] == b"\0\0\0\1"
    listing = next(frame for frame, each in JSON_FRAMES if each == m.ListTopics())
    assert connect().exchange(bytes.fromhex(listing))[6:] == b'{"Topics":[]}'
    assert connect().exchange(bytes.fromhex("001700000000"))[:2] == b"\0\x18"
