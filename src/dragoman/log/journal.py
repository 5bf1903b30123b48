"""The node's journal: recent appends of all partitions, on stable storage.

All appends of one loop turn form one *group*, written with one synchronous write. A group is
acknowledged when that write returns; the segments get the same bytes later, through the page cache.
Once they are synced, too (a checkpoint), the journal file with the group is used again.

Files are filled with zeros once, so that writing a group changes no file metadata. Groups start at
multiples of 4 KiB and never share a block: a sector that was acknowledged is never written again.

    group   magic u32 "DGJ1", CRC-32C u32, payload length u32, entry count u32,
            generation u64, sequence u64, checkpoint u64,  then the entries, then padding
    entry   kind u8, partition id u32, segment base i64, segment generation u32, position u64,
            data length u32,  then the data

Before a file is used again, `node.json` records that its groups are not needed: the group that
overwrites the first of them may be torn.

The CRC covers everything after itself and is seeded with the directory's id, so that a frame
copied from elsewhere (or sent by a client as a message) is never taken for a group. `sequence`
counts groups and is never reused; `generation` counts uses of files. `checkpoint` is the last
sequence whose bytes are known to be synced in the segments: replay starts after it.

One group is in flight at a time. Hence, when reading: an invalid group with a later valid one is
damage; an invalid one with nothing after it was being written when the power went, and was never
acknowledged, unless `journal/mark` says that it was.

A group that was acknowledged and lost later (cut off, overwritten with zeros, deleted with its
file) looks like one that was being written when the power went. So the sequence of the last
acknowledged group is written to `journal/mark` after each group, without a sync. After a killed
process it is exact; after a power cut it may be older, which claims less. When it names a group
that the journal does not hold, that group was lost. Two slots are written in turn, so that a torn
one leaves the other:

    slot    magic u32 "DGM1", CRC-32C u32, sequence u64, incarnation u64, durability u8,
            directory id 16 bytes

The CRC of a slot is seeded like those of groups. The other fields repeat `node.json`: a directory
that has lost that file is adopted with them (`log/adoption.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from dragoman.checksum import crc32c, crc32c_seed
from dragoman.errors import CorruptionError
from dragoman.limits import (
    JOURNAL_BLOCK_BYTES,
    JOURNAL_FILE_BYTES,
    JOURNAL_FILES_MAX,
    JOURNAL_FIRST_FILE_BYTES,
    SCAN_CHUNK_BYTES,
)
from dragoman.log.node import Durability, NodeState
from dragoman.types import Buffer
from dragoman.world import Disk, File, read_whole, sync_path, zero_fill

DIRECTORY = "journal"
_MAGIC = 0x314A4744
_GROUP = struct.Struct("<IIIIQQQ")
_CRC_END = 8
_ENTRY = struct.Struct("<BIqIQI")
ENTRY_BYTES = _ENTRY.size
_MAGIC_BYTES = _MAGIC.to_bytes(4, "little")
#: Average size of parts below which joining them costs less than a vectored write.
_JOIN_PART_BYTES = 4096


class EntryKind(IntEnum):
    APPEND = 1
    TRUNCATE = 2
    LOG_START = 3
    EPOCH = 4
    #: Term and vote of this node in the metadata quorum; belongs to no partition.
    BALLOT = 5


class EntryRef(NamedTuple):
    """An entry of a journal file. Its data stays in the file until `read_entry`."""

    sequence: int
    kind: EntryKind
    partition_id: int
    base_offset: int
    generation: int
    position: int
    path: str
    data_position: int
    data_size: int


class GroupRef(NamedTuple):
    path: str
    position: int
    size: int
    entry_count: int
    generation: int
    sequence: int
    checkpoint: int


class JournalDamage(NamedTuple):
    """Acknowledged groups that are missing or damaged."""

    path: str
    position: int
    first_sequence: int
    last_sequence: int

    def __str__(self) -> str:
        return (
            f"{self.path} at byte {self.position}: groups {self.first_sequence} to "
            f"{self.last_sequence} were acknowledged and are missing or damaged"
        )


#: Kind, partition id, base offset, generation, position and size to the bytes of an entry's header.
entry_header = _ENTRY.pack


class JournalFile:
    __slots__ = ("file", "last_sequence", "path", "size")

    def __init__(self, path: str, file: File, size: int) -> None:
        self.path = path
        self.file = file
        self.size = size
        self.last_sequence = 0


class Journal:
    """Writes groups and reuses files. `JournalReader` reads them at a start."""

    def __init__(self, disk: Disk, seed: int, sequence: int, generation: int) -> None:
        """Continue after group `sequence`. All files on the disk are free: their groups are not
        needed."""
        self._disk = disk
        self._seed = seed
        self.sequence = sequence
        self.checkpoint = sequence
        self.generation = generation
        self._current: JournalFile | None = None
        self._position = 0
        self._used: list[JournalFile] = []
        self._free: list[JournalFile] = []
        self._next_number = 0
        for name in disk.names(DIRECTORY):
            self._adopt(name)
        self._free.sort(key=lambda file: file.size, reverse=True)
        if self._free:
            # A killed process may have created them without syncing the directory.
            disk.sync_directory(DIRECTORY)
            disk.sync_directory("")

    def _adopt(self, name: str) -> None:
        stem = name.removesuffix(".jnl")
        if stem == name or not stem.isdecimal():
            return
        self._next_number = max(self._next_number, int(stem) + 1)
        path = f"{DIRECTORY}/{name}"
        file = self._disk.open(path, "write")
        size = file.size() // JOURNAL_BLOCK_BYTES * JOURNAL_BLOCK_BYTES
        self._free.append(JournalFile(path, file, size))

    # ---- room

    @property
    def room(self) -> int:
        """Bytes that fit in the next group: in the rest of this file or in a free file."""
        rest = self._current.size - self._position if self._current else 0
        return max(rest, self._free[0].size if self._free else 0)

    @property
    def is_crowded(self) -> bool:
        """Whether no file may be added: a checkpoint has to free one first."""
        return len(self._used) + len(self._free) + 1 >= JOURNAL_FILES_MAX

    @property
    def wants_spare(self) -> bool:
        return not self._free and not self.is_crowded

    def next_path(self) -> str:
        path = f"{DIRECTORY}/{self._next_number:08d}.jnl"
        self._next_number += 1
        return path

    def add_file(self, path: str) -> None:
        """Add a file that a background job has filled with zeros."""
        file = self._disk.open(path, "write")
        self._free.append(JournalFile(path, file, file.size()))
        self._free.sort(key=lambda each: each.size, reverse=True)

    def make_file(self, size_min: int) -> None:
        """Create a file of at least `size` bytes before this returns. Raises `OSError`."""
        is_first = not (self._current or self._used or self._free)
        usual = JOURNAL_FIRST_FILE_BYTES if is_first else JOURNAL_FILE_BYTES
        size = max(usual, _padded(size_min))
        path = self.next_path()
        self._disk.make_directory(DIRECTORY)
        try:
            zero_fill(self._disk, path, size)
        except OSError:
            self._disk.remove(path)
            raise
        if is_first:
            self._disk.sync_directory("")
        self.add_file(path)

    # ---- writing

    def frame(self, parts: Sequence[Buffer], count: int) -> list[Buffer]:
        """Buffers of the next group; `parts` are entry headers and data in turn."""
        payload_size = sum(map(len, parts))
        if payload_size < len(parts) * _JOIN_PART_BYTES:
            parts = [b"".join(parts)]
        sequence = self.sequence + 1
        generation = self.generation
        if (
            self._current is None
            or self._position + _padded(payload_size + _GROUP.size) > self._current.size
        ):
            generation += 1
        fields = (payload_size, count, generation, sequence, self.checkpoint)
        head = _GROUP.pack(_MAGIC, 0, *fields)
        crc = crc32c(head[_CRC_END:], self._seed)
        for part in parts:
            crc = crc32c(part, crc)
        head = _GROUP.pack(_MAGIC, crc, *fields)
        padding = -(payload_size + _GROUP.size) % JOURNAL_BLOCK_BYTES
        return [head, *parts, bytes(padding)]

    def write(self, frame: list[Buffer], *, durable: bool) -> None:
        """Write what `frame` returned. Not durable: the caller syncs `current_path` afterwards."""
        size = sum(map(len, frame))
        if self._current is None or self._position + size > self._current.size:
            self._switch(size)
        assert self._current is not None
        if durable:
            self._current.file.write_durable(frame, self._position)
        else:
            self._current.file.write(frame, self._position)
        self._position += size
        self.sequence += 1
        self._current.last_sequence = self.sequence

    def sync(self) -> None:
        """Make the last group durable. Raises `OSError`."""
        assert self._current is not None
        self._current.file.sync()

    @property
    def current_path(self) -> str:
        assert self._current is not None
        return self._current.path

    def missing_path(self) -> str | None:
        """Path of a needed journal file that was removed; None when all exist."""
        needed = (*self._used, self._current) if self._current is not None else self._used
        return next((each.path for each in needed if not each.file.is_linked()), None)

    def _switch(self, size: int) -> None:
        if self._current is not None:
            self._used.append(self._current)
        assert self._free, "the store makes room before it accepts bytes"
        self._current = self._free.pop(0)
        assert self._current.size >= size, "the store makes room before it accepts bytes"
        self._position = 0
        self.generation += 1

    # ---- recycling

    @property
    def live_files(self) -> int:
        """Number of full files that wait for a checkpoint."""
        return len(self._used)

    def frees(self, sequence: int) -> bool:
        """Whether `release` would free a file with groups."""
        return any(file.last_sequence <= sequence for file in self._used)

    def release(self, sequence: int) -> None:
        """Free the files of groups up to `sequence`, which are synced in the segments."""
        assert self.checkpoint <= sequence <= self.sequence
        self.checkpoint = sequence
        kept: list[JournalFile] = []
        for file in self._used:
            if file.last_sequence > sequence:
                kept.append(file)
            elif file.size == JOURNAL_FILE_BYTES or not self._free:
                self._free.append(file)
            else:
                # The small first file and oversized ones are not reused.
                file.file.close()
                self._disk.remove(file.path)
        self._used = kept
        self._free.sort(key=lambda each: each.size, reverse=True)

    def tidy(self) -> None:
        """Remove unfinished and unusual files after a start. Their groups are not needed."""
        for file in [each for each in self._free if each.size < JOURNAL_FIRST_FILE_BYTES]:
            self._free.remove(file)
            file.file.close()
            self._disk.remove(file.path)

    def close(self) -> None:
        for file in (*self._used, *self._free, *((self._current,) if self._current else ())):
            file.file.close()


class JournalReader:
    """Finds every group on the disk that is needed for recovery."""

    def __init__(self, disk: Disk, seed: int, floor: int = 0, mark: int = 0) -> None:
        """`floor`: last group that is durable in the segments. `mark`: last acknowledged group."""
        self._disk = disk
        self._seed = seed
        found: dict[int, GroupRef] = {}
        for name in disk.names(DIRECTORY):
            if name.endswith(".jnl"):
                for group in self._groups(f"{DIRECTORY}/{name}"):
                    known = found.get(group.sequence)
                    if known is None or known.generation < group.generation:
                        found[group.sequence] = group
        self.newest = max(floor, max(found, default=0))
        self.generation = max((group.generation for group in found.values()), default=0)
        newest = found.get(self.newest)
        self.checkpoint = max(floor, newest.checkpoint if newest else 0)
        wanted = range(self.checkpoint + 1, self.newest + 1)
        self.groups = [found[sequence] for sequence in wanted if sequence in found]
        self.damage = self._damage(found, wanted)
        if mark > self.newest:
            self.damage.append(self._lost_end(newest, mark))
            self.newest = mark

    def _lost_end(self, last: GroupRef | None, mark: int) -> JournalDamage:
        """Acknowledged groups behind the last one that was found."""
        if last is not None:
            return JournalDamage(
                last.path, last.position + _padded(last.size), self.newest + 1, mark
            )
        names = [name for name in self._disk.names(DIRECTORY) if name.endswith(".jnl")]
        path = f"{DIRECTORY}/{names[-1]}" if names else DIRECTORY
        return JournalDamage(path, 0, self.newest + 1, mark)

    def secure(self) -> None:
        """Make all groups durable: a killed process may have left them in the page cache.

        The last group is written again, byte for byte. If its sync had failed, the kernel would
        treat its pages as clean, and a sync alone would do nothing.
        """
        for path in dict.fromkeys(group.path for group in self.groups):
            sync_path(self._disk, path)
        if self.groups:
            last = self.groups[-1]
            file = self._disk.open(last.path, "write")
            try:
                file.write_durable([file.read(last.size, last.position)], last.position)
            finally:
                file.close()

    def _damage(self, found: dict[int, GroupRef], wanted: range) -> list[JournalDamage]:
        """Runs of missing sequences, each with the position behind the good group before it."""
        damage: list[JournalDamage] = []
        path, end = "", 0
        missing: list[int] = []
        for sequence in wanted:
            group = found.get(sequence)
            if group is None:
                missing.append(sequence)
                continue
            if missing:
                where = (path, end) if path else (group.path, 0)
                damage.append(JournalDamage(*where, missing[0], missing[-1]))
                missing = []
            path, end = group.path, group.position + _padded(group.size)
        return damage

    def _groups(self, path: str) -> Iterator[GroupRef]:
        file = self._disk.open(path, "read")
        try:
            size = file.size()
            position = 0
            while position < size:
                group = self._group_at(file, path, position, size)
                if group is not None:
                    yield group
                    position += _padded(group.size)
                else:
                    position = _next_magic(file, position + JOURNAL_BLOCK_BYTES, size)
        finally:
            file.close()

    def _group_at(self, file: File, path: str, position: int, end: int) -> GroupRef | None:
        head = file.read(_GROUP.size, position)
        if len(head) < _GROUP.size:
            return None
        magic, crc, length, count, generation, sequence, checkpoint = _GROUP.unpack(head)
        if magic != _MAGIC or position + _GROUP.size + length > end:
            return None
        payload = file.read(length, position + _GROUP.size)
        if crc32c(payload, crc32c(head[_CRC_END:], self._seed)) != crc:
            return None
        size = _GROUP.size + length
        return GroupRef(path, position, size, count, generation, sequence, checkpoint)

    def entries(self) -> Iterator[EntryRef]:
        """Every entry after the checkpoint, oldest first."""
        for group in self.groups:
            yield from self._entries(group)

    def _entries(self, group: GroupRef) -> Iterator[EntryRef]:
        file = self._disk.open(group.path, "read")
        try:
            data = file.read(group.size, group.position)
        finally:
            file.close()
        at = _GROUP.size
        for _ in range(group.entry_count):
            if group.size - at < _ENTRY.size:
                raise CorruptionError(group.path, group.position + at, "entry is cut off")
            kind, partition_id, base, generation, position, size = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            yield EntryRef(
                group.sequence,
                EntryKind(kind),
                partition_id,
                base,
                generation,
                position,
                group.path,
                group.position + at,
                size,
            )
            at += size


def read_entry(disk: Disk, entry: EntryRef) -> bytes:
    file = disk.open(entry.path, "read")
    try:
        return file.read(entry.data_size, entry.data_position)
    finally:
        file.close()


def _next_magic(file: File, position: int, end: int) -> int:
    """The next block that starts like a group, or `end`."""
    while position < end:
        chunk = file.read(min(SCAN_CHUNK_BYTES, end - position), position)
        for at in range(0, len(chunk), JOURNAL_BLOCK_BYTES):
            if chunk[at : at + 4] == _MAGIC_BYTES:
                return position + at
        position += len(chunk)
    return end


def _padded(size: int) -> int:
    return -(-size // JOURNAL_BLOCK_BYTES) * JOURNAL_BLOCK_BYTES


def group_seeds(disk: Disk, path: str, size_max: int) -> Iterator[int]:
    """The seed with which each group of at most `size_max` bytes would be sound.

    All groups of one directory give the same seed; other bytes give arbitrary ones.
    """
    file = disk.open(path, "read")
    try:
        end = file.size()
        for position in range(0, end, JOURNAL_BLOCK_BYTES):
            head = file.read(_GROUP.size, position)
            if len(head) < _GROUP.size:
                return
            magic, crc, length, *_ = _GROUP.unpack(head)
            if magic == _MAGIC and _GROUP.size + length <= size_max:
                data = head[_CRC_END:] + file.read(length, position + _GROUP.size)
                yield crc32c_seed(data, crc)
    finally:
        file.close()


MARK_FILE = f"{DIRECTORY}/mark"
_SLOT = struct.Struct("<IIQQB16s")
_SLOT_MAGIC = 0x314D4744
#: One sector, so that a write to one slot never touches the other.
_SLOT_STRIDE_BYTES = 512
_DURABILITIES = (Durability.FSYNC, Durability.OS)


class Mark(NamedTuple):
    sequence: int
    incarnation: int
    durability: Durability
    directory_id: str


class MarkWriter:
    """Writes `journal/mark`. The file stays open: the mark costs one system call for each group."""

    def __init__(self, disk: Disk, node: NodeState, sequence: int) -> None:
        """Create the file when it is missing; durable when this returns. Raises `OSError`."""
        self._seed = seed_of(node.directory_id)
        self._tail = (
            node.incarnation,
            _DURABILITIES.index(node.durability),
            bytes.fromhex(node.directory_id),
        )
        is_new = not disk.exists(MARK_FILE)
        if is_new:
            disk.make_directory(DIRECTORY)
        self._file: File = disk.open(MARK_FILE, "create" if is_new else "write")
        self._file.write([self._slot(sequence)], 0)
        self._file.write([self._slot(sequence)], _SLOT_STRIDE_BYTES)
        self._file.sync()
        if is_new:
            disk.sync_directory(DIRECTORY)
            disk.sync_directory("")

    def _slot(self, sequence: int) -> bytes:
        slot = _SLOT.pack(_SLOT_MAGIC, 0, sequence, *self._tail)
        crc = crc32c(slot[_CRC_END:], self._seed)
        return _SLOT.pack(_SLOT_MAGIC, crc, sequence, *self._tail)

    def write(self, sequence: int) -> None:
        """Record that every group up to this one is stable. An error is ignored: the mark then
        claims less."""
        with suppress(OSError):
            self._file.write([self._slot(sequence)], sequence % 2 * _SLOT_STRIDE_BYTES)

    @property
    def is_linked(self) -> bool:
        return self._file.is_linked()

    def close(self) -> None:
        self._file.close()


def read_mark(disk: Disk) -> Mark | None:
    """The later of the sound slots; None when there is none."""
    if not disk.exists(MARK_FILE):
        return None
    data = read_whole(disk, MARK_FILE)
    found: list[Mark] = []
    for at in (0, _SLOT_STRIDE_BYTES):
        if len(data) - at < _SLOT.size:
            continue
        slot = data[at : at + _SLOT.size]
        magic, crc, sequence, incarnation, durability, identity = _SLOT.unpack(slot)
        directory_id = identity.hex()
        is_sound = crc32c(slot[_CRC_END:], seed_of(directory_id)) == crc
        if magic == _SLOT_MAGIC and is_sound and durability < len(_DURABILITIES):
            found.append(Mark(sequence, incarnation, _DURABILITIES[durability], directory_id))
    return max(found, default=None)


def seed_of(directory_id: str) -> int:
    """Seed of the checksums in a directory's journal."""
    return int(directory_id[:8], 16)
