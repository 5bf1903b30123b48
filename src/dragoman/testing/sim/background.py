"""The background port on virtual time.

`SimBackground` takes its time: a sync covers what was written before it began and is durable only
at its end, so a power cut in between finds the files as they were. `ImmediateBackground` does each
job in a callback of its own, for tests that want no delay, on any disk and any scheduler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import msgspec

from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.file import SlowSync
from dragoman.world import BackgroundJob, Disk, Handle, Scheduler, admit, perform

Done: TypeAlias = Callable[[OSError | None], None]


class SyncDelays(msgspec.Struct, frozen=True, kw_only=True):
    """The duration of a job.

    Up to `usual_seconds_max`, and up to `slow_seconds_max` at the given rate.
    """

    usual_seconds_max: float = 0.01
    slow_seconds_max: float = 2.0
    slow_rate: float = 0.0


class ImmediateBackground:
    def __init__(self, disk: Disk, scheduler: Scheduler) -> None:
        self._disk = disk
        self._scheduler = scheduler
        self._waiting: deque[tuple[BackgroundJob, Done, int]] = deque()
        self._waiting_bytes = 0
        self._closed = False

    def submit(self, job: BackgroundJob, done: Done) -> None:
        assert not self._closed, "a job was submitted after close"
        size = admit(job, len(self._waiting), self._waiting_bytes)
        self._waiting_bytes += size
        self._waiting.append((job, done, size))
        self._scheduler.call_soon(self._run)

    def close(self) -> None:
        self._closed = True
        first: OSError | None = None
        while self._waiting:
            error = _outcome(self._disk, self._waiting.popleft()[0])
            first = first or error
        if first is not None:
            raise first

    def _run(self) -> None:
        if self._waiting:
            job, done, size = self._waiting.popleft()
            self._waiting_bytes -= size
            done(_outcome(self._disk, job))


class SimBackground:
    def __init__(
        self,
        disk: SimDisk,
        scheduler: Scheduler,
        random: Random,
        delays: SyncDelays | None = None,
    ) -> None:
        self._disk = disk
        self._scheduler = scheduler
        self._random = random
        self._delays = delays if delays is not None else SyncDelays()
        #: The first one is in progress.
        self._waiting: deque[tuple[BackgroundJob, Done, int]] = deque()
        self._waiting_bytes = 0
        self._begun: list[SlowSync] | None = None
        self._timer: Handle | None = None
        self._closed = False

    def submit(self, job: BackgroundJob, done: Done) -> None:
        assert not self._closed, "a job was submitted after close"
        size = admit(job, len(self._waiting), self._waiting_bytes)
        self._waiting_bytes += size
        self._waiting.append((job, done, size))
        if len(self._waiting) == 1:
            self._begin()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        first: OSError | None = None
        while self._waiting:
            _, error = self._do_first()
            first = first or error
        if first is not None:
            raise first

    def _begin(self) -> None:
        self._begun = self._begin_syncs(self._waiting[0][0])
        self._timer = self._scheduler.call_later(self._duration(), self._finish)

    def _finish(self) -> None:
        done, error = self._do_first()
        if self._waiting:
            self._begin()
        done(error)

    def _begin_syncs(self, job: BackgroundJob) -> list[SlowSync]:
        # A file that was removed is ignored, as by `world.sync_path`.
        return [self._disk.begin_sync(path) for path in job.sync if self._disk.exists(path)]

    def _do_first(self) -> tuple[Done, OSError | None]:
        job, done, size = self._waiting.popleft()
        self._waiting_bytes -= size
        syncs = self._begin_syncs(job) if self._begun is None else self._begun
        self._begun = None
        try:
            for sync in syncs:
                sync.finish()
        except OSError as error:
            return done, error
        return done, _outcome(self._disk, msgspec.structs.replace(job, sync=()))

    def _duration(self) -> float:
        delays = self._delays
        slow = self._random.random() < delays.slow_rate
        return self._random.uniform(
            0.0, delays.slow_seconds_max if slow else delays.usual_seconds_max
        )


def _outcome(disk: Disk, job: BackgroundJob) -> OSError | None:
    try:
        perform(disk, job)
    except OSError as error:
        return error
    return None
