"""Goal: the original's files are read as it writes them, and damage differs from a torn write.

Method: captured records, and segments with every byte changed or cut.
"""

from __future__ import annotations

import pytest

from dragoman.protocols.minibroker.storage import Damage, StoredRecord, encode_record, scan

RECORDS = [(0, b"", b"hello"), (1, b"k1", b"v1"), (5, b"k", b""), (6, b"", b"last")]
SEGMENT = b"".join(encode_record(*each) for each in RECORDS)


@pytest.mark.parametrize(
    ("record", "stored"),
    [
        ((0, b"", b"hello"), "00000017000000000000000000000000000568656c6c6f7af70947"),
        ((0, b"k1", b"v1"), "00000016000000000000000000026b31000000027631e147ffe4"),
    ],
)
def test_captured_records(record: tuple[int, bytes, bytes], stored: str) -> None:
    data = bytes.fromhex(stored)
    assert encode_record(*record) == data
    assert list(scan(data)) == [StoredRecord(*record, len(data))]


def sound(found: list[StoredRecord | Damage]) -> list[tuple[int, bytes, bytes]]:
    return [each[:3] for each in found if isinstance(each, StoredRecord)]


def test_segment_with_gaps() -> None:
    assert sound(list(scan(SEGMENT))) == RECORDS
    assert list(scan(b"")) == []


@pytest.mark.parametrize("end", range(1, len(SEGMENT)))
def test_cut_anywhere_is_a_torn_write(end: int) -> None:
    found = list(scan(SEGMENT[:end]))
    whole = sound(found)
    assert whole == RECORDS[: len(whole)]
    size = sum(len(encode_record(*each)) for each in whole)
    if size == end:
        assert not any(isinstance(each, Damage) for each in found)
    else:
        (torn,) = [each for each in found if isinstance(each, Damage)]
        assert torn.is_torn
        assert torn.position == size


@pytest.mark.parametrize("position", range(len(SEGMENT)))
def test_changed_byte_anywhere_is_found_and_the_rest_is_read(position: int) -> None:
    changed = bytearray(SEGMENT)
    changed[position] ^= 0x41
    found = list(scan(changed))
    (damage,) = [each for each in found if isinstance(each, Damage)]
    start, hit = 0, 0
    while start + len(encode_record(*RECORDS[hit])) <= position:
        start += len(encode_record(*RECORDS[hit]))
        hit += 1
    assert damage.position == start
    assert sound(found) == RECORDS[:hit] + RECORDS[hit + 1 :]
    if hit < len(RECORDS) - 1:
        assert not damage.is_torn


def test_offsets_that_go_back_are_damage() -> None:
    data = encode_record(3, b"", b"a") + encode_record(3, b"", b"b") + encode_record(4, b"", b"c")
    found = list(scan(data))
    assert sound(found) == [(3, b"", b"a"), (4, b"", b"c")]
    assert isinstance(found[1], Damage)
    assert "offset 3" in found[1].reason
    assert isinstance(next(scan(data, 10)), Damage)
