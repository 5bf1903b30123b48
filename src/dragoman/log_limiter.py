"""A rate limit for log lines that peers can cause: the first few of an interval, then a count.

A peer that connects and sends garbage a thousand times a second would otherwise fill the disk with
lines, and hide all others. Suppressed lines are counted, and the count is logged when the interval
is over.
"""

from __future__ import annotations

import logging

from dragoman.limits import LIMITED_LOG_INTERVAL_S, LIMITED_LOG_LINES_MAX
from dragoman.world import Scheduler


class LogLimiter:
    __slots__ = ("_held_back", "_is_counting", "_level", "_lines", "_logger", "_scheduler")

    def __init__(self, logger: logging.Logger, scheduler: Scheduler) -> None:
        self._logger = logger
        self._scheduler = scheduler
        #: Whether an interval has begun, and the counts of lines logged and suppressed in it.
        self._is_counting = False
        self._lines = 0
        self._held_back = 0
        self._level = logging.NOTSET

    def info(self, text: str, *values: object) -> None:
        self.log(logging.INFO, text, *values)

    def warning(self, text: str, *values: object) -> None:
        self.log(logging.WARNING, text, *values)

    def log(self, level: int, text: str, *values: object) -> None:
        if self.admits(level):
            self._logger.log(level, text, *values)

    def admits(self, level: int) -> bool:
        """Count a line, and say whether it is to be logged."""
        if not self._logger.isEnabledFor(level):
            return False
        if not self._is_counting:
            self._is_counting = True
            self._scheduler.call_later(LIMITED_LOG_INTERVAL_S, self._interval_over)
        if self._lines < LIMITED_LOG_LINES_MAX:
            self._lines += 1
            return True
        self._held_back += 1
        self._level = max(self._level, level)
        return False

    def _interval_over(self) -> None:
        held_back, self._held_back = self._held_back, 0
        level, self._level = self._level, logging.NOTSET
        self._is_counting = False
        self._lines = 0
        if held_back:
            text = "... and %s more lines like these in the last %g s"
            self._logger.log(level, text, f"{held_back:,}", LIMITED_LOG_INTERVAL_S)
