"""Group commit: all appends of one loop turn become durable with one write.

Steps 1 to 3 of the life of an append (`log/store.py`): bytes are admitted and staged, the group is
written to the journal, and the partitions' stable ends move. One group is in flight at a time.

Small parts of a group are committed before large ones and do not wait for them. Rare entries
(truncations, log starts, epochs, ballots in os mode) are journalled at once in a group of their
own, behind all earlier appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeAlias

from dragoman.errors import DiskFullError, LogStoppedError
from dragoman.limits import (
    FAST_SYNC_S,
    GROUP_BYTES_MAX,
    JOURNAL_FILE_BYTES,
    LARGE_PART_BYTES_MIN,
    SLOW_SYNC_PROBE_GROUPS,
    SLOW_SYNC_S,
)
from dragoman.log.directory import FULL, DataDirectory
from dragoman.log.journal import ENTRY_BYTES, EntryKind, Journal, MarkWriter, entry_header
from dragoman.log.node import Ballot, Durability, ballot_entry_data
from dragoman.log.partition import PartitionLog
from dragoman.log.segment import Run, Segment
from dragoman.log.slow_syncs import SlowSyncs
from dragoman.log.tail import join_small
from dragoman.log.write_behind import WriteBehind
from dragoman.types import Buffer
from dragoman.world import OUT_OF_FILES, BackgroundJob

#: Frame, padding and entry headers of one group, besides its data.
_GROUP_SLACK_BYTES = 64 << 10
_NO_LIMIT = 1 << 62


#: One partition's part of a group that is being written: the partition, its runs, and the log's end
#: when the group was closed, which is stable once the group is. A plain tuple, since a group may
#: have hundreds.
Flight: TypeAlias = tuple[PartitionLog, list[Run], int]


class CommitOwner(Protocol):
    """What committing needs of the store."""

    on_written: Callable[[list[PartitionLog]], None]
    on_stable: Callable[[list[PartitionLog]], None]
    on_refused: Callable[[PartitionLog], None]

    def free_journal(self) -> None:
        """Checkpoint at once, so that journal files become free."""
        ...

    def start_checkpoint(self) -> None: ...


class GroupCommit:
    def __init__(
        self,
        owner: CommitOwner,
        directory: DataDirectory,
        durability: Durability,
        journal: Journal,
        writes: WriteBehind,
        work: dict[PartitionLog, None],
    ) -> None:
        """`work`: partitions for the next checkpoint."""
        self._owner = owner
        self._directory = directory
        self._durability = durability
        self._journal = journal
        self._writes = writes
        self._work = work
        self._stats = directory.stats
        self._clock = directory.clock
        self._scheduler = directory.scheduler
        #: Writes the last acknowledged group to `journal/mark`; set at the end of recovery.
        self.mark: MarkWriter | None = None
        #: The group with a ballot that is not in `node.json` yet; 0 for none.
        self.ballot_sequence = 0
        #: Moving average of the time that a synchronous write of a small group takes.
        self.sync_average_s = 0.0
        self._staged: dict[PartitionLog, None] = {}
        #: Bytes of all staged batches and the headers of their entries.
        self._staged_bytes = 0
        #: Staged bytes up to which appends are admitted without checking the journal.
        self._admit_limit = -1
        self._is_scheduled = False
        self._in_flight: list[Flight] | None = None
        self._in_flight_since = 0.0
        self._staged_ballot: Ballot | None = None
        #: The ballot of the group that is being written.
        self._flying_ballot: Ballot | None = None
        self._is_spare_coming = False
        #: Whether an append that a full disk would refuse is admitted.
        self._may_use_journal = False
        self.slow_syncs = SlowSyncs(directory.clock, directory.scheduler)

    # ---- step 1: staging

    def admit(self, size: int) -> None:
        """Check that `size` more bytes may be appended now.

        To make room, it may commit what is staged, and so call `on_stable`. Raises `DiskFullError`
        or `LogStoppedError`.
        """
        if self._staged_bytes + size > self._admit_limit:
            self._admit_slowly(size)

    def check_admission(self) -> None:
        """Have the next append check journal and disk again."""
        self._admit_limit = -1

    def _admit_slowly(self, size: int) -> None:
        """Check journal and disk, and set how much may be staged without a further check.

        A group that has become large is committed here, before the append changes anything.
        """
        self._refuse_after_failure()
        if self._directory.is_full and not self._may_use_journal:
            raise DiskFullError("the disk is full")
        if self._durability is Durability.OS:
            self._admit_limit = _NO_LIMIT
            return
        if self._staged_bytes + size > GROUP_BYTES_MAX and self._in_flight is None:
            self.commit_scheduled()
            self._refuse_after_failure()
        if self._staged_bytes + size + _GROUP_SLACK_BYTES > self._journal.room:
            self._make_room(size + _GROUP_SLACK_BYTES)
        if not self._directory.is_full:
            self._admit_limit = min(GROUP_BYTES_MAX, self._journal.room - _GROUP_SLACK_BYTES)

    @contextmanager
    def using_the_journal(self) -> Iterator[None]:
        """Admit appends to a full disk as far as the journal has room, which was reserved: they
        wait there, acknowledged, for room in their segments. Not if the journal is not used.
        """
        self._may_use_journal = self._durability is Durability.FSYNC
        try:
            yield
        finally:
            self._may_use_journal = False

    def _refuse_after_failure(self) -> None:
        if self._directory.has_failed():
            raise LogStoppedError(f"the log stopped: {self._directory.failure}")

    def _make_room(self, size: int) -> None:
        """Commit the staged bytes, then provide a journal file for `size` further ones."""
        if self.has_staged and self._in_flight is None:
            self._commit()
        wanted = self._staged_bytes + size
        if wanted <= self._journal.room:
            return
        if self._journal.is_crowded:
            self._owner.free_journal()
        self._refuse_after_failure()
        if wanted > self._journal.room:
            try:
                self._journal.make_file(wanted)
            except OSError as error:
                if error.errno not in FULL:
                    self._directory.fail(error)
                    raise LogStoppedError(f"the log stopped: {error}") from error
                self._directory.refuse_appends(error)
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
        if not self._is_scheduled and self._in_flight is None:
            self._schedule()

    def unstage(self, partition: PartitionLog) -> None:
        if partition in self._staged:
            del self._staged[partition]
            self._staged_bytes -= _staged_size(partition)
            partition.staged = []

    def stage_ballot(self, ballot: Ballot) -> None:
        """Stage a ballot for the group of this loop turn. Raises what an append raises."""
        assert ballot > self._directory.node.ballot
        data = ballot_entry_data(ballot)
        if self._durability is Durability.OS:
            # Rare entries are journalled in this mode, too: they must not be lost.
            self._journal_entry(EntryKind.BALLOT, 0, 0, 0, 0, data)
            self._note_ballot(ballot)
            self._scheduler.call_soon(self._owner.on_stable, [])
            return
        self.admit(len(data) + ENTRY_BYTES)
        if self._staged_ballot is None:
            self._staged_bytes += len(data) + ENTRY_BYTES
        self._staged_ballot = ballot
        if not self._is_scheduled and self._in_flight is None:
            self._schedule()

    def _note_ballot(self, ballot: Ballot) -> None:
        """Record a ballot that is stable in the journal's last group."""
        self._directory.node.ballot = ballot
        self.ballot_sequence = self._journal.sequence

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._scheduler.call_soon(self.commit_scheduled)

    def commit_scheduled(self) -> None:
        """Commit what is staged, unless a group is in flight."""
        self._is_scheduled = False
        if self.has_staged and self._in_flight is None and not self._directory.has_failed():
            self._commit()

    @property
    def has_staged(self) -> bool:
        return bool(self._staged) or self._staged_ballot is not None

    @property
    def staged_bytes(self) -> int:
        """Bytes of all staged batches and the headers of their entries."""
        return self._staged_bytes

    @property
    def is_in_flight(self) -> bool:
        """Whether a group is being synced in the background."""
        return self._in_flight is not None

    # ---- step 2: writing the journal

    def _commit(self) -> None:
        """Commit what is staged, small parts first: they need not wait for large ones."""
        small = self._small_beside_large()
        if small:
            self._commit_of(small)
            if not self.has_staged or self._in_flight is not None or self._directory.has_failed():
                return
        self._commit_of(list(self._staged))

    def _small_beside_large(self) -> list[PartitionLog]:
        if self._staged_bytes < LARGE_PART_BYTES_MIN or len(self._staged) == 1:
            return []
        small = [each for each in self._staged if _staged_size(each) < LARGE_PART_BYTES_MIN]
        return small if len(small) < len(self._staged) else []

    def _commit_of(self, partitions: list[PartitionLog]) -> None:
        group: list[Flight] = []
        size = batches = entries = 0
        ballot, self._staged_ballot = self._staged_ballot, None
        if ballot is not None:
            size += ENTRY_BYTES + len(ballot_entry_data(ballot))
        for partition in partitions:
            runs, partition.staged = partition.staged, []
            del self._staged[partition]
            group.append((partition, runs, partition.log_end_offset))
            entries += len(runs)
            for run in runs:
                size += run.size + ENTRY_BYTES
                batches += len(run.chunks)
                if len(run.chunks) > 1:
                    run.chunks = join_small(run.chunks, run.size)
        self._staged_bytes -= size
        self._admit_limit = -1
        stats = self._stats
        stats.groups += 1
        stats.committed_bytes += size
        stats.appended_batches += batches
        stats.appended_bytes += size - (entries + (ballot is not None)) * ENTRY_BYTES
        # `Histogram.add`, without a call for each group.
        stats.group_batches.counts[batches.bit_length()] += 1
        stats.group_bytes.counts[size.bit_length()] += 1
        if self._durability is Durability.OS:
            self._commit_to_segments(group)
            return
        for flight in group:
            self._writes.remember(*flight)
        frame = self._journal.frame(*_group_parts(group, ballot))
        self._flying_ballot = ballot
        is_inline = self._is_disk_fast()
        started = self._clock.monotonic()
        try:
            self._journal.write(frame, durable=is_inline)
        except OSError as error:
            self._directory.fail(error)
            return
        if is_inline:
            self._note_sync(started, size)
            self._acknowledge()
            self._committed(group)
            return
        self._in_flight = group
        self._in_flight_since = started

        def synced(error: OSError | None) -> None:
            self.slow_syncs.note(self._clock.monotonic() - started, size)
            if error is not None and error.errno in OUT_OF_FILES:
                # The flusher could not open the file; the journal's own descriptor is open.
                if self._in_flight is group:
                    self._settle_in_flight()
            elif error is not None:
                self._directory.fail(error)
            elif self._in_flight is group and not self._directory.has_failed():
                self._land()

        self._directory.run_job(BackgroundJob(sync=(self._journal.current_path,)), synced)
        self._owner.on_written(partitions)

    def _land(self) -> None:
        group = self._in_flight
        assert group is not None
        self._in_flight = None
        self._stats.sync_seconds.add_seconds(self._clock.monotonic() - self._in_flight_since)
        self._acknowledge()
        self._committed(group)
        if self.has_staged and self._in_flight is None:
            self._commit()

    def _acknowledge(self) -> None:
        """Note that the journal's last group is stable, before its appends are acknowledged."""
        if self.mark is not None:
            self.mark.write(self._journal.sequence)

    def _note_sync(self, started: float, size: int) -> None:
        """Add one synchronous write to the moving average; a single slow one barely changes it.

        Large groups are left out: bandwidth bounds them, not the disk's latency.
        """
        taken = self._clock.monotonic() - started
        # `Times.add_seconds`, without a call for each group.
        times = self._stats.sync_seconds
        times.counts[int(taken * 1e6).bit_length()] += 1
        times.total += taken
        if taken >= SLOW_SYNC_S:
            self.slow_syncs.note(taken, size)
        if size < GROUP_BYTES_MAX // 64:
            sample = min(taken, 4 * FAST_SYNC_S)
            self.sync_average_s += (sample - self.sync_average_s) * 0.05

    def _is_disk_fast(self) -> bool:
        """Whether to write on the loop. On a slow disk, one group in some is, to measure it."""
        is_probe = self._stats.groups % SLOW_SYNC_PROBE_GROUPS == 0
        return self.sync_average_s <= FAST_SYNC_S or is_probe

    # ---- step 3: stable

    def _committed(self, group: list[Flight]) -> None:
        if self._flying_ballot is not None:
            self._note_ballot(self._flying_ballot)
            self._flying_ballot = None
        for partition, runs, mark in group:
            if not partition.is_removed:
                partition.stable_end = mark
                self._writes.add(partition, runs)
        self._owner.on_stable([partition for partition, _, _ in group])
        self._writes.write_due()
        self._after_writing()

    def _commit_to_segments(self, group: list[Flight]) -> None:
        """Write a group to the segments: in os mode, bytes in the page cache count as stable."""
        stable: list[PartitionLog] = []
        for partition, runs, mark in group:
            self._writes.remember(partition, runs, mark)
            self._writes.add(partition, runs)
            self._writes.flush(partition)
            if self._directory.has_failed():
                return
            if partition.dirty:
                self._refuse(partition, runs[0])
            else:
                partition.stable_end = mark
                stable.append(partition)
        self._owner.on_stable(stable)
        self._after_writing()

    def _refuse(self, partition: PartitionLog, first: Run) -> None:
        """Withdraw a partition's part of a group because the disk is full, and report it.

        `first` is where the group began in this partition. A part of it may be in the files. It is
        cut off, so that it cannot reappear behind later appends or after a power cut.
        """
        for segment in {run.segment: None for run in partition.dirty}:
            self._writes.drop(partition, segment)
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
        self._directory.performed(job, may_be_full=False)
        self._owner.on_refused(partition)

    def _after_writing(self) -> None:
        self._writes.shrink_tail()
        takes_appends = self._durability is Durability.FSYNC
        if takes_appends and self._journal.wants_spare and not self._is_spare_coming:
            self._order_spare()
        if self._journal.live_files:
            self._owner.start_checkpoint()

    def _order_spare(self) -> None:
        self._is_spare_coming = True
        path = self._journal.next_path()

        def filled(error: OSError | None) -> None:
            self._is_spare_coming = False
            if error is None:
                with suppress(OSError):
                    self._journal.add_file(path)
                    return
            # Without a spare, the next group that needs room creates a file itself, or is refused.
            self._directory.disk.remove(path)

        job = BackgroundJob(zero_fill=((path, JOURNAL_FILE_BYTES),))
        self._directory.run_job(job, filled)

    # ---- rare entries

    def journal_now(
        self,
        kind: EntryKind,
        partition: PartitionLog,
        base_offset: int,
        generation: int,
        position: int,
        data: bytes,
    ) -> None:
        """Journal one rare entry, behind all earlier appends. Durable before this returns."""
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
        self._refuse_after_failure()
        self.settle_all()
        self._refuse_after_failure()
        if len(data) + ENTRY_BYTES + _GROUP_SLACK_BYTES > self._journal.room:
            self._make_room(len(data) + ENTRY_BYTES + _GROUP_SLACK_BYTES)
        head = entry_header(kind, partition_id, base_offset, generation, position, len(data))
        frame = self._journal.frame([head, data], 1)
        try:
            self._journal.write(frame, durable=True)
        except OSError as error:
            self._directory.fail(error)
            raise LogStoppedError(f"the log stopped: {error}") from error
        self._acknowledge()

    # ---- settling

    def safe_sequence(self) -> int:
        """The last stable group; one in flight is not stable."""
        return self._journal.sequence - (1 if self._in_flight is not None else 0)

    def _settle_in_flight(self) -> None:
        """Sync the group in flight on the loop, without waiting for the flusher."""
        if self._in_flight is None or self._directory.has_failed():
            return
        try:
            # The journal's own descriptor was open before the write, so the kernel reports an error
            # here even if it has reported it to the flusher.
            self._journal.sync()
        except OSError as error:
            self._directory.fail(error)
            return
        self._land()

    def settle_all(self) -> None:
        """Make all appends stable before this returns, unless the store has failed."""
        while (self.has_staged or self._in_flight is not None) and not self._directory.has_failed():
            if self._in_flight is not None:
                self._settle_in_flight()
            else:
                self._commit()

    def settle(self, partition: PartitionLog) -> None:
        """Make all appends to a partition stable and write them to its files.

        Raises `DiskFullError`.
        """
        self.settle_all()
        self._writes.flush(partition)
        if partition.dirty:
            raise DiskFullError("the disk is full")


def _staged_size(partition: PartitionLog) -> int:
    """Staged bytes of a partition with the headers of their entries."""
    return sum(run.size + ENTRY_BYTES for run in partition.staged)


def _group_parts(group: list[Flight], ballot: Ballot | None) -> tuple[list[Buffer], int]:
    """Entry headers and data of a group, and the number of its entries."""
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
