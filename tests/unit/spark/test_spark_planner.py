"""Goal: ranges are cut without holes or overlaps, and bounds on a micro-batch are kept.

Method: properties over generated ranges.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.kafka import TopicPartition
from dragoman.spark.options import parse
from dragoman.spark.planner import OffsetRange, split
from dragoman.spark.stream import within_records

RANGES = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 5000)), min_size=1, max_size=8)


def _ranges(drawn: list[tuple[int, int]]) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("a", index), "00", start, start + size)
        for index, (start, size) in enumerate(drawn)
    ]


@given(RANGES, st.integers(1, 6000) | st.none(), st.integers(1, 50) | st.none())
def test_parts_cover_each_range_exactly(
    drawn: list[tuple[int, int]], records: int | None, at_least: int | None
) -> None:
    given_options = {"path": "/d", "subscribe": "a"}
    if records is not None:
        given_options["maxRecordsPerPartition"] = str(max(records, 50))
    if at_least is not None:
        given_options["minPartitions"] = str(at_least)
    ranges = _ranges(drawn)
    parts = split(ranges, parse(given_options, "batch"))
    for each in ranges:
        own = [part for part in parts if part.where == each.where]
        assert own[0].start == each.start
        assert own[-1].end == each.end
        assert all(before.end == after.start for before, after in pairwise(own))
        assert all(part.start < part.end for part in own)
    if records is not None:
        assert max(map(len, parts)) <= max(records, 50)
    if at_least is not None:
        assert len(parts) >= min(at_least, sum(map(len, ranges)))


@given(RANGES, st.integers(1, 20_000))
def test_bound_on_records_is_kept_and_everything_moves(
    drawn: list[tuple[int, int]], bound: int
) -> None:
    ranges = _ranges(drawn)
    starts = {each.where: each.start for each in ranges}
    ends = {each.where: each.end for each in ranges}
    admitted = within_records(starts, ends, bound)
    total = sum(admitted[where] - starts[where] for where in ends)
    assert all(starts[where] < admitted[where] <= ends[where] for where in ends)
    # One record for each that has any may exceed a very small bound.
    assert total <= max(bound, 0) + len(ranges)
