"""Background work on virtual time: order, delays, errors, bounds, and power cuts in the middle."""

from __future__ import annotations

import errno
from random import Random

import pytest

from dragoman.limits import BACKGROUND_JOBS_MAX
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground, SimBackground, SyncDelays
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults, PowerCut
from dragoman.testing.sim.scheduler import SimScheduler
from dragoman.world import Background, BackgroundJob, Replacement, read_whole


class World:
    def __init__(self, kind: str, seed: int = 1, faults: DiskFaults | None = None) -> None:
        self.scheduler = SimScheduler()
        self.disk = SimDisk(Random(seed), faults)
        self.background: Background
        if kind == "sim":
            self.background = SimBackground(self.disk, self.scheduler, Random(seed))
        else:
            self.background = ImmediateBackground(self.disk, self.scheduler)


@pytest.fixture(params=["sim", "immediate"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def replacing(path: str, data: bytes = b"x") -> BackgroundJob:
    return BackgroundJob(replace=(Replacement(path, data),))


def test_jobs_are_done_in_order_and_an_error_does_not_stop_the_next(world: World) -> None:
    seen: list[tuple[str, int | None]] = []
    for path in ("a", "no/b", "c"):
        world.background.submit(
            replacing(path), lambda e, path=path: seen.append((path, e.errno if e else None))
        )
    assert seen == []
    world.scheduler.run_until_idle()
    assert seen == [("a", None), ("no/b", errno.ENOENT), ("c", None)]
    assert world.disk.names("") == ["a", "c"]


def test_a_done_may_submit_the_next_job(world: World) -> None:
    seen: list[OSError | None] = []
    world.background.submit(
        replacing("a"), lambda _: world.background.submit(replacing("b"), seen.append)
    )
    world.scheduler.run_until_idle()
    assert seen == [None]
    assert world.disk.names("") == ["a", "b"]


def test_close_finishes_what_was_submitted_and_calls_no_done(world: World) -> None:
    seen: list[OSError | None] = []
    for path in ("a", "b", "c"):
        world.background.submit(replacing(path), seen.append)
    world.background.close()
    world.scheduler.run_until_idle()
    assert seen == []
    assert world.disk.names("") == ["a", "b", "c"]


def test_close_raises_the_first_unreported_error(world: World) -> None:
    for path in ("a", "no/b", "no/c"):
        world.background.submit(replacing(path), lambda _: None)
    with pytest.raises(FileNotFoundError, match="no/b"):
        world.background.close()
    assert world.disk.names("") == ["a"]


def test_more_jobs_than_the_bound_are_refused(world: World) -> None:
    seen: list[OSError | None] = []
    for _ in range(BACKGROUND_JOBS_MAX):
        world.background.submit(BackgroundJob(), seen.append)
    with pytest.raises(OSError, match="waiting already"):
        world.background.submit(BackgroundJob(), seen.append)
    world.scheduler.run_until_idle()
    assert seen == [None] * BACKGROUND_JOBS_MAX
    world.background.submit(BackgroundJob(), seen.append)


@pytest.mark.parametrize("kind", ["sim", "immediate"])
def test_a_failed_sync_reaches_done(kind: str) -> None:
    world = World(kind, faults=DiskFaults(sync_error_at=1))
    world.disk.open("a", "create").close()
    seen: list[OSError | None] = []
    world.background.submit(BackgroundJob(sync=("a", "missing")), seen.append)
    world.scheduler.run_until_idle()
    assert [error.errno for error in seen if error] == [errno.EIO]


@pytest.mark.parametrize("kind", ["sim", "immediate"])
def test_a_power_cut_inside_a_job_comes_out_of_the_scheduler(kind: str) -> None:
    world = World(kind)
    seen: list[OSError | None] = []
    world.background.submit(replacing("a"), seen.append)
    world.disk.crash_at(3)
    with pytest.raises(PowerCut):
        world.scheduler.run_until_idle()
    assert seen == []


def test_a_sync_takes_time_and_covers_only_what_came_before_it() -> None:
    lost_later = lost_meanwhile = kept_all = 0
    for seed in range(100):
        world = World("sim", seed)
        file = world.disk.open("a", "create")
        world.disk.sync_directory("")
        file.write([b"a" * 512], 0)
        seen: list[OSError | None] = []
        world.background.submit(BackgroundJob(sync=("a",)), seen.append)
        file.write([b"b" * 512], 512)
        if seed % 2:
            found = world.disk.crash().image()["a"]
            assert seen == []
            lost_meanwhile += found[:512] != b"a" * 512
        else:
            world.scheduler.run_until_idle()
            assert seen == [None]
            found = world.disk.crash().image()["a"]
            assert found[:512] == b"a" * 512
            lost_later += len(found) == 512
            kept_all += found == b"a" * 512 + b"b" * 512
    assert lost_later
    assert lost_meanwhile
    assert kept_all


def test_slow_jobs_come_at_their_rate_and_delays_from_the_seed() -> None:
    def durations(seed: int) -> list[float]:
        scheduler = SimScheduler()
        delays = SyncDelays(usual_seconds_max=0.01, slow_seconds_max=5.0, slow_rate=0.2)
        background = SimBackground(SimDisk(Random(1)), scheduler, Random(seed), delays)
        ends: list[float] = []
        for _ in range(50):
            background.submit(BackgroundJob(), lambda _: ends.append(scheduler.time()))
        scheduler.run_until_idle()
        return [b - a for a, b in zip([0.0, *ends], ends, strict=False)]

    assert durations(1) == durations(1)
    slow = [duration for duration in durations(1) if duration > 0.01]
    assert 2 <= len(slow) <= 20


def test_immediate_background_works_on_any_disk() -> None:
    disk, scheduler = MemoryDisk(), SimScheduler()
    ImmediateBackground(disk, scheduler).submit(replacing("a", b"data"), lambda _: None)
    scheduler.run_until_idle()
    assert read_whole(disk, "a") == b"data"
