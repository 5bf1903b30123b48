"""All logs of one node: start and stop, and how an append becomes durable.

The life of an append (`durability = "fsync"`):

1. `PartitionLog.append` checks, assigns offsets and stages the bytes (`GroupCommit.stage`). The
   first append of a loop turn schedules a commit at the turn's end, so all appends of one turn form
   one group.
2. `GroupCommit` writes the group to the journal with one synchronous write. While the disk is fast,
   the loop does this itself. When it is slow, the flusher process syncs while the next group is
   staged, and `on_written` lets other nodes copy the group. One group is in flight at a time.
3. The partitions' stable ends move, and `on_stable` lets the owner acknowledge the appends.
4. The bytes are now *dirty*: durable in the journal, readable from memory, not yet in the segment
   file. `WriteBehind` writes them there later, in larger pieces.
5. A *checkpoint* (`Checkpointer`), due whenever a journal file is full and every few seconds,
   flushes dirty bytes, syncs the segments in the background and frees the journal files.

    PartitionLog ──stage──► GroupCommit ──runs──► WriteBehind ──unsynced──► Checkpointer
                             journal/*.jnl         segment files             manifests, indexes
                                  ▲                                               │
                                  └───────────────── release ─────────────────────┘

With `durability = "os"` appends are not journalled: the commit writes the segments through the page
cache, and bytes there count as stable. Truncations, log starts and epochs are journalled anyway.

A failed sync stops the store for good (`on_failure`). A full disk only refuses appends until there
is room again (`DataDirectory`).

A start replays the journal from the last checkpoint, or from the group in `node.json` if that is
later. `finish_recovery` makes everything replayed durable in the segments and updates `node.json`.
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
from dragoman.log.node import (
    UNKNOWN_BALLOT,
    Ballot,
    DamagedPlace,
    Durability,
    NodeState,
    read_ballot,
    read_node_state,
)
from dragoman.log.partition import LogConfig, PartitionLog
from dragoman.log.producer_file import Believed, load_producers
from dragoman.log.segment import Segment
from dragoman.log.write_behind import WriteBehind
from dragoman.world import Background, Clock, Disk, Handle, Random, Scheduler

__all__ = ["Durability", "LogStore", "NodeState", "read_node_state"]

log = logging.getLogger("dragoman.log")


class _Replay:
    """Counts of what a start replays, for the log."""

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
        """Opens the directory and reads the journal.

        The caller then opens every partition in `pending_partitions` that still exists, and calls
        `finish_recovery`. Raises `DirectoryInUseError`, `FormatError`, `OSError`.
        """
        self.clock = clock
        self.disk = disk
        self.durability = durability
        #: Cache of the records of compressed batches.
        self.expansions = Expansions()
        #: Called with the partitions whose records are being synced in the background. Other nodes
        #: may copy them (`PartitionLog.copy_end`): they are not withdrawn while the store runs.
        self.on_written: Callable[[list[PartitionLog]], None] = _nothing
        #: Called with the partitions whose stable ends have moved; with none after a ballot alone.
        self.on_stable: Callable[[list[PartitionLog]], None] = _nothing
        #: Called when a sync has failed. The owner has to stop the node.
        self.on_failure: Callable[[OSError], None] = _nothing
        #: Called with a partition whose active segment was rolled, in the middle of an append: the
        #: callback must not change the log before this loop turn ends.
        self.on_rolled: Callable[[PartitionLog], None] = _nothing
        #: Called when staged appends of a partition were dropped because the disk is full.
        self.on_refused: Callable[[PartitionLog], None] = _nothing
        #: Called when damage is found in a partition. Its readable records are still served.
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
        acknowledged = self._acknowledged()
        reader = JournalReader(self.disk, seed, self.node.sequence, acknowledged or 0)
        self.journal_damage: list[JournalDamage] = reader.damage
        self._may_lack_groups = bool(reader.damage) or acknowledged is None
        self._pending: dict[int, list[EntryRef]] = {}
        self._replay = _Replay(len(reader.groups), sum(each.size for each in reader.groups))
        for entry in reader.entries():
            if entry.kind is EntryKind.BALLOT:
                found = read_ballot(read_entry(self.disk, entry))
                self.node.ballot = max(self.node.ballot, found)
            else:
                self._pending.setdefault(entry.partition_id, []).append(entry)
        # After a kill the journal may be only in the page cache. It is synced before the node acts
        # on it, so that a power cut cannot take it away.
        reader.secure()
        self.directory.write_node()
        generation = max(reader.generation, self.node.generation)
        self._journal = Journal(self.disk, seed, reader.newest, generation)

    def _acknowledged(self) -> int | None:
        """The last group that is known to have been acknowledged; None when that is lost."""
        mark = read_mark(self.disk)
        if mark is not None and mark.directory_id == self.node.directory_id:
            return mark.sequence
        if self.node.has_mark and not self.directory.was_clean:
            log.error(
                "%s is missing or damaged: the end of the journal may be incomplete",
                MARK_FILE,
            )
            return None
        return 0

    @property
    def pending_partitions(self) -> list[int]:
        """Partitions with entries to replay before the journal is used again, and damaged ones."""
        return sorted({*self._pending, *self.node.damaged})

    def finish_recovery(self) -> None:
        """Make everything replayed durable in the segments.

        Entries of partitions that were not opened are dropped. Raises `OSError` when the segments
        cannot be made durable: then the node must not start.
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
        replay, was_clean = self._replay, self.directory.was_clean
        fields = {
            "ms": round((self.clock.monotonic() - self._opened_at) * 1000),
            "feature_level": self.node.feature_level,
        }
        if was_clean and not replay.groups and not self.stats.damage:
            text = "log created" if self.node.incarnation == 1 else "log opened after a clean stop"
            log.info(text, extra=fields)
            return
        lost = sum(each.last_sequence - each.first_sequence + 1 for each in self.journal_damage)
        fields |= {
            "groups": replay.groups,
            "bytes": replay.bytes,
            "partitions": replay.partitions,
            "cut_bytes": self.stats.cut_bytes,
            "deleted_partitions": unclaimed,
            "damage": self.stats.damage,
            "lost_groups": lost,
        }
        log.warning("log recovered", extra=fields)

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
        """Note that the cluster knows that this directory lost acknowledged groups."""
        self.directory.loss_is_known()

    def keep_node_state(self) -> None:
        """Make changes of `node` durable before this returns, unless the disk is full."""
        self.directory.keep_node()

    def use_level(self, level: int) -> None:
        """Raise the feature level: from now on, releases without it refuse the directory."""
        self.directory.use_level(level)

    # ---- damage

    def damage_found(self, partition: PartitionLog, place: DamagedPlace | None = None) -> None:
        """Count it, and remember to open the partition and to look there at the next start."""
        self.stats.damage += 1
        is_new = self.directory.add_damaged(partition.identity.partition_id)
        if place is not None:
            is_new |= self.directory.add_damaged_place(place)
        if is_new and self._is_recovered and not self.has_failed():
            self.directory.keep_node()
        self.on_damage(partition)

    def damage_is_gone(self, partition: PartitionLog) -> None:
        """Forget the damage of a partition that was deleted, repaired or copied again."""
        identity = partition.identity
        if identity.partition_id in self.node.damaged:
            fields = {"topic": identity.topic, "partition": identity.partition}
            log.info("damage repaired", extra=fields)
        self.directory.remove_damaged(partition.identity.partition_id)

    # ---- partitions

    def partition(
        self, identity: Identity, directory: str, config: LogConfig, *, is_shared: bool = False
    ) -> PartitionLog:
        """Open or create a partition, and replay its entries of the journal.

        `is_shared`: other nodes have replicas, so not all records here need be committed.
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
        """Delete a partition and its files. Its id is never reused, so replay cannot revive it."""
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
        self.stats.rolls += 1
        self.on_rolled(partition)

    def manifest_due(self, partition: PartitionLog) -> None:
        self._work[partition] = None

    def load_index(self, partition: PartitionLog, segment: Segment) -> SparseIndex:
        return self._indexes.load(partition, segment)

    def reload_producers(self, partition: PartitionLog) -> None:
        """Rebuild producer state after a truncation below the changes that it can undo."""
        load_producers(partition, Believed())

    # ---- term and vote

    @property
    def ballot(self) -> Ballot:
        """The ballot that is on stable storage."""
        return self.node.ballot

    def restore_term(self, term: int) -> None:
        """Raise a lost ballot to the term that the log has reached. Called while the node starts.

        A ballot is lost with `node.json`, or with a part of the journal. Any other that is older
        than the log is an error of this program, which this does not hide.
        """
        is_lost = self.node.ballot == UNKNOWN_BALLOT or self._may_lack_groups
        if is_lost and self.node.ballot.term < term:
            self.node.ballot = Ballot(term)

    def stage_ballot(self, ballot: Ballot) -> None:
        """Stage a ballot for the group of this loop turn. Raises what an append raises."""
        self.commits.stage_ballot(ballot)

    # ---- committing and writing

    def settle_all(self) -> None:
        """Make all appends stable before this returns, unless the store has failed."""
        self.commits.settle_all()

    def settle(self, partition: PartitionLog) -> None:
        """Make all appends to a partition stable and write them to its files."""
        self.commits.settle(partition)

    def flush(self, partition: PartitionLog) -> None:
        """Write a partition's journalled bytes to its segment files, if there is room."""
        self._writes.flush(partition)

    def drop_dirty(self, partition: PartitionLog, segment: Segment) -> None:
        """Forget the dirty bytes of a segment that is removed."""
        self._writes.drop(partition, segment)

    def start_checkpoint(self) -> None:
        """Begin to make all committed bytes durable in the segments, in the background."""
        self._checkpoints.start()

    def checkpoint_now(self) -> bool:
        """Checkpoint before this returns. False when not everything could be made durable."""
        return self._checkpoints.run_now()

    def free_journal(self) -> None:
        """Checkpoint at once, so that journal files become free."""
        self._checkpoints.free_journal()

    # ---- time

    def _arm_timer(self) -> None:
        self._timer = self._scheduler.call_later(CHECKPOINT_INTERVAL_S, self._tick)

    def _tick(self) -> None:
        if self.has_failed():
            return
        self._checkpoints.check_files()
        # The disk had room for a whole interval; one successful write would prove little.
        self.directory.note_room()
        self.retry_full_disk()
        if not self.commits.is_in_flight and not self.commits.has_staged:
            self.start_checkpoint()
        self._arm_timer()

    def retry_full_disk(self) -> None:
        """Write the dirty bytes of a full disk. If that succeeds, appends are accepted again."""
        if not self.is_disk_full:
            return
        self.directory.is_full = False
        if self._writes.write_all() and self.directory.free_bytes() >= JOURNAL_FILE_BYTES:
            self.directory.note_room()

    # ---- stop

    def close(self) -> None:
        """Stop cleanly: everything becomes durable in the segments, and the next start replays
        nothing."""
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
            # The manifest of a clean stop names the end of the active segment.
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
        """Stop without writing anything, like a crash: for tests and forced stops."""
        if self._timer is not None:
            self._timer.cancel()
        self.directory.abandon()
        self.directory.is_closing = True
        # An error of a job no longer matters: nothing more is acknowledged.
        with suppress(OSError):
            self.directory.background.close()
        self._close_files()

    def _close_files(self) -> None:
        self._journal.close()
        if self.commits.mark is not None:
            self.commits.mark.close()
        self.directory.close_files()
