"""All logs of one node: group commit, write-behind, checkpoints, start and stop.

The life of an append (`durability = "fsync"`):

1. `PartitionLog.append` checks, assigns offsets and stages the bytes here (`stage`). The first one
   of a loop turn schedules a commit at the turn's end, so all that one turn brings is one group.
2. `_commit` writes the group to the journal with one synchronous write. While the disk is fast
   that happens right here on the loop; when it is slow, a helper process syncs, the next group
   gathers meanwhile, and `on_written` lets other nodes copy this one. One is in flight at a time.
3. The partitions' stable ends move and `on_stable` tells the owner, who answers the clients.
4. The bytes are now *dirty*: durable in the journal, readable from memory, not yet in the segment
   file. They are written behind (`flush`) in larger pieces.
5. A *checkpoint*, due whenever a journal file is full and every few seconds, flushes, syncs the
   segments beside the loop and frees the journal files.

With `durability = "os"` appends are not journalled: the commit writes the segments through the page
cache, and that is what stable means. Truncations, log starts and epochs are journalled anyway.

A failed sync stops the store for good (`on_failure`): the kernel may have dropped the pages, so a
second try could lie. A full disk only refuses appends until there is room again.

A start replays the journal from the last checkpoint, or from the group that `node.json` names if
that is later; `finish_recovery` makes all of it durable in the segments and moves that mark.
"""

from __future__ import annotations

import errno
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec

from dragoman.errors import CorruptionError, DiskFullError, LogStoppedError
from dragoman.limits import (
    CACHED_INDEXES_MAX,
    CHECKPOINT_INTERVAL_S,
    CHECKPOINT_PARTITIONS_AT_ONCE,
    DAMAGED_PARTITIONS_MAX,
    DIRTY_BYTES_MAX,
    DIRTY_PARTITION_BYTES_MAX,
    FAST_SYNC_S,
    GROUP_BYTES_MAX,
    JOURNAL_FILE_BYTES,
    LARGE_PART_BYTES_MIN,
    OPEN_SEGMENTS_MAX,
    SLOW_SYNC_PROBE_GROUPS,
    TAIL_BYTES_MAX,
    WRITE_OUT_BYTES_MIN,
)
from dragoman.log import recovery
from dragoman.log.checkpoint import FULL, PARTITIONS, Checkpoint, PartitionSave, merged
from dragoman.log.expansion import Expansions
from dragoman.log.files import FileCache
from dragoman.log.index import SparseIndex
from dragoman.log.index_loading import load_segment_index
from dragoman.log.journal import (
    ENTRY_BYTES,
    EntryKind,
    EntryRef,
    Journal,
    JournalDamage,
    JournalReader,
    entry_header,
    read_entry,
)
from dragoman.log.journal_mark import MARK_FILE, MarkWriter, read_mark, seed_of
from dragoman.log.manifest import Identity
from dragoman.log.node import (
    FEATURE_LEVEL_MIN,
    NODE_FILE,
    TAGGED_FILES_LEVEL,
    Ballot,
    Durability,
    NodeState,
    ballot_entry_data,
    has_data,
    node_replacement,
    read_ballot,
    read_node_state,
    write_node_state,
)
from dragoman.log.partition import LogConfig, PartitionLog, Run
from dragoman.log.producer_loading import Believed, load_producers
from dragoman.log.segment import Segment
from dragoman.log.tail import TailRing, join_small
from dragoman.types import Buffer
from dragoman.world import (
    OUT_OF_FILES,
    Background,
    BackgroundJob,
    Clock,
    Disk,
    Handle,
    Random,
    Scheduler,
    perform,
    replace_file,
)

__all__ = ["Durability", "LogStore", "NodeState", "StoreStats", "read_node_state"]

LOCK_FILE = "lock"
log = logging.getLogger("dragoman.log")
#: Frame, padding and entry headers of one group, beside its data.
_GROUP_SLACK_BYTES = 64 << 10
_NO_LIMIT = 1 << 62


#: One partition's part of a group on its way to the journal: the partition, its runs, and the log's
#: end when the group was closed, stable once the group is. A plain tuple: there may be hundreds.
Flight: TypeAlias = tuple[PartitionLog, list[Run], int]


class StoreStats:
    """Plain counters; whoever exports them reads them when asked."""

    __slots__ = (
        "appended_bytes",
        "checkpoints",
        "committed_bytes",
        "damage",
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
        #: Findings of damage since the store was opened.
        self.damage = 0


class Replay:
    """What a start has found to do."""

    __slots__ = ("bytes", "cut_bytes", "groups", "partitions")

    def __init__(self, groups: int, size: int) -> None:
        self.groups = groups
        self.bytes = size
        self.partitions = 0
        self.cut_bytes = 0


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
        self.disk = disk
        self.clock = clock
        self.durability = durability
        self.files = FileCache(disk, open_segments_max)
        self.stats = StoreStats()
        #: Compressed batches whose records are being read.
        self.expansions = Expansions()
        #: Told which partitions have records that are being synced beside the loop: other nodes may
        #: copy them (`PartitionLog.copy_end`), for nothing takes them back while the store runs.
        self.on_written: Callable[[list[PartitionLog]], None] = _nothing
        #: Told which partitions' stable ends have moved; none when it was only the ballot.
        self.on_stable: Callable[[list[PartitionLog]], None] = _nothing
        #: Told that a sync failed: stop the node.
        self.on_failure: Callable[[OSError], None] = _nothing
        #: Takes a partition whose active segment has just been closed, in the midst of an append:
        #: the log must not be changed before this turn of the loop ends.
        self.on_rolled: Callable[[PartitionLog], None] = _nothing
        #: Told that staged appends of a partition were dropped because the disk is full.
        self.on_refused: Callable[[PartitionLog], None] = _nothing
        #: Called when damage is found in a partition, which keeps serving what can be read.
        self.on_damage: Callable[[PartitionLog], None] = _nothing
        self.failure: OSError | None = None
        self._is_disk_full = False
        #: When the disk became full, until it is clear that there is room again.
        self._full_since: float | None = None
        self._background = background
        self._scheduler = scheduler
        self._partitions: dict[int, PartitionLog] = {}
        self._tail = TailRing(TAIL_BYTES_MAX)
        self._indexes: OrderedDict[str, Segment] = OrderedDict()
        self._staged: dict[PartitionLog, None] = {}
        #: With the headers of their entries.
        self._staged_bytes = 0
        #: Up to here appends are admitted without a look at the journal.
        self._admit_limit = -1
        self._is_commit_scheduled = False
        self._in_flight: list[Flight] | None = None
        self._staged_ballot: Ballot | None = None
        #: That of the group being written.
        self._flying_ballot: Ballot | None = None
        #: The group whose ballot `node.json` does not have yet; 0 when it has it.
        self._ballot_sequence = 0
        self._dirty: dict[PartitionLog, None] = {}
        self._dirty_bytes = 0
        #: Those with enough of it to be written at once.
        self._much_dirty: dict[PartitionLog, None] = {}
        #: Partitions with something to sync or a manifest to write.
        self._work: dict[PartitionLog, None] = {}
        self._checkpoint: Checkpoint | None = None
        self._is_spare_coming = False
        self._is_closing = False
        self._is_recovered = False
        self._sync_average_s = 0.0
        self._timer: Handle | None = None
        self._mark: MarkWriter | None = None
        self._opened_at = clock.monotonic()
        self._lock = disk.lock(LOCK_FILE)
        try:
            self.node = self._open_node(random)
            self._open_journal()
        except BaseException:
            self._lock.release()
            raise

    # ---- start

    def _open_node(self, random: Random) -> NodeState:
        self.was_clean = True
        #: In os mode nothing says where a segment ended: what cannot be read there was torn.
        self.trusts_segment_ends = self.durability is Durability.FSYNC
        if not self.disk.exists(NODE_FILE):
            if has_data(self.disk):
                raise CorruptionError(NODE_FILE, 0, "the file is missing, although there is data")
            return NodeState(
                directory_id=random.getrandbits(128).to_bytes(16, "big").hex(),
                incarnation=1,
                durability=self.durability,
                is_clean=False,
            )
        previous = read_node_state(self.disk)
        self.was_clean = previous.is_clean
        self.trusts_segment_ends = previous.is_clean or previous.durability is Durability.FSYNC
        return msgspec.structs.replace(
            previous,
            incarnation=previous.incarnation + 1,
            is_clean=False,
            feature_level=max(previous.feature_level, FEATURE_LEVEL_MIN),
        )

    def _open_journal(self) -> None:
        seed = seed_of(self.node.directory_id)
        reader = JournalReader(self.disk, seed, self.node.sequence, self._acknowledged())
        self.journal_damage: list[JournalDamage] = reader.damage
        self._pending: dict[int, list[EntryRef]] = {}
        self._replay = Replay(len(reader.groups), sum(each.size for each in reader.groups))
        for entry in reader.entries():
            if entry.kind is EntryKind.BALLOT:
                found = read_ballot(read_entry(self.disk, entry))
                self.node.ballot = max(self.node.ballot, found)
            else:
                self._pending.setdefault(entry.partition_id, []).append(entry)
        # What is acted on from here must not be lost by a power cut that follows a mere kill.
        reader.secure()
        write_node_state(self.disk, self.node)
        generation = max(reader.generation, self.node.generation)
        self._journal = Journal(self.disk, seed, reader.newest, generation)

    def _acknowledged(self) -> int:
        """The last group that is known to have been acknowledged; 0 when nothing tells."""
        mark = read_mark(self.disk)
        if mark is not None and mark.directory_id == self.node.directory_id:
            return mark.sequence
        if self.node.has_mark and not self.was_clean:
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
        """Everything replayed becomes durable in the segments; what nobody claimed is dropped.

        Raises `OSError` when that is not possible: then the node must not go on.
        """
        unclaimed = len(self._pending)
        self._pending.clear()
        if self.journal_damage:
            self.node.has_lost = True
            recovery.keep_damaged_journal(self.disk, self.journal_damage)
        if not self.checkpoint_now():
            raise self.failure or OSError(errno.ENOSPC, "the disk is too full to start on")
        self.node.durability = self.durability
        self.node.sequence = self._journal.sequence
        self.node.generation = self._journal.generation
        self._mark = MarkWriter(self.disk, self.node, self._journal.sequence)
        self.node.has_mark = True
        write_node_state(self.disk, self.node)
        self._journal.tidy()
        self._is_recovered = True
        self._report_recovery(unclaimed)
        self._arm_timer()

    def _report_recovery(self, unclaimed: int) -> None:
        replay = self._replay
        if self.was_clean and not replay.groups and not self.stats.damage:
            return
        log.warning(
            "recovered in %.3f s: %d groups of the journal (%d bytes) replayed into %d partitions, "
            "%d bytes of torn writes cut off, %d partitions that are deleted left out, "
            "%d findings of damage, %d acknowledged groups lost",
            self.clock.monotonic() - self._opened_at,
            replay.groups,
            replay.bytes,
            replay.partitions,
            replay.cut_bytes,
            unclaimed,
            self.stats.damage,
            sum(each.last_sequence - each.first_sequence + 1 for each in self.journal_damage),
        )

    def bytes_cut(self, count: int) -> None:
        """Recovery cut off what was torn."""
        self._replay.cut_bytes += count

    def loss_is_known(self) -> None:
        """Whoever counts on this directory has been told of what it lost."""
        if self.node.has_lost:
            self.node.has_lost = False
            self.keep_node_state()

    def keep_node_state(self) -> None:
        """What was changed in `node` is durable when this returns, unless the disk is full."""
        self._performed(BackgroundJob(replace=(node_replacement(self.node),)), may_be_full=True)

    def damage_found(self, partition: PartitionLog) -> None:
        """Count it, and remember to open the partition at the next start."""
        self.stats.damage += 1
        known = self.node.damaged
        number = partition.identity.partition_id
        if number not in known and len(known) < DAMAGED_PARTITIONS_MAX:
            self.node.damaged = (*known, number)
            if self._is_recovered and not self.has_failed():
                self.keep_node_state()
        self.on_damage(partition)

    def damage_is_gone(self, partition: PartitionLog) -> None:
        """The partition was deleted, copied anew or repaired."""
        number = partition.identity.partition_id
        self.node.damaged = tuple(each for each in self.node.damaged if each != number)

    def tag_of(self, segment: Segment) -> int:
        """The seed of the checksums that are written to a segment's index."""
        return segment.tag if self.tags_files else 0

    @property
    def tags_files(self) -> bool:
        """Whether files may be written that only releases of the directory's level can read."""
        return self.node.feature_level >= TAGGED_FILES_LEVEL

    def use_level(self, level: int) -> None:
        """From now on releases that do not know this level refuse the directory."""
        if level > self.node.feature_level:
            self.node.feature_level = level
            self.keep_node_state()

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
        self.list_work(partition)
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
        self._unstage(partition)
        self._dirty.pop(partition, None)
        self._much_dirty.pop(partition, None)
        self._dirty_bytes -= partition.dirty_bytes
        partition.dirty.clear()
        partition.dirty_bytes = 0
        self._partitions.pop(partition.identity.partition_id, None)
        for segment in partition.all_segments():
            segment.is_gone = True
            self.remove_segment_files(segment)
        self._remove_directory(partition.directory)

    def _unstage(self, partition: PartitionLog) -> None:
        if partition in self._staged:
            del self._staged[partition]
            self._staged_bytes -= _staged_size(partition)
            partition.staged = []

    def _remove_directory(self, directory: str) -> None:
        for name in self.disk.names(directory):
            self.disk.remove(f"{directory}/{name}")
        try:
            self.disk.remove_directory(directory)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            # A background job is just putting a file there; it is done before the next one.
            self.run_job(BackgroundJob(), lambda _: self._remove_directory(directory))

    # ---- appending

    def admit(self, size: int) -> None:
        """Whether `size` more bytes may be appended now; raises when not.

        May commit what is staged, and so call `on_stable`, to make room.
        """
        if self._staged_bytes + size > self._admit_limit:
            self._admit_slowly(size)

    def _admit_slowly(self, size: int) -> None:
        """Find out how much may be staged until something changes, if anything may.

        A group that has become large is committed here, before the next append changes anything.
        """
        if self.has_failed():
            raise LogStoppedError(f"the log stopped: {self.failure}")
        if self.is_disk_full:
            raise DiskFullError("the disk is full")
        if self.durability is Durability.OS:
            self._admit_limit = _NO_LIMIT
            return
        if self._staged_bytes + size > GROUP_BYTES_MAX and self._in_flight is None:
            self._scheduled_commit()
            if self.has_failed():
                raise LogStoppedError(f"the log stopped: {self.failure}")
        if self._staged_bytes + size + _GROUP_SLACK_BYTES > self._journal.room:
            self._make_room(size + _GROUP_SLACK_BYTES)
        self._admit_limit = min(GROUP_BYTES_MAX, self._journal.room - _GROUP_SLACK_BYTES)

    @property
    def is_disk_full(self) -> bool:
        """Appends are refused until something could be written again."""
        return self._is_disk_full

    @is_disk_full.setter
    def is_disk_full(self, value: bool) -> None:
        self._is_disk_full = value
        self._admit_limit = -1

    def refuse_appends(self, error: OSError) -> None:
        """Nothing can be written for now: the disk is full, or no descriptor is left."""
        self.is_disk_full = True
        if self._full_since is not None:
            return
        self._full_since = self.clock.monotonic()
        reason = "no descriptor is left" if error.errno in OUT_OF_FILES else "the disk is full"
        log.error(
            "%s: %d bytes are free, appends are refused, %d acknowledged bytes wait in the journal "
            "for room in their segments",
            reason,
            self._free_bytes(),
            self._dirty_bytes,
        )

    def _free_bytes(self) -> int:
        try:
            return self.disk.free_bytes()
        except OSError:
            return -1

    def _note_room(self) -> None:
        since = self._full_since
        if since is not None and not self._is_disk_full:
            self._full_since = None
            log.warning(
                "appends are taken again after %.1f s: %d bytes are free",
                self.clock.monotonic() - since,
                self._free_bytes(),
            )

    def _make_room(self, size: int) -> None:
        """Let the staged bytes go first; then have a journal file for the next ones."""
        if self._has_staged() and self._in_flight is None:
            self._commit()
        wanted = self._staged_bytes + size
        if wanted <= self._journal.room:
            return
        if self._journal.is_crowded:
            self._free_journal()
        if self.has_failed():
            raise LogStoppedError(f"the log stopped: {self.failure}")
        if wanted > self._journal.room:
            try:
                self._journal.make_file(wanted)
            except OSError as error:
                if error.errno not in FULL:
                    self.fail(error)
                    raise LogStoppedError(f"the log stopped: {error}") from error
                self.refuse_appends(error)
                raise DiskFullError("the disk is full: no room for the journal") from None

    def _free_journal(self) -> None:
        """Appends have overtaken the checkpoints: wait for the disk, here and now."""
        self.settle_all()
        if self._checkpoint is None:
            self.checkpoint_now()
            return
        # A background job may be replacing manifests, which must not be done by two at once.
        # Segments and indexes can be synced by anybody; rare entries need a manifest, and wait.
        if any(each.has_rare_entries for each in self._work):
            return
        sequence = self.safe_sequence()
        if all(self._sync_segments(each) for each in list(self._work)):
            self._release(sequence)

    def _sync_segments(self, partition: PartitionLog) -> bool:
        save = PartitionSave(self, partition)
        if not self._performed(save.sync_job(), may_be_full=False):
            return False
        save.synced()
        if not save.is_whole:
            return False
        save.write_indexes()
        return self._performed(save.index_job(), may_be_full=False)

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
            self._staged_bytes += ENTRY_BYTES
            run = Run(segment, position, base_offset)
            staged.append(run)
        else:
            run = staged[-1]
            if run.segment is not segment:
                self._staged_bytes += ENTRY_BYTES
                run = Run(segment, position, base_offset)
                staged.append(run)
        run.chunks.append(batch)
        run.size += size
        self._staged_bytes += size
        if not self._is_commit_scheduled and self._in_flight is None:
            self._schedule_commit()

    def _schedule_commit(self) -> None:
        self._is_commit_scheduled = True
        self._scheduler.call_soon(self._scheduled_commit)

    def _scheduled_commit(self) -> None:
        self._is_commit_scheduled = False
        if self._has_staged() and self._in_flight is None and not self.has_failed():
            self._commit()

    def _has_staged(self) -> bool:
        return bool(self._staged) or self._staged_ballot is not None

    # ---- term and vote

    @property
    def ballot(self) -> Ballot:
        """As it is on stable storage."""
        return self.node.ballot

    def stage_ballot(self, ballot: Ballot) -> None:
        """Goes into the group of this loop turn. Raises what an append does."""
        assert ballot > self.ballot
        data = ballot_entry_data(ballot)
        if self.durability is Durability.OS:
            # Like all that is rare and must not be lost, in this mode too.
            self._journal_entry(EntryKind.BALLOT, 0, 0, 0, 0, data)
            self._note_ballot(ballot)
            self._scheduler.call_soon(self.on_stable, [])
            return
        self.admit(len(data) + ENTRY_BYTES)
        if self._staged_ballot is None:
            self._staged_bytes += len(data) + ENTRY_BYTES
        self._staged_ballot = ballot
        if not self._is_commit_scheduled and self._in_flight is None:
            self._schedule_commit()

    def _note_ballot(self, ballot: Ballot) -> None:
        """It is stable, in the journal's last group."""
        self.node.ballot = ballot
        self._ballot_sequence = self._journal.sequence

    # ---- committing

    def _commit(self) -> None:
        """Commit what is staged. Small parts go first: they need not wait for large ones."""
        small = self._small_beside_large()
        if small:
            self._commit_of(small)
            if not self._has_staged() or self._in_flight is not None or self.has_failed():
                return
        self._commit_of(list(self._staged))

    def _small_beside_large(self) -> list[PartitionLog]:
        if self._staged_bytes < LARGE_PART_BYTES_MIN or len(self._staged) == 1:
            return []
        small = [each for each in self._staged if _staged_size(each) < LARGE_PART_BYTES_MIN]
        return small if len(small) < len(self._staged) else []

    def _commit_of(self, partitions: list[PartitionLog]) -> None:
        group: list[Flight] = []
        size = 0
        ballot, self._staged_ballot = self._staged_ballot, None
        if ballot is not None:
            size += ENTRY_BYTES + len(ballot_entry_data(ballot))
        for partition in partitions:
            runs, partition.staged = partition.staged, []
            del self._staged[partition]
            group.append((partition, runs, partition.log_end_offset))
            for run in runs:
                size += run.size + ENTRY_BYTES
                if len(run.chunks) > 1:
                    run.chunks = join_small(run.chunks, run.size)
        self._staged_bytes -= size
        self._admit_limit = -1
        self.stats.groups += 1
        self.stats.committed_bytes += size
        if self.durability is Durability.OS:
            self._commit_to_segments(group)
            return
        for flight in group:
            self._remember(*flight)
        frame = self._journal.frame(*_group_parts(group, ballot))
        self._flying_ballot = ballot
        is_inline = self._is_disk_fast()
        started = self.clock.monotonic()
        try:
            self._journal.write(frame, durable=is_inline)
        except OSError as error:
            self.fail(error)
            return
        if is_inline:
            self._note_sync(started, size)
            self._acknowledge()
            self._committed(group)
            return
        self._in_flight = group

        def synced(error: OSError | None) -> None:
            if error is not None and error.errno in OUT_OF_FILES:
                # The helper could not even begin; the journal's own descriptor is open.
                if self._in_flight is group:
                    self.settle_in_flight()
            elif error is not None:
                self.fail(error)
            elif self._in_flight is group and not self.has_failed():
                self._land()

        self.run_job(BackgroundJob(sync=(self._journal.current_path,)), synced)
        self.on_written(partitions)

    def _land(self) -> None:
        group = self._in_flight
        assert group is not None
        self._in_flight = None
        self._acknowledge()
        self._committed(group)
        if self._has_staged() and self._in_flight is None:
            self._commit()

    def _acknowledge(self) -> None:
        """The journal's last group is stable, and what waits for it may be promised."""
        if self._mark is not None:
            self._mark.write(self._journal.sequence)

    def _note_sync(self, started: float, size: int) -> None:
        """What a synchronous write of ours took. One slow write alone does not make a slow disk.

        Large groups are bound by bandwidth: they say nothing about the disk's latency.
        """
        taken = self.clock.monotonic() - started
        self.stats.sync_seconds += taken
        if size < GROUP_BYTES_MAX // 64:
            sample = min(taken, 4 * FAST_SYNC_S)
            self._sync_average_s += (sample - self._sync_average_s) * 0.05

    def _is_disk_fast(self) -> bool:
        """While it is not, a write is tried here now and then, to see whether it is again."""
        is_probe = self.stats.groups % SLOW_SYNC_PROBE_GROUPS == 0
        return self._sync_average_s <= FAST_SYNC_S or is_probe

    def _committed(self, group: list[Flight]) -> None:
        if self._flying_ballot is not None:
            self._note_ballot(self._flying_ballot)
            self._flying_ballot = None
        for partition, runs, mark in group:
            if not partition.is_removed:
                partition.stable_end = mark
                self._become_dirty(partition, runs)
        self.on_stable([partition for partition, _, _ in group])
        self._write_behind()

    def _remember(self, partition: PartitionLog, runs: list[Run], end: int) -> None:
        """From now on these can be read from memory, by whoever may see them."""
        for run in runs:
            self._tail.add(partition, run.chunks, end)

    def _become_dirty(self, partition: PartitionLog, runs: list[Run]) -> None:
        """What was staged is durable now, to be written to its segment."""
        dirty = partition.dirty
        for run in runs:
            partition.dirty_bytes += run.size
            self._dirty_bytes += run.size
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

    def _commit_to_segments(self, group: list[Flight]) -> None:
        """`durability = "os"`: in the page cache is stable."""
        stable: list[PartitionLog] = []
        for partition, runs, mark in group:
            self._remember(partition, runs, mark)
            self._become_dirty(partition, runs)
            self.flush(partition)
            if self.has_failed():
                return
            if partition.dirty:
                self._refuse(partition, runs[0])
            else:
                partition.stable_end = mark
                stable.append(partition)
        self.on_stable(stable)
        self._after_writing()

    def _refuse(self, partition: PartitionLog, first: Run) -> None:
        """The disk is full and nothing of this is durable: take it back and say so.

        `first` is where the group began in this partition. A part of it may be in the files; it
        must not turn up again behind what is appended next, nor after a power cut.
        """
        for segment in {run.segment: None for run in partition.dirty}:
            self.drop_dirty(partition, segment)
        kept, position = first.segment, first.position
        if not position:
            segments = partition.all_segments()
            at = segments.index(first.segment)
            previous = segments[at - 1] if at else None
            partition.apply_truncation(
                previous, previous.size if previous else 0, partition.stable_end
            )
        else:
            partition.apply_truncation(kept, position, partition.stable_end)
        partition.epochs.truncate_above(partition.stable_end)
        self._work[partition] = None
        cut = (first.segment.log_path,) if position else ()
        job = BackgroundJob(sync=cut, sync_directories=(partition.directory,))
        self._performed(job, may_be_full=False)
        self.on_refused(partition)

    def drop_dirty(self, partition: PartitionLog, segment: Segment) -> None:
        """Forget bytes that wait to be written to a segment which is not wanted any more."""
        kept: list[Run] = []
        for run in partition.dirty:
            if run.segment is segment:
                partition.dirty_bytes -= run.size
                self._dirty_bytes -= run.size
            else:
                kept.append(run)
        partition.dirty = kept
        if not kept:
            self._dirty.pop(partition, None)
            self._much_dirty.pop(partition, None)

    # ---- writing behind

    def _write_behind(self) -> None:
        """Write large pieces at once, everything when much has gathered, and free old memory."""
        wanted = self._dirty if self._dirty_bytes > DIRTY_BYTES_MAX else self._much_dirty
        for partition in list(wanted):
            self.flush(partition)
        self._after_writing()

    def _after_writing(self) -> None:
        self._tail.shrink()
        takes_appends = self.durability is Durability.FSYNC
        if takes_appends and self._journal.wants_spare and not self._is_spare_coming:
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
                if error.errno in FULL:
                    self.refuse_appends(error)
                else:
                    self.fail(error)
                return
            segment.written = run.position + run.size
            segment.written_ms = self.clock.wall_ms()
            if segment.written - segment.written_out >= WRITE_OUT_BYTES_MIN:
                self._write_out(segment)
            self.stats.flushed_bytes += run.size
            partition.dirty_bytes -= run.size
            self._dirty_bytes -= run.size
            del partition.dirty[0]
        self._dirty.pop(partition, None)
        self._much_dirty.pop(partition, None)

    def _write_out(self, segment: Segment) -> None:
        """Have the disk begin with what a checkpoint will sync, so that it finds little to do."""
        if self._is_closing:
            return
        start, segment.written_out = segment.written_out, segment.written
        job = BackgroundJob(write_out=((segment.log_path, start, segment.written - start),))
        with suppress(OSError):
            self._background.submit(job, _nothing)

    def _order_spare(self) -> None:
        self._is_spare_coming = True
        path = self._journal.next_path()

        def filled(error: OSError | None) -> None:
            self._is_spare_coming = False
            if error is None:
                with suppress(OSError):
                    self._journal.add_file(path)
                    return
            # No spare: the next group that needs room makes a file itself, or is refused.
            self.disk.remove(path)

        job = BackgroundJob(zero_fill=((path, JOURNAL_FILE_BYTES),))
        self.run_job(job, filled)

    # ---- checkpoints

    def check_directory(self) -> None:
        """Stop the store when its directory, or a file that it appends to, was removed or replaced:
        what is written to a file without a name is lost with the process."""
        gone = None if self._lock.is_ours() else "the data directory, or its lock file,"
        gone = gone or self._journal.missing_path()
        if gone is None and self._mark is not None and not self._mark.is_linked:
            gone = MARK_FILE
        if gone is not None:
            self.fail_removed(gone)

    def fail_removed(self, what: str) -> None:
        text = f"{what} was removed or replaced while the node was running"
        self.fail(OSError(errno.ENOENT, f"{text}: nothing more is acknowledged"))

    def start_checkpoint(self) -> None:
        """Make everything committed so far durable in the segments, beside the loop."""
        if self._checkpoint is not None or self.has_failed():
            return
        self.check_directory()
        self.settle_all()
        # Committing may have found a checkpoint due, or the disk broken.
        if self._checkpoint is not None or self.has_failed():
            return
        self._checkpoint = Checkpoint(self, list(self._work))
        self._checkpoint.next_job()

    def safe_sequence(self) -> int:
        """The last group that is stable: one in flight is not."""
        return self._journal.sequence - (1 if self._in_flight is not None else 0)

    def run_job(self, job: BackgroundJob, done: Callable[[OSError | None], None]) -> None:
        """Hand a job to the background; when it takes no more, do it here."""
        try:
            self._background.submit(job, done)
        except OSError:
            outcome: OSError | None = None
            try:
                self._perform(job)
            except OSError as error:
                outcome = error
            self._scheduler.call_soon(done, outcome)

    def checkpoint_finished(self, sequence: int | None) -> None:
        """`sequence`: the journal is not needed up to there; None when something had to wait."""
        self._checkpoint = None
        self.stats.checkpoints += 1
        if sequence is not None and self._release(sequence) and self._journal.live_files:
            self.start_checkpoint()

    def _release(self, sequence: int) -> bool:
        """The journal is not needed up to `sequence`. False when that could not be noted.

        Before a group is overwritten, something else than a later group has to say that it is not
        needed: that one may be torn. Done here and not beside the loop, because two writers of
        one file might overtake each other; it happens once for each journal file.
        """
        sequence = max(sequence, self._journal.checkpoint)
        is_ballot_alone = 0 < self._ballot_sequence <= sequence
        if self._journal.frees(sequence) or is_ballot_alone:
            self.node.sequence = sequence
            job = BackgroundJob(replace=(node_replacement(self.node),))
            if not self._performed(job, may_be_full=True):
                return False
            self._ballot_sequence = 0
        self._journal.release(sequence)
        return True

    def checkpoint_now(self) -> bool:
        """The same, but before this returns. False when something could not be made durable."""
        self.settle_all()
        self.check_directory()
        if self.has_failed():
            return False
        assert self._checkpoint is None
        sequence = self.safe_sequence()
        is_complete = self._save_all_now(clean=False)
        if self.has_failed():
            return False
        self.stats.checkpoints += 1
        return is_complete and self._release(sequence)

    def _save_all_now(self, *, clean: bool) -> bool:
        """Every partition's part of a checkpoint. False when something has to be repeated."""
        is_complete = True
        work = list(self._work)
        for start in range(0, len(work), CHECKPOINT_PARTITIONS_AT_ONCE):
            some = work[start : start + CHECKPOINT_PARTITIONS_AT_ONCE]
            is_complete &= self._save_now(some, clean=clean)
            if self.has_failed():
                return False
        return is_complete

    def _save_now(self, partitions: list[PartitionLog], *, clean: bool) -> bool:
        """Some partitions' part of a checkpoint, here and now. False when it is to be repeated."""
        saves = [PartitionSave(self, each, clean=clean) for each in partitions]
        if not self._performed(merged([each.sync_job() for each in saves]), may_be_full=False):
            return False
        for save in saves:
            save.synced()
        if not self._performed(merged([each.replace_job() for each in saves]), may_be_full=True):
            return False
        for save in saves:
            save.replaced()
            save.write_indexes()
        if not self._performed(merged([each.index_job() for each in saves]), may_be_full=False):
            return False
        for save in saves:
            save.settle_lists()
        return all(save.is_whole for save in saves)

    def _performed(self, job: BackgroundJob, *, may_be_full: bool) -> bool:
        try:
            self._perform(job)
        except OSError as error:
            if error.errno in (FULL if may_be_full else OUT_OF_FILES):
                self.refuse_appends(error)
            else:
                self.fail(error)
            return False
        return True

    def _perform(self, job: BackgroundJob) -> None:
        """Raises `OSError`. Clients may hold every descriptor: that is no reason to stop."""
        try:
            perform(self.disk, job)
        except OSError as error:
            if error.errno not in OUT_OF_FILES or not self.files.give_up_half():
                raise
            perform(self.disk, job)

    def list_work(self, partition: PartitionLog) -> None:
        """Whether a checkpoint has anything to do for this partition."""
        has_work = partition.unsynced or partition.is_manifest_due or partition.obsolete
        if has_work and not partition.is_removed:
            self._work[partition] = None
        else:
            self._work.pop(partition, None)

    def segment_rolled(self, partition: PartitionLog) -> None:
        self._work[partition] = None
        self.on_rolled(partition)

    def manifest_due(self, partition: PartitionLog) -> None:
        self._work[partition] = None

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
        identity = partition.identity.partition_id
        self._journal_entry(kind, identity, base_offset, generation, position, data)
        self._work[partition] = None
        partition.has_rare_entries = True

    def _journal_entry(
        self,
        kind: EntryKind,
        partition_id: int,
        base_offset: int,
        generation: int,
        position: int,
        data: bytes,
    ) -> None:
        if self.has_failed():
            raise LogStoppedError(f"the log stopped: {self.failure}")
        self.settle_all()
        if self.has_failed():
            raise LogStoppedError(f"the log stopped: {self.failure}")
        if len(data) + ENTRY_BYTES + _GROUP_SLACK_BYTES > self._journal.room:
            self._make_room(len(data) + ENTRY_BYTES + _GROUP_SLACK_BYTES)
        head = entry_header(kind, partition_id, base_offset, generation, position, len(data))
        frame = self._journal.frame([head, data], 1)
        try:
            self._journal.write(frame, durable=True)
        except OSError as error:
            self.fail(error)
            raise LogStoppedError(f"the log stopped: {error}") from error
        self._acknowledge()

    def settle_in_flight(self) -> None:
        """Finish the group that a helper is syncing, here and now."""
        if self._in_flight is None or self.has_failed():
            return
        try:
            # Through the journal's own descriptor: it was open before the write, so an error that
            # the helper was told is told here too.
            self._journal.sync()
        except OSError as error:
            self.fail(error)
            return
        self._land()

    def settle_all(self) -> None:
        """Everything appended so far is stable when this returns, unless the store has failed."""
        while (self._has_staged() or self._in_flight is not None) and not self.has_failed():
            if self._in_flight is not None:
                self.settle_in_flight()
            else:
                self._commit()

    def settle(self, partition: PartitionLog) -> None:
        """Everything appended to this partition is stable and in its files."""
        self.settle_all()
        self.flush(partition)
        if partition.dirty:
            raise DiskFullError("the disk is full")

    def remove_segment_files(self, segment: Segment) -> None:
        for path in (segment.log_path, segment.index_path):
            self.files.forget(path)
            self.disk.remove(path)

    def quarantine(self, segment: Segment) -> None:
        """Keep a damaged segment's file aside; its partition goes on without it."""
        self.files.forget(segment.log_path)
        if self.disk.exists(segment.log_path):
            self.disk.make_directory(recovery.QUARANTINE)
            kept = segment.log_path.replace("/", "_")
            self.disk.rename(segment.log_path, f"{recovery.QUARANTINE}/{kept}")

    # ---- indexes

    def replace_index(self, segment: Segment, data: bytes) -> None:
        """Put a rebuilt index in place, if there is room; it can be built again."""
        self.files.forget(segment.index_path)
        try:
            replace_file(self.disk, segment.index_path, data)
        except OSError as error:
            if error.errno not in FULL:
                self.fail(error)

    def load_index(self, partition: PartitionLog, segment: Segment) -> SparseIndex:
        index = load_segment_index(self.disk, partition, segment)
        if segment.is_rolled:
            self.cache_index(segment)
        return index

    def cache_index(self, segment: Segment) -> None:
        """A rolled segment's index is in memory; the one loaded longest ago makes room for it."""
        self._indexes[segment.log_path] = segment
        if len(self._indexes) > CACHED_INDEXES_MAX:
            _, oldest = self._indexes.popitem(last=False)
            if oldest.is_rolled and not _needs_saving(oldest):
                oldest.index = None

    def reload_producers(self, partition: PartitionLog) -> None:
        """Rebuild producer state after a cut that went further back than it remembers."""
        load_producers(partition, Believed())

    # ---- time

    def _arm_timer(self) -> None:
        self._timer = self._scheduler.call_later(CHECKPOINT_INTERVAL_S, self._tick)

    def _tick(self) -> None:
        if self.has_failed():
            return
        self.check_directory()
        # Not full for a whole round: a retry alone proves little.
        self._note_room()
        self.retry_full_disk()
        if self._in_flight is None and not self._has_staged():
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
        if self._free_bytes() >= JOURNAL_FILE_BYTES:
            self._note_room()

    # ---- stop

    def has_failed(self) -> bool:
        return self.failure is not None

    def fail(self, error: OSError) -> None:
        if not self.has_failed():
            self.failure = error
            self._admit_limit = -1
            self.on_failure(error)

    def close(self) -> None:
        """Clean stop: the last segments become stable too and the next start has nothing to do."""
        if self._timer is not None:
            self._timer.cancel()
        self.settle_all()
        if self._checkpoint is not None:
            self._checkpoint.abandon()
            self._checkpoint = None
        self._is_closing = True
        try:
            self._background.close()
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
        if not self._save_all_now(clean=True):
            return
        self.node.is_clean = True
        self.node.sequence = self._journal.sequence
        self.node.generation = self._journal.generation
        try:
            write_node_state(self.disk, self.node)
        except OSError as error:
            if error.errno not in FULL:
                self.fail(error)

    def abandon(self) -> None:
        """Let go without writing anything, as a crash would: for tests and forced stops."""
        if self._timer is not None:
            self._timer.cancel()
        self.failure = self.failure or OSError(errno.ESHUTDOWN, "abandoned")
        self._admit_limit = -1
        self._is_closing = True
        # Whatever a job still had to report, nobody is promised anything any more.
        with suppress(OSError):
            self._background.close()
        self._close_files()

    def _close_files(self) -> None:
        self._journal.close()
        if self._mark is not None:
            self._mark.close()
        self.files.close()
        self._lock.release()


def _staged_size(partition: PartitionLog) -> int:
    """Bytes with the headers of their entries."""
    return sum(run.size + ENTRY_BYTES for run in partition.staged)


def _group_parts(group: list[Flight], ballot: Ballot | None) -> tuple[list[Buffer], int]:
    """Entry headers and data of everything staged."""
    parts: list[Buffer] = []
    count = 0
    if ballot is not None:
        data = ballot_entry_data(ballot)
        parts += [entry_header(EntryKind.BALLOT, 0, 0, 0, 0, len(data)), data]
        count = 1
    append, pack_entry = EntryKind.APPEND, entry_header
    for partition, runs, _ in group:
        partition_id = partition.identity.partition_id
        for run in runs:
            segment = run.segment
            base, generation = segment.base_offset, segment.generation
            parts.append(pack_entry(append, partition_id, base, generation, run.position, run.size))
            parts += run.chunks
            count += 1
    return parts, count


def _needs_saving(segment: Segment) -> bool:
    return segment.index is not None and segment.index.saved_entries < len(segment.index)
