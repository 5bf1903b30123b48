"""Goal: batches of a replay hold every offset of its ranges once.

Method: ranges of different lengths, cut.
"""

from __future__ import annotations

import pytest

from dragoman.pipelines.jobs.replay_batches import TableBatches, TopicBatches


@pytest.mark.parametrize("records", [1, 3, 10, 100])
def test_pieces_cover_ranges_without_gap_or_overlap(records: int) -> None:
    ranges = {0: (5, 25), 1: (0, 0), 2: (7, 17), 3: (100, 101)}
    batches = TopicBatches(topic_id="", ranges=ranges, records=records)
    seen: dict[int, list[int]] = {}
    for number in range(batches.count):
        pieces = batches.pieces(number)
        assert pieces, "a batch has something in it"
        assert batches.left_after(number) > batches.left_after(number + 1)
        for partition, (start, end) in pieces.items():
            assert end - start <= records
            seen.setdefault(partition, []).extend(range(start, end))
    assert seen == {
        partition: list(range(*each)) for partition, each in ranges.items() if each[0] < each[1]
    }
    assert batches.pieces(batches.count) == {}
    assert batches.left_after(batches.count) == 0


def test_nothing_makes_no_batch() -> None:
    assert TopicBatches(topic_id="", ranges={0: (4, 4)}, records=5).count == 0
    assert TableBatches(groups=[], key="").count == 0


def test_rows_that_are_left_are_counted() -> None:
    batches = TableBatches(groups=[("a", 0, 5), ("a", 1, 3)], key="")
    assert [batches.left_after(done) for done in range(3)] == [8, 3, 0]
