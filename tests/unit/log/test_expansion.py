"""Goal: how far a batch expands is known without expanding it, and what is expanded is remembered.

Method: every codec as several clients write it, sizes around the bound, records from every offset
against the plain list of them.
"""

from __future__ import annotations

import gzip
import random
import struct

import cramjam
import pytest

from dragoman.errors import DecodeError, OversizedBatchError
from dragoman.log import expansion
from dragoman.log.batch import Record, build_batch, read_header, records
from dragoman.log.compression import Codec, compress
from dragoman.log.expansion import (
    Expansions,
    expanded_bytes_most,
    expands_beyond,
    is_oversized,
)

COMPRESSED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
MIB = 1 << 20


def streamed_zstd(data: bytes) -> bytes:
    """Without the size in the frame's header, as Java's producer writes it."""
    machine = cramjam.zstd.Compressor()
    machine.compress(data)
    return bytes(machine.finish())


def batch_of(count: int, codec: Codec = Codec.GZIP, size: int = 100) -> memoryview:
    made = [Record(key=b"%d" % at, value=bytes(size), timestamp=1000 + at) for at in range(count)]
    return memoryview(build_batch(made, base_offset=50, codec=codec))


# ---- sizes from outside


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
@pytest.mark.parametrize("size", [0, 1, 100, 65_536, 131_072, 131_073, 3 * MIB + 7])
def test_bound_is_never_below_what_it_expands_to(codec: Codec, size: int) -> None:
    noise = random.Random(size).randbytes(min(size, 70_000))
    for plain in (bytes(size), (noise * (size // (len(noise) or 1) + 1))[:size]):
        most = expanded_bytes_most(codec, memoryview(compress(codec, plain)))
        assert size <= most <= size + (4 << 20)


def test_sizes_of_what_other_writers_write() -> None:
    plain = bytes(5 * MIB)
    assert expanded_bytes_most(Codec.GZIP, memoryview(gzip.compress(plain))) == len(plain)
    most = expanded_bytes_most(Codec.ZSTD, memoryview(streamed_zstd(plain)))
    assert len(plain) <= most <= len(plain) + (128 << 10)
    raw = memoryview(bytes(cramjam.snappy.compress_raw(plain)))
    assert expanded_bytes_most(Codec.SNAPPY, raw) == len(plain)
    # Several frames, and one that holds nothing.
    skipped = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    several = compress(Codec.ZSTD, plain) + skipped + streamed_zstd(plain)
    assert 2 * len(plain) <= expanded_bytes_most(Codec.ZSTD, memoryview(several)) < 11 * MIB
    several = compress(Codec.LZ4, plain) + skipped + compress(Codec.LZ4, plain)
    assert 2 * len(plain) <= expanded_bytes_most(Codec.LZ4, memoryview(several)) < 16 * MIB


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_expansion_beyond_the_bound_is_reported(codec: Codec) -> None:
    data = memoryview(compress(codec, bytes(40 * MIB)))
    assert expands_beyond(codec, data, 32 * MIB)
    assert not expands_beyond(codec, data, 48 * MIB)


def flushed(codec: Codec, plain: bytes, step: int) -> bytes:
    """One block for each record, as a producer writes that flushes."""
    machine = cramjam.lz4.Compressor() if codec is Codec.LZ4 else cramjam.zstd.Compressor()
    parts = []
    for at in range(0, len(plain), step):
        machine.compress(plain[at : at + step])
        parts.append(bytes(machine.flush()))
    return b"".join(parts) + bytes(machine.finish())


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_batches_of_small_blocks_are_not_taken_for_oversized(codec: Codec) -> None:
    """A block counts for its size at most, here for a hundred times what it has."""
    seeded = random.Random(1)
    line = b'{"level": "info", "service": "billing", "trace": "%032x"}'
    plain = b"".join(line % seeded.getrandbits(128) for _ in range(10_000))
    data = memoryview(flushed(codec, plain, 600))
    assert expands_beyond(codec, data, 32 * MIB)
    assert not is_oversized(codec, data, 32 * MIB)
    assert is_oversized(codec, data, len(plain) - 1)


@pytest.mark.parametrize(
    ("codec", "begin", "block", "end"),
    [
        (Codec.ZSTD, "28b52ffd0058", "000000", "010000"),
        (Codec.LZ4, "04224d18604082", "0100008078", "00000000"),
        (Codec.ZSTD, "", "502a4d1800000000", ""),
        (Codec.ZSTD, "", "28b52ffd0058010000", ""),
    ],
    ids=["zstd blocks", "lz4 blocks", "skipped frames", "empty frames"],
)
def test_blocks_are_counted_only_up_to_a_bound(
    codec: Codec, begin: str, block: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may consist of hundreds of thousands that hold next to nothing."""
    calls = 0
    plain = expansion.unpack_from

    def counting(layout: str, data: memoryview, position: int) -> tuple[int, ...]:
        nonlocal calls
        calls += 1
        return plain(layout, data, position)

    monkeypatch.setattr(expansion, "unpack_from", counting)
    first, each, last = map(bytes.fromhex, (begin, block, end))
    data = memoryview(first + each * 200_000 + last)
    assert expands_beyond(codec, data, 32 * MIB)
    assert calls < 10_000
    assert not is_oversized(codec, data, 32 * MIB)


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_what_expands_far_is_oversized(codec: Codec) -> None:
    assert is_oversized(codec, memoryview(compress(codec, bytes(40 * MIB))), 32 * MIB)


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_damaged_data_raises_nothing(codec: Codec) -> None:
    data = compress(codec, bytes(3 * MIB))
    seeded = random.Random(1)
    for _ in range(300):
        damaged = bytearray(data[: seeded.randrange(len(data))])
        for _ in range(3):
            if damaged:
                damaged[seeded.randrange(len(damaged))] = seeded.randrange(256)
        expands_beyond(codec, memoryview(damaged), 1)


# ---- what is remembered


def test_batch_is_expanded_once_however_often_it_is_read() -> None:
    expansions = Expansions()
    batch = batch_of(5000)
    header = read_header(batch)
    expected = records(batch, header)
    for offset in (50, 51, 561, 562, 563, 5049, 1100):
        found = list(expansions.get(7, header, batch, MIB).records(offset))
        assert found == expected[offset - 50 :]
    assert list(expansions.get(7, header, batch, MIB).records(5050)) == []
    assert expansions.count == 1
    # The same bytes in another partition are not the same batch.
    expansions.get(8, header, batch, MIB)
    assert expansions.count == 2


def test_times_are_looked_up_as_record_by_record() -> None:
    seeded = random.Random(3)
    made = [Record(value=b"v", timestamp=seeded.randrange(1000)) for _ in range(2000)]
    batch = memoryview(build_batch(made, base_offset=10, codec=Codec.LZ4))
    header = read_header(batch)
    expanded = Expansions().get(1, header, batch, MIB)
    for timestamp in (-5, 0, 500, 990, 999, 1000):
        for offset in (0, 10, 700, 2009):
            expected = next(
                (
                    (each.offset, each.timestamp)
                    for each in records(batch, header)
                    if each.timestamp >= timestamp and each.offset >= offset
                ),
                None,
            )
            assert expanded.first_since(timestamp, offset) == expected


def test_thinned_batch_is_read_by_its_own_offsets() -> None:
    kept = [Record(value=b"v", timestamp=1, offset=delta) for delta in (0, 3, 9)]
    batch = memoryview(build_batch(kept, base_offset=100, codec=Codec.ZSTD, last_offset_delta=9))
    header = read_header(batch)
    expanded = Expansions().get(1, header, batch, MIB)
    assert [each.offset for each in expanded.records(101)] == [103, 109]
    assert expanded.first_since(1, 104) == (109, 1)


def test_too_large_is_an_error_and_is_remembered_as_well() -> None:
    expansions = Expansions()
    batch = batch_of(100, size=100_000)
    header = read_header(batch)
    for _ in range(3):
        with pytest.raises(OversizedBatchError, match="more than 1048576 bytes"):
            expansions.get(1, header, batch, MIB)
    assert expansions.count == 1
    assert len(list(expansions.get(1, header, batch, 32 * MIB).records())) == 100


def test_cache_is_bounded_in_bytes_and_in_number() -> None:
    expansions = Expansions(bytes_max=100_000, count_max=5)
    for at in range(20):
        batch = batch_of(100, size=300)
        expansions.get(at, read_header(batch), batch, MIB)
        assert expansions.held_bytes <= 100_000
    small = batch_of(1, size=1)
    for at in range(20):
        expansions.get(at, read_header(small), small, MIB)
    assert len(expansions) == 5
    large = batch_of(1000, size=300)
    expansions.get(1, read_header(large), large, MIB)
    assert len(expansions) == 1


def test_damage_inside_is_a_decode_error() -> None:
    batch = batch_of(2000, Codec.NONE)
    header = read_header(batch)
    cut = batch[: len(batch) - 5000]
    with pytest.raises(DecodeError):
        list(Expansions().get(1, header, cut, MIB).records(2000))
