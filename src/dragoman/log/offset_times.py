"""The time of the record at an offset, without decoding or verifying it: for lags in seconds.

It is the time in the header of the record's batch, at the record's part of the way from the first
timestamp to the latest. The batch is found in memory, or by the sparse index and one read of a few
kilobytes: every batch of a range begins within `index.interval.bytes` of the range's start.
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.limits import BATCH_HEADER_BYTES, OFFSET_TIME_BYTES_MAX
from dragoman.log.batch import HEADER, LOG_APPEND_TIME, MAGIC, NO_TIMESTAMP, BatchHeader
from dragoman.log.readable_log import ReadableLog
from dragoman.log.segment_reader import read_bytes
from dragoman.types import Buffer


def is_in_memory(log: ReadableLog, offset: int) -> bool:
    """Whether `time_at` needs no file."""
    return 0 <= log.tail.first_offset <= offset


def time_at(log: ReadableLog, offset: int) -> int | None:
    """Milliseconds since 1970; None when there is no such record, or when it has no timestamp.

    Where compaction has removed the record, the time of the next one. Raises `CorruptionError` and
    `DiskFullError`.
    """
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    data = _from_tail(log, offset) if is_in_memory(log, offset) else _from_segment(log, offset)
    found = None
    for header in _headers(data):
        found = header
        if header.last_offset >= offset:
            break
    return None if found is None else _time_in(found, offset)


def _from_tail(log: ReadableLog, offset: int) -> Buffer:
    buffers, _ = log.tail.read(offset, log.log_end_offset, 1)
    return buffers[0] if buffers else b""


def _from_segment(log: ReadableLog, offset: int) -> Buffer:
    for segment in log.segments_from(offset):
        index = log.index_of(segment)
        number = index.range_holding(offset - segment.base_offset)
        if number < index.range_count:
            each = index.range_at(number, segment.size)
            stop = min(each.stop, each.start + OFFSET_TIME_BYTES_MAX)
            return read_bytes(log, segment, each.start, stop)
    return b""


def _headers(data: Buffer) -> Iterator[BatchHeader]:
    """Headers of back-to-back batches; the last batch may be cut off behind its header."""
    position = 0
    while position + BATCH_HEADER_BYTES <= len(data):
        header = BatchHeader._make(HEADER.unpack_from(data, position))
        if header.magic != MAGIC or header.size < BATCH_HEADER_BYTES:
            # Damage, which readers report.
            return
        yield header
        position += header.size


def _time_in(header: BatchHeader, offset: int) -> int | None:
    first, latest = header.base_timestamp, header.max_timestamp
    if header.attributes & LOG_APPEND_TIME:
        return latest
    if first == NO_TIMESTAMP:
        return None
    span, passed = header.last_offset_delta, max(0, offset - header.base_offset)
    if span <= 0 or passed > span or latest < first:
        return first
    return first + (latest - first) * passed // span
