"""The recorder: samples at the right times, slices, files, restarts and full disks.

Method: a scheduler and a clock in virtual time, a disk in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from dragoman import limits
from dragoman.telemetry.catalogue import Stats
from dragoman.telemetry.history import files, ranges
from dragoman.telemetry.history.files import DIRECTORY
from dragoman.telemetry.history.recorder import Recorder
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.scheduler import SimScheduler

BEGIN_S = 1_800_000_000
REQUESTS = ("requests_per_second", "kafka")
FREE = ("disk_free_bytes",)


class World:
    def __init__(self) -> None:
        self.scheduler = SimScheduler()
        self.disk = MemoryDisk()
        self.offset_s = 0
        self.is_full = False
        self.requests = 0
        self.parts = 0
        self.recorder = self.started()

    def started(self) -> Recorder:
        self.requests = 0
        recorder = Recorder(
            self.snapshot, self.disk, self.scheduler, self, lambda: self.is_full, self.monotonic()
        )
        recorder.begin()
        return recorder

    def restart(self) -> None:
        self.recorder.stop()
        self.recorder = self.started()

    def wall_ms(self) -> int:
        return round((BEGIN_S + self.offset_s + self.scheduler.time()) * 1000)

    def monotonic(self) -> float:
        return self.scheduler.time()

    def snapshot(self) -> Iterator[Stats]:
        self.requests += 150
        for _ in range(self.parts):
            yield {}
        yield {"requests_total": {("kafka", "Fetch"): self.requests}, "disk_free_bytes": 1 << 30}

    def run(self, seconds: float) -> None:
        self.scheduler.advance(seconds)

    def values(self, key: tuple[str, ...], seconds: int, step_s: int) -> list[float | None]:
        end = self.wall_ms() // 1000
        times = ranges.steps_of(end - seconds, end, step_s)
        steps = ranges.points(self.recorder.rings, [key], times)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                (found,) = stop.value
                assert isinstance(found, list)
                return found


def test_samples_are_of_multiples_of_the_step() -> None:
    world = World()
    world.run(7)
    world.run(60)
    assert [row.at - BEGIN_S for row in world.recorder.rings.fine.rows] == [15, 30, 45, 60]


def test_a_timer_that_is_early_takes_no_sample_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    whole = world.wall_ms
    monkeypatch.setattr(world, "wall_ms", lambda: whole() - 1)
    world.run(8)
    monkeypatch.setattr(world, "wall_ms", lambda: whole() - 3)
    world.run(60)
    assert [row.at - BEGIN_S for row in world.recorder.rings.fine.rows] == [15, 30, 45, 60]


def test_rates_are_per_second() -> None:
    world = World()
    world.run(61)
    assert world.values(REQUESTS, 60, 15) == pytest.approx([10.0] * 4, rel=0.01)


def test_five_minutes_become_one_sample() -> None:
    world = World()
    world.run(601)
    assert [row.at - BEGIN_S for row in world.recorder.rings.coarse.rows] == [300, 600]
    assert world.values(REQUESTS, 600, 300) == pytest.approx([10.0, 10.0], rel=0.01)


def test_an_hour_and_a_week_are_kept() -> None:
    world = World()
    world.run(8 * 86_400)
    rings = world.recorder.rings
    assert len(rings.fine.rows) == limits.HISTORY_FINE_ROWS
    assert len(rings.coarse.rows) == limits.HISTORY_COARSE_ROWS
    assert None not in world.values(REQUESTS, 7 * 86_400 - 600, 3600)


def test_points_of_a_short_step_are_of_coarse_samples_before_the_last_hour() -> None:
    world = World()
    world.run(7 * 3600)
    for step_s in (15, 120, 240):
        assert None not in world.values(REQUESTS, 6 * 3600, step_s)
        assert world.values(REQUESTS, 6 * 3600, step_s) == pytest.approx(
            [10.0] * (6 * 3600 // step_s), rel=0.01
        )


def test_points_before_the_first_sample_of_a_node_are_missing() -> None:
    world = World()
    world.recorder.stop()
    world.offset_s = 195
    world.recorder = world.started()
    world.run(406)
    before = [None] * (195 // 15)
    assert world.values(FREE, 600, 15) == [*before, *[1 << 30] * (405 // 15)]


def test_a_clock_that_was_wrong_for_a_moment_hides_no_older_sample() -> None:
    world = World()
    world.run(3 * 3600)
    world.offset_s = -BEGIN_S
    world.run(30)
    world.offset_s = 0
    world.run(60)
    assert None not in world.values(FREE, 2 * 3600, 30)[:-4]


def test_series_of_another_release_are_kept_in_rows_and_not_continued() -> None:
    world = World()
    world.run(20)
    later = ("figure_of_a_later_release", "kafka")
    relabelled = ("requests_per_second", "kafka", "label of a later release")
    for key in (later, relabelled):
        world.recorder.rings.columns.add(key)
    world.run(60)
    world.restart()
    world.run(60)
    rows = world.recorder.rings.fine.rows
    assert len(rows) == 9
    assert later in rows[2].columns.index
    assert set(rows[-1].columns.keys) == {REQUESTS, FREE}
    # A new series needs to know which budgets the others use.
    world.recorder.rings.columns = files.Columns([FREE])
    world.run(60)
    assert REQUESTS in world.recorder.rings.fine.rows[-1].columns.index


def test_samples_are_at_their_times_after_a_restart() -> None:
    world = World()
    world.run(1000)
    before = [(row.at, list(row.values)) for row in world.recorder.rings.fine.rows]
    world.recorder.stop()
    world.run(600)
    world.restart()
    world.run(100)
    rows = world.recorder.rings.fine.rows
    assert [(row.at, list(row.values)) for row in rows][: len(before)] == before
    found = world.values(FREE, 1700, 60)
    down = [each for each, value in enumerate(found) if value is None]
    assert 9 <= len(down) <= 10
    assert down == list(range(down[0], down[0] + len(down))), "one gap, while the node was down"
    assert len(world.disk.names(DIRECTORY)) == 2, "the files are continued"


def test_a_restart_at_any_time_changes_no_sample() -> None:
    world = World()
    for _ in range(30):
        world.run(97)
        rows = [(row.at, list(row.values)) for row in world.recorder.rings.coarse.rows]
        world.restart()
        world.run(1)
        assert [(row.at, list(row.values)) for row in world.recorder.rings.coarse.rows] == rows


def test_a_clock_that_is_set_back_keeps_what_there_is() -> None:
    world = World()
    world.run(100)
    world.offset_s = -3600
    world.run(3600)
    assert world.values(FREE, 60, 15) == [float(1 << 30)] * 4
    world.restart()
    world.run(61)
    assert world.values(FREE, 60, 15) == [float(1 << 30)] * 4


def test_nothing_is_written_while_the_disk_is_full() -> None:
    world = World()
    world.run(100)
    sizes = world.disk.free_bytes()
    world.is_full = True
    world.run(600)
    assert world.disk.free_bytes() == sizes
    assert world.values(REQUESTS, 600, 60) == pytest.approx([10.0] * 10, rel=0.01)
    world.is_full = False
    world.run(100)
    assert world.disk.free_bytes() < sizes


def test_a_refused_write_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.run(100)

    def refuse(*_: object) -> None:
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(files.Writer, "append", refuse)
    with caplog.at_level(logging.WARNING):
        world.run(600)
    assert [record.message for record in caplog.records] == [
        "the history is not written: [Errno 5] the disk is broken"
    ]


def test_damage_is_logged_once_and_loses_only_what_it_hits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.run(1000)
    world.recorder.stop()
    path = f"{DIRECTORY}/15s-00000001"
    file = world.disk.open(path, "write")
    middle = file.size() // 2
    file.write([bytes([file.read(1, middle)[0] ^ 0xFF])], middle)
    file.close()
    with caplog.at_level(logging.WARNING):
        world.restart()
        world.run(100)
    assert len(caplog.records) == 1
    assert "bytes of the history are damaged and left out" in caplog.text
    assert sum(row.at <= BEGIN_S + 1000 for row in world.recorder.rings.fine.rows) == 65


def test_long_work_is_done_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.parts = 50
    world.run(14.9)
    # Every look at the clock takes a fifth of a slice.
    spent = 0.0

    def monotonic() -> float:
        nonlocal spent
        spent += limits.HISTORY_TURN_S / 5
        return spent

    monkeypatch.setattr(world, "monotonic", monotonic)
    world.run(0.11)
    assert not world.recorder.rings.fine.rows
    world.run(1)
    assert len(world.recorder.rings.fine.rows) == 1


def test_a_failing_snapshot_does_not_end_the_history(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()

    def fail() -> Iterator[Stats]:
        raise ValueError("broken")
        yield {}

    monkeypatch.setattr(world.recorder, "_snapshot", fail)
    world.run(20)
    assert "a sample of the history failed" in caplog.text
    monkeypatch.setattr(world.recorder, "_snapshot", world.snapshot)
    world.run(20)
    assert len(world.recorder.rings.fine.rows) == 1


def test_series_without_values_for_a_week_give_up_their_columns() -> None:
    world = World()
    world.run(1000)
    world.recorder.rings.columns.add(("topic_bytes_in_per_second", "gone", "kafka"))
    world.run(2 * 86_400)
    assert len(world.recorder.rings.columns) == 2
    assert None not in world.values(REQUESTS, 86_400, 3600)
