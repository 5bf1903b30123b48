"""Repair of a damaged log: sound batches are kept, and damaged offsets become an explicit gap.

A damaged segment is rewritten without the damage, under the next generation, as compaction does.
Lost offsets are never assigned again: a fetch at one of them returns the next record. The damaged
file is kept in `quarantine/`. A crash at any time leaves the log as it was, or repaired.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError
from dragoman.log.batch import HEADER, WALKED_PREFIX_BYTES, BatchHeader
from dragoman.log.damage import with_range
from dragoman.log.directory import QUARANTINE, kept_path
from dragoman.log.index import SparseIndex
from dragoman.log.partition import PartitionLog
from dragoman.log.segment import Segment
from dragoman.log.segment_reader import (
    check_records,
    clip,
    index_for_reading,
    read_bytes,
    walk_range,
)
from dragoman.types import Buffer


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """The repair of one segment, done or planned."""

    topic: str
    partition: int
    path: str
    #: (first, next good, byte position) of every lost range of offsets.
    lost: tuple[tuple[int, int, int], ...]
    kept_batches: int
    kept_bytes: int
    #: Path at which the damaged file is kept; "" when nothing was lost.
    quarantine: str

    @property
    def lost_offsets(self) -> int:
        return sum(end - first for first, end, _ in self.lost)


def repair_partition(partition: PartitionLog, *, is_dry: bool) -> list[Repair]:
    """Read a whole partition and rewrite its damaged segments. Durable with the next checkpoint.

    With `is_dry` nothing is changed. Raises `OSError`.
    """
    done: list[Repair] = []
    for segment in partition.all_segments():
        lost = _lost_in(partition, segment)
        is_stale = bool(segment.lost) and not lost
        if lost or is_stale:
            done.append(_Rewrite(partition, segment, lost).run(is_dry=is_dry))
    if not is_dry:
        partition.is_damaged = False
        partition.problems.clear()
        partition.store.damage_is_gone(partition)
    return done


def _lost_in(partition: PartitionLog, segment: Segment) -> tuple[tuple[int, int, int], ...]:
    """Every range of a segment's offsets that cannot be read."""
    lost = _whole(segment)
    try:
        # Rebuilding the index may find more damage.
        index_for_reading(partition, segment)
    except (CorruptionError, OSError):
        return lost
    lost = segment.damage
    for found in _batches(partition, segment):
        if isinstance(found, tuple) and len(found) == 3:
            lost = with_range(lost, found)
    return lost


def _whole(segment: Segment) -> tuple[tuple[int, int, int], ...]:
    return ((segment.base_offset, segment.next_offset, 0),)


class _Kept(msgspec.Struct, frozen=True):
    header: BatchHeader
    batch: Buffer


def _batches(partition: PartitionLog, segment: Segment) -> Iterator[_Kept | tuple[int, int, int]]:
    """Sound batches, and the lost ranges of offsets between them."""
    index = index_for_reading(partition, segment)
    for number in range(index.range_count):
        each = clip(segment, index.range_at(number, segment.size))
        following = number + 1
        if following < index.range_count:
            end = segment.base_offset + index.range_at(following, segment.size).first
        else:
            end = segment.next_offset
        try:
            data = read_bytes(partition, segment, each.start, each.stop)
            places = walk_range(data, each.start, segment, each)
        except CorruptionError:
            yield segment.base_offset + each.first, end, each.start
            continue
        for place in places:
            at = place.position - each.start
            try:
                check_records(data, at, place.size, segment, place.position)
            except CorruptionError:
                yield place.base_offset, place.next_offset, place.position
            else:
                header = BatchHeader._make(HEADER.unpack_from(data, at))
                yield _Kept(header, data[at : at + place.size])


class _Rewrite:
    """The rewrite of one damaged segment."""

    def __init__(
        self,
        partition: PartitionLog,
        segment: Segment,
        lost: tuple[tuple[int, int, int], ...],
    ) -> None:
        self._partition = partition
        self._directory = partition.store.directory
        self._old = segment
        self._lost = lost
        self._batches = 0
        self._bytes = 0

    def run(self, *, is_dry: bool) -> Repair:
        old = self._old
        kept_as = kept_path(old.log_path)
        if is_dry:
            for kept in self._kept():
                self._count(kept)
        elif not self._lost:
            # All offsets that were unreadable can be read again.
            old.unreadable = ()
            self._partition.manifest_version += 1
            self._partition.store.manifest_due(self._partition)
        else:
            self._keep_aside(kept_as)
            self._replace()
        return Repair(
            topic=self._partition.identity.topic,
            partition=self._partition.identity.partition,
            path=old.log_path,
            lost=self._lost,
            kept_batches=self._batches,
            kept_bytes=self._bytes,
            quarantine=kept_as if self._lost else "",
        )

    def _kept(self) -> Iterator[_Kept]:
        if self._lost == _whole(self._old):
            return
        for found in _batches(self._partition, self._old):
            if isinstance(found, _Kept):
                yield found

    def _count(self, kept: _Kept) -> None:
        self._batches += 1
        self._bytes += len(kept.batch)

    def _keep_aside(self, name: str) -> None:
        disk = self._directory.disk
        disk.make_directory(QUARANTINE)
        disk.remove(name)
        if disk.exists(self._old.log_path):
            disk.link(self._old.log_path, name)
        disk.sync_directory(QUARANTINE)
        disk.sync_directory("")

    def _replace(self) -> None:
        partition, directory, old = self._partition, self._directory, self._old
        new = Segment(partition.directory, old.base_offset, partition.next_generation)
        partition.next_generation += 1
        new.next_offset = old.next_offset
        new.created_ms = old.created_ms
        new.has_gaps = True
        new.index = SparseIndex()
        file = directory.files.create(new.log_path)
        for kept in self._kept():
            self._add(new, kept)
            file.write([kept.batch], new.written)
            new.size = new.written = new.written + len(kept.batch)
        file.sync()
        directory.disk.sync_directory(partition.directory)
        if partition.active is old:
            partition.add_rolled(old)
            partition.active = None
        new.index.seal()
        new.is_rolled = True
        if new.size:
            partition.unsynced.append(new)
            partition.replace_segment(old, new)
        else:
            directory.remove_segment_files(new)
            partition.replace_segment(old, None)

    def _add(self, new: Segment, kept: _Kept) -> None:
        self._count(kept)
        assert new.index is not None
        header = kept.header
        interval = self._partition.config.index_interval_bytes
        relative = header.base_offset - new.base_offset
        prefix = kept.batch[:WALKED_PREFIX_BYTES]
        new.index.add(relative, new.written, prefix, header.record_timestamp, interval)
        new.checksum = crc32c(kept.batch, new.checksum)
        new.max_timestamp = max(new.max_timestamp, header.record_timestamp)
