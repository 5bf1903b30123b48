"""Goal: the index of what is kept aside says what is due, in order, each once.

Method: shelves filled by hand, and against a sorted list from hypothesis.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.broker.delayed.state import Batch, Entry, Phase, StoredPartition


def _add(
    partition: StoredPartition, offset: int, when_ms: int, phase: Phase = Phase.WAITING
) -> Entry:
    entry = Entry(partition.queue(1), when_ms, phase, 10)
    partition.add(offset, entry)
    return entry


@given(st.lists(st.integers(0, 20)), st.integers(0, 20), st.integers(1, 5))
def test_what_is_due_comes_by_time_then_by_order(times: list[int], now: int, most: int) -> None:
    partition = StoredPartition(0)
    for offset, when_ms in enumerate(times):
        _add(partition, offset, when_ms)
    expected = sorted((when, offset) for offset, when in enumerate(times) if when <= now)
    found: list[int] = []
    while some := partition.due(now, most):
        assert len(some) <= most
        found += some
    assert found == [offset for _, offset in expected]
    later = [when for when in times if when > now]
    assert partition.next_ms == (min(later) if later else None)


def test_what_has_changed_since_is_passed_over() -> None:
    partition = StoredPartition(0)
    gone, later, deciding, due = (_add(partition, offset, 5) for offset in range(4))
    del partition.entries[0]
    partition.look_at(1, later, 9)
    deciding.phase = Phase.DECIDING
    due.phase = Phase.DUE
    assert gone.phase is Phase.WAITING
    assert partition.due(8, 10) == []
    assert partition.due(9, 10) == [1]
    assert partition.next_ms is None


def test_records_are_counted_by_their_target() -> None:
    partition = StoredPartition(0)
    for offset in range(3):
        _add(partition, offset, 5)
    # A record is loaded again after it was stored.
    _add(partition, 2, 5)
    assert partition.queue(1).count == 3
    partition.remove(0)
    partition.remove(0)
    partition.remove(9)
    assert partition.queue(1).count == 2


def test_one_that_is_on_the_agenda_twice_is_due_once() -> None:
    partition = StoredPartition(0)
    entry = _add(partition, 0, 5, Phase.HELD)
    partition.look_at(0, entry, 5)
    assert partition.due(5, 10) == [0]


def test_what_is_decided_early_does_not_stay_on_the_agenda() -> None:
    partition = StoredPartition(0)
    held = _add(partition, 0, 1_000_000, Phase.HELD)
    for offset in range(1, 10_000):
        _add(partition, offset, 2_000_000, Phase.HELD)
        del partition.entries[offset]
    assert len(partition._agenda) < 2_000
    assert partition.due(3_000_000, 10) == [0]
    assert held.phase is Phase.HELD


def test_queues_are_by_target() -> None:
    partition = StoredPartition(0)
    partition.add(0, Entry(partition.queue(1), 5, Phase.WAITING, 1))
    partition.add(1, Entry(partition.queue(2), 5, Phase.HELD, 1))
    partition.add(2, Entry(partition.queue(1), 5, Phase.DUE, 1))
    assert partition.queue(1) is partition.queue(1)
    assert partition.offsets_for(1) == [0, 2]
    assert partition.offsets_for(3) == []


def test_sequences_begin_again_after_the_highest() -> None:
    assert Batch(1, (1 << 31) - 2, 0, (7, 8, 9)).next_sequence == 1
