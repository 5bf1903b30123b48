"""One partition's log: segments, the tail in memory, epochs, producer state, and the marks on it.

    log_start_offset <= last_stable_offset <= high_watermark <= stable_end <= log_end_offset

`log_end_offset` moves with every append, `stable_end` when the group that holds the append is on
stable storage, `high_watermark` when the owner reports that enough replicas have the records (on
one node: at once). `last_stable_offset` stops at the first open transaction. Readers never pass the
high watermark; the caller passes the limit that applies to them.

This module appends, truncates and begins epochs; `readable_log.py` has the contents of a log and
how they are read. Neither knows retention, replication or protocols. Nothing here waits: an append
stages bytes with the store, which commits them.

The file is longer than most on purpose: everything that moves the marks is in it.
"""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, OffsetGapError
from dragoman.limits import DAMAGE_REPORTS_MAX
from dragoman.log.batch import (
    NO_PRODUCER,
    WALKED_PREFIX_BYTES,
    BatchHeader,
    Marker,
    assign,
    batches,
    marker_of,
)
from dragoman.log.damage import new_damage
from dragoman.log.epochs import EpochHistory
from dragoman.log.index import SparseIndex
from dragoman.log.journal import EntryKind
from dragoman.log.manifest import Identity
from dragoman.log.node import DamagedPlace
from dragoman.log.producer import Duplicate
from dragoman.log.producer_states import ProducerStates
from dragoman.log.readable_log import ReadableLog, ReadableStore
from dragoman.log.segment import Run, Segment
from dragoman.log.segment_reader import ReadResult
from dragoman.log.truncations import RESTART, cut_point, cut_segment, truncation_entry_data
from dragoman.types import Buffer
from dragoman.world import Clock

log = logging.getLogger("dragoman.log")
__all__ = ["Appended", "LogConfig", "PartitionLog", "PartitionStore", "ReadResult"]


class LogConfig(Protocol):
    """The part of a topic's configuration that the log uses."""

    @property
    def segment_bytes(self) -> int: ...

    @property
    def segment_ms(self) -> int: ...

    @property
    def index_interval_bytes(self) -> int: ...


class Commits(Protocol):
    """Where appended bytes are staged, to become durable with the node's next group."""

    def admit(self, size: int) -> None: ...

    def stage(
        self,
        partition: PartitionLog,
        segment: Segment,
        position: int,
        base_offset: int,
        batch: Buffer,
        size: int,
    ) -> None: ...

    def journal_now(
        self,
        kind: EntryKind,
        partition: PartitionLog,
        base_offset: int,
        generation: int,
        position: int,
        data: bytes,
    ) -> None: ...

    def settle(self, partition: PartitionLog) -> None: ...

    def settle_all(self) -> None: ...


class PartitionStore(ReadableStore, Protocol):
    """What a partition needs of the store that all partitions of a node share."""

    @property
    def commits(self) -> Commits: ...

    @property
    def clock(self) -> Clock: ...

    def flush(self, partition: PartitionLog) -> None: ...

    def drop_dirty(self, partition: PartitionLog, segment: Segment) -> None: ...

    def segment_rolled(self, partition: PartitionLog) -> None: ...

    def manifest_due(self, partition: PartitionLog) -> None: ...

    def load_index(self, partition: PartitionLog, segment: Segment) -> SparseIndex: ...

    def reload_producers(self, partition: PartitionLog) -> None: ...

    def damage_found(self, partition: PartitionLog, place: DamagedPlace | None) -> None: ...

    def damage_is_gone(self, partition: PartitionLog) -> None: ...


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a batch was appended. One is made per batch, and a struct costs less than a tuple."""

    base_offset: int
    #: Offset after the last record. The batch is acknowledged once `stable_end`, or the high
    #: watermark, reaches it.
    next_offset: int
    is_duplicate: bool = False
    #: Timestamp of the original batch when this one is a duplicate, else -1.
    timestamp: int = -1


class PartitionLog(ReadableLog):
    store: PartitionStore

    __slots__ = (
        "appended_bytes",
        "clean_size",
        "cleaned_offset",
        "commits",
        "config",
        "directory",
        "dirty_bytes",
        "epochs",
        "first_generation",
        "has_producer_file",
        "has_rare_entries",
        "is_damaged",
        "is_removed",
        "manifest_version",
        "next_generation",
        "obsolete",
        "owner",
        "problems",
        "producer_file_end",
        "saved_live_offset",
        "saved_manifest_version",
        "staged",
        "stale_indexes",
        "truncations",
        "unsynced",
    )

    def __init__(
        self, store: PartitionStore, identity: Identity, directory: str, config: LogConfig
    ) -> None:
        super().__init__(store, identity)
        #: `store.commits`, kept here because every append uses it.
        self.commits = store.commits
        self.directory = directory
        self.config = config
        #: Set by the layer above, which finds it again when the store reports this partition.
        self.owner: object = None
        #: Bytes appended since the partition was opened; only ever grows.
        self.appended_bytes = 0
        self.epochs = EpochHistory()
        #: Runs of the group that is being built. Once journalled, they are dirty.
        self.staged: list[Run] = []
        self.dirty_bytes = 0
        self.next_generation = 0
        #: Files of earlier generations are from before the last restart of the log.
        self.first_generation = 0
        #: Segments with bytes that no sync has covered yet.
        self.unsynced: list[Segment] = []
        #: Counts changes that belong in the manifest.
        self.manifest_version = 0
        #: The `manifest_version` that the manifest on disk contains.
        self.saved_manifest_version = 0
        #: `Manifest.live_offset` of the manifest on disk.
        self.saved_live_offset = 0
        #: Whether a truncation, log start or epoch is in no manifest yet.
        self.has_rare_entries = False
        #: Whether a file with producer state is on disk, valid or not.
        self.has_producer_file = False
        #: The log's end for which that file is valid; -1 when it is no longer valid.
        self.producer_file_end = -1
        #: Counts truncations.
        self.truncations = 0
        #: Compaction has seen everything below this.
        self.cleaned_offset = 0
        #: Bytes of the active segment that the manifest states as its clean end, -1 for none.
        self.clean_size = -1
        #: Removed segments whose files are deleted once a manifest without them is durable.
        self.obsolete: list[Segment] = []
        #: Index files that show what a start found missing. They are removed once a manifest that
        #: lists the damage is durable: after a kill before that, the next start needs them.
        self.stale_indexes: tuple[str, ...] = ()
        #: Descriptions of damaged and missing files, for operators.
        self.problems: list[str] = []
        #: Whether records that were stable cannot be read.
        self.is_damaged = False
        self.is_removed = False

    # ---- marks

    def advance_high_watermark(self, offset: int) -> None:
        """Note that enough replicas have everything below `offset`. A lower offset is ignored."""
        assert offset <= self.stable_end
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers is not None:
                self.producers.settle(offset)

    @property
    def is_manifest_due(self) -> bool:
        return self.manifest_version != self.saved_manifest_version

    # ---- appending

    def append(self, batch: bytearray | memoryview, header: BatchHeader, epoch: int) -> Appended:
        """Append a checked batch. The log writes offset and epoch into its buffer, and keeps it.

        Raises `ProducerError`, `DiskFullError` or `LogStoppedError`, with nothing changed.
        """
        if header.producer_id != NO_PRODUCER:
            return self._append_from_producer(batch, header, epoch)
        size = len(batch)
        self.commits.admit(size)
        base = self.log_end_offset
        assign(batch, base, epoch)
        self._place(batch, size, base, header.last_offset_delta, header.max_timestamp, epoch)
        return Appended(base, self.log_end_offset)

    def _append_from_producer(
        self, batch: bytearray | memoryview, header: BatchHeader, epoch: int
    ) -> Appended:
        producers = self.producers
        if producers is None:
            producers = self.producers = ProducerStates()
        count = header.last_offset_delta + 1
        who = (header.producer_id, header.producer_epoch, header.base_sequence, count)
        is_transactional = header.is_transactional
        repeat = producers.check(*who, is_transactional)
        if isinstance(repeat, Duplicate):
            end = repeat.base_offset + count
            return Appended(repeat.base_offset, end, True, repeat.timestamp)
        size = len(batch)
        self.commits.admit(size)
        base = self.log_end_offset
        assign(batch, base, epoch)
        self._place(batch, size, base, header.last_offset_delta, header.max_timestamp, epoch)
        now_ms = self.store.clock.wall_ms()
        producers.append(*who, base, header.max_timestamp, now_ms, is_transactional)
        return Appended(base, self.log_end_offset)

    def append_marker(
        self, batch: bytearray, header: BatchHeader, epoch: int, marker: Marker
    ) -> Appended:
        """Append a control batch that ends a producer's transaction. Raises `ProducerError`."""
        if self.producers is None:
            self.producers = ProducerStates()
        producer = (header.producer_id, header.producer_epoch)
        self.producers.check_marker(*producer, marker.coordinator_epoch)
        self.commits.admit(len(batch))
        base = self.log_end_offset
        assign(batch, base, epoch)
        self._place(batch, len(batch), base, 0, header.record_timestamp, epoch)
        # The marker's own time, so that followers and recovery compute the same state.
        self.producers.complete_transaction(
            *producer, base, marker.is_commit, header.max_timestamp, marker.coordinator_epoch
        )
        return Appended(base, self.log_end_offset)

    def append_as_is(self, data: bytearray | memoryview | bytes) -> int:
        """Append batches that have offsets and epochs already (replication, import).

        Returns the new log end. Gaps between offsets are allowed. All batches are checked before
        the first is appended; `OffsetGapError` is raised for an offset or epoch that goes back.
        """
        view = memoryview(data)
        found = list(batches(view))
        expected, latest = self.log_end_offset, self.epochs.latest
        is_run = True
        for header, batch in found:
            if header.base_offset != expected or header.leader_epoch != latest:
                self._check_follows(header, expected, latest)
                is_run = False
            if header.is_control:
                marker_of(header, batch)
            expected, latest = header.last_offset + 1, header.leader_epoch
        self.commits.admit(len(view))
        active = self.active
        if is_run and found and active and active.size + len(view) <= self.config.segment_bytes:
            self._place_run(active, found, view)
        else:
            for header, batch in found:
                self._place_as_is(header, batch)
        for header, batch in found:
            if header.producer_id != NO_PRODUCER:
                self.note_producer(header, batch)
        return self.log_end_offset

    def _check_follows(self, header: BatchHeader, expected: int, latest: int) -> None:
        if header.base_offset < expected:
            raise OffsetGapError(
                f"{self.describe()}: batch at {header.base_offset}, log ends at {expected}"
            )
        if header.leader_epoch < latest:
            raise OffsetGapError(
                f"{self.describe()}: batch at {header.base_offset} has leader epoch "
                f"{header.leader_epoch}, the one before it {latest}"
            )

    def _place_as_is(self, header: BatchHeader, batch: memoryview) -> None:
        base, epoch = header.base_offset, header.leader_epoch
        delta, timestamp = header.last_offset_delta, header.record_timestamp
        gap = base > self.log_end_offset
        self._place(batch, len(batch), base, delta, timestamp, epoch, gap=gap)

    def _place_run(
        self, segment: Segment, found: list[tuple[BatchHeader, memoryview]], data: memoryview
    ) -> None:
        """Append contiguous batches of the latest epoch to one segment.

        The result is that of `_place` for each batch, at a lower cost.
        """
        start = position = segment.size
        index = segment.index
        assert index is not None
        interval = self.config.index_interval_bytes
        for header, batch in found:
            relative, timestamp = header.base_offset - segment.base_offset, header.record_timestamp
            index.add(relative, position, batch[:WALKED_PREFIX_BYTES], timestamp, interval)
            position += len(batch)
            if timestamp > segment.max_timestamp:
                segment.max_timestamp = timestamp
        segment.checksum = crc32c(data, segment.checksum)
        segment.size = position
        self.appended_bytes += len(data)
        # The batches are staged as one.
        self.store.directory.stats.appended_batches += len(found) - 1
        base = self.log_end_offset
        self.log_end_offset = segment.next_offset = found[-1][0].last_offset + 1
        self.commits.stage(self, segment, start, base, data, len(data))

    def note_producer(self, header: BatchHeader, batch: memoryview) -> None:
        """Update the producer state with a batch that is in the log already."""
        if header.producer_id == NO_PRODUCER:
            return
        if self.producers is None:
            self.producers = ProducerStates()
        if header.is_control:
            marker = marker_of(header, batch)
            self.producers.complete_transaction(
                header.producer_id,
                header.producer_epoch,
                header.base_offset,
                marker.is_commit,
                header.max_timestamp,
                marker.coordinator_epoch,
            )
            return
        timestamp = header.record_timestamp
        self.producers.append(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta + 1,
            header.base_offset,
            timestamp,
            # A producer of records without timestamps must not count as idle since 1970.
            timestamp if timestamp > 0 else self.store.clock.wall_ms(),
            header.is_transactional,
        )

    def _place(
        self,
        batch: Buffer,
        size: int,
        base: int,
        last_delta: int,
        timestamp: int,
        epoch: int,
        *,
        gap: bool = False,
    ) -> None:
        segment = self.active
        if segment is None or (segment.size + size > self.config.segment_bytes and segment.size):
            segment = self.roll(self.log_end_offset)
        position = segment.size
        index = segment.index
        assert index is not None
        index.add(
            base - segment.base_offset,
            position,
            batch[:WALKED_PREFIX_BYTES],
            timestamp,
            self.config.index_interval_bytes,
        )
        segment.checksum = crc32c(batch, segment.checksum)
        segment.size = position + size
        self.appended_bytes += size
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
        if gap:
            segment.has_gaps = True
        self.log_end_offset = segment.next_offset = base + last_delta + 1
        if epoch != self.epochs.latest:
            self.epochs.assign(epoch, base)
            self.manifest_version += 1
            self.has_rare_entries = True
        self.commits.stage(self, segment, position, base, batch, size)

    def roll(self, base: int) -> Segment:
        """Close the active segment, unless it is empty, and start one at offset `base`."""
        old = self.active
        if old is not None:
            if old.size == 0 and old.base_offset == base:
                return old
            if old.size:
                self.add_rolled(old)
                self.store.segment_rolled(self)
        segment = Segment(self.directory, base, self.next_generation)
        segment.index = SparseIndex()
        segment.created_ms = self.store.clock.wall_ms()
        self.next_generation += 1
        self.active = segment
        return segment

    def add_rolled(self, segment: Segment) -> None:
        assert segment.index is not None
        segment.index.seal()
        segment.is_rolled = True
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self.manifest_version += 1

    def rebuild_bases(self) -> None:
        self._bases = [each.base_offset for each in self.segments]

    # ---- damage and indexes

    def note_damage(self, error: CorruptionError) -> None:
        """Record the offsets that a reader could not read, in memory and in the manifest.

        Each range is reported once, with a call of `LogStore.on_damage`.
        """
        found = new_damage(self, error)
        if found is not None:
            first, next_good, position = found
            self.report(
                f"{error.path} at byte {position}: {error.reason}; "
                f"offsets {first} to {next_good - 1} are not served",
                (error.path, position),
            )
            self.manifest_version += 1
            self.store.manifest_due(self)

    def index_of(self, segment: Segment) -> SparseIndex:
        """The segment's index. Loaded if it is not in memory, rebuilt if it is missing or bad."""
        if segment.index is None:
            segment.index = self.store.load_index(self, segment)
        return segment.index

    def flush(self) -> None:
        """Write dirty bytes to the segment files, if there is room on the disk."""
        self.store.flush(self)

    # ---- truncation

    def truncate(self, offset: int) -> None:
        """Remove every batch that ends after `offset`, and epochs that began there or later.
        Durable before this returns.

        A batch with `offset` in its middle is removed as a whole. Later appends go into a new
        segment, whose generation distinguishes it from the removed ones. Raises `CorruptionError`,
        with nothing removed, where damage hides the border between batches.
        """
        is_epoch_cut = offset == self.log_end_offset and self.epochs.latest_start >= offset
        if offset >= self.log_end_offset and not is_epoch_cut:
            return
        assert offset >= self.log_start_offset
        self.commits.settle(self)
        segment, position, next_offset = cut_point(self, offset)
        data = truncation_entry_data(next_offset, self.next_generation)
        base, generation = (segment.base_offset, segment.generation) if segment else (-1, 0)
        self.commits.journal_now(EntryKind.TRUNCATE, self, base, generation, position, data)
        self.apply_truncation(segment, position, next_offset)
        self.epochs.truncate(next_offset)
        self.store.manifest_due(self)

    def apply_truncation(self, segment: Segment | None, position: int, next_offset: int) -> None:
        """Apply a truncation to memory and files. The caller truncates the epochs."""
        base = segment.base_offset if segment is not None else -1
        removed = [each for each in self.all_segments() if each.base_offset > base]
        if self.active is segment and segment is not None:
            self.add_rolled(segment)
        self.segments = [each for each in self.segments if each.base_offset <= base]
        self.rebuild_bases()
        self.active = None
        # Files are removed from the last to the first, so that a crash leaves the start of a log.
        for each in reversed(removed):
            self.forget_segment(each)
            self.store.directory.remove_segment_files(each)
        if segment is not None and segment.size > position:
            index = self.index_of(segment)
            cut_segment(self.store.directory, segment, index, position, next_offset)
            if segment not in self.unsynced:
                self.unsynced.append(segment)
        self.log_end_offset = next_offset
        self.stable_end = min(self.stable_end, next_offset)
        self.high_watermark = min(self.high_watermark, next_offset)
        self.cleaned_offset = min(self.cleaned_offset, next_offset)
        self.saved_live_offset = min(self.saved_live_offset, next_offset)
        self.clear_tail()
        self.truncations += 1
        if next_offset < self.producer_file_end:
            self.producer_file_end = -1
        if self.producers is not None and not self.producers.truncate(next_offset):
            self.store.reload_producers(self)
        self.manifest_version += 1

    def forget_segment(self, segment: Segment) -> None:
        """Cancel writing and syncing for a segment that was removed from the log."""
        segment.is_gone = True
        if segment in self.unsynced:
            self.unsynced.remove(segment)
        self.store.drop_dirty(self, segment)

    def restart_at(self, offset: int) -> None:
        """Remove all records; the log is empty and starts at `offset`. Durable before this returns.

        A replica does this before it is copied again, perhaps from a lower offset than its present
        start. Damaged files are quarantined.
        """
        self.commits.settle_all()
        data = truncation_entry_data(offset, self.next_generation)
        self.commits.journal_now(EntryKind.TRUNCATE, self, -1, 0, RESTART, data)
        for segment in self.all_segments():
            if segment.lost:
                self.store.directory.quarantine(segment)
        self.producers = None
        # Files of records that were deleted earlier may still exist, or reappear at a power cut.
        self.first_generation = self.next_generation
        self.apply_truncation(None, 0, offset)
        self.epochs.load([])
        self.log_start_offset = self.stable_end = self.high_watermark = offset
        self.producer_file_end = -1
        # This node does not know what producers wrote before the new start.
        self.store.reload_producers(self)
        self.saved_live_offset = 0
        self.problems.clear()
        self.is_damaged = False
        self.store.damage_is_gone(self)
        self.store.manifest_due(self)

    def move_log_start(self, offset: int) -> None:
        """Delete records below `offset` (at most the high watermark). Durable before it returns."""
        # A segment whose records are all deleted stays while it is the last.
        is_left_over = bool(self.segments) and self.segments[0].next_offset <= offset
        if offset <= self.log_start_offset and not is_left_over:
            return
        assert offset <= self.high_watermark
        data = offset.to_bytes(8, "little")
        self.commits.journal_now(EntryKind.LOG_START, self, 0, 0, 0, data)
        self.apply_log_start(offset)
        self.store.manifest_due(self)

    def apply_log_start(self, offset: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        self.manifest_version += 1
        while self.segments and self.segments[0].next_offset <= offset:
            self.drop_first_segment()
        if self.producers is not None:
            self.producers.drop_below(offset)

    def drop_first_segment(self) -> Segment:
        """Remove the oldest rolled segment. Its files go once a manifest without it is durable."""
        segment = self.segments.pop(0)
        self._bases.pop(0)
        self.forget_segment(segment)
        self.obsolete.append(segment)
        self.log_start_offset = max(self.log_start_offset, segment.next_offset)
        self.manifest_version += 1
        if not self.segments and self.active is None:
            self.log_end_offset = max(self.log_end_offset, self.log_start_offset)
        return segment

    def replace_segment(self, old: Segment, new: Segment | None) -> None:
        """Replace a segment by its compacted form; `new` is None when no record is left."""
        at = self.segments.index(old)
        if new is None:
            del self.segments[at]
            del self._bases[at]
        else:
            self.segments[at] = new
        # Readers must not find records in memory that compaction has removed.
        self._cleared_chunks += self.tail.drop_below(old.next_offset)
        self.forget_segment(old)
        self.obsolete.append(old)
        self.manifest_version += 1
        self.store.manifest_due(self)

    # ---- epochs

    def begin_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log's end. Durable before this returns."""
        if epoch == self.epochs.latest:
            return
        data = epoch.to_bytes(4, "little") + self.log_end_offset.to_bytes(8, "little")
        self.commits.journal_now(EntryKind.EPOCH, self, 0, 0, 0, data)
        self.epochs.assign(epoch, self.log_end_offset)
        self.manifest_version += 1
        self.store.manifest_due(self)

    # ---- damage

    def report(self, problem: str, where: tuple[str, int] | None = None) -> None:
        """Log damage, keep its description, and inform the store.

        `where`: file and byte, for damage that only readers find.
        """
        log.error("%s: %s", self.describe(), problem)
        self.is_damaged = True
        if len(self.problems) < DAMAGE_REPORTS_MAX:
            self.problems.append(problem)
        place = None if where is None else DamagedPlace(self.identity.partition_id, *where)
        self.store.damage_found(self, place)

    def __repr__(self) -> str:
        return f"<PartitionLog {self.describe()} {self.log_start_offset}..{self.log_end_offset}>"
