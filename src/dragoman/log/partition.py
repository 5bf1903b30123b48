"""One partition's log: segments, the tail in memory, epochs, producer state, and the marks on it.

    log_start_offset <= last_stable_offset <= high_watermark <= stable_end <= log_end_offset

`log_end_offset` moves with every append, `stable_end` when the group that holds the append is on
stable storage, `high_watermark` when the owner says that enough replicas have it (on one node: at
once), `last_stable_offset` stops at the first open transaction. Readers never pass the high
watermark; the owner says which limit applies.

This module knows offsets, batches and files. It decides nothing about retention, replication or
protocols, and it never waits: appending stages bytes with the store, which commits them.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import (
    CorruptionError,
    DecodeError,
    OffsetGapError,
    OffsetOutOfRangeError,
    OversizedBatchError,
)
from dragoman.limits import (
    DAMAGE_REPORTS_MAX,
    DAMAGED_RANGES_MAX,
    EXPANDED_BATCH_BYTES_MAX,
)
from dragoman.log.batch import (
    NO_PRODUCER,
    WALKED_PREFIX_BYTES,
    BatchHeader,
    Marker,
    Record,
    assign,
    batches,
    read_marker,
    records,
)
from dragoman.log.damage import unreadable_around, with_range
from dragoman.log.directory import DataDirectory
from dragoman.log.epochs import EpochHistory
from dragoman.log.expansion import Expanded, Expansions
from dragoman.log.index import SparseIndex
from dragoman.log.journal import EntryKind
from dragoman.log.manifest import Identity, Manifest, SegmentEntry
from dragoman.log.producers import Duplicate, ProducerStates
from dragoman.log.segment import Run, Segment, checksum_of, scan
from dragoman.log.segment_reader import (
    Place,
    ReadResult,
    batches_from,
    batches_of_range,
    index_for_reading,
    read_segment,
    refuse_damaged,
)
from dragoman.log.tail import Tail
from dragoman.log.truncations import RESTART, truncation_entry_data
from dragoman.types import Buffer
from dragoman.world import Clock

log = logging.getLogger("dragoman.log")
__all__ = ["Appended", "LogConfig", "PartitionLog", "PartitionStore", "ReadResult"]


class LogConfig(Protocol):
    """The part of a topic's configuration that the log obeys."""

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


class PartitionStore(Protocol):
    """What a partition needs of the store that all partitions of a node share."""

    @property
    def commits(self) -> Commits: ...

    @property
    def directory(self) -> DataDirectory: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def expansions(self) -> Expansions: ...

    def flush(self, partition: PartitionLog) -> None: ...

    def drop_dirty(self, partition: PartitionLog, segment: Segment) -> None: ...

    def segment_rolled(self, partition: PartitionLog) -> None: ...

    def manifest_due(self, partition: PartitionLog) -> None: ...

    def load_index(self, partition: PartitionLog, segment: Segment) -> SparseIndex: ...

    def reload_producers(self, partition: PartitionLog) -> None: ...

    def damage_found(self, partition: PartitionLog) -> None: ...

    def damage_is_gone(self, partition: PartitionLog) -> None: ...


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a batch has its place. A struct: one is made per batch, and named tuples cost more."""

    base_offset: int
    #: Offset after the last record: acknowledged once this is stable (or below the watermark).
    next_offset: int
    is_duplicate: bool = False
    #: Timestamp of the original when this is a repeat, else -1.
    timestamp: int = -1


class PartitionLog:
    __slots__ = (
        "_bases",
        "_cleared_chunks",
        "active",
        "appended_bytes",
        "clean_size",
        "cleaned_offset",
        "commits",
        "config",
        "directory",
        "dirty",
        "dirty_bytes",
        "epochs",
        "first_generation",
        "has_producer_file",
        "has_rare_entries",
        "high_watermark",
        "identity",
        "is_damaged",
        "is_removed",
        "log_end_offset",
        "log_start_offset",
        "manifest_version",
        "next_generation",
        "obsolete",
        "owner",
        "problems",
        "producer_file_end",
        "producers",
        "saved_live_offset",
        "saved_manifest_version",
        "segments",
        "stable_end",
        "staged",
        "store",
        "tail",
        "truncations",
        "unsynced",
    )

    def __init__(
        self, store: PartitionStore, identity: Identity, directory: str, config: LogConfig
    ) -> None:
        self.store = store
        #: That of the store: it is used for every batch.
        self.commits = store.commits
        self.identity = identity
        self.directory = directory
        self.config = config
        #: Whatever the layer above wants to find again when the store reports this partition.
        self.owner: object = None
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        self.active: Segment | None = None
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.stable_end = 0
        self.high_watermark = 0
        #: Bytes appended since the partition was opened; only ever grows.
        self.appended_bytes = 0
        self.epochs = EpochHistory()
        self.producers: ProducerStates | None = None
        self.tail = Tail()
        self._cleared_chunks = 0
        #: Runs of the group being built, then (journalled) runs not yet in the segment files.
        self.staged: list[Run] = []
        self.dirty: list[Run] = []
        self.dirty_bytes = 0
        self.next_generation = 0
        #: Files of earlier generations are from before the log began anew.
        self.first_generation = 0
        #: Segments with bytes that no sync has covered yet.
        self.unsynced: list[Segment] = []
        #: Counts changes that the manifest has to tell, and those that the one on disk tells.
        self.manifest_version = 0
        self.saved_manifest_version = 0
        #: The manifest on disk speaks for every segment below this.
        self.saved_live_offset = 0
        #: A truncation, log start or epoch is in no manifest yet.
        self.has_rare_entries = False
        #: Whether there is a file with producer state on disk, right or wrong.
        self.has_producer_file = False
        #: The log's end for which that file is true; -1 when it must not be believed any more.
        self.producer_file_end = -1
        #: Counts truncations.
        self.truncations = 0
        #: Compaction has seen everything below this.
        self.cleaned_offset = 0
        #: Bytes of the active segment that the manifest states as its clean end, -1 for none.
        self.clean_size = -1
        #: Segments out of the list whose files go once the manifest without them is durable.
        self.obsolete: list[Segment] = []
        #: What was found damaged or missing, for people.
        self.problems: list[str] = []
        #: Some of what was stable cannot be read, now or when it was looked for.
        self.is_damaged = False
        self.is_removed = False

    # ---- marks

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop."""
        if self.producers is not None:
            first = self.producers.first_unstable_offset()
            if first is not None and first < self.high_watermark:
                return first
        return self.high_watermark

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        active = self.active.size if self.active else 0
        return sum(segment.size for segment in self.segments) + active

    def advance_high_watermark(self, offset: int) -> None:
        """Enough replicas have everything below `offset`; it never goes back on its own."""
        assert offset <= self.stable_end
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers is not None:
                self.producers.settle(offset)

    @property
    def is_manifest_due(self) -> bool:
        return self.manifest_version != self.saved_manifest_version

    def all_segments(self) -> list[Segment]:
        return [*self.segments, self.active] if self.active else list(self.segments)

    # ---- appending

    def append(self, batch: bytearray | memoryview, header: BatchHeader, epoch: int) -> Appended:
        """Place a checked batch at the log's end, in the caller's own buffer (which the log keeps).

        Raises what producer state or the store objects to, before anything has changed.
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
        """Place a control batch that ends a producer's transaction. Raises `ProducerError`."""
        if self.producers is None:
            self.producers = ProducerStates()
        producer = (header.producer_id, header.producer_epoch)
        self.producers.check_marker(*producer, marker.coordinator_epoch)
        self.commits.admit(len(batch))
        base = self.log_end_offset
        assign(batch, base, epoch)
        self._place(batch, len(batch), base, 0, header.record_timestamp, epoch)
        # The marker's own time, which a follower and a recovery find as well.
        self.producers.complete_transaction(
            *producer, base, marker.is_commit, header.max_timestamp, marker.coordinator_epoch
        )
        return Appended(base, self.log_end_offset)

    def append_as_is(self, data: bytearray | memoryview | bytes) -> int:
        """Place batches that carry their offsets and epochs already (replication, import).

        Gaps are allowed, going back is not (`OffsetGapError`). All batches are checked first;
        returns the new log end.
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
                _marker_of(header, batch)
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
        """Place batches that follow one another, and the log's end, in one go.

        What `_place` does for each, except that all are of the latest epoch and of one segment.
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
        base = self.log_end_offset
        self.log_end_offset = segment.next_offset = found[-1][0].last_offset + 1
        self.commits.stage(self, segment, start, base, data, len(data))

    def note_producer(self, header: BatchHeader, batch: memoryview) -> None:
        """Take a batch that is in the log already into the producer state."""
        if header.producer_id == NO_PRODUCER:
            return
        if self.producers is None:
            self.producers = ProducerStates()
        if header.is_control:
            marker = _marker_of(header, batch)
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
            # A producer of records without times must not seem idle since 1970.
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
        """Close the active segment, if it holds anything, and start one at the log's end."""
        old = self.active
        if old is not None:
            if old.size == 0 and old.base_offset == base:
                return old
            if old.size:
                self._close_active(old)
        segment = Segment(self.directory, base, self.next_generation)
        segment.index = SparseIndex()
        segment.created_ms = self.store.clock.wall_ms()
        self.next_generation += 1
        self.active = segment
        return segment

    def _close_active(self, segment: Segment) -> None:
        self.add_rolled(segment)
        self.store.segment_rolled(self)

    def add_rolled(self, segment: Segment) -> None:
        assert segment.index is not None
        segment.index.seal()
        segment.is_rolled = True
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self.manifest_version += 1

    def rebuild_bases(self) -> None:
        self._bases = [each.base_offset for each in self.segments]

    # ---- reading

    def read(self, offset: int, bytes_max: int, limit_offset: int) -> ReadResult:
        """Whole batches from the one that holds `offset`, all below `limit_offset`.

        Raises `OffsetOutOfRangeError`, or `CorruptionError` when the bytes wanted are damaged.
        """
        self.check_offset(offset)
        if offset >= limit_offset:
            return ReadResult([], 0, offset)
        if 0 <= self.tail.first_offset <= offset:
            buffers, next_offset = self.tail.read(offset, limit_offset, bytes_max)
            return ReadResult(buffers, sum(map(len, buffers)), next_offset)
        for segment in self._segments_from(offset):
            try:
                result = read_segment(self, segment, offset, bytes_max, limit_offset)
            except CorruptionError as error:
                self.note_damage(error)
                refuse_damaged(segment, offset)
                raise
            if result is not None:
                return result
        return ReadResult([], 0, offset)

    def note_damage(self, error: CorruptionError) -> None:
        """A reader could not read: from now on the offsets concerned are known to be lost.

        The manifest remembers them. Each range is reported once, and `LogStore.on_damage` called.
        """
        for segment in self.all_segments():
            if segment.log_path == error.path:
                break
        else:
            return
        if any(position == error.position for _, _, position in segment.lost):
            return
        found = unreadable_around(self, segment, error.position)
        if found is None or any(
            first <= found[0] and found[1] <= end for first, end, _ in segment.lost
        ):
            return
        if len(segment.unreadable) >= DAMAGED_RANGES_MAX:
            return
        segment.unreadable = with_range(segment.unreadable, found)
        first, next_good, position = found
        self.report(
            f"{segment.log_path} at byte {position}: {error.reason}; "
            f"offsets {first} to {next_good - 1} are not served"
        )
        self.manifest_version += 1
        self.store.manifest_due(self)

    def copy_end(self, offset: int) -> int:
        """How far another node that has everything below `offset` may copy.

        Up to the stable end; and what is being synced, as long as it is in memory. This node may
        still lose that in a crash, but then it never again appends in the same epoch.
        """
        return self.tail.end if 0 <= self.tail.first_offset <= offset else self.stable_end

    def check_offset(self, offset: int) -> None:
        """Raises `OffsetOutOfRangeError` unless a reader may ask for this offset."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.describe()}: offset {offset} is not in "
                f"{self.log_start_offset}..{self.log_end_offset}"
            )

    def _segments_from(self, offset: int) -> Iterator[Segment]:
        """Segments that may hold the offset or what follows it, in order."""
        start = max(0, bisect_right(self._bases, offset) - 1)
        for index in range(start, len(self.segments)):
            if self.segments[index].next_offset > offset:
                yield self.segments[index]
        if self.active is not None and self.active.size:
            yield self.active

    def index_of(self, segment: Segment) -> SparseIndex:
        """The segment's index, loaded (and rebuilt when missing or bad) if it is not in memory."""
        if segment.index is None:
            segment.index = self.store.load_index(self, segment)
        return segment.index

    def expanded(
        self, header: BatchHeader, batch: memoryview, bytes_max: int = EXPANDED_BATCH_BYTES_MAX
    ) -> Expanded:
        """The records of a batch of this partition. A compressed one is expanded once and
        remembered for a while. Raises `DecodeError`, and `OversizedBatchError` for more bytes.
        """
        return self.store.expansions.get(self.identity.partition_id, header, batch, bytes_max)

    def offset_for_time(self, timestamp: int, limit_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after the time, below the limit. In a batch
        that expands to more than is looked into, its first offset and its latest time.
        """
        for segment in self.all_segments():
            if segment.max_timestamp < timestamp or segment.next_offset <= self.log_start_offset:
                continue
            found = self._first_at_or_after(segment, timestamp, limit_offset)
            if found is not None:
                return found
        return None

    def _first_at_or_after(
        self, segment: Segment, timestamp: int, limit_offset: int
    ) -> tuple[int, int] | None:
        try:
            return self._look_for_time(segment, timestamp, limit_offset)
        except CorruptionError as error:
            self.note_damage(error)
            raise

    def _look_for_time(
        self, segment: Segment, timestamp: int, limit_offset: int
    ) -> tuple[int, int] | None:
        index = index_for_reading(self, segment)
        number = index.range_for_time(timestamp)
        while number is not None and number < index.range_count:
            for place, header, batch in batches_of_range(self, segment, number):
                if place.next_offset > limit_offset:
                    return None
                if header.is_control or header.record_timestamp < timestamp:
                    continue
                try:
                    found = self.expanded(header, batch).first_since(
                        timestamp, self.log_start_offset
                    )
                except OversizedBatchError:
                    found = (max(header.base_offset, self.log_start_offset), header.max_timestamp)
                if found is not None:
                    return found
            number += 1
        return None

    def latest_timestamp(self) -> int:
        """The latest time of a record; -1 when no record has one."""
        return max((segment.max_timestamp for segment in self.all_segments()), default=-1)

    def iterate(self, offset: int, limit_offset: int) -> Iterator[Record]:
        """Decoded records, control batches left out: for internal topics and tools."""
        while offset < limit_offset:
            result = self.read(offset, 1 << 20, limit_offset)
            if not result.buffers:
                return
            for buffer in result.buffers:
                for header, batch in batches(memoryview(buffer)):
                    if header.is_control:
                        continue
                    yield from self.expanded(header, batch).records(offset)
            offset = result.next_offset

    # ---- tail and write-behind (called by the ring and the store)

    def flush(self) -> None:
        """Write what is committed to the segment files, if there is room."""
        self.store.flush(self)

    def evict_oldest(self) -> bool:
        """Forget the oldest chunk in memory; False when it is nowhere else."""
        if self._cleared_chunks:
            self._cleared_chunks -= 1
            return True
        if self.dirty and self.tail.first_offset >= self.dirty[0].base_offset:
            self.store.flush(self)
            if self.dirty:
                return False
        self.tail.drop_oldest()
        return True

    def clear_tail(self) -> None:
        self._cleared_chunks += self.tail.clear()

    # ---- cutting

    def truncate(self, offset: int) -> None:
        """Remove every batch that ends after `offset`, and epochs that began there or later.
        Durable before this returns.

        Falls on a batch border: a batch that holds `offset` in its middle goes as a whole. What is
        appended next goes into a new segment, whose generation tells it from all that was cut.
        Raises `CorruptionError`, with nothing cut, where damage hides that border.
        """
        is_epoch_cut = offset == self.log_end_offset and self.epochs.latest_start >= offset
        if offset >= self.log_end_offset and not is_epoch_cut:
            return
        assert offset >= self.log_start_offset
        self.commits.settle(self)
        segment, position, next_offset = self._cut_point(offset)
        data = truncation_entry_data(next_offset, self.next_generation)
        base, generation = (segment.base_offset, segment.generation) if segment else (-1, 0)
        self.commits.journal_now(EntryKind.TRUNCATE, self, base, generation, position, data)
        self.apply_truncation(segment, position, next_offset)
        self.epochs.truncate(next_offset)
        self.store.manifest_due(self)

    def _cut_point(self, offset: int) -> tuple[Segment | None, int, int]:
        """(segment that stays last, its bytes, the log's new end)."""
        next_offset = self.log_start_offset
        last: Segment | None = None
        for segment in self.all_segments():
            if segment.base_offset >= offset:
                # Between two segments nothing is cut; compaction may have left a gap there.
                next_offset = offset
                break
            place = self._first_beyond(segment, offset)
            self._refuse_hidden_border(segment, offset)
            if place is None:
                last, next_offset = segment, segment.next_offset
                continue
            if place.position == 0:
                next_offset = segment.base_offset
                break
            return segment, place.position, self._end_before(segment, place)
        return last, last.size if last else 0, max(next_offset, self.log_start_offset)

    def _first_beyond(self, segment: Segment, offset: int) -> Place | None:
        """The first batch of a segment that ends after `offset`."""
        if segment.next_offset <= offset:
            return None
        for place, _, _ in batches_from(self, segment, offset):
            return place
        return None

    def _refuse_hidden_border(self, segment: Segment, offset: int) -> None:
        """Damage is passed over by whoever looks for batches, and may be found by looking."""
        for first, next_good, position in segment.lost:
            if first <= offset <= next_good:
                text = f"offsets {first} to {next_good - 1} are damaged: not cut at {offset}"
                raise CorruptionError(segment.log_path, position, text)

    def _end_before(self, segment: Segment, place: Place) -> int:
        """Offset after the batch that comes before this one."""
        index = self.index_of(segment)
        number = index.range_at_position(place.position - 1)
        end = segment.base_offset
        for before, _, _ in batches_of_range(self, segment, number):
            if before.position < place.position:
                end = before.next_offset
        return max(end, self.log_start_offset)

    def apply_truncation(self, segment: Segment | None, position: int, next_offset: int) -> None:
        """Make memory and files what the truncation says; epochs are the caller's."""
        base = segment.base_offset if segment is not None else -1
        removed = [each for each in self.all_segments() if each.base_offset > base]
        if self.active is segment and segment is not None:
            self.add_rolled(segment)
        self.segments = [each for each in self.segments if each.base_offset <= base]
        self.rebuild_bases()
        self.active = None
        # Files go from the last to the first, so that a crash leaves the start of a log.
        for each in reversed(removed):
            self.forget_segment(each)
            self.store.directory.remove_segment_files(each)
        if segment is not None and segment.size > position:
            self._cut_segment(segment, position, next_offset)
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
        """It is out of the log: nothing of it needs to be written or synced any more."""
        segment.is_gone = True
        if segment in self.unsynced:
            self.unsynced.remove(segment)
        self.store.drop_dirty(self, segment)

    def _cut_segment(self, segment: Segment, position: int, next_offset: int) -> None:
        """Shorten a rolled segment. The range that the cut falls into is closed earlier."""
        index = self.index_of(segment)
        number = index.range_at_position(position - 1)
        start = index.range_at(number, segment.size).start
        file = self.store.directory.files.get(segment.log_path)
        file.truncate(position)
        segment.cuts += 1
        segment.size = segment.written = position
        segment.written_out = min(segment.written_out, position)
        segment.next_offset = next_offset
        index.cut_to_range(number)
        # Whoever cuts has verified these headers against the range's check, or has just written
        # them; the check of the shorter range is made from them.
        for at, header, batch in scan(file, segment.log_path, start, position):
            relative = header.base_offset - segment.base_offset
            prefix = batch[:WALKED_PREFIX_BYTES]
            index.add(relative, at, prefix, header.record_timestamp, position)
        index.seal()
        segment.max_timestamp = index.max_timestamp
        segment.checksum = checksum_of(file, position)
        segment.damage = tuple(each for each in segment.damage if each[2] < position)
        segment.unreadable = tuple(each for each in segment.unreadable if each[0] < next_offset)
        # The index file goes too: its blocks only ever grow.
        index.saved_entries = index.saved_position = 0
        self.store.directory.files.forget(segment.index_path)
        self.store.directory.disk.remove(segment.index_path)
        if segment not in self.unsynced:
            self.unsynced.append(segment)

    def restart_at(self, offset: int) -> None:
        """Drop everything; the log is empty and starts at `offset`. Durable before this returns.

        For a replica that is to be copied anew, perhaps from further back than it starts now. Files
        with damage are kept aside for people.
        """
        self.commits.settle_all()
        data = truncation_entry_data(offset, self.next_generation)
        self.commits.journal_now(EntryKind.TRUNCATE, self, -1, 0, RESTART, data)
        for segment in self.all_segments():
            if segment.lost:
                self.store.directory.quarantine(segment)
        self.producers = None
        # Files of records deleted before may still be there, or come back when the power goes.
        self.first_generation = self.next_generation
        self.apply_truncation(None, 0, offset)
        self.epochs.load([])
        self.log_start_offset = self.stable_end = self.high_watermark = offset
        self.producer_file_end = -1
        # What producers wrote before the new start, nobody here can tell.
        self.store.reload_producers(self)
        self.saved_live_offset = 0
        self.problems.clear()
        self.is_damaged = False
        self.store.damage_is_gone(self)
        self.store.manifest_due(self)

    def move_log_start(self, offset: int) -> None:
        """Delete records below `offset` (at most the high watermark). Durable before it returns."""
        # The last segment stays when all its records are deleted, until there is another.
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
        """Take the oldest rolled segment out; its files go when the manifest says so too."""
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
        """Put a compacted segment in the place of the old one; None when nothing is left of it."""
        at = self.segments.index(old)
        if new is None:
            del self.segments[at]
            del self._bases[at]
        else:
            self.segments[at] = new
        # Readers must not go on finding in memory what compaction has removed.
        self._cleared_chunks += self.tail.drop_below(old.next_offset)
        self.forget_segment(old)
        self.obsolete.append(old)
        self.manifest_version += 1
        self.store.manifest_due(self)

    # ---- epochs

    def begin_epoch(self, epoch: int) -> None:
        """A new leadership starts at the log's end. Durable before this returns."""
        if epoch == self.epochs.latest:
            return
        data = epoch.to_bytes(4, "little") + self.log_end_offset.to_bytes(8, "little")
        self.commits.journal_now(EntryKind.EPOCH, self, 0, 0, 0, data)
        self.epochs.assign(epoch, self.log_end_offset)
        self.manifest_version += 1
        self.store.manifest_due(self)

    # ---- manifest

    def manifest(self, sequence: int, *, clean: bool = False) -> Manifest:
        """The state for readers of the directory. Lists only segments that are whole in files."""
        listed = []
        live_offset = self.active.base_offset if self.active else self.log_end_offset
        for segment in self.segments:
            if segment.written < segment.size or segment in self.unsynced:
                live_offset = segment.base_offset
                break
            listed.append(self._segment_entry(segment))
        clean_end = None
        if clean and self.active is not None and self.active.size:
            clean_end = self._segment_entry(self.active)
        return Manifest(
            identity=self.identity,
            sequence=sequence,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_end_offset=self.stable_end,
            next_generation=self.next_generation,
            first_generation=self.first_generation,
            epochs=tuple(self.epochs.entries()),
            segments=tuple(listed),
            clean_end=clean_end,
            live_offset=live_offset,
            has_producers=self.producers is not None,
            cleaned_offset=self.cleaned_offset,
        )

    def _segment_entry(self, segment: Segment) -> SegmentEntry:
        aborted: tuple[tuple[int, int, int], ...] = ()
        if self.producers is not None:
            aborted = tuple(
                (each.producer_id, each.first_offset, each.last_offset)
                for each in self.producers.aborted_between(segment.base_offset, segment.next_offset)
            )
        return SegmentEntry(
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            generation=segment.generation,
            size=segment.size,
            checksum=segment.checksum,
            max_timestamp=segment.max_timestamp,
            created_ms=segment.created_ms,
            written_ms=segment.written_ms,
            has_gaps=segment.has_gaps,
            aborted=aborted,
            damage=segment.damage,
            unreadable=segment.unreadable,
        )

    def report(self, problem: str) -> None:
        """Something durable is not what it was."""
        log.error("%s: %s", self.describe(), problem)
        self.is_damaged = True
        if len(self.problems) < DAMAGE_REPORTS_MAX:
            self.problems.append(problem)
        self.store.damage_found(self)

    def describe(self) -> str:
        return f"{self.identity.topic}-{self.identity.partition}"

    def __repr__(self) -> str:
        return f"<PartitionLog {self.describe()} {self.log_start_offset}..{self.log_end_offset}>"


def _marker_of(header: BatchHeader, batch: memoryview) -> Marker:
    found = records(batch, header)
    if len(found) != 1:
        raise DecodeError(f"control batch at {header.base_offset} has {len(found)} records")
    return read_marker(found[0])
