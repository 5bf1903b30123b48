"""Goal: a log that is to be copied anew is empty, wherever it begins, and stays so after a crash.

Method: real stores on disks in memory and on simulated ones; the power goes at every operation.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from dragoman.limits import JOURNAL_BLOCK_BYTES, JOURNAL_FIRST_FILE_BYTES
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import PowerCut
from worlds.log import World, make_batch


def marks(world: World) -> tuple[int, int, int, int]:
    log = world.log
    return log.log_start_offset, log.high_watermark, log.stable_end, log.log_end_offset


@pytest.mark.parametrize("offset", [0, 3, 4, 100])
@pytest.mark.parametrize("clean", [True, False])
def test_restart_before_in_and_behind_the_log(offset: int, clean: bool) -> None:
    world = World()
    world.log.begin_epoch(2)
    world.fill(20)
    world.log.move_log_start(4)
    world.log.report("a bit is wrong")
    world.log.restart_at(offset)
    for _ in range(2):
        assert marks(world) == (offset,) * 4
        assert world.log.epochs.entries() == []
        assert not world.log.is_damaged
        world.restart(clean=clean)


def test_a_producer_of_deleted_records_goes_on_after_a_restart() -> None:
    world = World()
    world.log.restart_at(7)
    batch = build_batch(
        [Record(value=b"v", timestamp=1)], producer_id=3, producer_epoch=0, base_sequence=50
    )
    assert world.log.append(batch, read_header(batch), 0).base_offset == 7


def test_what_is_appended_after_a_restart_is_found_again() -> None:
    world = World()
    world.fill(20)
    world.log.move_log_start(10)
    world.log.restart_at(7)
    batch = make_batch(b"new")
    world.log.append(batch, read_header(batch), 5)
    world.commit()
    world.restart(clean=False)
    assert marks(world) == (7, 8, 8, 8)
    assert world.values() == [b"new"]
    assert world.log.epochs.entries() == [(5, 7)]


def test_a_restart_happens_whole_or_not_at_all() -> None:
    """The power goes in each of its operations: the log is as before, or empty."""
    outcomes = set()
    for seed in range(200):
        disk = SimDisk(Random(seed))
        world = World(disk)
        world.fill(12)
        disk.crash_at(1 + seed % 10)
        with suppress(PowerCut):
            world.log.restart_at(5)
        world.disk = disk.crash()
        world.open()
        outcomes.add(marks(world))
    assert outcomes == {(0, 12, 12, 12), (5, 5, 5, 5)}


def test_files_of_deleted_records_do_not_come_back_into_a_log_that_began_anew() -> None:
    """They go when the manifest speaks of it, and their removal may be lost with the power."""
    came_back = 0
    for seed in range(10):
        disk = SimDisk(Random(seed))
        world = World(disk)
        world.fill(20)
        world.store.checkpoint_now()
        world.log.move_log_start(10)
        world.log.restart_at(0)
        # Until the journal has no more of it.
        other = world.partition(1)
        for _ in range(JOURNAL_FIRST_FILE_BYTES // JOURNAL_BLOCK_BYTES):
            world.append(b"v", log=other)
            world.commit()
        world.store.checkpoint_now()
        world.commit()
        world.disk = disk = disk.crash()
        came_back += any(each.endswith(".log") for each in disk.names(world.log.directory))
        world.open()
        assert marks(world) == (0, 0, 0, 0)
        assert not world.log.is_damaged
    assert came_back


def test_a_shared_partition_begins_with_the_watermark_that_is_known() -> None:
    world = World()
    world.fill(3)
    world.store.checkpoint_now()
    world.store.on_stable = lambda _: None
    world.fill(2)
    world.store.abandon()
    world.open()
    assert world.log.high_watermark == 5
    world.store.abandon()

    def shared(number: int) -> object:
        identity = world.log.identity
        return world.store.partition(identity, f"t-{number}", world.config, is_shared=True)

    world.partition = shared  # type: ignore[method-assign, assignment]
    world.open()
    assert world.log.log_end_offset == 5
    assert world.log.high_watermark <= 5


def test_cutting_at_the_end_forgets_an_epoch_without_records() -> None:
    world = World()
    world.log.begin_epoch(1)
    world.fill(2)
    world.log.begin_epoch(2)
    world.log.truncate(2)
    for _ in range(2):
        assert world.log.epochs.entries() == [(1, 0)]
        assert world.log.log_end_offset == 2
        world.restart(clean=False)
