"""Write-behind: journalled bytes are written to their segment files later, in large pieces.

Bytes that a group has made durable in the journal are *dirty*: readable from memory, not yet in
their segment file. They are written when a partition, or the node, has many of them, before a
reader needs the file, and at a checkpoint.
"""

from __future__ import annotations

from dragoman.limits import (
    DIRTY_BYTES_MAX,
    DIRTY_PARTITION_BYTES_MAX,
    TAIL_BYTES_MAX,
    WRITE_OUT_BYTES_MIN,
)
from dragoman.log.directory import FULL, DataDirectory
from dragoman.log.partition import PartitionLog
from dragoman.log.segment import Run, Segment
from dragoman.log.tail import TailRing


class WriteBehind:
    def __init__(self, directory: DataDirectory, work: dict[PartitionLog, None]) -> None:
        """`work`: partitions for the next checkpoint."""
        self._directory = directory
        self._stats = directory.stats
        self._work = work
        self._tail = TailRing(TAIL_BYTES_MAX)
        self._dirty: dict[PartitionLog, None] = {}
        #: Partitions with enough dirty bytes to be written at the next opportunity.
        self._much_dirty: dict[PartitionLog, None] = {}

    def remember(self, partition: PartitionLog, runs: list[Run], end: int) -> None:
        """Keep runs in memory, where readers find them within their limit."""
        for run in runs:
            self._tail.add(partition, run.chunks, end)

    def add(self, partition: PartitionLog, runs: list[Run]) -> None:
        """Note journalled runs as dirty."""
        dirty = partition.dirty
        for run in runs:
            partition.dirty_bytes += run.size
            self._stats.dirty_bytes += run.size
            if dirty and dirty[-1].segment is run.segment:
                dirty[-1].chunks += run.chunks
                dirty[-1].size += run.size
            else:
                dirty.append(run)
                if run.segment not in partition.unsynced:
                    partition.unsynced.append(run.segment)
        self._dirty[partition] = None
        if partition.dirty_bytes >= DIRTY_PARTITION_BYTES_MAX:
            self._much_dirty[partition] = None
        self._work[partition] = None

    def drop(self, partition: PartitionLog, segment: Segment) -> None:
        """Forget the dirty bytes of a segment that is removed."""
        kept: list[Run] = []
        for run in partition.dirty:
            if run.segment is segment:
                partition.dirty_bytes -= run.size
                self._stats.dirty_bytes -= run.size
            else:
                kept.append(run)
        partition.dirty = kept
        if not kept:
            self._dirty.pop(partition, None)
            self._much_dirty.pop(partition, None)

    def drop_all(self, partition: PartitionLog) -> None:
        """Forget all dirty bytes of a partition that is removed."""
        self._dirty.pop(partition, None)
        self._much_dirty.pop(partition, None)
        self._stats.dirty_bytes -= partition.dirty_bytes
        partition.dirty.clear()
        partition.dirty_bytes = 0

    def write_due(self) -> None:
        """Write the partitions with many dirty bytes; all partitions past the node's bound."""
        is_much = self._stats.dirty_bytes > DIRTY_BYTES_MAX
        for partition in list(self._dirty if is_much else self._much_dirty):
            self.flush(partition)

    def shrink_tail(self) -> None:
        """Evict the oldest chunks from memory until within the bound."""
        self._tail.shrink()

    def write_all(self) -> bool:
        """Write all dirty bytes. False: the disk is full."""
        for partition in list(self._dirty):
            self.flush(partition)
            if self._directory.is_full:
                return False
        return True

    def flush(self, partition: PartitionLog) -> None:
        """Write a partition's dirty bytes to its segment files.

        On a full disk they stay dirty: durable in the journal, readable from memory.
        """
        directory = self._directory
        while partition.dirty:
            run = partition.dirty[0]
            segment = run.segment
            try:
                directory.files.get_or_create(segment.log_path).write(run.chunks, run.position)
            except OSError as error:
                if error.errno in FULL:
                    directory.refuse_appends(error)
                else:
                    directory.fail(error)
                return
            segment.written = run.position + run.size
            segment.written_ms = directory.clock.wall_ms()
            if segment.written - segment.written_out >= WRITE_OUT_BYTES_MIN:
                directory.write_out(segment)
            self._stats.flushed_bytes += run.size
            partition.dirty_bytes -= run.size
            self._stats.dirty_bytes -= run.size
            del partition.dirty[0]
        self._dirty.pop(partition, None)
        self._much_dirty.pop(partition, None)
