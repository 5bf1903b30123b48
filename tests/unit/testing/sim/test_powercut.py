"""The power-cut runner, on a small store that is right and on four that are each wrong in one way.

The store keeps numbered records in a log of fixed frames and, after every few, puts a file with
their count in place. It promises that an acknowledged record is found again, in order, and that the
count is never more than there are records. Each mutant leaves out one thing that a correct store
needs.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from zlib import crc32

import pytest

from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults
from dragoman.testing.sim.powercut import (
    Plan,
    PowerCutError,
    SurveyRow,
    run,
    run_everywhere,
    survey,
    table,
)
from dragoman.world import read_whole, replace_file

FRAME = 700


class Store:
    """Scenario and store in one, for brevity: `acknowledged` is what a client would rely on."""

    def __init__(self, mutation: str = "") -> None:
        self.mutation = mutation
        self.acknowledged = 0

    def start(self, disk: SimDisk, random: Random) -> None:
        self.random = random
        self._open(disk)

    def _open(self, disk: SimDisk) -> None:
        self.disk = disk
        self.end = 0
        if not disk.exists("log"):
            disk.open("log", "create").close()
        if self.mutation != "no directory sync":
            disk.sync_directory("")
        self.log = disk.open("log", "write")
        data = self.log.read(self.log.size(), 0)
        while is_whole(data[self.end * FRAME : (self.end + 1) * FRAME], self.end):
            self.end += 1
        self.log.truncate(self.end * FRAME)
        self.log.sync()

    def step(self) -> None:
        self._append(self.random.randint(1, 3))
        if self.random.random() < 0.3:
            self._checkpoint()

    def _append(self, count: int) -> None:
        frames = [frame(self.end + index) for index in range(count)]
        if self.mutation == "acknowledged before durable":
            self.acknowledged = self.end + count
        if self.mutation == "no sync":
            self.log.write(frames, self.end * FRAME)
        else:
            self.log.write_durable(frames, self.end * FRAME)
        self.end += count
        self.acknowledged = self.end

    def _checkpoint(self) -> None:
        if self.mutation == "no sync before rename":
            write_aside_without_sync(self.disk, b"%d" % self.end)
        else:
            replace_file(self.disk, "count", b"%d" % self.end)

    def verify_after_crash(self, disk: SimDisk) -> None:
        self._open(disk)
        assert self.end >= self.acknowledged, f"{self.acknowledged} promised, {self.end} found"
        if disk.exists("count"):
            assert int(read_whole(disk, "count")) <= self.end
        self.acknowledged = self.end


def frame(number: int) -> bytes:
    body = number.to_bytes(8, "big").ljust(FRAME - 4, b"\x55")
    return body + crc32(body).to_bytes(4, "big")


def is_whole(data: bytes, number: int) -> bool:
    return data == frame(number)


def write_aside_without_sync(disk: SimDisk, data: bytes) -> None:
    disk.remove("count.new")
    file = disk.open("count.new", "create")
    file.write([data], 0)
    file.close()
    disk.rename("count.new", "count")
    disk.sync_directory("")


MUTATIONS = (
    "no sync",
    "no directory sync",
    "acknowledged before durable",
    "no sync before rename",
)


def maker(mutation: str) -> Callable[[], Store]:
    return lambda: Store(mutation)


def test_a_correct_store_passes_every_seed_and_every_mutant_is_caught() -> None:
    scenarios = {"correct": maker("")} | {name: maker(name) for name in MUTATIONS}
    rows = survey(scenarios, range(60))
    assert {row.name: bool(row.failed_seeds) for row in rows} == {
        "correct": False,
        **dict.fromkeys(MUTATIONS, True),
    }
    assert rows[0].crashes > 60 * 5
    assert rows[0].operations > 60 * 100


@pytest.mark.parametrize(
    "faults",
    [
        DiskFaults(ignores_write_durable=True),
        DiskFaults(ignores_sync_directory=True),
        DiskFaults(ignores_sync=True),
        DiskFaults(lost_write_rate=0.05),
        DiskFaults(crash_flip_rate=0.3),
    ],
)
def test_a_disk_that_breaks_its_promises_is_noticed(faults: DiskFaults) -> None:
    (row,) = survey({"correct": Store}, range(40), Plan(faults=faults))
    assert row.failed_seeds


def test_rubbish_past_the_end_is_no_problem_for_a_store_with_checksums() -> None:
    (row,) = survey({"correct": Store}, range(40), Plan(faults=DiskFaults(garbage_rate=0.5)))
    assert row.failed_seeds == ()


def test_a_cut_at_every_single_operation() -> None:
    plan = Plan(steps_max=15)
    operations = run_everywhere(7, Store, plan)
    assert operations > 30
    with pytest.raises(PowerCutError, match="seed 7"):
        run_everywhere(7, maker("no sync"), plan)


def test_a_run_repeats_exactly() -> None:
    first, second = run(5, Store()), run(5, Store())
    assert first == second
    assert run(6, Store()) != first


def test_a_failure_names_seed_crash_and_last_operations() -> None:
    failed = survey({"no sync": maker("no sync")}, range(20))[0].failed_seeds[0]
    with pytest.raises(PowerCutError) as raised:
        run(failed, Store("no sync"))
    message = str(raised.value)
    assert message.startswith(f"seed {failed}, after crash {raised.value.crash}: AssertionError:")
    assert "last operations:" in message
    assert "reboot" in message
    assert isinstance(raised.value.__cause__, AssertionError)


def test_kills_alone_do_not_show_a_missing_sync() -> None:
    """Why the power has to be cut: the page cache survives the process."""
    (row,) = survey({"no sync": maker("no sync")}, range(40), Plan(kill_rate=1.0))
    assert row.failed_seeds == ()


def test_the_restart_is_cut_too_and_repeated() -> None:
    class Counting(Store):
        restarts = 0

        def verify_after_crash(self, disk: SimDisk) -> None:
            Counting.restarts += 1
            super().verify_after_crash(disk)

    outcome = run(1, Counting(), Plan(cycles=4, restart_cut_rate=0.7, restart_operations_max=3))
    assert outcome.crashes > 4
    assert Counting.restarts == outcome.crashes


def test_steps_without_operations_end_too() -> None:
    class Idle(Store):
        def step(self) -> None:
            return

    outcome = run(1, Idle(), Plan(cycles=2, steps_max=10, operations_max=1000))
    assert outcome.steps == 20


def test_an_error_in_a_step_is_a_failure_of_the_run() -> None:
    class Broken(Store):
        def step(self) -> None:
            raise KeyError("broken")

    with pytest.raises(PowerCutError, match="KeyError"):
        run(1, Broken(), Plan(operations_max=1000))


def test_the_table_shows_one_line_for_each_scenario() -> None:
    rows = [
        SurveyRow(
            name="good", seeds=10, crashes=50, operations=900, failed_seeds=(), first_failure=""
        ),
        SurveyRow(
            name="bad",
            seeds=10,
            crashes=20,
            operations=400,
            failed_seeds=(3, 4),
            first_failure="seed 3, after crash 1: AssertionError: lost",
        ),
    ]
    assert table(rows).splitlines() == [
        "scenario                           seeds  crashes  operations  failed  first failure",
        "good                                  10       50         900       0",
        "bad                                   10       20         400       2"
        "  seed 3, after crash 1: AssertionError: lost",
    ]
