"""`journal/mark`: up to which group the journal has acknowledged anything, beside the journal.

A group that was being written when the power went looks like one that was acknowledged and lost
since: cut off, overwritten with zeros, gone with its file. The journal alone cannot tell them
apart. So the last acknowledged sequence is written here after each group, without a sync. A killed
process leaves it exact. A power cut may leave an older one, which only says less. When it names a
group that the journal does not hold, that group was lost.

Two slots are written in turn, so that a torn one leaves the other:

    slot    magic u32 "DGM1", CRC-32C u32, sequence u64, incarnation u64, durability u8,
            directory id 16 bytes

The CRC is seeded with the directory's id like that of groups. The rest is what `node.json` says
about the directory itself: a directory that has lost that file can be adopted by it.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import NamedTuple

from dragoman.checksum import crc32c
from dragoman.log.journal import DIRECTORY
from dragoman.log.node import Durability, NodeState
from dragoman.world import Disk, File, read_whole

MARK_FILE = f"{DIRECTORY}/mark"
_SLOT = struct.Struct("<IIQQB16s")
_MAGIC = 0x314D4744
_CRC_END = 8
#: A sector: what is written to one slot never touches the other.
_SLOT_STRIDE_BYTES = 512
_DURABILITIES = (Durability.FSYNC, Durability.OS)


class Mark(NamedTuple):
    sequence: int
    incarnation: int
    durability: Durability
    directory_id: str


class MarkWriter:
    """The file, kept open: a write to it costs a system call for each group."""

    def __init__(self, disk: Disk, node: NodeState, sequence: int) -> None:
        """Creates the file when it is missing, durable at once. Raises `OSError`."""
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
        slot = _SLOT.pack(_MAGIC, 0, sequence, *self._tail)
        crc = crc32c(slot[_CRC_END:], self._seed)
        return _SLOT.pack(_MAGIC, crc, sequence, *self._tail)

    def write(self, sequence: int) -> None:
        """Every group up to this one is stable. A failure costs only what the mark could tell."""
        with suppress(OSError):
            self._file.write([self._slot(sequence)], sequence % 2 * _SLOT_STRIDE_BYTES)

    @property
    def is_linked(self) -> bool:
        return self._file.is_linked()

    def close(self) -> None:
        self._file.close()


def read_mark(disk: Disk) -> Mark | None:
    """The later of two sound slots; None when there is none."""
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
        if magic == _MAGIC and is_sound and durability < len(_DURABILITIES):
            found.append(Mark(sequence, incarnation, _DURABILITIES[durability], directory_id))
    return max(found, default=None)


def seed_of(directory_id: str) -> int:
    """What the checksums of a directory's journal begin with."""
    return int(directory_id[:8], 16)
