"""What the groups of a node hold in memory, and the bound on all of it.

Members bring metadata and get assignments, both opaque and up to a megabyte; group ids and the
metadata of offsets stay as long as their groups. A running total would have to follow every way in
which members and groups come and go. So what comes in is added up, and when that could be too much,
all groups are measured anew, at most once a second.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman import limits
from dragoman.broker.errors import TooManyGroups
from dragoman.world import Clock


class GroupMemory:
    def __init__(self, measure: Callable[[], int], clock: Clock) -> None:
        self._measure = measure
        self._clock = clock
        #: As measured last, and what has come in since.
        self._measured = 0
        self._added = 0
        self._measured_at = -limits.GROUPS_MEASURE_INTERVAL_S

    def take(self, size: int) -> None:
        """Make room for so many bytes; raises `TooManyGroups` when there is none."""
        most = limits.GROUPS_BYTES_MAX
        is_much = self._added + size > most // 8
        if is_much or self._measured + self._added + size > most:
            self._look()
        if self._measured + self._added + size > most:
            raise TooManyGroups(f"the groups of this node may hold {most} bytes in memory")
        self._added += size

    def _look(self) -> None:
        now = self._clock.monotonic()
        if now - self._measured_at >= limits.GROUPS_MEASURE_INTERVAL_S:
            self._measured_at = now
            self._measured = self._measure()
            self._added = 0
