"""Truncations as the journal tells them, and what each of them undid.

A truncation names the segment that stayed last and how many bytes of it stayed. Everything behind
is gone: segments with a higher base, and entries that wrote there. What is written afterwards goes
into new files, so generations tell the two apart however often an entry is replayed.

A *restart* leaves nothing: no segment, no epoch, no producer. The log begins anew where it says,
which may be before or behind all that it had.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.log.journal import EntryRef, read_entry
from dragoman.world import Disk

#: In place of a position, when no segment stayed: the log begins anew.
RESTART = 1


class Truncation(NamedTuple):
    """A truncation found in the journal."""

    sequence: int
    #: The segment that stayed last, and its bytes; base -1 when none stayed.
    base_offset: int
    generation: int
    position: int
    #: The log's end afterwards.
    next_offset: int
    #: Files with a lower generation are older than the truncation.
    next_generation: int

    @property
    def is_restart(self) -> bool:
        return self.base_offset < 0 and self.position == RESTART

    def ends_before(self, offset: int) -> bool:
        """Whether what began at `offset`, before the truncation, is gone."""
        return self.is_restart or offset >= self.next_offset

    def removes(self, base_offset: int, generation: int) -> bool:
        return base_offset > self.base_offset and generation < self.next_generation

    def undoes(self, entry: EntryRef) -> bool:
        """Whether all that an append wrote was cut."""
        if entry.sequence > self.sequence:
            return False
        if self.removes(entry.base_offset, entry.generation):
            return True
        return self.cuts(entry.base_offset, entry.generation) and entry.position >= self.position

    def cuts(self, base_offset: int, generation: int) -> bool:
        return (base_offset, generation) == (self.base_offset, self.generation)


def truncation_entry_data(next_offset: int, next_generation: int) -> bytes:
    """What a truncation's journal entry holds besides its head."""
    return next_offset.to_bytes(8, "little") + next_generation.to_bytes(4, "little")


def read_truncation(disk: Disk, entry: EntryRef) -> Truncation:
    data = read_entry(disk, entry)
    return Truncation(
        entry.sequence,
        entry.base_offset,
        entry.generation,
        entry.position,
        int.from_bytes(data[:8], "little"),
        int.from_bytes(data[8:12], "little"),
    )
