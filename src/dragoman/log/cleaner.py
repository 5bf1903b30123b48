"""Retention and compaction.

Retention moves the log start to the end of whole rolled segments, never past the high watermark.

Compaction keeps, of all records with one key, the newest. Offsets stay as they are. One round:

1. Which segments: rolled, known to the manifest on disk, below the last stable offset, old enough;
   a run of them from the log's start.
2. Read the segments behind `cleaned_offset` and note each key's newest offset, until the memory for
   keys is used up. That position is the end of this round.
3. Rewrite every segment below that end without superseded records, under the next generation:
   `<base>.<generation>.compacting`, synced, then its index, then the rename, then the directory.
   The new segment replaces the old one, whose files go once a manifest without them is durable.

Removed are (as by Kafka's cleaner, KIP-534):

- a record with a newer one of the same key, or without a key;
- records of aborted transactions;
- a tombstone once its *delete horizon* has passed. The first round that keeps one sets the horizon
  of its batch to `now + delete.retention.ms`: attribute bit 6 is set, and the base timestamp is the
  horizon (the records' deltas are relative to it);
- a transaction marker, by a horizon that is set once no record of its transaction is left.

Sequence numbers of producers survive without their batches: they are in the producer snapshot.

`compact` is a generator: it yields when its slice of time is over, and while it waits for a sync.
Between two slices anything may happen to the partition. A truncation, retention, removal or a
stopped store ends the round and leaves the log as it was.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeAlias

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, DecodeError, OversizedBatchError
from dragoman.limits import (
    COMPACTION_KEY_OVERHEAD_BYTES,
    COMPACTION_KEYS_BYTES_MAX,
    COMPACTION_SLICE_S,
    COMPACTION_WRITE_BYTES,
    EXPANDED_BATCH_BYTES_MAX,
)
from dragoman.log.batch import (
    DELETE_HORIZON,
    WALKED_PREFIX_BYTES,
    BatchHeader,
    Record,
    assemble_batch,
    iterate_records,
    read_header,
    record_bytes,
)
from dragoman.log.directory import FULL
from dragoman.log.index import Checkpoint, SparseIndex
from dragoman.log.partition import PartitionLog
from dragoman.log.segment import Segment
from dragoman.log.segment_reader import batches_of_range, index_for_reading
from dragoman.types import Buffer
from dragoman.world import OUT_OF_FILES, BackgroundJob, File

#: A generator that yields between slices.
Slices: TypeAlias = Generator[None, None, None]


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of retention; -1 disables a limit."""

    retention_ms: int = -1
    retention_bytes: int = -1
    #: Number of segments that stay, with the active one.
    retention_segments: int = -1


class CompactionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    #: Age of a segment's newest record from which on the segment may be compacted.
    min_compaction_lag_ms: int = 0
    delete_retention_ms: int = 86_400_000
    key_map_bytes_max: int = COMPACTION_KEYS_BYTES_MAX


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    #: Whether the round was completed. If not, the log is unchanged or partly cleaned.
    is_complete: bool
    cleaned_offset: int
    bytes_before: int = 0
    bytes_after: int = 0
    records_dropped: int = 0


# ---- rolling and retention


def roll_due(partition: PartitionLog, now_ms: int) -> bool:
    """Roll the active segment when it is older than `segment.ms`. Returns whether it was."""
    active = partition.active
    if active is None or not active.size:
        return False
    if now_ms - active.created_ms < partition.config.segment_ms:
        return False
    partition.roll(partition.log_end_offset)
    return True


def retain(partition: PartitionLog, policy: RetentionPolicy, now_ms: int) -> int:
    """Delete the oldest segments that exceed a limit. Returns how many were deleted.

    Durable when it returns. Raises what `PartitionLog.move_log_start` raises.
    """
    count = 0
    offset = partition.log_start_offset
    size = partition.size
    segments = partition.all_segments()
    for segment in partition.segments:
        if segment.next_offset > partition.high_watermark:
            break
        left = len(segments) - count
        if not _is_expired(segment, policy, now_ms, size, left):
            break
        count += 1
        size -= segment.size
        offset = segment.next_offset
    if count:
        partition.move_log_start(offset)
    return count


def _is_expired(
    segment: Segment, policy: RetentionPolicy, now_ms: int, size: int, segments_left: int
) -> bool:
    if 0 <= policy.retention_ms < now_ms - segment.newest_ms(now_ms):
        return True
    if policy.retention_bytes >= 0 and size - segment.size >= policy.retention_bytes:
        return True
    return 0 <= policy.retention_segments < segments_left


# ---- segments to compact


def cleanable_segments(
    partition: PartitionLog, policy: CompactionPolicy, now_ms: int
) -> list[Segment]:
    """The contiguous segments from the log's start that compaction may rewrite now."""
    limit = min(partition.last_stable_offset, partition.saved_live_offset)
    found: list[Segment] = []
    for segment in partition.segments:
        is_old = now_ms - segment.newest_ms(now_ms) >= policy.min_compaction_lag_ms
        if segment.next_offset > limit or segment.lost or not is_old:
            break
        found.append(segment)
    return found


def has_dirty_segments(partition: PartitionLog, policy: CompactionPolicy, now_ms: int) -> bool:
    """Whether a round would now read records that no compaction has read."""
    found = cleanable_segments(partition, policy, now_ms)
    return bool(found) and found[-1].next_offset > partition.cleaned_offset


def dirty_ratio(partition: PartitionLog) -> float:
    """Share of the rolled bytes below the last stable offset that no compaction has read."""
    cleaned = partition.cleaned_offset
    stable = [
        each for each in partition.segments if each.next_offset <= partition.last_stable_offset
    ]
    total = sum(each.size for each in stable)
    dirty = sum(each.size for each in stable if each.next_offset > cleaned)
    return dirty / total if total else 0.0


# ---- one round of compaction


def compact(
    partition: PartitionLog, policy: CompactionPolicy, now_ms: int
) -> Generator[None, None, CompactionResult]:
    """One round of compaction; further ones are needed when not all keys fit.

    It stops at a damaged segment, so that damage is neither copied nor hidden, and raises nothing
    for it.
    """
    work = _Round(partition, policy, now_ms)
    try:
        yield from work.run()
    except (CorruptionError, DecodeError) as error:
        if isinstance(error, CorruptionError):
            partition.note_damage(error)
        partition.report(f"compaction stopped: {error}")
    finally:
        work.discard_output()
    return work.result()


class _Round:
    def __init__(self, partition: PartitionLog, policy: CompactionPolicy, now_ms: int) -> None:
        self._partition = partition
        self._directory = partition.store.directory
        self._policy = policy
        self._now_ms = now_ms
        self._truncations = partition.truncations
        self._clock = partition.store.clock
        self._slice_began = self._clock.monotonic()
        self._segments = cleanable_segments(partition, policy, now_ms)
        self._newest: dict[bytes, int] = {}
        self._map_end = partition.cleaned_offset
        self._output: _Output | None = None
        #: Producers with a record kept since their last marker.
        self._has_records: set[int] = set()
        self._is_complete = False
        self._is_stopped = False
        self._bytes_before = 0
        self._bytes_after = 0
        self._dropped = 0

    def run(self) -> Slices:
        yield from self._map_keys()
        for segment in self._segments:
            if segment.base_offset >= self._map_end or self._is_void(segment):
                break
            yield from self._rewrite(segment)
        if self._is_void(None):
            return
        self._is_complete = True
        self._directory.stats.compacted_records += self._dropped
        if self._map_end > self._partition.cleaned_offset:
            self._partition.cleaned_offset = self._map_end
            self._partition.manifest_version += 1
            self._partition.store.manifest_due(self._partition)

    def result(self) -> CompactionResult:
        return CompactionResult(
            is_complete=self._is_complete,
            cleaned_offset=self._partition.cleaned_offset,
            bytes_before=self._bytes_before,
            bytes_after=self._bytes_after,
            records_dropped=self._dropped,
        )

    def discard_output(self) -> None:
        if self._output is not None:
            self._output.discard()
            self._output = None

    # ---- slices

    def _is_void(self, segment: Segment | None) -> bool:
        partition = self._partition
        if self._is_stopped or partition.is_removed or self._directory.has_failed():
            return True
        if partition.truncations != self._truncations:
            return True
        return segment is not None and segment.is_gone

    def _pause(self) -> Slices:
        """Yield to the loop when the slice is used up."""
        if self._clock.monotonic() - self._slice_began >= COMPACTION_SLICE_S:
            yield
            self._slice_began = self._clock.monotonic()

    def _performed(self, job: BackgroundJob) -> Generator[None, None, bool]:
        outcome: list[OSError | None] = []
        self._directory.run_job(job, outcome.append)
        while not outcome:
            if self._directory.has_failed():
                return False
            yield
        self._slice_began = self._clock.monotonic()
        error = outcome[0]
        if error is not None and error.errno in OUT_OF_FILES:
            # Descriptors become free again: the round is postponed, as on a full disk.
            raise error
        if error is not None:
            self._directory.fail(error)
        return error is None

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
        index = index_for_reading(self._partition, segment)
        for number in range(index.range_count):
            for _, header, batch in batches_of_range(self._partition, segment, number):
                yield header, batch

    # ---- step 2: the newest offset of each key

    def _map_keys(self) -> Slices:
        room = self._policy.key_map_bytes_max
        for segment in self._segments:
            if segment.next_offset <= self._partition.cleaned_offset:
                continue
            for header, batch in self._batches(segment):
                if header.last_offset >= self._partition.cleaned_offset:
                    if room <= 0:
                        return
                    room -= yield from self._map_batch(header, batch)
                    self._map_end = header.last_offset + 1
                yield from self._pause()
                if self._is_void(segment):
                    return
            self._map_end = segment.next_offset

    def _map_batch(self, header: BatchHeader, batch: memoryview) -> Generator[None, None, int]:
        """Add the keys of a batch. Returns the memory that the new keys take."""
        if header.is_control or self._is_aborted(header):
            return 0
        cost = 0
        try:
            for record in iterate_records(batch, header, EXPANDED_BATCH_BYTES_MAX):
                if record.key is not None:
                    if record.key not in self._newest:
                        cost += len(record.key) + COMPACTION_KEY_OVERHEAD_BYTES
                    self._newest[record.key] = record.offset
                yield from self._pause()
        except OversizedBatchError:
            # The batch is kept as it is, and so are earlier records with its keys.
            return 0
        return cost

    def _is_aborted(self, header: BatchHeader) -> bool:
        producers = self._partition.producers
        if not header.is_transactional or producers is None:
            return False
        return any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset <= each.last_offset
            for each in producers.aborted_between(header.base_offset, header.last_offset + 1)
        )

    # ---- step 3: rewriting segments

    def _rewrite(self, old: Segment) -> Slices:
        partition = self._partition
        new = Segment(partition.directory, old.base_offset, partition.next_generation)
        partition.next_generation += 1
        self._output = _Output(partition, new)
        try:
            for header, batch in self._batches(old):
                kept = yield from self._keep(header, batch)
                if kept is not None:
                    self._output.add(kept)
                yield from self._pause()
                if self._is_void(old):
                    return
            self._output.flush()
            new.next_offset = old.next_offset
            new.created_ms, new.written_ms = old.created_ms, old.written_ms
            new.has_gaps = new.is_rolled = True
            # The index of the new segment may find the disk full, too.
            yield from self._put_in_place(old, new)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._directory.refuse_appends(error)
            self._is_stopped = True
            return
        self.discard_output()

    def _put_in_place(self, old: Segment, new: Segment) -> Slices:
        assert self._output is not None
        self._bytes_before += old.size
        self._bytes_after += new.size
        if new.size == old.size and new.checksum == old.checksum:
            return
        if new.size:
            is_synced = yield from self._performed(self._output.sync_job())
            if not is_synced or self._is_void(old):
                return
            self._output.rename()
            directory = BackgroundJob(sync_directories=(self._partition.directory,))
            is_synced = yield from self._performed(directory)
            if not is_synced or self._is_void(old):
                return
        self._output.is_used = True
        self._partition.replace_segment(old, new if new.size else None)

    def _keep(self, header: BatchHeader, batch: memoryview) -> Generator[None, None, Buffer | None]:
        """The batch, unchanged or without some records; None when no record is left."""
        if header.base_offset >= self._map_end:
            return batch
        if header.is_control:
            return self._keep_marker(header, batch)
        if self._is_aborted(header):
            self._dropped += header.record_count
            return None
        kept: list[Record] = []
        has_tombstone = False
        try:
            for record in iterate_records(batch, header, EXPANDED_BATCH_BYTES_MAX):
                if self._is_wanted(record, header):
                    kept.append(record)
                    has_tombstone = has_tombstone or record.value is None
                yield from self._pause()
        except OversizedBatchError:
            if header.is_transactional:
                self._has_records.add(header.producer_id)
            return batch
        self._dropped += header.record_count - len(kept)
        if not kept:
            return None
        if header.is_transactional:
            self._has_records.add(header.producer_id)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        if len(kept) == header.record_count and (has_horizon or not has_tombstone):
            return batch
        return (yield from self._thinned(header, kept, has_tombstone))

    def _is_wanted(self, record: Record, header: BatchHeader) -> bool:
        if record.offset < self._partition.log_start_offset:
            return False
        if record.offset >= self._map_end:
            return True
        if record.key is None or self._newest.get(record.key, -1) > record.offset:
            return False
        is_over = header.attributes & DELETE_HORIZON and header.base_timestamp <= self._now_ms
        return record.value is not None or not is_over

    def _thinned(
        self, header: BatchHeader, kept: list[Record], has_tombstone: bool
    ) -> Generator[None, None, bytearray]:
        attributes, base_timestamp = header.attributes, header.base_timestamp
        if has_tombstone and not attributes & DELETE_HORIZON:
            attributes |= DELETE_HORIZON
            base_timestamp = self._now_ms + self._policy.delete_retention_ms
        body = bytearray()
        for record in kept:
            delta = record.timestamp - base_timestamp
            body += record_bytes(record, delta, record.offset - header.base_offset)
            yield from self._pause()
        changed = header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max(record.timestamp for record in kept),
            record_count=len(kept),
        )
        return assemble_batch(body, changed)

    def _keep_marker(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if header.producer_id in self._has_records:
            self._has_records.discard(header.producer_id)
            return batch
        if not header.attributes & DELETE_HORIZON:
            horizon = self._now_ms + self._policy.delete_retention_ms
            body = bytearray()
            for record in iterate_records(batch, header):
                body += record_bytes(record, record.timestamp - horizon, 0)
            attributes = header.attributes | DELETE_HORIZON
            return assemble_batch(
                body, header._replace(attributes=attributes, base_timestamp=horizon)
            )
        if header.base_timestamp <= self._now_ms:
            self._dropped += 1
            return None
        return batch


class _Output:
    """The new file of a segment, and its index."""

    def __init__(self, partition: PartitionLog, segment: Segment) -> None:
        self._partition = partition
        self._disk = partition.store.directory.disk
        self.segment = segment
        #: Whether the files belong to the log now, and must stay.
        self.is_used = False
        self._path = segment.log_path.removesuffix(".log") + ".compacting"
        self._file: File | None = None
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._index = SparseIndex()

    def add(self, batch: Buffer) -> None:
        segment = self.segment
        header = read_header(batch)
        relative = header.base_offset - segment.base_offset
        interval = self._partition.config.index_interval_bytes
        prefix = memoryview(batch)[:WALKED_PREFIX_BYTES]
        self._index.add(relative, segment.size, prefix, header.record_timestamp, interval)
        segment.checksum = crc32c(batch, segment.checksum)
        segment.max_timestamp = max(segment.max_timestamp, header.record_timestamp)
        segment.size += len(batch)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= COMPACTION_WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Raises `OSError`."""
        if not self._waiting:
            return
        if self._file is None:
            self._disk.remove(self._path)
            self._file = self._disk.open(self._path, "create")
        self._file.write(self._waiting, self.segment.written)
        self.segment.written += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    def sync_job(self) -> BackgroundJob:
        """Write the index. Both files are durable when the returned job is done."""
        segment = self.segment
        self._index.seal()
        checkpoint = Checkpoint(
            segment.size,
            segment.next_offset,
            segment.checksum,
            segment.max_timestamp,
            self._partition.producers is not None,
            True,
        )
        count = len(self._index)
        self._disk.remove(segment.index_path)
        file = self._disk.open(segment.index_path, "create")
        try:
            tag = self._partition.store.directory.tag_of(segment)
            file.write([self._index.unsaved_block(checkpoint, count, tag)], 0)
        finally:
            file.close()
        return BackgroundJob(sync=(self._path, segment.index_path))

    def rename(self) -> None:
        self._close()
        self._disk.rename(self._path, self.segment.log_path)

    def discard(self) -> None:
        self._close()
        if not self.is_used:
            for path in (self._path, self.segment.log_path, self.segment.index_path):
                self._disk.remove(path)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
