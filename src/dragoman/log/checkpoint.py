"""Checkpoints make partitions durable in their own files, so that the journal can be used again.

One partition's part (`PartitionSave`), each step durable before the next:

1. Dirty bytes are written, segment files and directories synced.
2. Producer state and manifest are replaced, if they changed.
3. The sparse indexes record how far their segments are synced, and are synced themselves. This is
   last because recovery does not read the batches that an index covers: what it would learn from
   them must be in the other files by then.

A `Checkpoint` does this for every partition that needs it, a few to a background job. Afterwards
the journal is no longer needed up to its sequence at the beginning, and the `Checkpointer` releases
it. Work stays on a partition's lists until it is durable, so a checkpoint may be abandoned, or
another one may run while it is in progress, without losing anything.
"""

from __future__ import annotations

import errno
import logging
from typing import NamedTuple

from dragoman.limits import (
    CHECKPOINT_BULK_PARTITIONS_MIN,
    CHECKPOINT_BULK_PARTITIONS_PER_JOB,
    CHECKPOINT_FILES_PER_JOB,
    CHECKPOINT_PARTITIONS_AT_ONCE,
)
from dragoman.log import index as sparse
from dragoman.log.directory import FULL, PARTITIONS, DataDirectory
from dragoman.log.group_commit import GroupCommit
from dragoman.log.index_cache import IndexCache
from dragoman.log.journal import MARK_FILE, Journal
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Manifest, SegmentEntry, encode_manifest
from dragoman.log.partition import PartitionLog
from dragoman.log.producer_file import NAME as PRODUCERS
from dragoman.log.producer_file import encode_producers
from dragoman.log.segment import Segment, entry_of
from dragoman.log.write_behind import WriteBehind
from dragoman.world import OUT_OF_FILES, BackgroundJob, Replacement

log = logging.getLogger("dragoman.log")


class _Mark(NamedTuple):
    """State of a segment when its sync was ordered."""

    segment: Segment
    written: int
    #: `Segment.cuts`: has changed if the segment was truncated since.
    cuts: int
    ranges: sparse.SparseIndex | None
    entry_count: int
    checkpoint: sparse.Checkpoint


class PartitionSave:
    """One partition's part of a checkpoint. Created when nothing is staged or in flight."""

    def __init__(
        self, checkpoints: Checkpointer, partition: PartitionLog, *, clean: bool = False
    ) -> None:
        self._checkpoints = checkpoints
        self._directory = directory = checkpoints.directory
        self.partition = partition
        self._clean = clean
        self._producers_end = -1
        self._truncations = 0
        self._manifest: Manifest | None = None
        self._manifest_version = 0
        self._clean_size = -1
        self._has_new_index = False
        self._obsolete: list[Segment] = []
        self._stale_indexes: tuple[str, ...] = ()
        checkpoints.writes.flush(partition)
        #: Whether all journalled bytes are in the files. If not (a full disk), the save stops after
        #: the sync.
        self.is_whole = not partition.dirty
        if not directory.has_failed():
            self._check_files()
        self._marks = [self._mark(each) for each in partition.unsynced]
        if partition.is_manifest_due or partition.producers is not None or clean:
            # Before the sync of the directories, which makes the new one durable.
            self._make_directory()
        if partition.producers is None:
            # An abandoned job may have created the file after the last one that is known.
            path = f"{partition.directory}/{PRODUCERS}"
            if directory.disk.exists(path):
                directory.disk.remove(path)
            partition.has_producer_file = False

    def _check_files(self) -> None:
        """Stop the directory when a file was removed: a sync by name would succeed without it, and
        the journal would be released.
        """
        for segment in self.partition.unsynced:
            if not segment.written:
                continue
            try:
                is_linked = self._directory.files.get(segment.log_path).is_linked()
            except FileNotFoundError:
                is_linked = False
            except OSError as error:
                self.is_whole = False
                if error.errno in OUT_OF_FILES:
                    self._directory.refuse_appends(error)
                else:
                    self._directory.fail(error)
                return
            if not is_linked:
                self._directory.fail_removed(segment.log_path)
                return

    def _make_directory(self) -> None:
        try:
            self._directory.disk.make_directory(self.partition.directory)
        except OSError as error:
            self.is_whole = False
            if error.errno in FULL:
                self._directory.refuse_appends(error)
            else:
                self._directory.fail(error)

    def _mark(self, segment: Segment) -> _Mark:
        # On a full disk the file may end within a range of the index. Then no index is written.
        is_complete = segment.written == segment.size
        if is_complete and segment.index is not None:
            segment.index.seal()
        checkpoint = sparse.Checkpoint(
            segment.written,
            segment.next_offset,
            segment.checksum,
            segment.max_timestamp,
            self.partition.producers is not None,
            segment.has_gaps,
        )
        ranges = segment.index if is_complete else None
        count = len(ranges) if ranges is not None else 0
        return _Mark(segment, segment.written, segment.cuts, ranges, count, checkpoint)

    def sync_job(self) -> BackgroundJob:
        files = tuple(mark.segment.log_path for mark in self._marks)
        directories = (self.partition.directory, PARTITIONS, "")
        return BackgroundJob(sync=files, sync_directories=directories)

    def synced(self) -> None:
        """The segments are durable up to their marks."""
        partition = self.partition
        for mark in self._marks:
            segment = mark.segment
            is_same = segment.cuts == mark.cuts and segment.size == mark.written
            if is_same and segment in partition.unsynced:
                partition.unsynced.remove(segment)

    def replace_job(self) -> BackgroundJob:
        """The new producer state and manifest; called after `synced`, so that the manifest lists
        what has just become durable.

        Both are of one moment in which nothing is staged: a manifest that was ahead would allow
        segments to be removed whose producers are in no snapshot yet.
        """
        partition, sequence = self.partition, self._checkpoints.commits.safe_sequence()
        self._truncations = partition.truncations
        if partition.is_removed or not self.is_whole:
            return BackgroundJob()
        replace: list[Replacement] = []
        if partition.producers is not None and self._needs_producers():
            self._producers_end = partition.log_end_offset
            data = encode_producers(
                partition.producers,
                self._producers_end,
                sequence,
                partition.identity.partition_id if self._directory.tags_files else 0,
            )
            replace.append(Replacement(f"{partition.directory}/{PRODUCERS}", data))
        if partition.is_manifest_due or self._clean:
            self._manifest_version = partition.manifest_version
            self._obsolete = list(partition.obsolete)
            self._stale_indexes = partition.stale_indexes
            manifest = manifest_of(partition, sequence, clean=self._clean)
            self._clean_size = manifest.clean_end.size if manifest.clean_end else -1
            self._manifest = manifest
            data = encode_manifest(manifest)
            replace.append(Replacement(f"{partition.directory}/{MANIFEST}", data))
        return BackgroundJob(replace=tuple(replace))

    def _needs_producers(self) -> bool:
        partition = self.partition
        is_old = bool(self._marks) or partition.is_manifest_due
        return is_old or self._clean or not partition.has_producer_file

    def replaced(self) -> None:
        """Note that manifest and producer state are durable, and remove the obsolete files."""
        partition = self.partition
        if partition.is_removed or not self.is_whole:
            return
        if self._producers_end >= 0:
            partition.has_producer_file = True
            is_true = partition.truncations == self._truncations
            partition.producer_file_end = self._producers_end if is_true else -1
        if self._manifest is not None:
            partition.saved_manifest_version = self._manifest_version
            if not partition.is_manifest_due:
                partition.has_rare_entries = False
            partition.clean_size = self._clean_size
            is_later = partition.truncations == self._truncations
            partition.saved_live_offset = self._manifest.live_offset if is_later else 0
        for segment in self._obsolete:
            partition.obsolete.remove(segment)
            self._directory.remove_segment_files(segment)
        for path in self._stale_indexes:
            self._directory.remove_file(path)
        if self._stale_indexes:
            partition.stale_indexes = ()

    def write_indexes(self) -> None:
        for mark in self._marks:
            self._write_index(mark)

    def _write_index(self, mark: _Mark) -> None:
        """Write an index. A failure costs time and the check of its headers, but no records."""
        segment, index = mark.segment, mark.ranges
        if segment.is_gone or segment.index is not index or index is None:
            return
        if segment.index_path in self.partition.stale_indexes:
            return
        if segment.cuts != mark.cuts or index.saved_position >= mark.written:
            return
        count = max(mark.entry_count, index.saved_entries)
        file = None
        size = 0
        try:
            file = self._directory.files.get_or_create(segment.index_path)
            size = file.size()
            self._has_new_index |= not size
            tag = self._directory.tag_of(segment)
            file.write([index.unsaved_block(mark.checkpoint, count, tag)], size)
        except OSError as error:
            if error.errno not in FULL:
                self._directory.fail(error)
            elif file is not None:
                file.truncate(size)
            return
        index.saved_entries = count
        index.saved_position = mark.written
        if segment.is_rolled:
            # The index can be loaded from now on, so the cache may drop it from memory.
            self._checkpoints.indexes.add(segment)

    def index_job(self) -> BackgroundJob:
        """The sync of the indexes, needed before the journal is released: only the index detects a
        wrong bit in a header."""
        paths = tuple(
            mark.segment.index_path
            for mark in self._marks
            if mark.ranges is not None and not mark.segment.is_gone
        )
        directories = (self.partition.directory,) if self._has_new_index else ()
        return BackgroundJob(sync=paths, sync_directories=directories)

    def put_back(self) -> None:
        """Put segments whose index was not written back on the list for the next checkpoint."""
        unsynced = self.partition.unsynced
        for mark in self._marks:
            segment, index = mark.segment, mark.ranges
            is_same = segment.cuts == mark.cuts and segment.index is index
            if segment.is_gone or not is_same or index is None or segment in unsynced:
                continue
            if index.saved_position < mark.written:
                unsynced.append(segment)
        self.settle_lists()

    def settle_lists(self) -> None:
        """Put the partition on the store's list of work, or remove it from there."""
        self._checkpoints.list_work(self.partition)


def manifest_of(partition: PartitionLog, sequence: int, *, clean: bool) -> Manifest:
    """The manifest of a partition; it lists only segments whose files are complete and synced."""
    listed = []
    live_offset = partition.active.base_offset if partition.active else partition.log_end_offset
    for segment in partition.segments:
        if segment.written < segment.size or segment in partition.unsynced:
            live_offset = segment.base_offset
            break
        listed.append(_entry(partition, segment))
    clean_end = None
    if clean and partition.active is not None and partition.active.size:
        clean_end = _entry(partition, partition.active)
    return Manifest(
        identity=partition.identity,
        sequence=sequence,
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_end_offset=partition.stable_end,
        next_generation=partition.next_generation,
        first_generation=partition.first_generation,
        epochs=tuple(partition.epochs.entries()),
        segments=tuple(listed),
        clean_end=clean_end,
        live_offset=live_offset,
        has_producers=partition.producers is not None,
        cleaned_offset=partition.cleaned_offset,
    )


def _entry(partition: PartitionLog, segment: Segment) -> SegmentEntry:
    if partition.producers is None:
        return entry_of(segment, ())
    aborted = tuple(
        (each.producer_id, each.first_offset, each.last_offset)
        for each in partition.producers.aborted_between(segment.base_offset, segment.next_offset)
    )
    return entry_of(segment, aborted)


class Checkpoint:
    """A checkpoint in progress, a few partitions to a job, so that other jobs never wait long."""

    def __init__(self, checkpoints: Checkpointer, partitions: list[PartitionLog]) -> None:
        self._checkpoints = checkpoints
        self._directory = checkpoints.directory
        self._sequence = checkpoints.commits.safe_sequence()
        self._began_at = checkpoints.directory.clock.monotonic()
        self._left = partitions
        self._count = len(partitions)
        self._began = checkpoints.directory.clock.monotonic()
        self._saves: list[PartitionSave] = []
        self._is_complete = True

    def log_end(self) -> None:
        fields = {
            "partitions": self._count,
            "ms": round((self._directory.clock.monotonic() - self._began) * 1000),
            "is_complete": self._is_complete,
        }
        log.debug("checkpoint done", extra=fields)

    def abandon(self) -> None:
        """Abandon the checkpoint: the outcome of its current job will not be reported."""
        for save in self._saves:
            save.put_back()

    def next_job(self) -> None:
        """Begin with the next partitions, or finish. Each job's callback submits the next one."""
        directory, commits = self._directory, self._checkpoints.commits
        # With nothing in flight, the files record exactly what is stable.
        commits.settle_all()
        if directory.has_failed():
            return
        if not self._left:
            self._checkpoints.note_time(self._began_at)
            self._checkpoints.finished(self._sequence if self._is_complete else None)
            return
        count = CHECKPOINT_FILES_PER_JOB
        if len(self._left) >= CHECKPOINT_BULK_PARTITIONS_MIN:
            count = CHECKPOINT_BULK_PARTITIONS_PER_JOB
        some = self._left[:count]
        del self._left[:count]
        self._saves = [
            PartitionSave(self._checkpoints, each) for each in some if not each.is_removed
        ]
        if not directory.has_failed():
            directory.run_job(merged([each.sync_job() for each in self._saves]), self._synced)

    def _synced(self, error: OSError | None) -> None:
        if error is not None and error.errno in OUT_OF_FILES:
            # The job failed before any sync did: nothing is known to be lost.
            self._postpone()
            return
        if self._is_over(error):
            return
        for save in self._saves:
            save.synced()
        self._checkpoints.commits.settle_all()
        if self._directory.has_failed():
            return
        jobs = [save.replace_job() for save in self._saves]
        self._directory.run_job(merged(jobs), self._replaced)

    def _replaced(self, error: OSError | None) -> None:
        if error is not None and self._is_postponed(error):
            return
        if self._is_over(error):
            return
        for save in self._saves:
            save.replaced()
            save.write_indexes()
        jobs = [save.index_job() for save in self._saves]
        self._directory.run_job(merged(jobs), self._indexed)

    def _indexed(self, error: OSError | None) -> None:
        if error is not None and error.errno in OUT_OF_FILES:
            self._postpone()
            return
        if self._is_over(error):
            return
        for save in self._saves:
            save.settle_lists()
            if not save.is_whole:
                self._is_complete = False
        self.next_job()

    def _is_over(self, error: OSError | None) -> bool:
        if error is not None:
            self._directory.fail(error)
        return self._directory.has_failed()

    def _is_postponed(self, error: OSError) -> bool:
        """Postpone these partitions when the disk is full or one of them was removed meanwhile."""
        is_removed = any(save.partition.is_removed for save in self._saves)
        if error.errno in FULL:
            self._directory.refuse_appends(error)
        elif error.errno != errno.ENOENT or not is_removed:
            return False
        self._postpone()
        return True

    def _postpone(self) -> None:
        """Leave these partitions to a later checkpoint, and continue with the next ones."""
        self._is_complete = False
        for save in self._saves:
            save.put_back()
        self.next_job()


class Checkpointer:
    """The list of partitions with work; it releases the journal once their work is durable."""

    def __init__(
        self,
        directory: DataDirectory,
        journal: Journal,
        commits: GroupCommit,
        writes: WriteBehind,
        indexes: IndexCache,
        work: dict[PartitionLog, None],
    ) -> None:
        """`work`: partitions with something to sync or a manifest to write."""
        self.directory = directory
        self.commits = commits
        self.writes = writes
        self.indexes = indexes
        self._journal = journal
        self._work = work
        self._current: Checkpoint | None = None

    def list_work(self, partition: PartitionLog) -> None:
        """Put a partition on the list of work, or remove it, depending on its own lists."""
        has_work = partition.unsynced or partition.is_manifest_due or partition.obsolete
        if has_work and not partition.is_removed:
            self._work[partition] = None
        else:
            self._work.pop(partition, None)

    # ---- in the background

    def start(self) -> None:
        """Begin to make all committed bytes durable in the segments, in the background."""
        if self._current is not None or self.directory.has_failed():
            return
        self.check_files()
        self.commits.settle_all()
        # The commit may have started a checkpoint, or stopped the store.
        if self._current is not None or self.directory.has_failed():
            return
        self._current = Checkpoint(self, list(self._work))
        self._current.next_job()

    def finished(self, sequence: int | None) -> None:
        """Note the end of a checkpoint. The journal is not needed up to `sequence`; None when work
        was postponed."""
        if log.isEnabledFor(logging.DEBUG) and self._current is not None:
            self._current.log_end()
        self._current = None
        if sequence is not None and self._release(sequence) and self._journal.live_files:
            self.start()

    def note_time(self, began_at: float) -> None:
        taken = self.directory.clock.monotonic() - began_at
        self.directory.stats.checkpoint_seconds.add_seconds(taken)

    def abandon(self) -> None:
        """Abandon the checkpoint in progress, if there is one."""
        if self._current is not None:
            self._current.abandon()
            self._current = None

    def check_files(self) -> None:
        """Stop the store when its directory, or a file that it writes, was removed or replaced:
        bytes in a file without a name are lost with the process."""
        gone = None if self.directory.lock.is_ours() else "the data directory, or its lock file,"
        gone = gone or self._journal.missing_path()
        mark = self.commits.mark
        if gone is None and mark is not None and not mark.is_linked:
            gone = MARK_FILE
        if gone is not None:
            self.directory.fail_removed(gone)

    # ---- synchronously

    def run_now(self) -> bool:
        """Run a whole checkpoint before this returns. False when not everything was saved."""
        self.commits.settle_all()
        self.check_files()
        if self.directory.has_failed():
            return False
        assert self._current is None
        sequence = self.commits.safe_sequence()
        began_at = self.directory.clock.monotonic()
        is_complete = self.save_all(clean=False)
        if self.directory.has_failed():
            return False
        self.note_time(began_at)
        return is_complete and self._release(sequence)

    def save_all(self, *, clean: bool) -> bool:
        """Save every partition with work. False when some of it has to be repeated."""
        is_complete = True
        work = list(self._work)
        for start in range(0, len(work), CHECKPOINT_PARTITIONS_AT_ONCE):
            some = work[start : start + CHECKPOINT_PARTITIONS_AT_ONCE]
            is_complete &= self._save(some, clean=clean)
            if self.directory.has_failed():
                return False
        return is_complete

    def _save(self, partitions: list[PartitionLog], *, clean: bool) -> bool:
        """Save some partitions before this returns. False when it has to be repeated."""
        performed = self.directory.performed
        saves = [PartitionSave(self, each, clean=clean) for each in partitions]
        if not performed(merged([each.sync_job() for each in saves]), may_be_full=False):
            return False
        for save in saves:
            save.synced()
        if not performed(merged([each.replace_job() for each in saves]), may_be_full=True):
            return False
        for save in saves:
            save.replaced()
            save.write_indexes()
        if not performed(merged([each.index_job() for each in saves]), may_be_full=False):
            return False
        for save in saves:
            save.settle_lists()
        return all(save.is_whole for save in saves)

    # ---- the journal

    def free_journal(self) -> None:
        """Checkpoint before this returns, because appends have filled the journal."""
        self.commits.settle_all()
        if self._current is None:
            self.run_now()
            return
        # A background job may be replacing manifests, which two must not do at once. Segments and
        # indexes can be synced at any time; rare entries need a manifest, and wait for it.
        if any(each.has_rare_entries for each in self._work):
            return
        sequence = self.commits.safe_sequence()
        if all(self._sync_segments(each) for each in list(self._work)):
            self._release(sequence)

    def _sync_segments(self, partition: PartitionLog) -> bool:
        save = PartitionSave(self, partition)
        if not self.directory.performed(save.sync_job(), may_be_full=False):
            return False
        save.synced()
        if not save.is_whole:
            return False
        save.write_indexes()
        return self.directory.performed(save.index_job(), may_be_full=False)

    def _release(self, sequence: int) -> bool:
        """Release the journal up to `sequence`. False when `node.json` could not be written.

        Before a group is overwritten, `node.json` has to record that it is not needed: a later
        group could, but may be torn. It is written here and not in the background, because two
        writers of one file might overtake each other; this happens once for each journal file.
        """
        sequence = max(sequence, self._journal.checkpoint)
        is_ballot_alone = 0 < self.commits.ballot_sequence <= sequence
        if self._journal.frees(sequence) or is_ballot_alone:
            self.directory.node.sequence = sequence
            if not self.directory.keep_node():
                return False
            self.commits.ballot_sequence = 0
        self._journal.release(sequence)
        return True


def merged(jobs: list[BackgroundJob]) -> BackgroundJob:
    return BackgroundJob(
        sync=tuple(path for job in jobs for path in job.sync),
        sync_directories=tuple(dict.fromkeys(d for job in jobs for d in job.sync_directories)),
        replace=tuple(each for job in jobs for each in job.replace),
    )
