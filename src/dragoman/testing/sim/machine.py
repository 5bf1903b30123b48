"""What a simulated disk and its open files share: power, faults, counts and the trace.

One object for each life of the machine; counters and trace go on over crashes.
"""

from __future__ import annotations

import enum
from collections import deque
from random import Random
from typing import NoReturn

from dragoman.testing.sim.faults import DiskCounters, DiskFaults, Operation, PowerCut


class SyncOutcome(enum.Enum):
    DONE = 0
    FAILED = 1
    LOST = 2


class Machine:
    __slots__ = (
        "counters",
        "faults",
        "has_power",
        "open_files",
        "operations_until_cut",
        "random",
        "trace",
    )

    def __init__(
        self,
        random: Random,
        faults: DiskFaults,
        counters: DiskCounters,
        trace: deque[Operation],
    ) -> None:
        self.random = random
        self.faults = faults
        self.counters = counters
        self.trace = trace
        self.has_power = True
        self.open_files = 0
        #: The power goes when this reaches 0; it starts there and goes down, so it never does.
        self.operations_until_cut = 0

    def rebooted(self) -> Machine:
        self.has_power = False
        return Machine(self.random, self.faults, self.counters, self.trace)

    def check_power(self) -> None:
        if not self.has_power:
            raise PowerCut("this disk has no power")

    def record(self, name: str, path: str, first: int | str = "", second: int | str = "") -> bool:
        """Count one operation. True: the power goes during it."""
        self.counters.operations += 1
        self.note(name, path, first, second)
        self.operations_until_cut -= 1
        return self.operations_until_cut == 0

    def note(self, name: str, path: str, first: int | str = "", second: int | str = "") -> None:
        self.trace.append(Operation(self.counters.operations, name, path, first, second))

    def cut(self) -> NoReturn:
        self.has_power = False
        self.note("power cut", "")
        raise PowerCut(f"at operation {self.counters.operations}")

    def fault_is_due(self, rate: float, at: int | None, count: int) -> bool:
        return count == at or (rate > 0.0 and self.random.random() < rate)

    def next_sync(self) -> SyncOutcome:
        """Count a sync or durable write, and say how it goes."""
        faults, counters = self.faults, self.counters
        counters.syncs += 1
        if self.fault_is_due(faults.sync_error_rate, faults.sync_error_at, counters.syncs):
            return SyncOutcome.FAILED
        if self.fault_is_due(faults.lost_write_rate, faults.lost_write_at, counters.syncs):
            return SyncOutcome.LOST
        return SyncOutcome.DONE
