"""Power, faults and the trace: what disk and files share."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from dragoman.testing.sim.faults import DiskCounters, DiskFaults, Machine, PowerCut, SyncOutcome


def machine(faults: DiskFaults | None = None) -> Machine:
    return Machine(Random(1), faults or DiskFaults(), DiskCounters(), deque(maxlen=3))


def test_the_cut_comes_at_the_operation_it_was_set_for_and_at_no_other() -> None:
    made = machine()
    assert not any(made.record("write", "a") for _ in range(5))
    made.operations_until_cut = 3
    assert [made.record("write", "a") for _ in range(5)] == [False, False, True, False, False]


def test_without_power_nothing_works_until_the_next_life() -> None:
    made = machine()
    with pytest.raises(PowerCut):
        made.cut()
    with pytest.raises(PowerCut):
        made.check_power()
    following = made.rebooted()
    following.check_power()
    assert following.counters is made.counters
    assert following.trace is made.trace


def test_the_trace_is_bounded() -> None:
    made = machine()
    for number in range(10):
        made.record("write", f"file{number}", number, 512)
    assert [str(line) for line in made.trace] == [
        "     8 write file7 7 512",
        "     9 write file8 8 512",
        "    10 write file9 9 512",
    ]


def test_scheduled_syncs_fail_or_lie_once() -> None:
    made = machine(DiskFaults(sync_error_at=2, lost_write_at=3))
    assert [made.next_sync() for _ in range(4)] == [
        SyncOutcome.DONE,
        SyncOutcome.FAILED,
        SyncOutcome.LOST,
        SyncOutcome.DONE,
    ]
