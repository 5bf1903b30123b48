"""The node-wide budget for bytes in flight: requests arriving or being worked on, and replies that
wait for an earlier one or for a peer that does not take them.

Memory is charged as it is taken. Each connection reads until others hold more than its ceiling:

    new          three quarters of the budget: a connection that has never been answered
    working      the budget: one that has been answered, between two requests
    finishing    a quarter above the budget: the same in the middle of a request

Connections that have done nothing yet therefore cannot take the whole budget from those that work,
and a request that has begun can still end when the budget is used up. What a connection itself
holds does not count against it: one alone may always finish. Past its ceiling a connection is not
read, and waits until a fifth of the ceiling is free again. Builders of large replies ask for `room`
first. Peers that keep others waiting are found by `stalled.py`.
"""

from __future__ import annotations

from typing import Protocol


class Paused(Protocol):
    def resume(self) -> None: ...


class Ceiling:
    """What may be used before connections of one kind stop reading, and those that wait there."""

    __slots__ = ("bytes_max", "paused", "resume_below")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.resume_below = bytes_max - bytes_max // 5
        self.paused: dict[Paused, None] = {}


class MemoryBudget:
    __slots__ = ("_bytes_max", "_ceilings", "_is_waited_for", "finishing", "new", "used", "working")

    def __init__(self, bytes_max: int, *, bounds_working: bool = True) -> None:
        """`bounds_working` is false where connections that work are few, and must go on."""
        self._bytes_max = bytes_max
        unbounded = 1 << 62
        self.new = Ceiling(bytes_max - bytes_max // 4)
        self.working = Ceiling(bytes_max if bounds_working else unbounded)
        self.finishing = Ceiling(bytes_max + bytes_max // 4 if bounds_working else unbounded)
        self._ceilings = (self.new, self.working, self.finishing)
        self._is_waited_for = False
        self.used = 0

    @property
    def is_exhausted(self) -> bool:
        return self.used >= self._bytes_max

    @property
    def missing(self) -> int:
        """What has to be given back before all connections may read on; 0 while none waits."""
        lowest = [each.resume_below for each in self._ceilings if each.paused]
        if self.is_exhausted:
            lowest.append(self.working.resume_below)
        return max(0, self.used - min(lowest) + 1) if lowest else 0

    @property
    def room(self) -> int:
        return max(0, self._bytes_max - self.used)

    def take(self, size: int) -> None:
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0
        if self._is_waited_for:
            self._resume()

    def change(self, size: int) -> None:
        """Take, or give back when `size` is negative."""
        if size > 0:
            self.take(size)
        else:
            self.give_back(-size)

    def wait(self, paused: Paused, ceiling: Ceiling) -> None:
        """Have `resume` called when there is room again below the ceiling."""
        ceiling.paused[paused] = None
        self._is_waited_for = True

    def forget(self, paused: Paused) -> None:
        for ceiling in self._ceilings:
            ceiling.paused.pop(paused, None)

    def _resume(self) -> None:
        for ceiling in self._ceilings:
            if ceiling.paused and self.used < ceiling.resume_below:
                paused, ceiling.paused = ceiling.paused, {}
                for each in paused:
                    each.resume()
        self._is_waited_for = any(each.paused for each in self._ceilings)
