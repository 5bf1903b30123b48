"""Syncs of the journal that take long: lines of the log, and what health checks say.

Clients wait for these syncs. The first slow one of an interval is logged at once; the others are
counted, and logged with the longest at the end of the interval.
"""

from __future__ import annotations

import logging

from dragoman.limits import LIMITED_LOG_INTERVAL_S, SLOW_SYNC_S
from dragoman.world import Clock, Scheduler

log = logging.getLogger("dragoman.log")


class SlowSyncs:
    __slots__ = ("_clock", "_is_counting", "_scheduler", "count", "last_at", "last_s", "longest_s")

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._is_counting = False
        #: Slow syncs of this interval that have no line, and the longest of them.
        self.count = 0
        self.longest_s = 0.0
        #: When the last slow sync ended, by the monotonic clock, and how long it took.
        self.last_at: float | None = None
        self.last_s = 0.0

    def note(self, seconds: float, size: int) -> None:
        """A sync of this many bytes has ended."""
        if seconds < SLOW_SYNC_S:
            return
        self.last_at, self.last_s = self._clock.monotonic(), seconds
        if self._is_counting:
            self.count += 1
            self.longest_s = max(self.longest_s, seconds)
            return
        self._is_counting = True
        self._scheduler.call_later(LIMITED_LOG_INTERVAL_S, self._interval_over)
        fields = {"ms": round(seconds * 1000), "bytes": size}
        log.warning("the disk is slow: a sync of the journal took long", extra=fields)

    def _interval_over(self) -> None:
        count, self.count = self.count, 0
        longest_s, self.longest_s = self.longest_s, 0.0
        self._is_counting = False
        if count:
            fields = {"count": count, "longest_ms": round(longest_s * 1000)}
            log.warning("the disk is slow: more syncs of the journal took long", extra=fields)

    def recent_s(self, within_s: float) -> float:
        """How long the last slow sync took, if it ended within these seconds; else 0."""
        if self.last_at is None or self._clock.monotonic() - self.last_at > within_s:
            return 0.0
        return self.last_s
