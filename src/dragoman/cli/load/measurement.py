"""The times of a worker's measurement, and what it has measured. Times are monotonic seconds."""

from __future__ import annotations

import asyncio
import math
import time

from dragoman.cli.load.plan import Plan
from dragoman.cli.load.tally import Tally


class Measurement:
    def __init__(self, plan: Plan, start: float) -> None:
        self.start = start
        #: The end of the warm-up. What began before is not counted.
        self.counts_from = start + plan.warm_up_s
        self.end = math.inf if plan.duration_s is None else self.counts_from + plan.duration_s
        self.tally = Tally()
        #: The user ends it early.
        self.stopped = asyncio.Event()
        self._cpu_from = 0.0

    def begin_counting(self) -> None:
        self._cpu_from = time.process_time()

    def note_cpu(self) -> None:
        passed = time.monotonic() - self.counts_from
        if passed > 0:
            self.tally.cpu = [(time.process_time() - self._cpu_from) / passed]

    def note_end(self, now: float) -> None:
        """A broker that has not answered until the end has not saved any time."""
        self.tally.seconds = max(self.tally.seconds, min(now, self.end) - self.counts_from)

    def add(self, *, began: float, done: float, records: int, size: int) -> None:
        """Count a batch that has arrived where it should."""
        if began >= self.counts_from:
            seconds = done - self.counts_from
            self.tally.add(records=records, size=size, seconds=seconds)
            self.tally.latencies.add(done - began, records)
