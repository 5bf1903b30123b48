"""Goal: frames come out whole, in order and as memory of their own, however the bytes are cut.

Method: streams of frames of many sizes, delivered in pieces of every size that matters, as a
transport would: ask for a buffer, fill part of it, report.
"""

from __future__ import annotations

import random

import pytest

from dragoman.errors import DecodeError
from dragoman.framing import FrameReader, Scratch
from dragoman.limits import (
    FRAME_GROWTH_BYTES_MAX,
    FRAME_GROWTH_BYTES_MIN,
    LARGE_FRAME_BYTES_MIN,
)

MAX = 8 << 20


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def deliver(reader: FrameReader, stream: bytes, pieces: list[int]) -> list[bytearray]:
    """Give the stream in reads of at most the sizes given, the last one repeated."""
    frames: list[bytearray] = []
    position = turn = 0
    while position < len(stream):
        buffer = reader.get_buffer(-1)
        assert len(buffer) > 0
        count = min(pieces[min(turn, len(pieces) - 1)], len(buffer), len(stream) - position)
        buffer[:count] = stream[position : position + count]
        frames += reader.buffer_updated(count)
        position += count
        turn += 1
    return frames


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 32, 1000])
def test_any_cut_gives_the_same_frames(piece: int) -> None:
    payloads = [bytes([size % 256]) * size for size in (1, 2, 27, 28, 29, 4, 100, 3, 500, 1)]
    reader = FrameReader(MAX, Scratch(32))
    assert deliver(reader, framed(*payloads), [piece]) == payloads
    assert reader.pending_bytes == 0


def test_random_cuts_with_interleaved_connections() -> None:
    rng = random.Random(3)
    scratch = Scratch(64)
    streams, expected, readers, got = [], [], [], []
    for _ in range(5):
        payloads = [rng.randbytes(rng.choice((1, 5, 40, 59, 60, 61, 300))) for _ in range(40)]
        streams.append(framed(*payloads))
        expected.append(payloads)
        readers.append(FrameReader(MAX, scratch))
        got.append([])
    positions = [0] * 5
    while any(positions[i] < len(streams[i]) for i in range(5)):
        i = rng.randrange(5)
        chunk = streams[i][positions[i] : positions[i] + rng.randint(1, 90)]
        buffer = readers[i].get_buffer(-1)[: len(chunk)]
        buffer[:] = chunk[: len(buffer)]
        got[i] += readers[i].buffer_updated(len(buffer)) if chunk else []
        positions[i] += len(buffer)
    assert got == expected


def test_several_small_frames_in_one_read_come_together() -> None:
    reader = FrameReader(MAX, Scratch())
    assert reader.receive(framed(b"a", b"bc", b"def")) == [b"a", b"bc", b"def"]


def test_frames_own_their_memory() -> None:
    scratch = Scratch(64)
    reader = FrameReader(MAX, scratch)
    first, large = reader.receive(framed(b"first", b"L" * 100))
    scratch.data[:] = b"\xee" * 64
    reader.receive(framed(b"later"))
    assert (first, large) == (b"first", b"L" * 100)
    first[0:1] = b"F"
    large.append(1)


def test_large_frame_is_filled_directly() -> None:
    scratch = Scratch(64)
    reader = FrameReader(MAX, scratch)
    size = 1000
    assert deliver(reader, size.to_bytes(4, "big") + b"x" * 10, [64]) == []
    buffer = reader.get_buffer(-1)
    assert len(buffer) == size - 10
    assert buffer.obj is not scratch.data
    buffer[:] = b"y" * 990
    (frame,) = reader.buffer_updated(990)
    assert frame == b"x" * 10 + b"y" * 990
    assert buffer.obj is frame


def test_announced_size_alone_takes_next_to_no_memory() -> None:
    reader = FrameReader(100 << 20, Scratch())
    reader.receive((100 << 20).to_bytes(4, "big"))
    assert 0 < reader.pending_bytes <= 16
    assert reader.announced_bytes == 100 << 20
    for count in range(1, 100):
        reader.receive(b"x")
        assert reader.pending_bytes <= FRAME_GROWTH_BYTES_MIN + count


@pytest.mark.parametrize("piece", [1000, 60_000, 300_000])
def test_frame_holds_little_more_than_has_come(piece: int) -> None:
    payload = random.Random(1).randbytes(3 * FRAME_GROWTH_BYTES_MAX + 17)
    stream = framed(payload)
    reader = FrameReader(MAX, Scratch())
    frames: list[bytearray] = []
    for start in range(0, len(stream), piece):
        frames += reader.receive(stream[start : start + piece])
        come = start + piece
        spare = come if come < LARGE_FRAME_BYTES_MIN else 3 * come
        spare = min(max(spare, FRAME_GROWTH_BYTES_MIN), FRAME_GROWTH_BYTES_MAX)
        assert reader.pending_bytes <= come + spare
    assert frames == [payload]


def test_growth_can_be_kept_small() -> None:
    reader = FrameReader(MAX, Scratch())
    reader.receive((1 << 20).to_bytes(4, "big") + bytes(50_000))
    assert len(reader.get_buffer(4096)) == 4096
    assert reader.pending_bytes == 50_000 + 4096


def test_frame_grows_although_a_transport_keeps_its_buffer() -> None:
    reader = FrameReader(MAX, Scratch(64))
    payload = random.Random(2).randbytes(2 * FRAME_GROWTH_BYTES_MAX)
    stream = framed(payload)
    held = []
    frames: list[bytearray] = []
    while stream:
        buffer = reader.get_buffer(-1)
        held.append(buffer)
        count = min(len(buffer), len(stream))
        buffer[:count] = stream[:count]
        frames += reader.buffer_updated(count)
        stream = stream[count:]
    assert frames == [payload]


@pytest.mark.parametrize("size", [0, -1, -(1 << 31), 1001, (1 << 31) - 1])
def test_sizes_out_of_range_are_refused(size: int) -> None:
    reader = FrameReader(1000, Scratch())
    with pytest.raises(DecodeError, match=f"frame of {size} bytes; 1 to 1000 are allowed"):
        reader.receive(size.to_bytes(4, "big", signed=True) + b"x")
    assert reader.pending_bytes == 0


def test_largest_size_is_accepted() -> None:
    assert FrameReader(1000, Scratch(64)).receive(framed(b"x" * 1000)) == [b"x" * 1000]


@pytest.mark.parametrize("piece", [1, 2, 5, 6, 7, 31, 1000])
def test_bytes_before_the_size_are_handed_out_in_front(piece: int) -> None:
    frames = [(1, b"a"), (2, b""), (300, b"x" * 100), (4, b"yz" * 200)]
    stream = b"".join(
        kind.to_bytes(2, "big") + len(data).to_bytes(4, "big") + data for kind, data in frames
    )
    reader = FrameReader(MAX, Scratch(32), lead_bytes=2, frame_bytes_min=0)
    expected = [kind.to_bytes(2, "big") + data for kind, data in frames]
    assert deliver(reader, stream, [piece]) == expected
    assert reader.pending_bytes == 0
