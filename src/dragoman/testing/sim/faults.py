"""Faults of a simulated disk: which may happen, which did, and the machine that loses power.

A disk and its open files share one `Machine` for each of its lives.
"""

from __future__ import annotations

import enum
from collections import deque
from random import Random
from typing import NoReturn

import msgspec

from dragoman.limits import SIM_FILE_BYTES_MAX


class PowerCut(BaseException):
    """The power has failed. Not an `Exception`: no code under test may catch it and continue."""


class DiskFaults(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a disk. Rates are probabilities from 0 to 1; `*_at` counts from 1 since the
    disk was created.

    The loss of unsynced data in a power cut is not a fault but the contract; it needs no setting.
    """

    #: A sync, or a durable write, fails with EIO. As on Linux the pages are clean afterwards: part
    #: of the data is lost, stays readable until the power fails, and the next sync succeeds.
    sync_error_rate: float = 0.0
    sync_error_at: int | None = None
    #: A sync of a directory fails with EIO; its changes stay as uncertain as they were.
    directory_sync_error_rate: float = 0.0
    directory_sync_error_at: int | None = None
    #: Whether a durable write is one operation, as on Linux. On macOS it is a write and a sync, and
    #: the power may fail in between.
    writes_durably: bool = True
    #: A sync or durable write of a file reports success and loses data, as on a faulty device.
    lost_write_rate: float = 0.0
    lost_write_at: int | None = None
    #: Past this many bytes of file contents a write is cut short and fails with ENOSPC.
    capacity_bytes: int = 64 * SIM_FILE_BYTES_MAX
    #: A growing write fails with ENOSPC, having written a part, although there is space.
    no_space_rate: float = 0.0
    no_space_at: int | None = None
    #: The next file fails with EMFILE.
    open_files_max: int = 1 << 20
    #: A read returns one wrong bit; the next read of the same bytes is right again.
    read_flip_rate: float = 0.0
    #: A power cut also flips one bit of one durable file.
    crash_flip_rate: float = 0.0
    #: A lost sector past the durable end of its file holds old rubbish instead of zeros.
    garbage_rate: float = 0.0
    #: Calls that do nothing, to prove that a test detects their absence.
    ignores_sync: bool = False
    ignores_write_durable: bool = False
    ignores_sync_directory: bool = False


class Flip(msgspec.Struct, frozen=True):
    path: str
    position: int
    bit: int


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One line of a disk's trace.

    `first` and `second` are position and length, size, bit or target.
    """

    number: int
    name: str
    path: str
    first: int | str = ""
    second: int | str = ""

    def __str__(self) -> str:
        return f"{self.number:>6} {self.name} {self.path} {self.first} {self.second}".rstrip()


class DiskCounters(msgspec.Struct):
    """What happened on a disk, over all its reboots."""

    #: Everything that changes the disk or makes it durable: the operations that a power cut can
    #: hit.
    operations: int = 0
    writes: int = 0
    written_bytes: int = 0
    #: Syncs of files and durable writes.
    syncs: int = 0
    directory_syncs: int = 0
    reads: int = 0
    crashes: int = 0
    kills: int = 0
    #: Per power cut: sectors written and not yet durable that survived, or that were lost.
    sectors_kept: int = 0
    sectors_lost: int = 0
    #: Changes of names, likewise.
    names_kept: int = 0
    names_lost: int = 0
    sync_errors: int = 0
    lost_writes: int = 0
    no_space_errors: int = 0
    open_errors: int = 0
    read_flips: int = 0
    flips: int = 0


class SyncOutcome(enum.Enum):
    DONE = 0
    FAILED = 1
    LOST = 2


class Machine:
    """One life of a machine: its power, its faults, its counters and the trace of its disk.

    Counters and trace continue over crashes.
    """

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
        #: The power fails when this reaches 0; it starts there and counts down, so it never does.
        self.operations_until_cut = 0

    def rebooted(self) -> Machine:
        self.has_power = False
        return Machine(self.random, self.faults, self.counters, self.trace)

    def check_power(self) -> None:
        if not self.has_power:
            raise PowerCut("this disk has no power")

    def record(self, name: str, path: str, first: int | str = "", second: int | str = "") -> bool:
        """Count one operation. True: the power fails during it."""
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
        """Count a sync or durable write, and return its outcome."""
        faults, counters = self.faults, self.counters
        counters.syncs += 1
        if self.fault_is_due(faults.sync_error_rate, faults.sync_error_at, counters.syncs):
            return SyncOutcome.FAILED
        if self.fault_is_due(faults.lost_write_rate, faults.lost_write_at, counters.syncs):
            return SyncOutcome.LOST
        return SyncOutcome.DONE
