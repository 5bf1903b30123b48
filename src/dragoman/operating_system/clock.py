"""Time and randomness of the system."""

from __future__ import annotations

import random
import time

from dragoman.world import Random


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    #: Without a call of our own: it is read with every request.
    monotonic = staticmethod(time.monotonic)


def system_random() -> Random:
    return random.SystemRandom()
