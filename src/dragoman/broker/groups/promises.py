"""Member ids that were given out and not used yet (KIP-394), each until the end of a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dragoman.broker.groups.timer import DeadlineTimer
from dragoman.types import MemberId
from dragoman.world import Scheduler


class Promises:
    __slots__ = ("_scheduler", "_timers", "_when_lapsed")

    def __init__(self, scheduler: Scheduler, when_lapsed: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._when_lapsed = when_lapsed
        self._timers: dict[MemberId, DeadlineTimer] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def give(self, member_id: MemberId, seconds: float) -> None:
        timer = DeadlineTimer(self._scheduler, partial(self._lapse, member_id))
        self._timers[member_id] = timer
        timer.arm(seconds)

    def take(self, member_id: MemberId) -> bool:
        """Use up a promise. False when there is none."""
        timer = self._timers.pop(member_id, None)
        if timer is None:
            return False
        timer.stop()
        return True

    def clear(self) -> None:
        for timer in self._timers.values():
            timer.stop()
        self._timers.clear()

    def _lapse(self, member_id: MemberId) -> None:
        del self._timers[member_id]
        self._when_lapsed()
