"""The node-wide budget for bytes in flight: requests arriving or being worked on, and replies that
wait for an earlier one or for a peer that does not take them.

Past the budget no connection reads on; what is being received already may finish. Reading resumes
once a fifth of the budget is free again. Whoever builds large replies asks for `room` first. Peers
that keep others waiting are found by `stalled.py`.
"""

from __future__ import annotations

from typing import Protocol


class Paused(Protocol):
    def resume(self) -> None: ...


class MemoryBudget:
    __slots__ = ("_bytes_max", "_paused", "_resume_below", "used")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._resume_below = bytes_max - bytes_max // 5
        self._paused: dict[Paused, None] = {}
        self.used = 0

    @property
    def is_exhausted(self) -> bool:
        return self.used >= self._bytes_max

    @property
    def missing(self) -> int:
        """What has to be given back before connections may read on; 0 while none has to wait."""
        if not self._paused and not self.is_exhausted:
            return 0
        return self.used - self._resume_below + 1

    @property
    def room(self) -> int:
        return max(0, self._bytes_max - self.used)

    def take(self, size: int) -> None:
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0
        if self._paused and self.used < self._resume_below:
            paused, self._paused = self._paused, {}
            for each in paused:
                each.resume()

    def change(self, size: int) -> None:
        """Take, or give back when `size` is negative."""
        if size > 0:
            self.take(size)
        else:
            self.give_back(-size)

    def wait(self, paused: Paused) -> None:
        """Have `resume` called when there is room again."""
        self._paused[paused] = None

    def forget(self, paused: Paused) -> None:
        self._paused.pop(paused, None)
