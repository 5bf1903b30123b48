"""`SimDisk`: a disk that keeps only what it promised when the power fails.

What programs see changes at once, as with a page cache. What survives a power cut is decided when
it happens, from the seeded random source:

    bytes and size of a file   after `File.sync`, or `write_durable` for its own sectors; see
                               `inode`
    names in a directory       after `sync_directory` of that directory, and only then: syncing a
                               file does not save its name, syncing a directory not its own name

A kill of the process (`kill -9`) loses nothing that was visible.

A cut keeps an arbitrary subset of the changes that were not durable, as `inode` and `names`
describe. A rename between two directories is durable when either is synced.

`crash_at(n)` stops the world inside the n-th operation from now: `PowerCut` comes out of it, an
arbitrary part of the operation having happened, and out of everything tried afterwards. `crash` and
`kill` then return the disk as the next start finds it; the old object is of no more use.
"""

from __future__ import annotations

import errno
from collections import deque
from random import Random
from typing import Literal

from dragoman.errors import DirectoryInUseError
from dragoman.limits import SIM_TRACE_OPERATIONS_MAX
from dragoman.testing.file_tree import Directory, DirectoryLock, Edits, FileTree, os_error
from dragoman.testing.sim.faults import DiskCounters, DiskFaults, Flip, Machine, Operation
from dragoman.testing.sim.file import Inode, Odds, SimFile, SlowSync, sync_inode

#: Chances that a pending change survives, one drawn for each power cut: an even chance for each
#: alone would never lose or keep everything, and the cuts that nearly do are the instructive ones.
_KEPT_CHANCES = (0.0, 0.1, 0.5, 0.5, 0.9, 1.0)


class PendingNames:
    """Changes of names that are not yet durable, and what a power cut leaves of them.

    They are kept in the order they were made, one group of edits for each change that is atomic on
    a real file system. Undoing all groups turns the visible names into the durable ones. A sync of
    a directory forgets groups; a power cut undoes some, by two rules:

        a group survives as a whole or not at all: a rename never leaves neither name, or both
        a group survives only if all earlier groups that touch one of its names do
    """

    def __init__(self) -> None:
        self._groups: list[Edits[Inode]] = []

    def add(self, edits: Edits[Inode]) -> None:
        self._groups.append(edits)

    def sync(self, directory: Directory[Inode]) -> None:
        """Changes in this directory are durable now, with all earlier ones that they build on."""
        needed: set[tuple[Directory[Inode], str]] = set()
        pending: list[Edits[Inode]] = []
        for edits in reversed(self._groups):
            if any(e.directory is directory or (e.directory, e.name) in needed for e in edits):
                needed.update((e.directory, e.name) for e in edits)
            else:
                pending.append(edits)
        pending.reverse()
        self._groups = pending

    def settle(self, tree: FileTree[Inode], random: Random, kept_chance: float) -> tuple[int, int]:
        """The power fails: revert what does not survive. Returns groups kept and lost."""
        lost: list[Edits[Inode]] = []
        lost_names: set[tuple[Directory[Inode], str]] = set()
        for edits in self._groups:
            follows_lost = any((e.directory, e.name) in lost_names for e in edits)
            if follows_lost or random.random() >= kept_chance:
                lost.append(edits)
                lost_names.update((e.directory, e.name) for e in edits)
        for edits in reversed(lost):
            tree.undo(edits)
        kept = len(self._groups) - len(lost)
        self._groups = []
        return kept, len(lost)


class SimDisk:
    def __init__(
        self,
        random: Random,
        faults: DiskFaults | None = None,
        *,
        trace_operations_max: int = SIM_TRACE_OPERATIONS_MAX,
    ) -> None:
        faults = faults if faults is not None else DiskFaults()
        trace: deque[Operation] = deque(maxlen=trace_operations_max)
        #: Bits flipped since the disk was created.
        self.flips: list[Flip] = []
        self._random = random
        self._machine = Machine(random, faults, DiskCounters(), trace)
        self._tree: FileTree[Inode] = FileTree(faults.capacity_bytes)
        self._pending_names = PendingNames()
        self._locked: set[str] = set()

    # ---- power

    @property
    def faults(self) -> DiskFaults:
        """May be replaced while the disk is in use; the capacity is unchanged."""
        return self._machine.faults

    @faults.setter
    def faults(self, faults: DiskFaults) -> None:
        self._machine.faults = faults

    @property
    def counters(self) -> DiskCounters:
        return self._machine.counters

    @property
    def trace(self) -> deque[Operation]:
        return self._machine.trace

    @property
    def is_dead(self) -> bool:
        return not self._machine.has_power

    @property
    def capacity_bytes(self) -> int:
        """May be changed, to fill the disk or to make space again."""
        return self._tree.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, value: int) -> None:
        self._tree.capacity_bytes = value

    def crash_at(self, operations: int) -> None:
        """Cut the power inside that operation, counted from 1 = the next one. 0 cancels it."""
        self._machine.operations_until_cut = operations

    def crash(self) -> SimDisk:
        """Cut the power now. Returns the disk as it is found afterwards."""
        self.counters.crashes += 1
        odds = Odds(self._random.choice(_KEPT_CHANCES), self.faults.garbage_rate)
        self._settle_names(self._random.choice(_KEPT_CHANCES))
        # A file with several names occurs several times; the first settles all its pending changes.
        for _, inode in self._tree.files():
            kept, lost = inode.settle(self._random, odds)
            self.counters.sectors_kept += kept
            self.counters.sectors_lost += lost
        after = self._rebooted()
        if self._random.random() < self.faults.crash_flip_rate:
            after.flip_random()
        return after

    def kill(self) -> SimDisk:
        """The process dies, not the machine: visible changes stay, as durable as they were."""
        self.counters.kills += 1
        after = self._rebooted()
        after._pending_names = self._pending_names
        return after

    def _settle_names(self, kept_chance: float) -> None:
        kept, lost = self._pending_names.settle(self._tree, self._random, kept_chance)
        self.counters.names_kept += kept
        self.counters.names_lost += lost

    def _rebooted(self) -> SimDisk:
        after = SimDisk(self._random, self.faults)
        after.flips = self.flips
        after._machine = self._machine.rebooted()
        after._tree = self._tree
        after._tree.recount()
        after._machine.note("reboot", "")
        return after

    # ---- the port

    def open(self, path: str, mode: Literal["read", "write", "create"]) -> SimFile:
        self._machine.check_power()
        if self._machine.open_files >= self.faults.open_files_max:
            self.counters.open_errors += 1
            raise os_error(errno.EMFILE, path)
        if mode == "create":
            inode = Inode()
            self._change_names("create", path, "", [self._tree.plan_add(path, inode)])
        else:
            inode = self._tree.file(path)
        return SimFile(self._machine, self._tree, inode, path, mode != "read")

    def names(self, directory: str) -> list[str]:
        self._machine.check_power()
        return self._tree.names(directory)

    def exists(self, path: str) -> bool:
        self._machine.check_power()
        return self._tree.exists(path)

    def make_directory(self, path: str) -> None:
        self._machine.check_power()
        self._change_names("make_directory", path, "", self._tree.plan_directories(path))

    def remove_directory(self, path: str) -> None:
        self._machine.check_power()
        edits = self._tree.plan_remove_directory(path)
        self._change_names("remove_directory", path, "", [edits])

    def rename(self, old: str, new: str) -> None:
        self._machine.check_power()
        self._change_names("rename", old, new, [self._tree.plan_rename(old, new)])

    def link(self, old: str, new: str) -> None:
        self._machine.check_power()
        self._change_names("link", old, new, [self._tree.plan_link(old, new)])

    def remove(self, path: str) -> None:
        self._machine.check_power()
        self._change_names("remove", path, "", [self._tree.plan_remove(path)])

    def sync_directory(self, path: str) -> None:
        self._machine.check_power()
        directory = self._tree.find(path)
        if directory is not None:
            directory = self._tree.directory(path)
        if self._machine.record("sync_directory", path):
            self._machine.cut()
        self._count_directory_sync(path)
        if directory is not None and not self.faults.ignores_sync_directory:
            self._pending_names.sync(directory)

    def _count_directory_sync(self, path: str) -> None:
        self.counters.directory_syncs += 1
        rate, at = self.faults.directory_sync_error_rate, self.faults.directory_sync_error_at
        if self._machine.fault_is_due(rate, at, self.counters.directory_syncs):
            self.counters.sync_errors += 1
            self._machine.note("sync error", path)
            raise os_error(errno.EIO, path)

    def sync_all(self) -> None:
        """Perform the steps of a job that apply; the power may fail in between."""
        self._machine.check_power()
        for path, inode in list(self._tree.files()):
            if inode.pending or inode.stable is not None:
                sync_inode(self._machine, inode, path, None)
        for path in self._tree.directories():
            self.sync_directory(path)

    def free_bytes(self) -> int:
        self._machine.check_power()
        return max(0, self._tree.capacity_bytes - self._tree.used_bytes)

    def size_bytes(self) -> int:
        return self._tree.capacity_bytes

    def lock(self, path: str) -> DirectoryLock:
        self._machine.check_power()
        if path in self._locked:
            raise DirectoryInUseError(f"{path} is locked by another user of this disk")
        if not self._tree.exists(path):
            self._change_names("create", path, "", [self._tree.plan_add(path, Inode())])
        self._locked.add(path)
        return DirectoryLock(self.exists, self._locked, path)

    # ---- for tests and for background work

    def release_locks(self) -> None:
        """Release the locks of a dead process; the disk is unchanged."""
        self._locked.clear()

    def begin_sync(self, path: str) -> SlowSync:
        """Begin a sync that takes time: later writes are not covered by it."""
        self._machine.check_power()
        return SlowSync(self._machine, self._tree.file(path), path)

    def flip(self, path: str, position: int, bit: int) -> None:
        """Flip one bit, on the disk and in what programs read."""
        inode = self._tree.file(path)
        assert position < len(inode.data), f"{path} has no byte {position}"
        for data in (inode.data, inode.stable):
            if data is not None and position < len(data):
                data[position] ^= 1 << bit
        self.counters.flips += 1
        self.flips.append(Flip(path, position, bit))
        self._machine.note("flip", path, position, bit)

    def flip_random(self) -> Flip | None:
        """Flip one bit in any of the files. None when there is no byte at all."""
        files = [(path, len(inode.data)) for path, inode in self._tree.files() if inode.data]
        if not files:
            return None
        position = self._random.randrange(sum(size for _, size in files))
        for path, size in files:
            if position < size:
                self.flip(path, position, self._random.randrange(8))
                return self.flips[-1]
            position -= size
        raise AssertionError("a position below the sum of the sizes lies in one of the files")

    def image(self) -> dict[str, bytes]:
        """The bytes of every file as programs see them now."""
        return {path: bytes(inode.data) for path, inode in self._tree.files()}

    def report(self) -> str:
        """The last operations, one per line, for the report of a failure."""
        return "\n".join(map(str, self.trace))

    # ---- names

    def _change_names(self, name: str, path: str, target: str, groups: list[Edits[Inode]]) -> None:
        """Perform the groups that change anything; a power cut may come between them."""
        groups = [edits for edits in groups if edits]
        if self._machine.record(name, path, target):
            for edits in groups[: self._random.randint(0, len(groups))]:
                self._apply(edits)
            self._machine.cut()
        for edits in groups:
            self._apply(edits)

    def _apply(self, edits: Edits[Inode]) -> None:
        self._tree.apply(edits)
        self._pending_names.add(edits)
