"""An open file of the simulated disk: the calls of the port, with their faults.

What the bytes look like after a power cut is the business of `inode`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from dragoman.limits import SIM_FILE_BYTES_MAX, SIM_SECTOR_BYTES
from dragoman.testing.file_tree import FileTree, os_error
from dragoman.testing.sim.inode import Inode, Odds
from dragoman.testing.sim.machine import Machine, SyncOutcome
from dragoman.types import Buffer


class SimFile:
    __slots__ = ("_closed", "_inode", "_machine", "_path", "_tree", "_writable")

    def __init__(
        self, machine: Machine, tree: FileTree[Inode], inode: Inode, path: str, writable: bool
    ) -> None:
        self._machine = machine
        self._tree = tree
        self._inode = inode
        self._path = path
        self._writable = writable
        self._closed = False
        machine.open_files += 1
        tree.opened(inode)

    def read(self, size: int, position: int) -> bytes:
        self._check(writes=False)
        if size < 0 or position < 0:
            raise os_error(errno.EINVAL, self._path)
        self._machine.counters.reads += 1
        with memoryview(self._inode.data) as view:
            data = bytes(view[position : position + size])
        rate = self._machine.faults.read_flip_rate
        if rate and data and self._machine.random.random() < rate:
            return self._with_wrong_bit(data, position)
        return data

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._write("write", b"".join(buffers), position)

    def write_durable(self, buffers: Sequence[Buffer], position: int) -> None:
        self._write("write_durable", b"".join(buffers), position)

    def sync(self) -> None:
        self._check(writes=False)
        sync_inode(self._machine, self._inode, self._path, None)

    def truncate(self, size: int) -> None:
        self._check(writes=True)
        self._check_range(size, size)
        machine, inode = self._machine, self._inode
        if machine.record("truncate", self._path, size):
            if machine.random.random() < 0.5:
                inode.truncate(size)
            machine.cut()
        if size > len(inode.data):
            machine.counters.writes += 1
            self._take_space(b"", size)
        else:
            self._tree.used_bytes -= len(inode.data) - size
        inode.truncate(size)

    def size(self) -> int:
        self._check(writes=False)
        return len(self._inode.data)

    def is_linked(self) -> bool:
        self._check(writes=False)
        return self._inode.links > 0

    def close(self) -> None:
        """Never raises `PowerCut`: a `finally` clause shall not hide where the cut came from."""
        if self._closed:
            raise os_error(errno.EBADF, self._path)
        self._closed = True
        if self._machine.has_power:
            self._machine.open_files -= 1
            self._tree.closed(self._inode)

    def _check(self, writes: bool) -> None:
        self._machine.check_power()
        if self._closed or (writes and not self._writable):
            raise os_error(errno.EBADF, self._path)

    def _check_range(self, start: int, end: int) -> None:
        if start < 0:
            raise os_error(errno.EINVAL, self._path)
        if end > SIM_FILE_BYTES_MAX:
            raise os_error(errno.EFBIG, self._path)

    def _write(self, name: str, data: bytes, position: int) -> None:
        self._check(writes=True)
        end = position + len(data)
        self._check_range(position, end)
        machine, inode = self._machine, self._inode
        if machine.record(name, self._path, position, len(data)):
            inode.write(self._part(data, position), position, False)
            machine.cut()
        machine.counters.writes += 1
        machine.counters.written_bytes += len(data)
        if data and end > len(inode.data):
            self._take_space(data, position)
        if name == "write" or machine.faults.ignores_write_durable:
            inode.write(data, position, False)
            return
        outcome = machine.next_sync()
        inode.write(data, position, outcome is SyncOutcome.DONE)
        if outcome is not SyncOutcome.DONE:
            _lose_pages(machine, inode, self._path, outcome)

    def _take_space(self, data: bytes, position: int) -> None:
        """Account for growth. Without space, write a part as the system would, then ENOSPC."""
        machine, tree, inode = self._machine, self._tree, self._inode
        faults, counters = machine.faults, machine.counters
        size = len(inode.data)
        growth = position + len(data) - size
        room = max(0, tree.capacity_bytes - tree.used_bytes)
        if growth > room:
            fits = room
        elif machine.fault_is_due(faults.no_space_rate, faults.no_space_at, counters.writes):
            fits = machine.random.randrange(growth)
        else:
            tree.used_bytes += growth
            return
        part = data[: max(0, len(data) - growth + fits)]
        inode.write(part, position, False)
        tree.used_bytes += len(inode.data) - size
        counters.no_space_errors += 1
        machine.note("no space", self._path, position, len(part))
        raise os_error(errno.ENOSPC, self._path)

    def _part(self, data: bytes, position: int) -> bytes:
        """What was done of a write when the power went: none, all, or up to a sector's end."""
        first_end = SIM_SECTOR_BYTES - position % SIM_SECTOR_BYTES
        ends = [0, *range(first_end, len(data), SIM_SECTOR_BYTES), len(data)]
        return data[: self._machine.random.choice(ends)]

    def _with_wrong_bit(self, data: bytes, position: int) -> bytes:
        wrong = self._machine.random.randrange(len(data) * 8)
        changed = bytearray(data)
        changed[wrong >> 3] ^= 1 << (wrong & 7)
        self._machine.counters.read_flips += 1
        self._machine.note("read flip", self._path, position + (wrong >> 3), wrong & 7)
        return bytes(changed)


class SlowSync:
    """A sync under way: covers what was written before it began; done when `finish` returns."""

    def __init__(self, machine: Machine, inode: Inode, path: str) -> None:
        self._machine = machine
        self._inode = inode
        self._path = path
        self._recorded = inode.recorded

    def finish(self) -> None:
        sync_inode(self._machine, self._inode, self._path, self._recorded)


def sync_inode(machine: Machine, inode: Inode, path: str, recorded: int | None) -> None:
    """Make durable all that is pending, or what was pending when `recorded` was read."""
    machine.check_power()
    if machine.record("sync", path):
        machine.cut()
    outcome = machine.next_sync()
    if machine.faults.ignores_sync:
        return
    if outcome is SyncOutcome.DONE:
        inode.sync(recorded)
    else:
        _lose_pages(machine, inode, path, outcome)


def _lose_pages(machine: Machine, inode: Inode, path: str, outcome: SyncOutcome) -> None:
    inode.lose_pages(machine.random, Odds(machine.random.choice((0.0, 0.5)), 0.0))
    if outcome is SyncOutcome.FAILED:
        machine.counters.sync_errors += 1
        machine.note("sync error", path)
        raise os_error(errno.EIO, path)
    machine.counters.lost_writes += 1
    machine.note("lost write", path)
