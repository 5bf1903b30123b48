"""All logs of one node: start and stop, and how an append becomes durable.

The life of an append (`durability = "fsync"`):

1. `PartitionLog.append` checks, assigns offsets and stages the bytes (`GroupCommit.stage`). The
   first one of a loop turn schedules a commit at the turn's end, so all that one turn brings is one
   group.
2. `GroupCommit` writes the group to the journal with one synchronous write. While the disk is fast
   that happens right on the loop; when it is slow, a helper process syncs, the next group gathers
   meanwhile, and `on_written` lets other nodes copy this one. One is in flight at a time.
3. The partitions' stable ends move, and `on_stable` lets the owner answer the clients.
4. The bytes are now *dirty*: durable in the journal, readable from memory, not yet in the segment
   file. They are written behind (`WriteBehind`) in larger pieces.
5. A *checkpoint* (`Checkpointer`), due whenever a journal file is full and every few seconds,
   flushes, syncs the segments beside the loop and frees the journal files.

    PartitionLog ──stage──► GroupCommit ──runs──► WriteBehind ──unsynced──► Checkpointer
                             journal/*.jnl         segment files             manifests, indexes
                                  ▲                                               │
                                  └───────────────── release ─────────────────────┘

With `durability = "os"` appends are not journalled: the commit writes the segments through the page
cache, and that is what stable means. Truncations, log starts and epochs are journalled anyway.

A failed sync stops the store for good (`on_failure`), and a full disk only refuses appends until
there is room again (`DataDirectory`).

A start replays the journal from the last checkpoint, or from the group that `node.json` names if
that is later; `finish_recovery` makes all of it durable in the segments and moves that mark.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress

from dragoman.limits import CHECKPOINT_INTERVAL_S, JOURNAL_FILE_BYTES, OPEN_SEGMENTS_MAX
from dragoman.log import recovery
from dragoman.log.checkpoint import Checkpointer
from dragoman.log.directory import FULL, PARTITIONS, DataDirectory, keep_damaged_journal
from dragoman.log.expansion import Expansions
from dragoman.log.group_commit import GroupCommit
from dragoman.log.index import SparseIndex
from dragoman.log.index_cache import IndexCache
from dragoman.log.journal import (
    MARK_FILE,
    EntryKind,
    EntryRef,
    Journal,
    JournalDamage,
    JournalReader,
    MarkWriter,
    read_entry,
    read_mark,
    seed_of,
)
from dragoman.log.manifest import Identity
from dragoman.log.node import Ballot, Durability, NodeState, read_ballot, read_node_state
from dragoman.log.partition import LogConfig, PartitionLog
from dragoman.log.producer_file import Believed, load_producers
from dragoman.log.segment import Segment
from dragoman.log.write_behind import WriteBehind
from dragoman.world import Background, Clock, Disk, Handle, Random, Scheduler

__all__ = ["Durability", "LogStore", "NodeState", "read_node_state"]

log = logging.getLogger("dragoman.log")


class _Replay:
    """What a start has found to do."""

    __slots__ = ("bytes", "groups", "partitions")

    def __init__(self, groups: int, size: int) -> None:
        self.groups = groups
        self.bytes = size
        self.partitions = 0


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
        *,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
    ) -> None:
        """Opens the directory and reads the journal back.

        Afterwards open every partition in `pending_partitions` that still exists, then call
        `finish_recovery`. Raises `DirectoryInUseError`, `FormatError`, `OSError`.
        """
        self.clock = clock
        self.disk = disk
        self.durability = durability
        #: Compressed batches whose records are being read.
        self.expansions = Expansions()
        #: Called with the partitions whose records are being synced beside the loop. Other nodes
        #: may copy them (`PartitionLog.copy_end`): nothing takes them back while the store runs.
        self.on_written: Callable[[list[PartitionLog]], None] = _nothing
        #: Called with the partitions whose stable ends have moved; none if it was only the ballot.
        self.on_stable: Callable[[list[PartitionLog]], None] = _nothing
        #: Called when a sync failed: stop the node.
        self.on_failure: Callable[[OSError], None] = _nothing
        #: Takes a partition whose active segment has just been closed, in the midst of an append:
        #: the log must not be changed before this turn of the loop ends.
        self.on_rolled: Callable[[PartitionLog], None] = _nothing
        #: Called when staged appends of a partition were dropped because the disk is full.
        self.on_refused: Callable[[PartitionLog], None] = _nothing
        #: Called when damage is found in a partition, which keeps serving what can be read.
        self.on_damage: Callable[[PartitionLog], None] = _nothing
        self._scheduler = scheduler
        self._partitions: dict[int, PartitionLog] = {}
        #: Partitions with something to sync or a manifest to write.
        self._work: dict[PartitionLog, None] = {}
        self._is_recovered = False
        self._timer: Handle | None = None
        self._opened_at = clock.monotonic()
        self.directory = DataDirectory(disk, background, scheduler, clock, open_segments_max)
        self.files = self.directory.files
        self.stats = self.directory.stats
        self._writes = WriteBehind(self.directory, self._work)
        self._indexes = IndexCache(self.directory)
        try:
            self.node = self.directory.open_node(random, durability)
            self._open_journal()
        except BaseException:
            self.directory.lock.release()
            raise
        self.commits = GroupCommit(
            self, self.directory, durability, self._journal, self._writes, self._work
        )
        self._checkpoints = Checkpointer(
            self.directory, self._journal, self.commits, self._writes, self._indexes, self._work
        )
        self.directory.on_change = self.commits.check_admission
        self.directory.on_failure = self._failed

    # ---- start

    def _open_journal(self) -> None:
        seed = seed_of(self.node.directory_id)
        reader = JournalReader(self.disk, seed, self.node.sequence, self._acknowledged())
        self.journal_damage: list[JournalDamage] = reader.damage
        self._pending: dict[int, list[EntryRef]] = {}
        self._replay = _Replay(len(reader.groups), sum(each.size for each in reader.groups))
        for entry in reader.entries():
            if entry.kind is EntryKind.BALLOT:
                found = read_ballot(read_entry(self.disk, entry))
                self.node.ballot = max(self.node.ballot, found)
            else:
                self._pending.setdefault(entry.partition_id, []).append(entry)
        # What is acted on from here must not be lost by a power cut that follows a mere kill.
        reader.secure()
        self.directory.write_node()
        generation = max(reader.generation, self.node.generation)
        self._journal = Journal(self.disk, seed, reader.newest, generation)

    def _acknowledged(self) -> int:
        """The last group that is known to have been acknowledged; 0 when nothing tells."""
        mark = read_mark(self.disk)
        if mark is not None and mark.directory_id == self.node.directory_id:
            return mark.sequence
        if self.node.has_mark and not self.directory.was_clean:
            log.error(
                "%s is missing or damaged: whether the journal's end is whole cannot be told",
                MARK_FILE,
            )
        return 0

    @property
    def pending_partitions(self) -> list[int]:
        """Partitions with journalled entries that must be replayed before the journal goes on, and
        those known to be damaged."""
        return sorted({*self._pending, *self.node.damaged})

    def finish_recovery(self) -> None:
        """Everything replayed becomes durable in the segments; the entries of partitions that were
        not opened are dropped.

        Raises `OSError` when that is not possible: then the node must not go on.
        """
        unclaimed = len(self._pending)
        self._pending.clear()
        if self.journal_damage:
            self.node.has_lost = True
            keep_damaged_journal(self.disk, self.journal_damage)
        if not self.checkpoint_now():
            raise self.failure or OSError(errno.ENOSPC, "the disk is too full to start on")
        self.node.durability = self.durability
        self.node.sequence = self._journal.sequence
        self.node.generation = self._journal.generation
        self.commits.mark = MarkWriter(self.disk, self.node, self._journal.sequence)
        self.node.has_mark = True
        self.directory.write_node()
        self._journal.tidy()
        self._is_recovered = True
        self._report_recovery(unclaimed)
        self._arm_timer()

    def _report_recovery(self, unclaimed: int) -> None:
        replay = self._replay
        if self.directory.was_clean and not replay.groups and not self.stats.damage:
            return
        log.warning(
            "recovered in %.3f s: %d groups of the journal (%d bytes) replayed into %d partitions, "
            "%d bytes of torn writes cut off, %d partitions that are deleted left out, "
            "%d findings of damage, %d acknowledged groups lost",
            self.clock.monotonic() - self._opened_at,
            replay.groups,
            replay.bytes,
            replay.partitions,
            self.stats.cut_bytes,
            unclaimed,
            self.stats.damage,
            sum(each.last_sequence - each.first_sequence + 1 for each in self.journal_damage),
        )

    # ---- the directory

    @property
    def was_clean(self) -> bool:
        """The node was stopped cleanly before this start."""
        return self.directory.was_clean

    @property
    def failure(self) -> OSError | None:
        return self.directory.failure

    @property
    def is_disk_full(self) -> bool:
        """Appends are refused until something could be written again."""
        return self.directory.is_full

    def has_failed(self) -> bool:
        return self.directory.failure is not None

    def fail(self, error: OSError) -> None:
        self.directory.fail(error)

    def _failed(self, error: OSError) -> None:
        self.on_failure(error)

    def loss_is_known(self) -> None:
        """Those who count on this directory know what it lost."""
        self.directory.loss_is_known()

    def keep_node_state(self) -> None:
        """What was changed in `node` is durable when this returns, unless the disk is full."""
        self.directory.keep_node()

    def use_level(self, level: int) -> None:
        """From now on releases that do not know this level refuse the directory."""
        self.directory.use_level(level)

    # ---- damage

    def damage_found(self, partition: PartitionLog) -> None:
        """Count it, and remember to open the partition at the next start."""
        self.stats.damage += 1
        is_new = self.directory.add_damaged(partition.identity.partition_id)
        if is_new and self._is_recovered and not self.has_failed():
            self.directory.keep_node()
        self.on_damage(partition)

    def damage_is_gone(self, partition: PartitionLog) -> None:
        """The partition was deleted, copied anew or repaired."""
        self.directory.remove_damaged(partition.identity.partition_id)

    # ---- partitions

    def partition(
        self, identity: Identity, directory: str, config: LogConfig, *, is_shared: bool = False
    ) -> PartitionLog:
        """Open or create a partition; replays what the journal holds for it.

        `is_shared`: other nodes hold it too, so not everything that is here need be committed.
        """
        found = self._partitions.get(identity.partition_id)
        if found is not None:
            return found
        partition = PartitionLog(self, identity, f"{PARTITIONS}/{directory}", config)
        entries = self._pending.pop(identity.partition_id, [])
        self._replay.partitions += bool(entries)
        recovery.open_partition(partition, entries, is_shared=is_shared)
        self._partitions[identity.partition_id] = partition
        self._checkpoints.list_work(partition)
        if not partition.is_damaged:
            self.damage_is_gone(partition)
        return partition

    def opened(self, partition_id: int) -> PartitionLog | None:
        return self._partitions.get(partition_id)

    def open_partitions(self) -> list[PartitionLog]:
        return list(self._partitions.values())

    def remove_partition(self, partition: PartitionLog) -> None:
        """Delete a partition and its files. Its id never comes back, so replay cannot revive it."""
        partition.is_removed = True
        self.damage_is_gone(partition)
        partition.clear_tail()
        self._work.pop(partition, None)
        self.commits.unstage(partition)
        self._writes.drop_all(partition)
        self._partitions.pop(partition.identity.partition_id, None)
        for segment in partition.all_segments():
            segment.is_gone = True
            self.directory.remove_segment_files(segment)
        self.directory.remove_directory(partition.directory)

    def segment_rolled(self, partition: PartitionLog) -> None:
        self._work[partition] = None
        self.on_rolled(partition)

    def manifest_due(self, partition: PartitionLog) -> None:
        self._work[partition] = None

    def load_index(self, partition: PartitionLog, segment: Segment) -> SparseIndex:
        return self._indexes.load(partition, segment)

    def reload_producers(self, partition: PartitionLog) -> None:
        """Rebuild producer state after a cut that went further back than it remembers."""
        load_producers(partition, Believed())

    # ---- term and vote

    @property
    def ballot(self) -> Ballot:
        """As it is on stable storage."""
        return self.node.ballot

    def stage_ballot(self, ballot: Ballot) -> None:
        """Goes into the group of this loop turn. Raises what an append does."""
        self.commits.stage_ballot(ballot)

    # ---- committing and writing

    def settle_all(self) -> None:
        """Everything appended so far is stable when this returns, unless the store has failed."""
        self.commits.settle_all()

    def settle(self, partition: PartitionLog) -> None:
        """Everything appended to this partition is stable and in its files."""
        self.commits.settle(partition)

    def flush(self, partition: PartitionLog) -> None:
        """Write a partition's journalled bytes to its segment files, if there is room."""
        self._writes.flush(partition)

    def drop_dirty(self, partition: PartitionLog, segment: Segment) -> None:
        """Forget bytes that wait to be written to a segment which is not wanted any more."""
        self._writes.drop(partition, segment)

    def start_checkpoint(self) -> None:
        """Make everything committed so far durable in the segments, beside the loop."""
        self._checkpoints.start()

    def checkpoint_now(self) -> bool:
        """Checkpoint before this returns. False when something could not be made durable."""
        return self._checkpoints.run_now()

    def free_journal(self) -> None:
        """Checkpoint at once what keeps the files of the journal."""
        self._checkpoints.free_journal()

    # ---- time

    def _arm_timer(self) -> None:
        self._timer = self._scheduler.call_later(CHECKPOINT_INTERVAL_S, self._tick)

    def _tick(self) -> None:
        if self.has_failed():
            return
        self._checkpoints.check_files()
        # Not full for a whole round: a retry alone proves little.
        self.directory.note_room()
        self.retry_full_disk()
        if not self.commits.is_in_flight and not self.commits.has_staged:
            self.start_checkpoint()
        self._arm_timer()

    def retry_full_disk(self) -> None:
        """There may be room again: try to write what waits, and take appends if that works."""
        if not self.is_disk_full:
            return
        self.directory.is_full = False
        if self._writes.write_all() and self.directory.free_bytes() >= JOURNAL_FILE_BYTES:
            self.directory.note_room()

    # ---- stop

    def close(self) -> None:
        """Clean stop: the last segments become stable too and the next start has nothing to do."""
        if self._timer is not None:
            self._timer.cancel()
        self.settle_all()
        self._checkpoints.abandon()
        self.directory.is_closing = True
        try:
            self.directory.background.close()
        except OSError as error:
            if error.errno not in FULL:
                self.fail(error)
        if not self.has_failed():
            self._save_clean()
        self._close_files()

    def _save_clean(self) -> None:
        for partition in self._partitions.values():
            active = partition.active
            # The manifest on disk has to state the active segment's end.
            if active is not None and active.size and partition.clean_size != active.size:
                self._work[partition] = None
        if not self._checkpoints.save_all(clean=True):
            return
        self.node.is_clean = True
        self.node.sequence = self._journal.sequence
        self.node.generation = self._journal.generation
        try:
            self.directory.write_node()
        except OSError as error:
            if error.errno not in FULL:
                self.fail(error)

    def abandon(self) -> None:
        """Let go without writing anything, as a crash would: for tests and forced stops."""
        if self._timer is not None:
            self._timer.cancel()
        self.directory.abandon()
        self.directory.is_closing = True
        # An error of a job does not matter any more: nothing more is acknowledged.
        with suppress(OSError):
            self.directory.background.close()
        self._close_files()

    def _close_files(self) -> None:
        self._journal.close()
        if self.commits.mark is not None:
            self.commits.mark.close()
        self.directory.close_files()
