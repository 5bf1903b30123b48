"""Goal: batches are byte for byte what Kafka's clients write, and bad ones are recognised.

Method: published vectors both ways, then every kind of damage.
"""

from __future__ import annotations

import pytest
from crc32c import crc32c

from dragoman.errors import DecodeError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log import batch as b
from dragoman.log.batch import Marker, Record
from dragoman.log.compression import Codec

B1 = bytes.fromhex(
    "00000000000000000000003e00000000025e93538d0000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000118000000026b02760202680278"
)
B2 = bytes.fromhex(
    "00000000000000000000003f000000000299012f110000000000010000018bcfe568000000018bcfe56805"
    "0000000000000007000000000003000000020c0000000100000c000a02000100"
)
COMMIT = bytes.fromhex(
    "0000000000000005000000420000000002edd683a70030000000000000018bcfe568000000018bcfe56800"
    "00000000000000070000ffffffff000000012000000008000000010c00000000000000"
)
NOW = 1_700_000_000_000


def decode(data: bytes) -> list[Record]:
    return b.records(memoryview(data), b.check_batch(memoryview(data)))


def test_crc_is_castagnoli():
    assert crc32c(b"123456789") == 0xE3069283


def test_build_gives_the_published_bytes_of_one_record_with_a_header():
    record = Record(key=b"k", value=b"v", headers=(("h", b"x"),), timestamp=NOW)
    assert bytes(b.build_batch([record])) == B1
    assert decode(B1) == [record]


def test_build_gives_the_published_bytes_of_a_producer_batch_with_nulls():
    records = [
        Record(key=None, value=b"", timestamp=NOW),
        Record(key=b"", value=None, timestamp=NOW + 5),
    ]
    built = b.build_batch(records, producer_id=7, producer_epoch=0, base_sequence=3)
    assert bytes(built) == B2
    assert [(r.key, r.value, r.offset) for r in decode(B2)] == [(None, b"", 0), (b"", None, 1)]


def test_marker_has_the_published_bytes():
    built = b.build_marker(Marker(True, 0), producer_id=7, producer_epoch=0, timestamp=NOW)
    b.assign(built, 5, 0)
    assert bytes(built) == COMMIT
    header = b.check_batch(memoryview(COMMIT))
    assert header.is_control
    assert header.is_transactional
    assert b.read_marker(decode(COMMIT)[0]) == Marker(True, 0)


@pytest.mark.parametrize(
    ("value", "wire"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-64, "7f"), (300, "d804")],
)
def test_varints_are_zigzag(value: int, wire: str):
    out = b.varint(value)
    assert out.hex() == wire
    assert b.read_varint(out, 0) == (value, len(out))


@pytest.mark.parametrize("codec", list(Codec))
def test_round_trip_with_every_codec(codec: Codec):
    records = [Record(key=b"%d" % n, value=b"v" * n, timestamp=n) for n in range(100)]
    built = b.build_batch(records, codec=codec, base_offset=40)
    assert [(r.key, r.value, r.timestamp, r.offset) for r in decode(bytes(built))] == [
        (r.key, r.value, r.timestamp, 40 + n) for n, r in enumerate(records)
    ]


def test_assign_leaves_the_crc_alone():
    batch = bytearray(B1)
    b.assign(batch, 1 << 40, 9)
    header = b.check_batch(memoryview(batch))
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)


def test_append_time_is_every_records_timestamp():
    batch = bytearray(B2)
    b.stamp_append_time(batch, 99)
    assert {record.timestamp for record in decode(bytes(batch))} == {99}


def test_thinned_batch_keeps_offsets_and_span():
    built = b.build_batch(
        [Record(value=b"x", offset=3, timestamp=5)], base_offset=10, last_offset_delta=9
    )
    assert b.read_header(built).last_offset == 19
    assert [record.offset for record in decode(bytes(built))] == [13]


def test_empty_batch_is_refused_when_built():
    with pytest.raises(ValueError, match="needs a record"):
        b.build_batch([])


@pytest.mark.parametrize("size", range(0, len(B1), 7))
def test_cut_off_batch_is_refused(size: int):
    with pytest.raises(DecodeError):
        b.check_batch(memoryview(B1)[:size])


@pytest.mark.parametrize("position", [16, *range(21, len(B1), 5)])
def test_flipped_bit_under_the_crc_is_found(position: int):
    damaged = bytearray(B1)
    damaged[position] ^= 4
    with pytest.raises(DecodeError):
        b.check_batch(memoryview(damaged))


def test_old_magic_is_named():
    damaged = bytearray(B1)
    damaged[16] = 1
    with pytest.raises(DecodeError, match="magic 1"):
        b.read_header(damaged)


def with_body(body: bytes, count: int) -> bytes:
    header = b.read_header(B1)._replace(record_count=count)
    return bytes(b.assemble_batch(body, header))


@pytest.mark.parametrize(
    ("body", "count", "why"),
    [
        (b"", 1, "cut off"),
        (b"\x10\x00", 1, "record of 8 bytes"),
        (b"\x01", 1, "record of -1 bytes"),
        (B1[61:] + b"\x00", 1, "after the last record"),
        (b"\x0c\x00\x00\x00\x01\x01\x7f", 1, "headers in a record"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, "no name"),
        (b"\x0c\x00\x00\x00\x20\x01\x00", 1, "field of"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1, "bytes too many"),
        (b"\xff" * 11, 1, "ten bytes"),
    ],
)
def test_malformed_records_are_refused(body: bytes, count: int, why: str):
    data = with_body(body, count)
    with pytest.raises(DecodeError, match=why):
        decode(data)


@pytest.mark.parametrize(
    "record", [Record(), Record(key=b"\0\0\0\7", value=bytes(6)), Record(key=b"1", value=bytes(6))]
)
def test_records_that_are_no_markers_are_refused(record: Record):
    with pytest.raises(DecodeError):
        b.read_marker(record)


def test_batches_walks_back_to_back_batches():
    found = list(b.batches(memoryview(B1 + B2)))
    assert [bytes(data) for _, data in found] == [B1, B2]


def test_short_records_are_written_like_all_others() -> None:
    sizes = [0, 1, 63, 64, 65, 1970, 1971, 1972, 1973, 1974, 1975, 2047, 2048, 5000]
    records = [
        b.Record(key=key, value=value, headers=headers, timestamp=timestamp)
        for key in (None, *map(bytes, sizes))
        for value in (None, *map(bytes, sizes))
        for headers in ((), (("name", b"content"),))
        for timestamp in (1_700_000_000_000, 1_700_000_000_001, 1_700_000_009_000, 5)
    ]
    first = records[0].timestamp
    # More of them than there are numbers in the table.
    records += [b.Record(value=b".", timestamp=first)] * 2500
    expected = b"".join(
        b.record_bytes(each, each.timestamp - first, index) for index, each in enumerate(records)
    )
    assert bytes(b.build_batch(records))[BATCH_HEADER_BYTES:] == expected
