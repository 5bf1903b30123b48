"""A file of the simulated disk: the calls of the port with their faults, and what a cut leaves.

An inode has what programs see and everything that may still be lost of it. `data` is the page
cache. `pending` lists the changes since the last sync, oldest first, each with the bytes it
replaced, so that

    durable bytes = data with all of `pending` undone
    sync          = forget `pending`
    power cut     = undo some of `pending`, sector by sector

A cut chooses for each sector how many of the changes that touched it had reached the disk: a page
is written back as it is at some moment, so a sector holds all changes up to one of them and none
after. Sectors are chosen independently, which gives torn writes and writes out of order. The size
is chosen in the same way and independently: it may be ahead of the data (the sectors read as zeros,
or as garbage) or behind it.

Truncation is metadata and goes with the size: when the shorter size survives, what was cut off is
gone; when it does not, the part cut off is as it was before, and nothing written there later is
found.

A durable write (O_DSYNC) makes the sectors it touches durable, with what earlier changes put into
them, and the size if it is needed to reach them. Other pending sectors stay pending.

After a failed sync the kernel marks pages clean that it could not write. From then on undoing
changes of `data` no longer yields the durable bytes, so those are kept in `stable`, and each later
sync copies whole sectors into it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

import msgspec

from dragoman.limits import SIM_FILE_BYTES_MAX, SIM_SECTOR_BYTES
from dragoman.limits import SIM_SECTOR_BYTES as SECTOR
from dragoman.testing.file_tree import FileNode, FileTree, os_error
from dragoman.testing.sim.faults import Machine, SyncOutcome
from dragoman.types import Buffer

#: A write into the page cache grows the file page by page, so a cut may leave it at a page
#: boundary.
PAGE = 4096

WRITTEN, DURABLE, TRUNCATED = range(3)


class Change(msgspec.Struct, frozen=True, gc=False):
    """Bytes from `start` to `end` were written, or cut off.

    `old` is shorter when they lay past the end.
    """

    kind: int
    start: int
    end: int
    old: bytearray
    size_before: int
    size_after: int


class Odds(msgspec.Struct, frozen=True):
    """The treatment of pending changes by a power cut."""

    #: Probability that a sector or a size survives as last written.
    kept: float
    #: Probability that a lost sector past the durable end holds garbage.
    garbage: float


class Inode(FileNode):
    __slots__ = ("pending", "recorded", "stable")

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[Change] = []
        #: Number of changes ever made pending; identifies those that a slow sync covers.
        self.recorded = 0
        self.stable: bytearray | None = None

    # ---- changes

    def write(self, data: bytes, position: int, durable: bool) -> None:
        """Write visibly at once; durably as well if requested and nothing else is pending."""
        if not data:
            return
        cache = self.data
        size = len(cache)
        end = position + len(data)
        old = cache[position:end]
        if position > size:
            cache.extend(bytes(position - size))
        cache[position:end] = data
        if durable and not self.pending and self.stable is None:
            return
        kind = DURABLE if durable else WRITTEN
        self._record(Change(kind, position, end, old, size, len(cache)))

    def truncate(self, size: int) -> None:
        before = len(self.data)
        if size > before:
            self.data.extend(bytes(size - before))
            self._record(Change(WRITTEN, before, before, bytearray(), before, size))
        elif size < before:
            old = self.data[size:]
            del self.data[size:]
            self._record(Change(TRUNCATED, size, before, old, before, size))

    def _record(self, change: Change) -> None:
        self.pending.append(change)
        self.recorded += 1

    def sync(self, recorded: int | None = None) -> None:
        """Make durable everything pending, or what was pending when `recorded` was read."""
        count = len(self.pending)
        if recorded is not None:
            count = max(0, count - (self.recorded - recorded))
        if self.stable is not None:
            for change in self.pending[:count]:
                self._copy_to_stable(change, self.stable)
        del self.pending[:count]

    def lose_pages(self, random: Random, odds: Odds) -> None:
        """A sync failed: an arbitrary part reached the disk, and the rest is clean and never
        will.
        """
        visible = self.data[:]
        self.settle(random, odds)
        self.stable = self.data
        self.data = visible

    def _copy_to_stable(self, change: Change, stable: bytearray) -> None:
        first = change.start // SECTOR * SECTOR
        end = min(-(-change.end // SECTOR) * SECTOR, len(self.data))
        if change.size_after < change.size_before:
            del stable[change.size_after :]
        needed = change.size_after if change.size_after != change.size_before else change.end
        needed = min(needed, len(self.data))
        if needed > len(stable):
            stable.extend(bytes(needed - len(stable)))
        end = min(end, len(stable))
        if end > first:
            stable[first:end] = self.data[first:end]

    # ---- power cuts

    def settle(self, random: Random, odds: Odds) -> tuple[int, int]:
        """Set `data` to the disk's contents after a power cut. Returns sectors kept and lost."""
        if not self.pending:
            if self.stable is not None:
                self.data, self.stable = self.stable, None
            return 0, 0
        size_index, size = self._choose_size(random, odds)
        undone, oldest, kept, lost = self._choose_sectors(random, odds, size_index)
        self._take_back(undone, random, odds)
        if self.stable is not None:
            self._merge_into_stable(oldest)
            self.data, self.stable = self.stable, None
        _resize(self.data, size)
        self.pending.clear()
        return kept, lost

    def _durable_size(self) -> int:
        return self.pending[0].size_before if self.stable is None else len(self.stable)

    def _choose_size(self, random: Random, odds: Odds) -> tuple[int, int]:
        """The number of pending changes whose size is on the disk, and that size."""
        sizes = [self._durable_size(), *(change.size_after for change in self.pending)]
        floor = self._size_floor(sizes)
        moves = [i for i in range(floor + 1, len(sizes)) if sizes[i] != sizes[i - 1]]
        if not moves or random.random() < odds.kept:
            return len(self.pending), sizes[-1]
        chosen = random.randrange(len(moves))
        index = moves[chosen - 1] if chosen else floor
        size = sizes[index]
        following = sizes[moves[chosen]]
        first_page, end_page = size // PAGE + 1, -(-following // PAGE)
        if first_page < end_page and random.random() < 0.25:
            size = random.randrange(first_page, end_page) * PAGE
        return index, size

    def _size_floor(self, sizes: list[int]) -> int:
        """The last change whose size a durable write had to make durable, too."""
        floor = 0
        truncated = False
        for index, change in enumerate(self.pending, 1):
            if change.kind == TRUNCATED:
                truncated = True
            elif change.kind == DURABLE and (truncated or sizes[floor] < change.end):
                floor = index
                truncated = False
        return floor

    def _choose_sectors(
        self, random: Random, odds: Odds, size_index: int
    ) -> tuple[list[list[int]], set[int], int, int]:
        """Sectors to revert per change, sectors left without any, and counts kept and lost."""
        pending = self.pending
        undone: list[list[int]] = [[] for _ in pending]
        #: By sector, the changes that may be reverted, oldest first.
        touched: dict[int, list[int]] = {}
        #: Sectors fixed by a durable write or a surviving truncation.
        fixed: set[int] = set()
        #: The first sector cut off by a truncation that did not survive.
        gone_from = 1 << 62
        for index, change in enumerate(pending):
            sectors = range(change.start // SECTOR, -(-change.end // SECTOR))
            if change.kind == TRUNCATED and size_index <= index:
                gone_from = min(gone_from, -(-change.start // SECTOR))
            elif change.kind != WRITTEN:
                fixed.update(sectors)
                for sector in sectors:
                    touched.pop(sector, None)
                continue
            for sector in sectors:
                if sector >= gone_from:
                    undone[index].append(sector)
                elif sector in touched:
                    touched[sector].append(index)
                else:
                    touched[sector] = [index]
        return self._draw(random, odds, undone, touched, fixed)

    def _draw(
        self,
        random: Random,
        odds: Odds,
        undone: list[list[int]],
        touched: dict[int, list[int]],
        fixed: set[int],
    ) -> tuple[list[list[int]], set[int], int, int]:
        draw = random.random
        oldest: set[int] = set()
        lost = 0
        for sector, indexes in touched.items():
            if draw() < odds.kept:
                continue
            lost += 1
            survivors = 0
            if len(indexes) > 1 and draw() < 0.5:
                survivors = random.randrange(len(indexes))
            if not survivors and sector not in fixed:
                oldest.add(sector)
            for index in indexes[survivors:]:
                undone[index].append(sector)
        for sectors in undone:
            oldest.update(s for s in sectors if s not in touched and s not in fixed)
        return undone, oldest, len(touched) - lost, lost

    def _take_back(self, undone: list[list[int]], random: Random, odds: Odds) -> None:
        data = self.data
        longest = max(change.size_before for change in self.pending)
        if longest > len(data):
            data.extend(bytes(longest - len(data)))
        for change, sectors in zip(reversed(self.pending), reversed(undone), strict=True):
            for sector in sectors:
                start = max(change.start, sector * SECTOR)
                end = min(change.end, (sector + 1) * SECTOR)
                old = change.old[start - change.start : end - change.start]
                missing = end - start - len(old)
                if missing:
                    # Only a sector that was never part of the file can hold another file's bytes.
                    strange = odds.garbage and sector * SECTOR >= change.size_before
                    rubbish = strange and random.random() < odds.garbage
                    old += random.randbytes(missing) if rubbish else bytes(missing)
                data[start:end] = old

    def _merge_into_stable(self, oldest: set[int]) -> None:
        """Sectors with a surviving change replace what a failed sync had left on the disk."""
        stable = self.stable
        assert stable is not None
        if len(self.data) > len(stable):
            stable.extend(bytes(len(self.data) - len(stable)))
        for change in self.pending:
            for sector in range(change.start // SECTOR, -(-change.end // SECTOR)):
                if sector not in oldest:
                    end = min((sector + 1) * SECTOR, len(self.data))
                    stable[sector * SECTOR : end] = self.data[sector * SECTOR : end]


def _resize(data: bytearray, size: int) -> None:
    if size > len(data):
        data.extend(bytes(size - len(data)))
    else:
        del data[size:]


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
        faults = self._machine.faults
        if faults.writes_durably:
            self._write("write_durable", b"".join(buffers), position)
            return
        self.write(buffers, position)
        if not faults.ignores_write_durable:
            self.sync()

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
        """Never raises `PowerCut`: a `finally` clause must not hide the origin of the cut."""
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
        """Account for growth. Without space, write a part as the system would, then raise
        ENOSPC.
        """
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
        """The part of a write before the power failed: none, all, or up to a sector's end."""
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
    """A sync in progress: covers earlier writes; complete when `finish` returns."""

    def __init__(self, machine: Machine, inode: Inode, path: str) -> None:
        self._machine = machine
        self._inode = inode
        self._path = path
        self._recorded = inode.recorded

    def finish(self) -> None:
        sync_inode(self._machine, self._inode, self._path, self._recorded)


def sync_inode(machine: Machine, inode: Inode, path: str, recorded: int | None) -> None:
    """Make everything pending durable, or what was pending when `recorded` was read."""
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
