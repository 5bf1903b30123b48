"""Making partitions durable in their own files, so that the journal can be used again.

One partition's part (`PartitionSave`), each step durable before the next:

1. its dirty bytes are written, its segment files and directories synced;
2. producer state and manifest are replaced, if they changed;
3. the sparse indexes state how far their segments are synced, and are synced themselves. Last,
   because recovery does not read what an index speaks for: everything that reading would tell must
   be in the other files by then.

A `Checkpoint` does this for every partition that needs it, a few to a background job, and then
tells the store that the journal is no longer needed up to where it stood at the beginning. Nothing
is taken off a partition's list of things to do before it is durable, so a checkpoint may be broken
off, or another run right through it, without losing anything.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from dragoman.limits import (
    CHECKPOINT_BULK_PARTITIONS_MIN,
    CHECKPOINT_BULK_PARTITIONS_PER_JOB,
    CHECKPOINT_FILES_PER_JOB,
)
from dragoman.log import index as sparse
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Manifest, encode_manifest
from dragoman.log.producer_file import NAME as PRODUCERS
from dragoman.log.producer_file import encode_producers
from dragoman.log.segment import Segment
from dragoman.world import OUT_OF_FILES, BackgroundJob, Replacement

if TYPE_CHECKING:
    from dragoman.log.partition import PartitionLog
    from dragoman.log.store import LogStore

PARTITIONS = "partitions"
#: Errors that mean "no room", or no descriptor: the work is put off, nothing is lost.
FULL = (errno.ENOSPC, errno.EDQUOT, *OUT_OF_FILES)


class _Mark(NamedTuple):
    """How far a segment went when it was synced."""

    segment: Segment
    written: int
    #: Tells whether the segment was cut since.
    cuts: int
    ranges: sparse.SparseIndex | None
    entry_count: int
    checkpoint: sparse.Checkpoint


class PartitionSave:
    """One partition's part of a checkpoint. Made when nothing is staged or in flight."""

    def __init__(self, store: LogStore, partition: PartitionLog, *, clean: bool = False) -> None:
        self._store = store
        self.partition = partition
        self._clean = clean
        self._producers_end = -1
        self._truncations = 0
        self._manifest: Manifest | None = None
        self._manifest_version = 0
        self._clean_size = -1
        self._has_new_index = False
        self._obsolete: list[Segment] = []
        store.flush(partition)
        #: On a full disk some bytes are in the journal only: then the rest has to wait.
        self.is_whole = not partition.dirty
        if not store.has_failed():
            self._check_files()
        self._marks = [self._mark(each) for each in partition.unsynced]
        if partition.is_manifest_due or partition.producers is not None or clean:
            # Before the sync of the directories, which makes the new one durable.
            self._make_directory()
        if partition.producers is None:
            # Even one that is not known: a job of which nobody heard may have put it there.
            path = f"{partition.directory}/{PRODUCERS}"
            if store.disk.exists(path):
                store.disk.remove(path)
            partition.has_producer_file = False

    def _check_files(self) -> None:
        """A sync by name finds nothing to do for a file that was removed, and the journal would be
        released all the same.
        """
        for segment in self.partition.unsynced:
            if not segment.written:
                continue
            try:
                is_linked = self._store.files.get(segment.log_path).is_linked()
            except FileNotFoundError:
                is_linked = False
            except OSError as error:
                self.is_whole = False
                if error.errno in OUT_OF_FILES:
                    self._store.refuse_appends(error)
                else:
                    self._store.fail(error)
                return
            if not is_linked:
                self._store.fail_removed(segment.log_path)
                return

    def _make_directory(self) -> None:
        try:
            self._store.disk.make_directory(self.partition.directory)
        except OSError as error:
            self.is_whole = False
            if error.errno in FULL:
                self._store.refuse_appends(error)
            else:
                self._store.fail(error)

    def _mark(self, segment: Segment) -> _Mark:
        # On a full disk the file may end within a range of the index, which cannot be told then.
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
        """Taken after `synced`, so that the manifest lists what has just become durable.

        Producer state and manifest are of one moment, in which nothing is staged: a manifest that
        was ahead would let go of segments whose producers are in no snapshot yet.
        """
        partition, sequence = self.partition, self._store.safe_sequence()
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
                partition.identity.partition_id if self._store.tags_files else 0,
            )
            replace.append(Replacement(f"{partition.directory}/{PRODUCERS}", data))
        if partition.is_manifest_due or self._clean:
            self._manifest_version = partition.manifest_version
            self._obsolete = list(partition.obsolete)
            manifest = partition.manifest(sequence, clean=self._clean)
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
        """Manifest and producer state are durable: nothing names the obsolete files any more."""
        store, partition = self._store, self.partition
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
            store.remove_segment_files(segment)

    def write_indexes(self) -> None:
        for mark in self._marks:
            self._write_index(mark)

    def _write_index(self, mark: _Mark) -> None:
        """Failing costs time, and the check of these headers, nothing else."""
        segment, index = mark.segment, mark.ranges
        if segment.is_gone or segment.index is not index or index is None:
            return
        if segment.cuts != mark.cuts or index.saved_position >= mark.written:
            return
        count = max(mark.entry_count, index.saved_entries)
        file = None
        size = 0
        try:
            file = self._store.files.get_or_create(segment.index_path)
            size = file.size()
            self._has_new_index |= not size
            tag = self._store.tag_of(segment)
            file.write([index.unsaved_block(mark.checkpoint, count, tag)], size)
        except OSError as error:
            if error.errno not in FULL:
                self._store.fail(error)
            elif file is not None:
                file.truncate(size)
            return
        index.saved_entries = count
        index.saved_position = mark.written
        if segment.is_rolled:
            # It can be loaded again from now on, so it need not stay in memory for ever.
            self._store.cache_index(segment)

    def index_job(self) -> BackgroundJob:
        """Before the journal forgets what it wrote: only the index can tell a wrong header."""
        paths = tuple(
            mark.segment.index_path
            for mark in self._marks
            if mark.ranges is not None and not mark.segment.is_gone
        )
        directories = (self.partition.directory,) if self._has_new_index else ()
        return BackgroundJob(sync=paths, sync_directories=directories)

    def put_back(self) -> None:
        """It did not come to the indexes: a later checkpoint has to write them."""
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
        """Put the partition on the store's lists, or take it off, as its own lists say."""
        self._store.list_work(self.partition)


class Checkpoint:
    """A checkpoint in progress: a few partitions to a job, so that nothing waits long behind it."""

    def __init__(self, store: LogStore, partitions: list[PartitionLog]) -> None:
        self._store = store
        self._sequence = store.safe_sequence()
        self._left = partitions
        self._saves: list[PartitionSave] = []
        self._is_complete = True

    def abandon(self) -> None:
        """Nobody will hear of its jobs any more."""
        for save in self._saves:
            save.put_back()

    def next_job(self) -> None:
        store = self._store
        # With nothing in flight, what the files are made to say is exactly what is stable.
        store.settle_all()
        if store.has_failed():
            return
        if not self._left:
            store.checkpoint_finished(self._sequence if self._is_complete else None)
            return
        count = CHECKPOINT_FILES_PER_JOB
        if len(self._left) >= CHECKPOINT_BULK_PARTITIONS_MIN:
            count = CHECKPOINT_BULK_PARTITIONS_PER_JOB
        some = self._left[:count]
        del self._left[:count]
        saves = [PartitionSave(store, each) for each in some if not each.is_removed]
        self._saves = saves
        if store.has_failed():
            return

        def synced(error: OSError | None) -> None:
            if error is not None and error.errno in OUT_OF_FILES:
                # It failed before any sync did: nothing is known to be lost.
                self._put_off(saves)
                self.next_job()
                return
            if self._is_over(error):
                return
            for save in saves:
                save.synced()
            store.settle_all()
            if store.has_failed():
                return
            store.run_job(merged([save.replace_job() for save in saves]), replaced)

        def replaced(error: OSError | None) -> None:
            if error is not None and self._is_put_off(error, saves):
                self.next_job()
                return
            if self._is_over(error):
                return
            for save in saves:
                save.replaced()
                save.write_indexes()
            store.run_job(merged([save.index_job() for save in saves]), finished)

        def finished(error: OSError | None) -> None:
            if error is not None and error.errno in OUT_OF_FILES:
                self._put_off(saves)
                self.next_job()
                return
            if self._is_over(error):
                return
            for save in saves:
                save.settle_lists()
                if not save.is_whole:
                    self._is_complete = False
            self.next_job()

        store.run_job(merged([save.sync_job() for save in saves]), synced)

    def _is_over(self, error: OSError | None) -> bool:
        if error is not None:
            self._store.fail(error)
        return self._store.has_failed()

    def _is_put_off(self, error: OSError, saves: list[PartitionSave]) -> bool:
        """No room for new files, or a partition went in the middle: all of these wait."""
        is_removed = any(save.partition.is_removed for save in saves)
        if error.errno in FULL:
            self._store.refuse_appends(error)
        elif error.errno != errno.ENOENT or not is_removed:
            return False
        self._put_off(saves)
        return True

    def _put_off(self, saves: list[PartitionSave]) -> None:
        self._is_complete = False
        for save in saves:
            save.put_back()


def merged(jobs: list[BackgroundJob]) -> BackgroundJob:
    return BackgroundJob(
        sync=tuple(path for job in jobs for path in job.sync),
        sync_directories=tuple(dict.fromkeys(d for job in jobs for d in job.sync_directories)),
        replace=tuple(each for job in jobs for each in job.replace),
    )
