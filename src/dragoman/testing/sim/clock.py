"""`SimClock`: the clock port on virtual time."""

from __future__ import annotations

from typing import Protocol

#: 2024-01-01 00:00:00 UTC: far enough from 0 that a forgotten conversion shows.
_START_WALL_MS = 1_704_067_200_000


class HasTime(Protocol):
    def time(self) -> float: ...


class SimClock:
    """Reads a scheduler's time. The wall clock can be moved by hand, the monotonic one cannot."""

    def __init__(self, scheduler: HasTime, start_wall_ms: int = _START_WALL_MS) -> None:
        self._scheduler = scheduler
        self._wall_ms_at_zero = start_wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms_at_zero + int(self._scheduler.time() * 1000)

    def monotonic(self) -> float:
        return self._scheduler.time()

    def jump(self, milliseconds: int) -> None:
        """Somebody set the wall clock, forwards or back."""
        self._wall_ms_at_zero += milliseconds
