"""`SimDisk`: a disk that keeps only what it promised when the power goes.

What programs see changes at once, as with a page cache. What survives a power cut is decided when
it happens, from the seeded random source:

    bytes and size of a file   after `File.sync`, or `write_durable` for its own sectors; see
                               `inode`
    names in a directory       after `sync_directory` of that directory, and only then: syncing a
                               file does not save its name, syncing a directory not its own name

A kill of the process (`kill -9`) loses nothing that was visible.

Changes of names that are not durable are kept in the order they were made. A cut keeps an arbitrary
subset, with two rules that every journalling file system obeys: a rename happens as a whole, and no
change survives without the earlier ones of the same names. A rename between two directories is
durable when either is synced.

`crash_at(n)` stops the world inside the n-th operation from now: `PowerCut` comes out of it, an
arbitrary part of the operation having happened, and out of everything tried afterwards. `crash` and
`kill` then return the disk as the next start finds it; the old object is of no more use.
"""

from __future__ import annotations

import enum
import errno
from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Literal, NoReturn

from dragoman.errors import DirectoryInUseError
from dragoman.limits import (
    SIM_FILE_BYTES_MAX,
    SIM_SECTOR_BYTES,
    SIM_TRACE_OPERATIONS_MAX,
)
from dragoman.testing.file_tree import Directory, Edits, FileTree, os_error
from dragoman.testing.sim.faults import DiskCounters, DiskFaults, Flip, Operation, PowerCut
from dragoman.testing.sim.inode import Inode, Odds
from dragoman.types import Buffer

#: Chances that a pending change survives, one drawn for each power cut: an even chance for each
#: alone would never lose or keep everything, and the cuts that nearly do are the instructive ones.
_KEPT_CHANCES = (0.0, 0.1, 0.5, 0.5, 0.9, 1.0)


class _Sync(enum.Enum):
    DONE = 0
    FAILED = 1
    LOST = 2


class SimFile:
    __slots__ = ("_closed", "_disk", "_writable", "inode", "path")

    def __init__(self, disk: SimDisk, inode: Inode, path: str, writable: bool) -> None:
        self._disk = disk
        self._writable = writable
        self._closed = False
        self.inode = inode
        self.path = path

    def read(self, size: int, position: int) -> bytes:
        self._check(False)
        if size < 0 or position < 0:
            raise os_error(errno.EINVAL, self.path)
        return self._disk._read(self, size, position)

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._check(True)
        self._disk._write(self, b"".join(buffers), position, False)

    def write_durable(self, buffers: Sequence[Buffer], position: int) -> None:
        self._check(True)
        self._disk._write(self, b"".join(buffers), position, True)

    def sync(self) -> None:
        self._check(False)
        self._disk._sync(self.inode, self.path, None)

    def truncate(self, size: int) -> None:
        self._check(True)
        self._disk._truncate(self, size)

    def size(self) -> int:
        self._check(False)
        self._disk._check_power()
        return len(self.inode.data)

    def close(self) -> None:
        """Never raises `PowerCut`: a `finally` clause shall not hide where the cut came from."""
        if self._closed:
            raise os_error(errno.EBADF, self.path)
        self._closed = True
        self._disk._close(self.inode)

    def _check(self, writes: bool) -> None:
        if self._closed or (writes and not self._writable):
            raise os_error(errno.EBADF, self.path)


class SimLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


class SlowSync:
    """A sync under way.

    Covers what was written before it began, and is done when `finish` returns.
    """

    def __init__(self, disk: SimDisk, inode: Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._recorded = inode.recorded

    def finish(self) -> None:
        self._disk._sync(self._inode, self._path, self._recorded)


class SimDisk:
    def __init__(
        self,
        random: Random,
        faults: DiskFaults | None = None,
        *,
        trace_operations_max: int = SIM_TRACE_OPERATIONS_MAX,
    ) -> None:
        self.faults = faults if faults is not None else DiskFaults()
        self.counters = DiskCounters()
        self.trace: deque[Operation] = deque(maxlen=trace_operations_max)
        #: Bits flipped since the disk was first made.
        self.flips: list[Flip] = []
        self._random = random
        self._tree: FileTree[Inode] = FileTree(self.faults.capacity_bytes)
        self._pending_names: list[Edits[Inode]] = []
        self._forget_process()

    def _forget_process(self) -> None:
        self._locked: set[str] = set()
        self._open_files = 0
        self._until_cut = 0
        self._dead = False

    # ---- power

    @property
    def capacity_bytes(self) -> int:
        return self._tree.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, value: int) -> None:
        self._tree.capacity_bytes = value

    @property
    def is_dead(self) -> bool:
        return self._dead

    def crash_at(self, operations: int) -> None:
        """Cut the power inside that operation, counted from 1 = the next one. 0 takes it back."""
        self._until_cut = operations

    def crash(self) -> SimDisk:
        """The power goes, now. Returns the disk as it is found afterwards."""
        self._dead = True
        self.counters.crashes += 1
        odds = Odds(self._random.choice(_KEPT_CHANCES), self.faults.garbage_rate)
        self._settle_names(self._random.choice(_KEPT_CHANCES))
        for inode in self._inodes():
            kept, lost = inode.settle(self._random, odds)
            self.counters.sectors_kept += kept
            self.counters.sectors_lost += lost
        after = self._rebooted()
        if self.faults.crash_flip_rate and self._random.random() < self.faults.crash_flip_rate:
            after.flip_random()
        return after

    def kill(self) -> SimDisk:
        """The process dies, the machine does not.

        All that was visible is, and is as durable as it was.
        """
        self._dead = True
        self.counters.kills += 1
        after = self._rebooted()
        after._pending_names = self._pending_names
        return after

    def _rebooted(self) -> SimDisk:
        after = SimDisk(self._random, self.faults, trace_operations_max=self.trace.maxlen or 0)
        after.counters = self.counters
        after.trace = self.trace
        after.flips = self.flips
        after._tree = self._tree
        after._tree.recount()
        after._record("reboot", "")
        return after

    def _settle_names(self, kept_chance: float) -> None:
        """Keep some changes of names and take the others back, newest first."""
        lost: list[Edits[Inode]] = []
        lost_names: set[tuple[Directory[Inode], str]] = set()
        for edits in self._pending_names:
            follows_lost = any((e.directory, e.name) in lost_names for e in edits)
            if follows_lost or self._random.random() >= kept_chance:
                lost.append(edits)
                lost_names.update((e.directory, e.name) for e in edits)
        for edits in reversed(lost):
            self._tree.undo(edits)
        self.counters.names_lost += len(lost)
        self.counters.names_kept += len(self._pending_names) - len(lost)
        self._pending_names = []

    def _inodes(self) -> Iterable[Inode]:
        """Every file that has a name, once, in an order that depends on names only."""
        return dict.fromkeys(inode for _, inode in self._tree.files())

    # ---- the port

    def open(self, path: str, mode: Literal["read", "write", "create"]) -> SimFile:
        self._check_power()
        if self._open_files >= self.faults.open_files_max:
            self.counters.open_errors += 1
            raise os_error(errno.EMFILE, path)
        if mode == "create":
            inode = Inode()
            self._change_names("create", path, "", [self._tree.plan_add(path, inode)])
        else:
            inode = self._tree.file(path)
        self._open_files += 1
        self._tree.opened(inode)
        return SimFile(self, inode, path, mode != "read")

    def names(self, directory: str) -> list[str]:
        self._check_power()
        return self._tree.names(directory)

    def exists(self, path: str) -> bool:
        self._check_power()
        return self._tree.exists(path)

    def make_directory(self, path: str) -> None:
        self._check_power()
        self._change_names("make_directory", path, "", self._tree.plan_directories(path))

    def remove_directory(self, path: str) -> None:
        self._check_power()
        edits = self._tree.plan_remove_directory(path)
        self._change_names("remove_directory", path, "", [edits])

    def rename(self, old: str, new: str) -> None:
        self._check_power()
        self._change_names("rename", old, new, [self._tree.plan_rename(old, new)])

    def link(self, old: str, new: str) -> None:
        self._check_power()
        self._change_names("link", old, new, [self._tree.plan_link(old, new)])

    def remove(self, path: str) -> None:
        self._check_power()
        self._change_names("remove", path, "", [self._tree.plan_remove(path)])

    def sync_directory(self, path: str) -> None:
        self._check_power()
        directory = self._tree.find(path)
        if directory is not None:
            directory = self._tree.directory(path)
        if self._record("sync_directory", path):
            self._cut()
        self.counters.directory_syncs += 1
        if directory is not None and not self.faults.ignores_sync_directory:
            self._forget_names_of(directory)

    def free_bytes(self) -> int:
        self._check_power()
        return max(0, self._tree.capacity_bytes - self._tree.used_bytes)

    def lock(self, path: str) -> SimLock:
        self._check_power()
        if path in self._locked:
            raise DirectoryInUseError(f"{path} is locked by another user of this disk")
        if not self._tree.exists(path):
            self._change_names("create", path, "", [self._tree.plan_add(path, Inode())])
        self._locked.add(path)
        return SimLock(self._locked, path)

    # ---- for tests and for background work

    def begin_sync(self, path: str) -> SlowSync:
        """Start a sync that takes time.

        Writes that come later are not covered. For `SimBackground`.
        """
        self._check_power()
        return SlowSync(self, self._tree.file(path), path)

    def flip(self, path: str, position: int, bit: int) -> None:
        """Turn one bit over, on the disk and in what programs read."""
        inode = self._tree.file(path)
        for data in (inode.data, inode.stable):
            if data is not None and position < len(data):
                data[position] ^= 1 << bit
        self.counters.flips += 1
        self.flips.append(Flip(path, position, bit))
        self._note("flip", path, position, bit)

    def flip_random(self) -> Flip | None:
        """Turn one bit of all the files' bits over. None when there is no byte at all."""
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
        """The last operations, one a line, for the report of a failure."""
        return "\n".join(map(str, self.trace))

    # ---- bookkeeping of operations

    def _check_power(self) -> None:
        if self._dead:
            raise PowerCut("this disk has no power")

    def _note(self, name: str, path: str, first: int | str, second: int | str) -> None:
        self.trace.append(Operation(self.counters.operations, name, path, first, second))

    def _record(self, name: str, path: str, first: int | str = "", second: int | str = "") -> bool:
        """Count one operation. True: the power goes during it."""
        self.counters.operations += 1
        self.trace.append(Operation(self.counters.operations, name, path, first, second))
        self._until_cut -= 1
        return self._until_cut == 0

    def _cut(self) -> NoReturn:
        self._dead = True
        self._note("power cut", "", "", "")
        raise PowerCut(f"at operation {self.counters.operations}")

    def _fault_due(self, rate: float, at: int | None, count: int) -> bool:
        return count == at or (rate > 0.0 and self._random.random() < rate)

    # ---- names

    def _change_names(self, name: str, path: str, target: str, groups: list[Edits[Inode]]) -> None:
        groups = [edits for edits in groups if edits]
        if self._record(name, path, target):
            for edits in groups[: self._random.randint(0, len(groups))]:
                self._apply(edits)
            self._cut()
        for edits in groups:
            self._apply(edits)

    def _apply(self, edits: Edits[Inode]) -> None:
        self._tree.apply(edits)
        self._pending_names.append(edits)

    def _forget_names_of(self, directory: Directory[Inode]) -> None:
        """Changes in this directory are durable now, and with them all that they build on."""
        needed: set[tuple[Directory[Inode], str]] = set()
        pending: list[Edits[Inode]] = []
        for edits in reversed(self._pending_names):
            if any(e.directory is directory or (e.directory, e.name) in needed for e in edits):
                needed.update((e.directory, e.name) for e in edits)
            else:
                pending.append(edits)
        pending.reverse()
        self._pending_names = pending

    # ---- bytes

    def _read(self, file: SimFile, size: int, position: int) -> bytes:
        self._check_power()
        self.counters.reads += 1
        data = bytes(file.inode.data[position : position + size])
        if data and self._fault_due(self.faults.read_flip_rate, None, 0):
            self.counters.read_flips += 1
            wrong = self._random.randrange(len(data) * 8)
            changed = bytearray(data)
            changed[wrong >> 3] ^= 1 << (wrong & 7)
            self._note("read flip", file.path, position + (wrong >> 3), wrong & 7)
            return bytes(changed)
        return data

    def _write(self, file: SimFile, data: bytes, position: int, durable: bool) -> None:
        self._check_power()
        if position < 0:
            raise os_error(errno.EINVAL, file.path)
        if position + len(data) > SIM_FILE_BYTES_MAX:
            raise os_error(errno.EFBIG, file.path)
        name = "write_durable" if durable else "write"
        inode = file.inode
        if self._record(name, file.path, position, len(data)):
            inode.write(self._part(data, position), position, False)
            self._cut()
        self.counters.writes += 1
        self.counters.written_bytes += len(data)
        if data and position + len(data) > len(inode.data):
            self._take_space(file, data, position)
        if durable and not self.faults.ignores_write_durable:
            self._write_durable(file, data, position)
        else:
            inode.write(data, position, False)

    def _write_durable(self, file: SimFile, data: bytes, position: int) -> None:
        outcome = self._next_sync()
        file.inode.write(data, position, outcome is _Sync.DONE)
        if outcome is not _Sync.DONE:
            self._lose_pages(file.inode, file.path, outcome)

    def _take_space(self, file: SimFile, data: bytes, position: int) -> None:
        """Account for growth.

        Without space a part is written, as the system call would, and ENOSPC raised.
        """
        inode, tree, faults = file.inode, self._tree, self.faults
        size = len(inode.data)
        growth = position + len(data) - size
        room = max(0, tree.capacity_bytes - tree.used_bytes)
        if growth > room:
            fits = room
        elif self._fault_due(faults.no_space_rate, faults.no_space_at, self.counters.writes):
            fits = self._random.randrange(growth)
        else:
            tree.used_bytes += growth
            return
        part = data[: max(0, len(data) - growth + fits)]
        inode.write(part, position, False)
        tree.used_bytes += len(inode.data) - size
        self.counters.no_space_errors += 1
        self._note("no space", file.path, position, len(part))
        raise os_error(errno.ENOSPC, file.path)

    def _part(self, data: bytes, position: int) -> bytes:
        """As much of a write as had been done when the power went.

        Nothing, all, or up to a sector's end.
        """
        first_end = SIM_SECTOR_BYTES - position % SIM_SECTOR_BYTES
        ends = [0, *range(first_end, len(data), SIM_SECTOR_BYTES), len(data)]
        return data[: self._random.choice(ends)]

    def _truncate(self, file: SimFile, size: int) -> None:
        self._check_power()
        if size < 0:
            raise os_error(errno.EINVAL, file.path)
        if size > SIM_FILE_BYTES_MAX:
            raise os_error(errno.EFBIG, file.path)
        inode = file.inode
        if self._record("truncate", file.path, size):
            if self._random.random() < 0.5:
                inode.truncate(size)
            self._cut()
        if size > len(inode.data):
            self.counters.writes += 1
            self._take_space(file, b"", size)
        else:
            self._tree.used_bytes -= len(inode.data) - size
        inode.truncate(size)

    def _sync(self, inode: Inode, path: str, recorded: int | None) -> None:
        self._check_power()
        if self._record("sync", path):
            self._cut()
        outcome = self._next_sync()
        if self.faults.ignores_sync:
            return
        if outcome is _Sync.DONE:
            inode.sync(recorded)
        else:
            self._lose_pages(inode, path, outcome)

    def _next_sync(self) -> _Sync:
        faults, counters = self.faults, self.counters
        counters.syncs += 1
        if self._fault_due(faults.sync_error_rate, faults.sync_error_at, counters.syncs):
            return _Sync.FAILED
        if self._fault_due(faults.lost_write_rate, faults.lost_write_at, counters.syncs):
            return _Sync.LOST
        return _Sync.DONE

    def _lose_pages(self, inode: Inode, path: str, outcome: _Sync) -> None:
        inode.lose_pages(self._random, Odds(self._random.choice((0.0, 0.5)), 0.0))
        if outcome is _Sync.FAILED:
            self.counters.sync_errors += 1
            self._note("sync error", path, "", "")
            raise os_error(errno.EIO, path)
        self.counters.lost_writes += 1
        self._note("lost write", path, "", "")

    def _close(self, inode: Inode) -> None:
        if self._dead:
            return
        self._open_files -= 1
        self._tree.closed(inode)
