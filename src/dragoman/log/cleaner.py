"""Making room: retention drops old segments, compaction keeps the newest record of each key.

Neither changes a file that a reader may have open. Retention takes segments off the list; their
files go once a manifest without them is durable. Compaction writes a new file with the same base
and a higher generation, beside the old one, and then swaps them in the list.

Compaction is a generator, so that it can be spread over loop turns: it yields None when it has
worked for a while, and a `BackgroundJob` when it needs one done before it goes on.

1. Take the rolled segments from the log's start up to the first that may not be cleaned: not yet
   synced, damaged, beyond the last stable offset, or younger than `min.compaction.lag.ms`.
2. Read the part that was not cleaned before (the *dirty* part) into a map: key to its last offset.
   The map is bounded; what does not fit waits for the next time.
3. Copy each segment. A record stays if no later one in the map has its key. Offsets never change.

What is removed and when:

- records of aborted transactions at once;
- a tombstone, and a transaction's marker, when its *delete horizon* has passed. The horizon is set
  the first time that compaction meets it, to `delete.retention.ms` from then, so that a reader who
  is at most that far behind sees every deletion. As in Kafka it is kept in the batch: attribute bit
  6 says that the base timestamp is the horizon (the records' timestamps count from it).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from dragoman.errors import CorruptionError, DecodeError
from dragoman.limits import COMPACTION_KEYS_MAX, COMPACTION_SLICE_BYTES
from dragoman.log.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    WALKED_PREFIX_BYTES,
    BatchHeader,
    Record,
    build_batch,
    read_header,
    records,
)
from dragoman.log.compression import Codec
from dragoman.log.index import Checkpoint, SparseIndex
from dragoman.log.partition import PartitionLog
from dragoman.log.segment import Segment, scan
from dragoman.types import Buffer
from dragoman.world import BackgroundJob, File, parent

#: Keys up to this size are their own entry in the map; longer ones are hashed to it.
_KEY_BYTES = 16
#: A file that compaction is writing; recovery removes what a crash leaves of it.
_UNFINISHED = ".compacting"

Work: TypeAlias = Generator[BackgroundJob | None, None, int | None]
_Step: TypeAlias = Generator[BackgroundJob | None, None, None]


class RetentionRules(NamedTuple):
    """Limits of a partition; a negative one means none."""

    age_ms: int
    size_bytes: int
    segment_count: int


class CompactionRules(NamedTuple):
    delete_retention_ms: int
    lag_min_ms: int


# ---- retention


def roll_when_due(partition: PartitionLog, now_ms: int, retention: RetentionRules | None) -> bool:
    """Close the active segment when it is old enough, so that it can be dropped or compacted."""
    active = partition.active
    if active is None or not active.size:
        return False
    is_old = now_ms - active.created_ms >= partition.config.segment_ms
    is_expired = retention is not None and _is_expired(active, retention, now_ms)
    if not is_old and not is_expired:
        return False
    partition.roll(partition.log_end_offset)
    return True


def drop_expired(partition: PartitionLog, rules: RetentionRules, now_ms: int) -> int:
    """Drop the oldest segments while the limits say so; returns how many.

    Never the active one, and nothing at or above the high watermark.
    """
    dropped = 0
    size = partition.size
    while partition.segments:
        first = partition.segments[0]
        if first.next_offset > partition.high_watermark:
            break
        too_many = 0 <= rules.segment_count < len(partition.all_segments())
        too_large = 0 <= rules.size_bytes <= size - first.size
        if not (too_many or too_large or _is_expired(first, rules, now_ms)):
            break
        partition.drop_first_segment()
        size -= first.size
        dropped += 1
    if dropped:
        if partition.producers is not None:
            partition.producers.drop_below(partition.log_start_offset)
        partition.store.manifest_due(partition)
    return dropped


def _is_expired(segment: Segment, rules: RetentionRules, now_ms: int) -> bool:
    """Records without a timestamp count from when the segment was begun."""
    newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
    return 0 <= rules.age_ms < now_ms - newest


# ---- compaction


def dirty_ratio(partition: PartitionLog) -> float:
    """Share of the rolled bytes that compaction has not seen yet."""
    total = sum(segment.size for segment in partition.segments)
    dirty = sum(
        segment.size
        for segment in partition.segments
        if segment.next_offset > partition.cleaned_offset
    )
    return dirty / total if total else 0.0


def compact(
    partition: PartitionLog, rules: CompactionRules, now_ms: int, *, horizon_passed: bool = False
) -> Work:
    """Compact what may be compacted; appends and reads go on meanwhile.

    Returns the earliest delete horizon that is left: when it has passed, another run with
    `horizon_passed` removes what waited for it, even if nothing new was written.
    """
    candidates = _candidates(partition, rules, now_ms)
    newest = _NewestOffsets()
    yield from newest.read(partition, candidates)
    if newest.end_offset <= partition.cleaned_offset and not horizon_passed:
        return None
    earliest: int | None = None
    for segment in candidates:
        if segment.base_offset >= newest.end_offset:
            break
        rewrite = _Rewrite(partition, segment, newest, rules, now_ms)
        yield from rewrite.run()
        if rewrite.horizon is not None:
            earliest = min(earliest or rewrite.horizon, rewrite.horizon)
    if newest.end_offset > partition.cleaned_offset:
        partition.cleaned_offset = newest.end_offset
        partition.manifest_version += 1
        partition.store.manifest_due(partition)
    return earliest


def _candidates(partition: PartitionLog, rules: CompactionRules, now_ms: int) -> list[Segment]:
    found = []
    for segment in partition.segments:
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        if (
            segment.next_offset > partition.last_stable_offset
            or segment in partition.unsynced
            or segment.written < segment.size
            or segment.damage
            or now_ms - newest < rules.lag_min_ms
        ):
            break
        found.append(segment)
    return found


class _Aborted:
    """The aborted transactions with records in one segment."""

    def __init__(self, partition: PartitionLog, segment: Segment) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        if partition.producers is not None:
            start, end = segment.base_offset, segment.next_offset
            for each in partition.producers.aborted_between(start, end):
                found = self._ranges.setdefault(each.producer_id, [])
                found.append((each.first_offset, each.last_offset))

    def covers(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            first <= header.base_offset <= last
            for first, last in self._ranges.get(header.producer_id, ())
        )


class _NewestOffsets:
    """The last offset of each key in the dirty part."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}
        #: The map speaks for everything below.
        self.end_offset = 0

    def read(self, partition: PartitionLog, candidates: list[Segment]) -> _Step:
        self.end_offset = min(partition.cleaned_offset, _end(candidates))
        for segment in candidates:
            if segment.next_offset <= partition.cleaned_offset:
                continue
            is_whole = yield from self._read_segment(partition, segment)
            if not is_whole:
                return
            self.end_offset = segment.next_offset

    def _read_segment(
        self, partition: PartitionLog, segment: Segment
    ) -> Generator[None, None, bool]:
        """False when the map is full; `end_offset` then lies inside the segment."""
        work = 0
        aborted = _Aborted(partition, segment)
        for header, batch in _batches(partition, segment):
            is_new = header.last_offset >= partition.cleaned_offset
            if is_new and not header.is_control and not aborted.covers(header):
                for record in records(batch, header):
                    if record.key is not None:
                        self._offsets[_map_key(record.key)] = record.offset
            self.end_offset = header.last_offset + 1
            if len(self._offsets) >= COMPACTION_KEYS_MAX:
                return False
            work += len(batch)
            if work >= COMPACTION_SLICE_BYTES:
                work = 0
                yield None
        return True

    def is_newest(self, key: bytes, offset: int) -> bool:
        return self._offsets.get(_map_key(key), -1) <= offset


def _map_key(key: bytes) -> bytes:
    # A short key cannot be taken for the hash of a long one: hashes have 17 bytes.
    return key if len(key) <= _KEY_BYTES else blake2b(key, digest_size=_KEY_BYTES + 1).digest()


class _Rewrite:
    """One segment on its way to a smaller one."""

    def __init__(
        self,
        partition: PartitionLog,
        segment: Segment,
        newest: _NewestOffsets,
        rules: CompactionRules,
        now_ms: int,
    ) -> None:
        self._partition = partition
        self._old = segment
        self._newest = newest
        self._rules = rules
        self._now_ms = now_ms
        self._new = Segment(partition.directory, segment.base_offset, partition.next_generation)
        partition.next_generation += 1
        self._path = self._new.log_path.removesuffix(".log") + _UNFINISHED
        self._index = SparseIndex()
        self._changed = False
        #: Earliest delete horizon of what stays.
        self.horizon: int | None = None
        self._aborted = _Aborted(partition, segment)

    def run(self) -> _Step:
        disk = self._partition.store.disk
        file = disk.open(self._path, "create")
        try:
            yield from self._copy(file)
        except (CorruptionError, OSError) as error:
            # The old segment stays as it is; nothing depends on the new one yet.
            self._partition.report(f"compaction of {self._old.log_path} stopped: {error}")
            self._changed = False
        finally:
            file.close()
        if not self._changed or not self._is_still_listed():
            disk.remove(self._path)
            return
        yield BackgroundJob(sync=(self._path,))
        if not self._is_still_listed():
            disk.remove(self._path)
            return
        yield from self._swap()

    def _is_still_listed(self) -> bool:
        """Retention, truncation or deletion may have come first."""
        return not self._partition.is_removed and self._old in self._partition.segments

    def _copy(self, file: File) -> _Step:
        new, work = self._new, 0
        for header, batch in _batches(self._partition, self._old):
            kept = self._kept(header, batch)
            work += len(batch)
            if kept is not None:
                self._append(file, kept)
                self._note_horizon(kept)
            if work >= COMPACTION_SLICE_BYTES:
                work = 0
                yield None
        self._index.seal()
        new.written = new.size
        new.next_offset = self._old.next_offset
        new.created_ms = self._old.created_ms
        new.has_gaps = True
        new.is_rolled = True
        new.index = self._index

    def _note_horizon(self, batch: Buffer) -> None:
        header = read_header(batch)
        if header.attributes & DELETE_HORIZON:
            self.horizon = min(self.horizon or header.base_timestamp, header.base_timestamp)

    def _append(self, file: File, batch: Buffer) -> None:
        new = self._new
        header = read_header(batch)
        self._index.add(
            header.base_offset - new.base_offset,
            new.size,
            batch[:WALKED_PREFIX_BYTES],
            header.max_timestamp,
            self._partition.config.index_interval_bytes,
        )
        file.write([batch], new.size)
        new.checksum = crc32c(batch, new.checksum)
        new.size += len(batch)
        new.max_timestamp = max(new.max_timestamp, header.max_timestamp)

    def _swap(self) -> _Step:
        """The new file takes the old one's place; both are durable, so any crash finds one."""
        partition, store = self._partition, self._partition.store
        if self._new.size == 0:
            store.disk.remove(self._path)
            partition.replace_segment(self._old, None)
            return
        checkpoint = Checkpoint(
            self._new.size,
            self._new.next_offset,
            self._new.checksum,
            self._new.max_timestamp,
            partition.producers is not None,
            True,
        )
        store.disk.rename(self._path, self._new.log_path)
        block = self._index.unsaved_block(checkpoint, len(self._index))
        store.replace_index(self._new, block)
        self._index.saved_entries = len(self._index)
        self._index.saved_position = self._new.size
        yield BackgroundJob(sync_directories=(parent(self._new.log_path),))
        if self._is_still_listed():
            partition.replace_segment(self._old, self._new)
        else:
            store.remove_segment_files(self._new)

    # ---- what stays of a batch

    def _kept(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """The batch as it is, thinned out, or None when nothing of it is left."""
        if header.is_control:
            return self._kept_marker(header, batch)
        if self._aborted.covers(header):
            self._changed = True
            return None
        found = records(batch, header)
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        kept = [record for record in found if self._stays(record, horizon)]
        needs_horizon = horizon is None and any(record.value is None for record in kept)
        if len(kept) == len(found) and not needs_horizon:
            return batch
        self._changed = True
        if not kept:
            return None
        return self._rebuilt(header, kept, needs_horizon)

    def _kept_marker(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if not header.attributes & DELETE_HORIZON:
            self._changed = True
            return self._rebuilt(header, records(batch, header), True)
        if self._now_ms <= header.base_timestamp:
            return batch
        self._changed = True
        return None

    def _stays(self, record: Record, horizon: int | None) -> bool:
        if record.key is None or not self._newest.is_newest(record.key, record.offset):
            return False
        is_gone_for_good = record.value is None and horizon is not None and self._now_ms > horizon
        return not is_gone_for_good

    def _rebuilt(self, header: BatchHeader, kept: list[Record], needs_horizon: bool) -> bytearray:
        attributes = header.attributes & ~CODEC_MASK
        base_timestamp = header.base_timestamp
        if needs_horizon:
            attributes |= DELETE_HORIZON
            base_timestamp = self._now_ms + self._rules.delete_retention_ms
        return build_batch(
            [_relative(record, header.base_offset) for record in kept],
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            codec=Codec(header.attributes & CODEC_MASK),
            attributes=attributes,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            base_timestamp=base_timestamp,
            last_offset_delta=header.last_offset_delta,
            max_timestamp=header.max_timestamp if attributes & LOG_APPEND_TIME else None,
        )


def _relative(record: Record, base_offset: int) -> Record:
    return Record(
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp=record.timestamp,
        offset=record.offset - base_offset,
    )


def _batches(partition: PartitionLog, segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Sound batches, through a file of our own: the shared ones may be closed between slices."""
    path = segment.log_path
    file = partition.store.disk.open(path, "read")
    try:
        for _, header, batch in scan(file, path, 0, segment.written):
            yield header, batch
    except DecodeError as error:
        raise CorruptionError(path, 0, str(error)) from None
    finally:
        file.close()


def _end(candidates: list[Segment]) -> int:
    return candidates[-1].next_offset if candidates else 0
