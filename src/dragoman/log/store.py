"""All logs of one node: group commit, write-behind, checkpoints, start and stop.

The life of an append (`durability = "fsync"`):

1. `PartitionLog.append` checks, assigns offsets and stages the bytes here (`stage`). The first one
   of a loop turn schedules a commit at the turn's end, so all that one turn brings is one group.
2. `_commit` writes the group to the journal with one synchronous write. While the disk is fast
   that happens right here on the loop; when it is slow, a helper process syncs and the next group
   gathers meanwhile. One group is in flight at a time.
3. The partitions' stable ends move and `on_stable` tells the owner, who answers the clients.
4. The bytes are now *dirty*: durable in the journal, readable from memory, not yet in the segment
   file. They are written behind (`flush`) in larger pieces.
5. A *checkpoint*, due whenever a journal file is full and every few seconds, flushes, syncs the
   segments beside the loop and frees the journal files.

With `durability = "os"` there is no journal: the commit writes the segments through the page cache,
and that is what stable means.

A failed sync stops the store for good (`on_failure`): the kernel may have dropped the pages, so a
second try could lie. A full disk only refuses appends until there is room again.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import msgspec

from dragoman.errors import DiskFullError, FormatError, LogStoppedError
from dragoman.limits import (
    CACHED_INDEXES_MAX,
    CHECKPOINT_FILES_PER_JOB,
    CHECKPOINT_INTERVAL_S,
    DIRTY_BYTES_MAX,
    DIRTY_PARTITION_BYTES_MAX,
    FAST_SYNC_S,
    GROUP_BYTES_MAX,
    JOURNAL_FILE_BYTES,
)
from dragoman.log import recovery
from dragoman.log.files import FileCache
from dragoman.log.index import Checkpoint, SparseIndex
from dragoman.log.journal import (
    ENTRY_BYTES,
    EntryKind,
    EntryRef,
    Journal,
    JournalDamage,
    JournalReader,
    entry_header,
)
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Identity, encode_manifest
from dragoman.log.partition import LogConfig, PartitionLog, Run
from dragoman.log.producers import take_snapshot
from dragoman.log.segment import Segment
from dragoman.log.tail import TailRing
from dragoman.types import Buffer
from dragoman.world import (
    Background,
    BackgroundJob,
    Clock,
    Disk,
    Handle,
    Random,
    Replacement,
    Scheduler,
    perform,
    read_whole,
    replace_file,
)

NODE_FILE = "node.json"
LOCK_FILE = "lock"
PARTITIONS = "partitions"
QUARANTINE = "quarantine"
FORMAT = 1
#: Features that data may use. A node refuses a directory whose level it does not know.
FEATURE_LEVEL = 1
#: Frame, padding and entry headers of one group, beside its data.
_GROUP_SLACK_BYTES = 64 << 10


class Durability(Enum):
    FSYNC = "fsync"
    OS = "os"


class NodeState(msgspec.Struct, kw_only=True):
    """`node.json`: which directory this is and how it was left."""

    format: int = FORMAT
    feature_level: int = FEATURE_LEVEL
    #: Random, 32 hex digits; also seeds the journal's checksums.
    directory_id: str
    #: Counts starts. A node that comes back is told from the one that went.
    incarnation: int
    durability: Durability
    is_clean: bool
    #: Last journal group and file generation at a clean stop.
    sequence: int = 0
    generation: int = 0


class Flight(NamedTuple):
    """One partition's part of a group on its way to the journal."""

    partition: PartitionLog
    runs: list[Run]
    #: The log's end when the group was closed: stable once the group is.
    mark: int


class StoreStats:
    """Plain counters; whoever exports them reads them when asked."""

    __slots__ = (
        "appended_bytes",
        "checkpoints",
        "committed_bytes",
        "flushed_bytes",
        "groups",
        "sync_seconds",
    )

    def __init__(self) -> None:
        self.groups = 0
        self.committed_bytes = 0
        self.appended_bytes = 0
        self.flushed_bytes = 0
        self.checkpoints = 0
        self.sync_seconds = 0.0


def _nothing(_: object) -> None:
    return None


class LogStore:
    def __init__(
        self,
        disk: Disk,
        background: Background,
        scheduler: Scheduler,
        clock: Clock,
        random: Random,
        durability: Durability = Durability.FSYNC,
    ) -> None:
        """Opens the directory and reads the journal back.

        Afterwards open every partition in `pending_partitions` that still exists, then call
        `finish_recovery`. Raises `DirectoryInUseError`, `FormatError`, `OSError`.
        """
        self.disk = disk
        self.clock = clock
        self.durability = durability
        self.files = FileCache(disk)
        self.stats = StoreStats()
        #: Told which partitions' stable ends have moved.
        self.on_stable: Callable[[list[PartitionLog]], None] = _nothing
        #: Told that a sync failed: stop the node.
        self.on_failure: Callable[[OSError], None] = _nothing
        #: Told that staged appends of a partition were dropped because the disk is full.
        self.on_refused: Callable[[PartitionLog], None] = _nothing
        self.failure: OSError | None = None
        self.is_disk_full = False
        self._background = background
        self._scheduler = scheduler
        self._partitions: dict[int, PartitionLog] = {}
        self._tail = TailRing()
        self._indexes: OrderedDict[str, Segment] = OrderedDict()
        self._staged: dict[PartitionLog, None] = {}
        self._staged_bytes = 0
        self._is_commit_scheduled = False
        self._in_flight: list[Flight] | None = None
        self._dirty: dict[PartitionLog, None] = {}
        self._dirty_bytes = 0
        self._unsynced: dict[PartitionLog, None] = {}
        self._manifests_due: dict[PartitionLog, None] = {}
        self._checkpoint: _Checkpoint | None = None
        self._is_spare_coming = False
        self._sync_average_s = 0.0
        self._timer: Handle | None = None
        self._lock = disk.lock(LOCK_FILE)
        try:
            self.node = self._open_node(random)
            self._open_journal()
        except BaseException:
            self._lock.release()
            raise

    # ---- start

    def _open_node(self, random: Random) -> NodeState:
        if self.disk.exists(NODE_FILE):
            previous = read_node_state(self.disk)
            self.was_clean = previous.is_clean
            self._previous = previous
            node = msgspec.structs.replace(
                previous,
                incarnation=previous.incarnation + 1,
                is_clean=False,
                durability=self.durability,
                feature_level=FEATURE_LEVEL,
            )
        else:
            self.was_clean = True
            node = NodeState(
                directory_id=random.getrandbits(128).to_bytes(16, "big").hex(),
                incarnation=1,
                durability=self.durability,
                is_clean=False,
            )
            self._previous = node
        return node

    def _open_journal(self) -> None:
        seed = int(self.node.directory_id[:8], 16)
        self.journal_damage: list[JournalDamage] = []
        self._pending: dict[int, list[EntryRef]] = {}
        #: In os mode nothing was journalled, so the end of a segment is only known by scanning.
        self.trusts_segment_ends = self._previous.durability is Durability.FSYNC
        if self.was_clean:
            sequence, generation = self._previous.sequence, self._previous.generation
        else:
            reader = JournalReader(self.disk, seed)
            self.journal_damage = reader.damage
            sequence = max(reader.newest, self._previous.sequence)
            generation = max(reader.generation, self._previous.generation)
            for entry in reader.entries():
                self._pending.setdefault(entry.partition_id, []).append(entry)
        self._write_node()
        self._journal = Journal(self.disk, seed, sequence, generation)

    def _write_node(self) -> None:
        replace_file(self.disk, NODE_FILE, msgspec.json.encode(self.node))

    @property
    def pending_partitions(self) -> list[int]:
        """Partitions with journalled entries that must be replayed before the journal goes on."""
        return sorted(self._pending)

    def finish_recovery(self) -> None:
        """Everything replayed becomes durable in the segments; what nobody claimed is dropped."""
        self._pending.clear()
        if self.journal_damage:
            recovery.keep_damaged_journal(self.disk, self.journal_damage)
        self.checkpoint_now()
        self._arm_timer()

    def partition(self, identity: Identity, directory: str, config: LogConfig) -> PartitionLog:
        """Open or create a partition; replays what the journal holds for it."""
        found = self._partitions.get(identity.partition_id)
        if found is not None:
            return found
        partition = PartitionLog(self, identity, f"{PARTITIONS}/{directory}", config)
        entries = self._pending.pop(identity.partition_id, [])
        recovery.open_partition(partition, entries)
        self._partitions[identity.partition_id] = partition
        return partition

    def after_open(self, partition: PartitionLog) -> None:
        """Recovery changed something: have it made durable with the next checkpoint."""
        if partition.unsynced:
            self._unsynced[partition] = None
        if partition.manifest_changed or partition.obsolete:
            self._manifests_due[partition] = None

    def opened(self, partition_id: int) -> PartitionLog | None:
        return self._partitions.get(partition_id)

    def open_partitions(self) -> list[PartitionLog]:
        return list(self._partitions.values())

    def remove_partition(self, partition: PartitionLog) -> None:
        """Delete a partition and its files. Its id never comes back, so replay cannot revive it."""
        partition.is_removed = True
        partition.clear_tail()
        for waiting in (self._staged, self._dirty, self._unsynced, self._manifests_due):
            waiting.pop(partition, None)
        self._dirty_bytes -= partition.dirty_bytes
        partition.dirty.clear()
        partition.staged.clear()
        self._partitions.pop(partition.identity.partition_id, None)
        for segment in partition.all_segments():
            self.files.forget(segment.log_path)
            self.files.forget(segment.index_path)
        for name in self.disk.names(partition.directory):
            self.disk.remove(f"{partition.directory}/{name}")
        self.disk.remove_directory(partition.directory)

    # ---- appending

    def admit(self, size: int) -> None:
        """Whether `size` more bytes may be appended now; raises when not. Changes nothing else."""
        if self.failure is not None:
            raise LogStoppedError(f"the log stopped: {self.failure}")
        if self.is_disk_full:
            raise DiskFullError("the disk is full")
        if self.durability is Durability.FSYNC:
            wanted = self._staged_bytes + size + _GROUP_SLACK_BYTES
            if wanted > self._journal.room:
                self._make_room(size + _GROUP_SLACK_BYTES)

    def _make_room(self, size: int) -> None:
        """Let the staged bytes go first; then have a journal file that surely takes the next ones."""
        if self._staged and self._in_flight is None:
            self._commit()
        if self._staged_bytes + size <= self._journal.room:
            return
        if self._journal.is_crowded:
            self.settle_in_flight()
            self.checkpoint_now()
        if self._staged_bytes + size > self._journal.room:
            try:
                self._journal.make_file(self._staged_bytes + size)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    self._fail(error)
                    raise LogStoppedError(f"the log stopped: {error}") from error
                self.is_disk_full = True
                raise DiskFullError("the disk is full: no room for the journal") from None

    def stage(
        self,
        partition: PartitionLog,
        segment: Segment,
        position: int,
        base_offset: int,
        batch: Buffer,
        size: int,
    ) -> None:
        staged = partition.staged
        if not staged:
            self._staged[partition] = None
            staged.append(Run(segment, position, base_offset))
        elif staged[-1].segment is not segment:
            staged.append(Run(segment, position, base_offset))
        run = staged[-1]
        run.chunks.append(batch)
        run.size += size
        self._staged_bytes += size
        self._tail.add(partition, size)
        if not self._is_commit_scheduled and self._in_flight is None:
            self._is_commit_scheduled = True
            self._scheduler.call_soon(self._scheduled_commit)
        if self._staged_bytes > GROUP_BYTES_MAX and self._in_flight is None:
            self._scheduler.call_soon(self._scheduled_commit)

    def _scheduled_commit(self) -> None:
        self._is_commit_scheduled = False
        if self._staged and self._in_flight is None and self.failure is None:
            self._commit()

    # ---- committing

    def _commit(self) -> None:
        group = [Flight(each, each.staged, each.log_end_offset) for each in self._staged]
        for partition in self._staged:
            partition.staged = []
        self._staged.clear()
        size, self._staged_bytes = self._staged_bytes, 0
        self.stats.groups += 1
        self.stats.committed_bytes += size
        if self.durability is Durability.OS:
            self._commit_to_segments(group)
            return
        frame = self._journal.frame(*_group_parts(group))
        is_inline = self._sync_average_s <= FAST_SYNC_S
        started = self.clock.monotonic()
        try:
            self._journal.write(frame, durable=is_inline)
        except OSError as error:
            self._fail(error)
            return
        if is_inline:
            self._note_sync(started, size)
            self._committed(group)
            return
        self._in_flight = group

        def synced(error: OSError | None) -> None:
            if self._in_flight is not group:
                return
            if error is not None:
                self._fail(error)
                return
            self._note_sync(started, size)
            self._land()

        self._background.submit(BackgroundJob(sync=(self._journal.current_path,)), synced)

    def _land(self) -> None:
        group = self._in_flight
        assert group is not None
        self._in_flight = None
        self._committed(group)
        if self._staged and self._in_flight is None:
            self._commit()

    def _note_sync(self, started: float, size: int) -> None:
        """Large groups are bound by bandwidth: they say nothing about the disk's latency."""
        taken = self.clock.monotonic() - started
        self.stats.sync_seconds += taken
        if size < GROUP_BYTES_MAX // 64:
            self._sync_average_s += (taken - self._sync_average_s) * 0.05

    def _committed(self, group: list[Flight]) -> None:
        for partition, runs, mark in group:
            if not partition.is_removed:
                partition.stable_end = mark
                self._become_dirty(partition, runs)
        self.on_stable([flight.partition for flight in group])
        self._write_behind()

    def _become_dirty(self, partition: PartitionLog, runs: list[Run]) -> None:
        """What was staged is durable now and waits to be written to its segment."""
        for run in runs:
            partition.dirty_bytes += run.size
            self._dirty_bytes += run.size
            if run.segment not in partition.unsynced:
                partition.unsynced.append(run.segment)
            last = partition.dirty[-1] if partition.dirty else None
            if last is not None and last.segment is run.segment:
                last.chunks += run.chunks
                last.size += run.size
            else:
                partition.dirty.append(run)
        self._dirty[partition] = None
        self._unsynced[partition] = None

    def _commit_to_segments(self, group: list[Flight]) -> None:
        """`durability = "os"`: in the page cache is stable."""
        stable: list[PartitionLog] = []
        for partition, runs, mark in group:
            self._become_dirty(partition, runs)
            self.flush(partition)
            if partition.dirty:
                self._refuse(partition)
            else:
                partition.stable_end = mark
                stable.append(partition)
        self.on_stable(stable)
        self._after_writing()

    def _refuse(self, partition: PartitionLog) -> None:
        """The disk is full and nothing of this is durable: take it back and say so."""
        self._dirty_bytes -= partition.dirty_bytes
        self._dirty.pop(partition, None)
        segment, position = partition.dirty[0].segment, partition.dirty[0].position
        segment.size = position
        if segment.written == position and position == 0:
            # The file may not even exist: forget the segment and those after it.
            last = partition.segments[-1] if partition.segments else None
            partition.apply_truncation(last, last.size if last else 0, partition.stable_end)
        else:
            partition.apply_truncation(segment, position, partition.stable_end)
        self.on_refused(partition)

    # ---- writing behind

    def _write_behind(self) -> None:
        """Write large pieces at once, everything when much has gathered, and free old memory."""
        if self._dirty_bytes > DIRTY_BYTES_MAX:
            for partition in list(self._dirty):
                self.flush(partition)
        else:
            large = [p for p in self._dirty if p.dirty_bytes >= DIRTY_PARTITION_BYTES_MAX]
            for partition in large:
                self.flush(partition)
        self._after_writing()

    def _after_writing(self) -> None:
        self._tail.shrink()
        if self._journal.wants_spare and not self._is_spare_coming:
            self._order_spare()
        if self._journal.live_files and self._checkpoint is None:
            self.start_checkpoint()

    def flush(self, partition: PartitionLog) -> None:
        """Write a partition's journalled bytes to its segment files.

        A full disk leaves them where they are: safe in the journal, readable from memory.
        """
        while partition.dirty:
            run = partition.dirty[0]
            segment = run.segment
            try:
                self.files.get_or_create(segment.log_path).write(run.chunks, run.position)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    self._fail(error)
                self.is_disk_full = True
                return
            segment.written = run.position + run.size
            self.stats.flushed_bytes += run.size
            partition.dirty_bytes -= run.size
            self._dirty_bytes -= run.size
            del partition.dirty[0]
        self._dirty.pop(partition, None)

    def _order_spare(self) -> None:
        self._is_spare_coming = True
        path = self._journal.next_path()

        def filled(error: OSError | None) -> None:
            self._is_spare_coming = False
            if error is None:
                self._journal.add_file(path)
            else:
                # No spare: the next group that needs room makes a file itself, or is refused.
                self.disk.remove(path)

        self._background.submit(BackgroundJob(zero_fill=((path, JOURNAL_FILE_BYTES),)), filled)

    # ---- checkpoints

    def start_checkpoint(self) -> None:
        """Make everything committed so far durable in the segments, beside the loop."""
        if self._checkpoint is not None or self.failure is not None:
            return
        if not self._unsynced and not self._manifests_due:
            self._journal.release(self._safe_sequence())
            return
        self.settle_all()
        self._checkpoint = _Checkpoint(self)
        self._checkpoint.next_job()

    def _safe_sequence(self) -> int:
        """The last group that is stable: one in flight is not."""
        return self._journal.sequence - (1 if self._in_flight is not None else 0)

    def _run_job(self, job: BackgroundJob, done: Callable[[OSError | None], None]) -> None:
        self._background.submit(job, done)

    def checkpoint_finished(self, sequence: int) -> None:
        self._checkpoint = None
        self.stats.checkpoints += 1
        if self.durability is Durability.FSYNC:
            self._journal.release(max(sequence, self._journal.checkpoint))
        if self._journal.live_files:
            self.start_checkpoint()

    def checkpoint_now(self) -> None:
        """The same, but before this returns: at start, at stop, and when the journal is crowded."""
        if self.failure is not None:
            return
        sequence = self._safe_sequence()
        due = {**self._unsynced, **self._manifests_due}
        for partition in due:
            saved = _PartitionSave(self, partition)
            try:
                perform(self.disk, saved.sync_job())
                saved.synced()
                perform(self.disk, saved.replace_job())
            except OSError as error:
                self._fail(error)
                return
            saved.finished()
        self.stats.checkpoints += 1
        if not self._unsynced:
            self._journal.release(max(sequence, self._journal.checkpoint))

    def segment_rolled(self, partition: PartitionLog) -> None:
        self._manifests_due[partition] = None

    manifest_due = segment_rolled

    # ---- entries of their own

    def journal_now(
        self,
        kind: EntryKind,
        partition: PartitionLog,
        base_offset: int,
        generation: int,
        position: int,
        data: bytes,
    ) -> None:
        """Make one rare entry durable right now, behind everything that was appended before it."""
        if self.failure is not None:
            raise LogStoppedError(f"the log stopped: {self.failure}")
        if self.durability is Durability.OS:
            return
        self.settle_all()
        if self.failure is not None:
            raise LogStoppedError(f"the log stopped: {self.failure}")
        if len(data) + ENTRY_BYTES + _GROUP_SLACK_BYTES > self._journal.room:
            self._make_room(len(data) + _GROUP_SLACK_BYTES)
        identity = partition.identity.partition_id
        head = entry_header(kind, identity, base_offset, generation, position, len(data))
        frame = self._journal.frame([head, data], 1)
        try:
            self._journal.write(frame, durable=True)
        except OSError as error:
            self._fail(error)
            raise LogStoppedError(f"the log stopped: {error}") from error
        self._unsynced[partition] = None

    def settle_in_flight(self) -> None:
        """Finish the group that a helper is syncing, here and now."""
        if self._in_flight is None or self.failure is not None:
            return
        try:
            perform(self.disk, BackgroundJob(sync=(self._journal.current_path,)))
        except OSError as error:
            self._fail(error)
            return
        self._land()

    def settle_all(self) -> None:
        """Everything appended so far is stable when this returns, unless the store has failed."""
        self.settle_in_flight()
        if self._staged and self.failure is None:
            self._commit()
            self.settle_in_flight()

    def settle(self, partition: PartitionLog) -> None:
        """Everything appended to this partition is stable and in its files."""
        self.settle_all()
        self.flush(partition)
        if partition.dirty:
            raise DiskFullError("the disk is full")

    def save_manifest_without_journal(self, partition: PartitionLog) -> None:
        """`durability = "os"`: no journal will repeat this, so the manifest has to say it now."""
        if self.durability is Durability.FSYNC:
            return
        self.disk.make_directory(partition.directory)
        data = encode_manifest(partition.manifest(self._journal.sequence))
        try:
            replace_file(self.disk, f"{partition.directory}/{MANIFEST}", data)
        except OSError as error:
            self._fail(error)
            raise LogStoppedError(f"the log stopped: {error}") from error

    def remove_segment_files(self, segment: Segment) -> None:
        for path in (segment.log_path, segment.index_path):
            self.files.forget(path)
            self.disk.remove(path)

    # ---- indexes

    def load_index(self, partition: PartitionLog, segment: Segment) -> SparseIndex:
        index = recovery.load_segment_index(self.disk, partition, segment)
        if segment.is_rolled:
            self._indexes[segment.log_path] = segment
            if len(self._indexes) > CACHED_INDEXES_MAX:
                _, oldest = self._indexes.popitem(last=False)
                if oldest.is_rolled and oldest.index and not oldest_needs_saving(oldest):
                    oldest.index = None
        return index

    def reload_producers(self, partition: PartitionLog) -> None:
        """Rebuild producer state after a cut that went further back than it remembers."""
        recovery.load_producers(partition, None)

    # ---- time

    def _arm_timer(self) -> None:
        self._timer = self._scheduler.call_later(CHECKPOINT_INTERVAL_S, self._tick)

    def _tick(self) -> None:
        if self.failure is not None:
            return
        self.retry_full_disk()
        if self._in_flight is None and not self._staged:
            self.start_checkpoint()
        self._arm_timer()

    def retry_full_disk(self) -> None:
        """There may be room again: try to write what waits, and take appends if that works."""
        if not self.is_disk_full:
            return
        self.is_disk_full = False
        for partition in list(self._dirty):
            self.flush(partition)
            if self.is_disk_full:
                return

    # ---- stop

    def _fail(self, error: OSError) -> None:
        if self.failure is None:
            self.failure = error
            self.on_failure(error)

    def close(self) -> None:
        """Clean stop: the last segments become stable too and the next start has nothing to do."""
        if self._timer is not None:
            self._timer.cancel()
        self.settle_all()
        self._background.close()
        self._checkpoint = None
        if self.failure is None:
            self._save_clean()
        self._journal.close()
        self.files.close()
        self._lock.release()

    def _save_clean(self) -> None:
        for partition in self._partitions.values():
            if partition.unsynced or partition.manifest_changed or self._needs_clean_end(partition):
                self._manifests_due[partition] = None
        due = {**self._unsynced, **self._manifests_due}
        for partition in due:
            saved = _PartitionSave(self, partition, clean=True)
            try:
                perform(self.disk, saved.sync_job())
                saved.synced()
                perform(self.disk, saved.replace_job())
            except OSError as error:
                self._fail(error)
                return
            saved.finished()
            if partition.dirty:
                return
        self.node.is_clean = True
        self.node.sequence = self._journal.sequence
        self.node.generation = self._journal.generation
        self._write_node()

    def _needs_clean_end(self, partition: PartitionLog) -> bool:
        """Whether the manifest on disk does not state the active segment's end yet."""
        return (
            partition.active is not None
            and partition.active.size > 0
            and not (partition.clean_size == partition.active.size)
        )

    def abandon(self) -> None:
        """Let go without writing anything, as a crash would: for tests and forced stops."""
        if self._timer is not None:
            self._timer.cancel()
        self._background.close()
        self._journal.close()
        self.files.close()
        self._lock.release()
        self.failure = self.failure or OSError(errno.ESHUTDOWN, "abandoned")


class _PartitionSave:
    """One partition's part of a checkpoint: what to sync, then what to put in place."""

    def __init__(self, store: LogStore, partition: PartitionLog, *, clean: bool = False) -> None:
        self._store = store
        self.partition = partition
        self._clean = clean
        self.is_whole = False
        store._unsynced.pop(partition, None)
        store._manifests_due.pop(partition, None)
        store.flush(partition)
        self._segments = [each for each in partition.unsynced if each.written == each.size]
        if clean and partition.active is not None and partition.active.index is not None:
            partition.active.index.seal()
        #: On a full disk some bytes are in the journal only: then only what is written is synced.
        self.is_whole = not partition.dirty
        self._blocks: list[tuple[Segment, bytes, int]] = []
        self._snapshot: bytes | None = None
        self._obsolete: list[Segment] = []
        if self.is_whole:
            self._blocks = [self._index_block(each) for each in self._segments if each.index]
            if partition.producers is not None and (self._segments or clean):
                self._snapshot = take_snapshot(partition.producers, partition.log_end_offset)
        partition.unsynced = [each for each in partition.unsynced if each not in self._segments]
        self._sequence = store._safe_sequence()

    def _index_block(self, segment: Segment) -> tuple[Segment, bytes, int]:
        index = segment.index
        assert index is not None
        has_producers = self.partition.producers is not None
        checkpoint = Checkpoint(
            segment.size,
            segment.next_offset,
            segment.checksum,
            segment.max_timestamp,
            has_producers,
        )
        return segment, index.unsaved_block(checkpoint), len(index)

    def sync_job(self) -> BackgroundJob:
        files = [segment.log_path for segment in self._segments]
        files += [
            segment.index_path
            for segment in self._segments
            if segment.index is not None and segment.index.saved_entries
        ]
        directory = self.partition.directory
        return BackgroundJob(sync=tuple(files), sync_directories=(directory, PARTITIONS, ""))

    def synced(self) -> None:
        """The segments are durable: only now may the index say so."""
        if self.partition.is_removed:
            return
        for segment, block, count in self._blocks:
            file = self._store.files.get_or_create(segment.index_path)
            file.write([block], file.size())
            assert segment.index is not None
            segment.index.saved_entries = max(segment.index.saved_entries, count)

    def replace_job(self) -> BackgroundJob:
        partition = self.partition
        if partition.is_removed or not self.is_whole:
            return BackgroundJob()
        replace: list[Replacement] = []
        if self._snapshot is not None:
            path = f"{partition.directory}/{recovery.PRODUCERS_NAME}"
            replace.append(Replacement(path, self._snapshot))
        if partition.manifest_changed or self._clean:
            manifest = partition.manifest(self._sequence, clean=self._clean)
            path = f"{partition.directory}/{MANIFEST}"
            replace.append(Replacement(path, encode_manifest(manifest)))
            partition.manifest_changed = False
            partition.clean_size = manifest.clean_end.size if manifest.clean_end else -1
            self._obsolete, partition.obsolete = partition.obsolete, []
        if replace:
            self._store.disk.make_directory(partition.directory)
        finished = [each for each, _, _ in self._blocks if each.is_rolled or self._clean]
        return BackgroundJob(
            sync=tuple(each.index_path for each in finished), replace=tuple(replace)
        )

    def finished(self) -> None:
        """Nothing durable names the obsolete files any more."""
        store, partition = self._store, self.partition
        for segment in self._obsolete:
            store.remove_segment_files(segment)
        if partition.is_removed:
            return
        if not self.is_whole:
            store._unsynced[partition] = None
        if partition.manifest_changed:
            store._manifests_due[partition] = None


class _Checkpoint:
    """A checkpoint in progress: a few partitions to a job, so that nothing waits long behind it."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._sequence = store._safe_sequence()
        self._left = list({**store._unsynced, **store._manifests_due})
        self._incomplete = False

    def next_job(self) -> None:
        store = self._store
        # With nothing in flight, what the files are made to say is exactly what is stable.
        store.settle_all()
        if store.failure is not None:
            return
        if not self._left:
            if self._incomplete:
                self._sequence = store._journal.checkpoint
            store.checkpoint_finished(self._sequence)
            return
        some = self._left[:CHECKPOINT_FILES_PER_JOB]
        del self._left[:CHECKPOINT_FILES_PER_JOB]
        saves = [_PartitionSave(store, each) for each in some if not each.is_removed]
        if any(save.partition.dirty for save in saves):
            self._incomplete = True

        def replaced(error: OSError | None) -> None:
            if error is not None:
                store._fail(error)
                return
            for save in saves:
                save.finished()
            self.next_job()

        def synced(error: OSError | None) -> None:
            if error is not None:
                store._fail(error)
                return
            for save in saves:
                save.synced()
            store._run_job(_merged([save.replace_job() for save in saves]), replaced)

        store._run_job(_merged([save.sync_job() for save in saves]), synced)


def _merged(jobs: list[BackgroundJob]) -> BackgroundJob:
    return BackgroundJob(
        sync=tuple(path for job in jobs for path in job.sync),
        sync_directories=tuple(dict.fromkeys(d for job in jobs for d in job.sync_directories)),
        replace=tuple(each for job in jobs for each in job.replace),
    )


def _group_parts(group: list[Flight]) -> tuple[list[Buffer], int]:
    """Entry headers and data of everything staged."""
    parts: list[Buffer] = []
    count = 0
    for partition, runs, _ in group:
        partition_id = partition.identity.partition_id
        for run in runs:
            segment = run.segment
            base, generation = segment.base_offset, segment.generation
            kind = EntryKind.APPEND
            parts.append(entry_header(kind, partition_id, base, generation, run.position, run.size))
            parts += run.chunks
            count += 1
    return parts, count


def oldest_needs_saving(segment: Segment) -> bool:
    return segment.index is not None and segment.index.saved_entries < len(segment.index)


def read_node_state(disk: Disk) -> NodeState:
    """Raises `FormatError` when a newer release wrote the directory, or the file is damaged."""
    try:
        state = msgspec.json.decode(read_whole(disk, NODE_FILE), type=NodeState)
    except msgspec.DecodeError as error:
        raise FormatError(f"{NODE_FILE} cannot be read: {error}") from None
    if state.format > FORMAT:
        raise FormatError(
            f"the data directory has format {state.format}, this release reads up to {FORMAT}"
        )
    if state.feature_level > FEATURE_LEVEL:
        raise FormatError(
            f"the data directory uses feature level {state.feature_level}, "
            f"this release knows {FEATURE_LEVEL}"
        )
    return state
