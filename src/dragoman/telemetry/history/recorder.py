"""Takes the samples of a node's history, and keeps them in its files.

A sample begins when the wall clock reaches a multiple of its step, so that the samples of all nodes
are of the same times. What takes long is done in slices of half a millisecond with pauses between
them. A sample that is not over when the next one is due takes its place: the next one is left out.

Nothing is written while the disk is full. What the files refuse is lost to them only: the
samples are in memory all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from dragoman.limits import (
    HISTORY_COARSE_ROWS,
    HISTORY_COARSE_S,
    HISTORY_FINE_ROWS,
    HISTORY_FINE_S,
    HISTORY_PAUSE_S,
    HISTORY_TURN_S,
)
from dragoman.telemetry.catalogue import Stats
from dragoman.telemetry.history.figures import is_known
from dragoman.telemetry.history.files import Loaded, Writer, load
from dragoman.telemetry.history.ring import Columns, Rings, Row, Steps, coarse_row, live_keys
from dragoman.telemetry.history.sampler import Sampler
from dragoman.world import Clock, Disk, Handle, Scheduler

log = logging.getLogger("dragoman.history")
FINE, COARSE = "15s-", "5m-"


class Recorder:
    def __init__(
        self,
        snapshot: Callable[[], Iterable[Stats]],
        disk: Disk,
        scheduler: Scheduler,
        clock: Clock,
        is_disk_full: Callable[[], bool],
        started_at: float,
    ) -> None:
        """`started_at` is when the node started, and its counters with it."""
        self.rings = Rings()
        self.sampler = Sampler()
        self._snapshot = snapshot
        self._disk = disk
        self._scheduler = scheduler
        self._clock = clock
        self._is_disk_full = is_disk_full
        self._sampled_at = started_at
        self._fine = Writer(disk, FINE, HISTORY_FINE_ROWS)
        self._coarse = Writer(disk, COARSE, HISTORY_COARSE_ROWS)
        self._work: Steps[None] | None = None
        self._pause: Handle | None = None
        self._timer: Handle | None = None
        self._is_refused = False
        #: End of the last coarse interval; None before the first sample.
        self._combined_at: int | None = None

    # ---- time

    def begin(self) -> None:
        """Read the files, then take samples until `stop`."""
        self._run(self._load())
        now = self._clock.wall_ms() // 1000
        self._wait(now - now % HISTORY_FINE_S)

    def stop(self) -> None:
        for handle in (self._pause, self._timer):
            if handle is not None:
                handle.cancel()
        if self._work is not None:
            self._work.close()
            self._work = None
        self._fine.close()
        self._coarse.close()

    def _wait(self, last: int) -> None:
        """Until the sample after the last one is due."""
        delay_ms = (last + HISTORY_FINE_S) * 1000 - self._clock.wall_ms()
        self._timer = self._scheduler.call_later(delay_ms / 1000, self._due)

    def _due(self) -> None:
        # The timer may be a little early by the wall clock.
        at = round(self._clock.wall_ms() / 1000 / HISTORY_FINE_S) * HISTORY_FINE_S
        self._wait(at)
        if self._work is None:
            self._run(self._sample(at))

    def _run(self, work: Steps[None]) -> None:
        self._work = work
        self._turn()

    def _turn(self) -> None:
        """Work for a moment, and pause."""
        assert self._work is not None
        until = self._clock.monotonic() + HISTORY_TURN_S
        try:
            while self._clock.monotonic() < until:
                next(self._work)
        except StopIteration:
            self._work = None
        except Exception:
            self._work = None
            # The node serves its clients without a history.
            log.exception("a sample of the history failed")
        else:
            self._pause = self._scheduler.call_later(HISTORY_PAUSE_S, self._turn)

    # ---- work

    def _load(self) -> Steps[None]:
        try:
            coarse = yield from load(self._disk, COARSE, HISTORY_COARSE_ROWS)
            fine = yield from load(self._disk, FINE, HISTORY_FINE_ROWS, coarse.columns)
        except OSError as error:
            log.warning("the history cannot be read: %s", error)
            return
        rings = self.rings
        rings.coarse.rows.extend(coarse.rows)
        rings.fine.rows.extend(fine.rows)
        rings.columns = _of_this_release(fine.columns or coarse.columns or Columns())
        self._coarse.resume(coarse)
        self._fine.resume(fine)
        _report(coarse, fine)

    def _sample(self, at: int) -> Steps[None]:
        now = self._clock.monotonic()
        interval_s, self._sampled_at = max(now - self._sampled_at, 1e-3), now
        fine = self.rings.fine
        row = yield from self.sampler.sample(self._snapshot(), at, interval_s, self.rings.columns)
        fine.rows.append(row)
        yield from self._write(self._fine, row)
        ended_at = at - at % HISTORY_COARSE_S
        if self._combined_at not in (None, ended_at) or at == ended_at:
            yield from self._combine(ended_at)
        self._combined_at = ended_at

    def _combine(self, at: int) -> Steps[None]:
        """End a coarse interval."""
        since = [each for each in self.rings.fine.rows if at - HISTORY_COARSE_S < each.at <= at]
        if not since:
            return
        row = yield from coarse_row(since, at)
        self.rings.coarse.rows.append(row)
        yield from self._write(self._coarse, row)
        if self._coarse.is_full:
            yield from self._forget_idle()

    def _forget_idle(self) -> Steps[None]:
        """Free the columns of series without values in all of the history."""
        keys = yield from live_keys(self.rings)
        if len(keys) < len(self.rings.columns):
            self.rings.columns = Columns(keys)

    def _write(self, writer: Writer, row: Row) -> Steps[None]:
        if self._is_disk_full():
            return
        try:
            yield from writer.append(row)
            self._is_refused = False
        except OSError as error:
            if not self._is_refused:
                # Once, until a write succeeds.
                log.warning("the history is not written: %s", error)
            self._is_refused = True


def _of_this_release(columns: Columns) -> Columns:
    """The columns to continue: after an upgrade or a rollback, without the other release's series,
    which stay in the rows that have them.
    """
    known = [each for each in columns.keys if is_known(each)]
    return columns if len(known) == len(columns) else Columns(known)


def _report(*loaded: Loaded) -> None:
    damaged = sum(each.damaged_bytes for each in loaded)
    if damaged:
        files = sum(len(each.files) for each in loaded)
        log.warning(
            "%s bytes of the history are damaged and left out, in %d files", f"{damaged:,}", files
        )
