"""When a worker's next batch is due, and whether there is one.

With a rate, batch k is due at `start + k * interval`, whether or not the broker has answered the
batches before: a latency begins there, so that a broker that stalls cannot hide behind the client
that waits for it (coordinated omission). Batches that were due before the end are handed out after
it, too. Without a rate, a batch is due when it is asked for.

Times are those of the monotonic clock, which the processes of a machine share.
"""

from __future__ import annotations

import math


class Schedule:
    def __init__(
        self,
        *,
        start: float,
        counts_from: float,
        end: float,
        interval: float | None,
        phase: float = 0.0,
        batches_max: int | None = None,
    ) -> None:
        """`batches_max` counts those that are due after the warm-up. `phase` delays all, so that
        workers take turns.
        """
        self._first = start + phase
        self._counts_from = counts_from
        self._end = end
        self._interval = interval
        self._left = batches_max
        self._taken = 0

    def take(self, now: float) -> float | None:
        """When the next batch is due; None at the end."""
        if self._left == 0:
            return None
        due = now if self._interval is None else self._first + self._taken * self._interval
        if due >= self._end:
            return None
        self._taken += 1
        if self._left is not None and due >= self._counts_from:
            self._left -= 1
        return due

    def stop(self, now: float) -> None:
        """Nothing is due any more from now on."""
        self._end = min(self._end, now)

    def overdue(self, now: float) -> int:
        """Batches that should have been taken by now."""
        if self._interval is None:
            return 0
        due = math.ceil((min(now, self._end) - self._first) / self._interval)
        missing = max(0, due - self._taken)
        return missing if self._left is None else min(missing, self._left)
