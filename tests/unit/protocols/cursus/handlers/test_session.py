"""Goal: whatever comes in, the server stays healthy and says what the original says.

Method: bad frames, compressed frames of every kind, one byte at a time, silence, too many.
"""

from __future__ import annotations

import struct

import cramjam
import pytest

from dragoman.broker.errors import NotEnoughReplicas, NotLeader, Overloaded, RequestTimedOut
from dragoman.config.settings import Settings
from dragoman.errors import (
    DecodeError,
    DiskFullError,
    DragomanError,
    FormatError,
    OutcomeUnknownError,
)
from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.client.connection import server_error
from dragoman.protocols.cursus.handlers.session import refusal_text
from worlds.broker import World
from worlds.cursus import CursusPipe, batch, framed, payloads


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> CursusPipe:
    opened = CursusPipe(world)
    opened.ask("CREATE topic=orders partitions=1")
    return opened


@pytest.mark.parametrize(
    ("payload", "reply"),
    [
        (b"", 'decode_failed reason="data too short"'),
        (b"x", 'decode_failed reason="data too short"'),
        (b"BOGUS", 'decode_failed reason="invalid topic length"'),
        (b"EXIT", 'decode_failed reason="invalid topic length"'),
        (b"\x7f\xff", 'decode_failed reason="invalid topic length"'),
        (b"\xba\x7c\x00\x06orders", "batch_decode_failed reason="),
        (b"\x1f\x8bnot gzip at all", "decode_failed reason="),
        (b"\x28\xb5\x2f\xfdzzzz", "decode_failed reason="),
    ],
)
def test_what_is_no_request_is_answered_and_the_connection_stays(
    pipe: CursusPipe, payload: bytes, reply: str
) -> None:
    assert pipe.ask_raw(payload).decode().startswith(f"ERROR: {reply}")
    assert pipe.ask("LIST") == "OK count=1 topics=orders"


def test_an_envelope_without_a_command_ends_the_connection(pipe: CursusPipe) -> None:
    pipe.feed(framed(b"\0\1tBOGUS x") + framed("LIST"))
    pipe.world.settle()
    assert pipe.frames() == [b"ERROR: malformed_input reason=missing_topic_or_payload"]
    assert pipe.is_closed


def test_a_frame_of_more_than_64_mib_ends_the_connection(pipe: CursusPipe) -> None:
    pipe.feed(struct.pack(">I", (64 << 20) + 1))
    pipe.world.settle()
    assert pipe.is_closed
    assert pipe.received() == b""


def test_one_byte_at_a_time(pipe: CursusPipe) -> None:
    sent = framed(codec.encode_batch(batch("a", "b"))) + framed(b"\0\0METADATA topic=orders")
    for position in range(len(sent)):
        pipe.feed(sent[position : position + 1])
    pipe.world.settle()
    ack, metadata = pipe.frames()
    assert b'"last_offset":1' in ack
    assert metadata.startswith(b"OK topic=orders")


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd", "raw snappy"])
def test_compressed_frames(pipe: CursusPipe, name: str) -> None:
    for plain in (
        codec.encode_batch(batch("a" * 500)),
        b"PUBLISH topic=orders producerId=p message=m",
    ):
        if name == "raw snappy":
            sent = bytes(cramjam.snappy.compress_raw(plain))
        else:
            sent = compression.compress(name, plain)
        assert pipe.ask_raw(sent).startswith(b'{"status":"OK"')
    read = pipe.ask_batch("CONSUME topic=orders partition=0 offset=0 member=m")
    assert payloads(read) == ["a" * 500, "m"]


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_a_frame_that_expands_to_more_than_16_mib_is_refused(pipe: CursusPipe, name: str) -> None:
    sent = compression.compress(name, bytes((16 << 20) + 1))
    reply = pipe.ask_raw(sent).decode()
    assert reply.startswith('ERROR: decode_failed reason="batch decompresses to more than 16777216')


def test_users_add_compressors(pipe: CursusPipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_REGISTERED", dict(compression._REGISTERED))

    def decompress(data: bytes | bytearray | memoryview, bytes_max: int) -> bytes:
        if len(data) > bytes_max:
            raise DecodeError("too long")
        return bytes(data[4:])[::-1]

    compression.register(
        compression.Compressor(
            name="mirror",
            magic=b"MIRR",
            compress=lambda data: b"MIRR" + bytes(data)[::-1],
            decompress=decompress,
        )
    )
    sent = compression.compress("mirror", b"LIST")
    assert sent == b"MIRRTSIL"
    assert pipe.ask_raw(sent) == b"OK count=1 topics=orders"


def test_a_silent_connection_is_closed_after_a_minute(pipe: CursusPipe, world: World) -> None:
    world.advance(50.0)
    pipe.ask("LIST")
    world.advance(59.0)
    assert not pipe.is_closed
    world.advance(2.0)
    assert pipe.is_closed


def test_the_time_of_silence_is_a_setting() -> None:
    world = World(Settings(cursus_idle_timeout_ms=3000))
    pipe = CursusPipe(world)
    world.advance(2.9)
    assert not pipe.is_closed
    world.advance(0.2)
    assert pipe.is_closed


def test_a_request_that_waits_keeps_the_connection_open(pipe: CursusPipe, world: World) -> None:
    pipe.feed(framed("CONSUME topic=orders partition=0 offset=0 member=m wait_ms=90000"))
    world.advance(89.0)
    assert not pipe.is_closed
    world.advance(2.0)
    assert len(pipe.frames()) == 1


def test_one_connection_too_many_is_closed_at_once() -> None:
    world = World(Settings(cursus_connections_max=2))
    first, second, third = CursusPipe(world), CursusPipe(world), CursusPipe(world)
    assert (first.is_closed, second.is_closed, third.is_closed) == (False, False, True)
    world.settle()
    first.lose()
    assert not CursusPipe(world).is_closed


def test_a_peer_that_takes_no_replies_is_not_read_on(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch(*["x" * 100_000] * 5))
    pipe.transport.is_stuck = True
    consume = framed("CONSUME orders 0 0")
    for _ in range(50):
        reader = framed("LIST_OFFSETS topic=orders") * 200
        pipe.feed(consume + reader)
        world.settle()
    assert len(pipe.transport.unsent) < 2 << 20
    assert not pipe.transport.is_reading
    pipe.transport.is_stuck = False
    pipe.transport.take()
    world.settle()
    assert len(pipe.frames()) == 50 * 201


def test_everything_works_on_after_the_peer_is_gone(pipe: CursusPipe, world: World) -> None:
    pipe.feed(framed(codec.encode_batch(batch("a"))) + framed("CREATE topic=t partitions=1"))
    pipe.lose()
    world.settle()
    read = CursusPipe(world).ask_batch("CONSUME orders 0 0")
    assert payloads(read) == ["a"]
    assert world.budget.used == 0


def test_who_waits_for_data_goes_with_the_connection(world: World) -> None:
    pipe = CursusPipe(world)
    pipe.ask("CREATE topic=orders partitions=1")
    replica = world.broker.partitions.find("orders", 0)
    pipe.feed(framed("CONSUME topic=orders partition=0 offset=0 member=m wait_ms=60000"))
    world.settle()
    assert replica.parked
    pipe.lose()
    assert not replica.parked


@pytest.mark.parametrize(
    ("error", "is_retriable", "is_ambiguous"),
    [
        (NotLeader("elsewhere"), True, False),
        (NotEnoughReplicas("1 in sync"), True, False),
        (DiskFullError("full"), True, False),
        (Overloaded("later"), True, False),
        (RequestTimedOut("the leader changed"), True, True),
        (OutcomeUnknownError("the leader of the metadata is away"), True, True),
        (FormatError("a newer release?"), False, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_clients_know_whether_to_come_again(
    error: DragomanError, is_retriable: bool, is_ambiguous: bool
) -> None:
    told = server_error(refusal_text(error, lambda _node: None))
    assert (told.retriable, told.is_ambiguous) == (is_retriable, is_ambiguous)
