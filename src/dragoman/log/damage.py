"""Damage that a reader meets in a segment: which offsets it makes unreadable.

A failed read names one byte. Readers, operators and the manifest need the range of offsets around
it: from the first batch that cannot be read to the next one that can. This range is searched for
once, range by range of the index; from then on its offsets are refused without reading.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.errors import CorruptionError
from dragoman.limits import DAMAGE_PROBE_BYTES_MAX, DAMAGED_RANGES_MAX
from dragoman.log.readable_log import ReadableLog
from dragoman.log.segment import Segment
from dragoman.log.segment_reader import (
    check_records,
    clip,
    index_for_reading,
    read_bytes,
    walk_range,
)


class LostRange(NamedTuple):
    """Offsets of a partition that cannot be read, and the first bad byte known."""

    path: str
    position: int
    first: int
    #: Where a reader may continue.
    next_good: int


def lost_ranges(partition: ReadableLog) -> list[LostRange]:
    """All unreadable ranges of a partition above its log start."""
    start = partition.log_start_offset
    return [
        LostRange(segment.log_path, position, first, next_good)
        for segment in partition.all_segments()
        if segment.lost
        for first, next_good, position in segment.lost
        if next_good > start
    ]


def unreadable_around(
    partition: ReadableLog, segment: Segment, position: int
) -> tuple[int, int, int] | None:
    """(first, next good, byte position) of the damage in the range of the index around `position`.

    The search continues into the following ranges while they are bad, for a bounded number of
    bytes. None when everything there can be read after all.
    """
    try:
        index = index_for_reading(partition, segment)
    except CorruptionError:
        return segment.base_offset, segment.next_offset, 0
    found: tuple[int, int] | None = None
    number = index.range_at_position(position)
    probed = 0
    while number < index.range_count:
        each = clip(segment, index.range_at(number, segment.size))
        begin = segment.base_offset + each.first
        if found is not None and probed > DAMAGE_PROBE_BYTES_MAX:
            return found[0], max(begin, found[0] + 1), found[1]
        try:
            data = read_bytes(partition, segment, each.start, each.stop)
            places = walk_range(data, each.start, segment, each)
        except CorruptionError:
            found = found if found is not None else (begin, each.start)
            places = []
        for place in places:
            try:
                check_records(
                    data, place.position - each.start, place.size, segment, place.position
                )
            except CorruptionError:
                found = found if found is not None else (place.base_offset, place.position)
            else:
                if found is not None:
                    return found[0], max(place.base_offset, found[0] + 1), found[1]
        if found is None:
            return None
        probed += each.stop - each.start
        number += 1
    return (found[0], max(segment.next_offset, found[0] + 1), found[1]) if found else None


def new_damage(log: ReadableLog, error: CorruptionError) -> tuple[int, int, int] | None:
    """Record the damage that a reader met in its segment. None when it is known, or not found."""
    for segment in log.all_segments():
        if segment.log_path == error.path:
            break
    else:
        return None
    if any(position == error.position for _, _, position in segment.lost):
        return None
    found = unreadable_around(log, segment, error.position)
    if found is None or any(
        first <= found[0] and found[1] <= end for first, end, _ in segment.lost
    ):
        return None
    if len(segment.unreadable) >= DAMAGED_RANGES_MAX:
        return None
    segment.unreadable = with_range(segment.unreadable, found)
    return found


def with_range(
    known: tuple[tuple[int, int, int], ...], found: tuple[int, int, int]
) -> tuple[tuple[int, int, int], ...]:
    """`known` with one more range; ranges that touch are merged."""
    first, next_good, position = found
    kept = []
    for each in known:
        if each[0] <= next_good and first <= each[1]:
            position = each[2] if each[0] <= first else position
            first, next_good = min(first, each[0]), max(next_good, each[1])
        else:
            kept.append(each)
    return tuple(sorted([*kept, (first, next_good, position)]))
