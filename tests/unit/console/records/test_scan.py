"""Slices of what nodes send: batches that are compacted, large, invisible or in part outside."""

from __future__ import annotations

import pytest

from dragoman.client.kafka import AbortedTransaction, Fetched, KafkaClient
from dragoman.console.records.scan import Scan, Turns, sliced
from dragoman.limits import CONSOLE_SLICE_BYTES, CONSOLE_SLICE_RECORDS
from dragoman.log.batch import TRANSACTIONAL, Marker, Record, assign, build_batch, build_marker
from dragoman.log.compression import Codec


def _scan(start: int, end: int) -> Scan:
    return Scan(KafkaClient("127.0.0.1:1"), "t", {0: start}, {0: end}, Turns())


def _fetched(*batches: bytes | bytearray, aborted: tuple[AbortedTransaction, ...] = ()) -> Fetched:
    return Fetched(
        records=memoryview(b"".join(batches)),
        high_watermark=1_000_000,
        last_stable_offset=1_000_000,
        log_start_offset=0,
        aborted=aborted,
    )


def _offsets(scan: Scan, fetched: Fetched) -> list[list[int]]:
    found = [[each.offset for each in slice_.records] for slice_ in sliced(0, fetched, scan)]
    return [each for each in found if each]


def test_compacted_batch_has_gaps_that_count_as_done() -> None:
    kept = [Record(value=b"a", offset=2), Record(value=b"b", offset=7)]
    batch = build_batch(kept, base_offset=10, last_offset_delta=9)
    empty = build_batch([], base_offset=20, last_offset_delta=9)
    scan = _scan(10, 100)
    assert _offsets(scan, _fetched(batch, empty)) == [[12, 17]]
    assert scan.positions == {0: 30}
    assert scan.bytes == len(batch) + len(empty)


def test_records_outside_the_range_are_left_out() -> None:
    batch = build_batch([Record(value=b"x")] * 10, base_offset=0)
    scan = _scan(4, 7)
    assert _offsets(scan, _fetched(batch)) == [[4, 5, 6]]
    assert scan.is_done


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        (1000, 10, CONSOLE_SLICE_RECORDS),
        (10, CONSOLE_SLICE_BYTES, 1),
        (20, CONSOLE_SLICE_BYTES // 4, 4),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_slices_are_bounded_in_records_and_bytes(
    count: int, size: int, expected: int, codec: Codec
) -> None:
    batch = build_batch([Record(value=b"x" * size)] * count, codec=codec)
    scan = _scan(0, count)
    slices = _offsets(scan, _fetched(batch))
    assert max(map(len, slices)) == expected
    assert [offset for each in slices for offset in each] == list(range(count))


def test_headers_count_for_slices() -> None:
    headers = tuple((f"h{n}", b"") for n in range(1000))
    scan = _scan(0, 40)
    slices = _offsets(scan, _fetched(build_batch([Record(headers=headers)] * 40)))
    assert max(map(len, slices)) < 10


def test_position_follows_each_slice() -> None:
    batch = build_batch([Record(value=b"x")] * (3 * CONSOLE_SLICE_RECORDS))
    scan = _scan(0, 10_000)
    for found in sliced(0, _fetched(batch), scan):
        if found.records:
            assert scan.positions == {0: found.records[-1].offset + 1}


def test_aborted_batches_and_markers_are_passed_and_their_bytes_counted() -> None:
    aborted = build_batch(
        [Record(value=b"no")], attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0
    )
    marker = build_marker(Marker(is_commit=False, coordinator_epoch=0), producer_id=5,
                          producer_epoch=0, timestamp=0)  # fmt: skip
    assign(marker, 1, 0)
    seen = build_batch([Record(value=b"yes")], base_offset=2)
    scan = _scan(0, 3)
    fetched = _fetched(aborted, marker, seen, aborted=(AbortedTransaction(5, 0),))
    assert _offsets(scan, fetched) == [[2]]
    assert scan.bytes == len(aborted) + len(marker) + len(seen)
    assert scan.is_done


def test_batch_that_expands_too_far_is_skipped_and_counted() -> None:
    batch = build_batch([Record(value=bytes(40 << 20))] * 1, base_offset=3, codec=Codec.ZSTD)
    after = build_batch([Record(value=b"x")], base_offset=4)
    scan = _scan(0, 5)
    assert _offsets(scan, _fetched(batch, after)) == [[4]]
    assert scan.skipped == 1


def test_reply_without_batches_gives_a_turn() -> None:
    scan = _scan(5, 9)
    assert [each.records for each in sliced(0, _fetched(), scan)] == [[]]
    assert scan.positions == {0: 5}
