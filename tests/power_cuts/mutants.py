"""The log made wrong on purpose, one way at a time: a harness that lets these pass proves nothing.

Each mutant replaces one small thing from outside; the log itself has no switches for tests.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Literal
from unittest import mock

from dragoman.checksum import crc32c
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log import checkpoint, journal, live_reader, segment_reader, store
from dragoman.log.batch import LENGTH_PREFIX_BYTES, WALK, WALKED_PREFIX_BYTES
from dragoman.log.directory import PARTITIONS, DataDirectory
from dragoman.log.group_commit import GroupCommit
from dragoman.log.index import Range
from dragoman.log.journal import EntryKind, GroupRef, JournalReader
from dragoman.log.partition import PartitionLog
from dragoman.log.salvage import Bad
from dragoman.log.segment import Segment
from dragoman.log.segment_reader import Place, walk_range
from dragoman.log.store import LogStore
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults
from dragoman.testing.sim.file import SimFile
from dragoman.types import Buffer
from dragoman.world import BackgroundJob, Disk, File

_walk_range = walk_range
_run_job = DataDirectory.run_job
_journal_now = GroupCommit.journal_now


class Mutant(Enum):
    NO_SYNC = "no sync"
    ACK_BEFORE_SYNC = "acknowledged before the sync"
    NO_SYNC_AFTER_WRITE = "no sync after a write, where it is not durable alone"
    NO_DIRECTORY_SYNC = "directory not synced"
    RETRY_AFTER_FAILED_SYNC = "retry after a failed sync"
    RELEASED_TOO_EARLY = "journal released before the segments are synced"
    TRUNCATION_FORGOTTEN = "stale bytes after a truncation revived"
    TORN_IS_DAMAGE = "torn treated as damage"
    DAMAGE_IS_TORN = "damage treated as torn"
    HEADERS_UNCHECKED = "header checks of the index ignored"


#: Those that only a flipped bit can show; the others die of power cuts.
SHOWN_BY_DAMAGE = frozenset({Mutant.DAMAGE_IS_TORN, Mutant.HEADERS_UNCHECKED})
#: Those that show in a log whose appends are not journalled.
SHOWN_WITHOUT_JOURNAL = frozenset({Mutant.TORN_IS_DAMAGE})


def faults_of(mutant: Mutant | None) -> DiskFaults:
    match mutant:
        case Mutant.NO_SYNC:
            return DiskFaults(ignores_sync=True, ignores_write_durable=True)
        case Mutant.NO_SYNC_AFTER_WRITE:
            return DiskFaults(writes_durably=False, ignores_write_durable=True)
        case Mutant.NO_DIRECTORY_SYNC:
            return DiskFaults(ignores_sync_directory=True)
        case Mutant.RETRY_AFTER_FAILED_SYNC:
            return DiskFaults(sync_error_rate=0.02)
        case _:
            return DiskFaults()


@contextmanager
def mutated(mutant: Mutant | None) -> Iterator[Callable[..., LogStore]]:
    """Yields what makes the store; while inside, the mutation is in force."""
    match mutant:
        case Mutant.ACK_BEFORE_SYNC:
            with mock.patch.object(DataDirectory, "run_job", run_job_eagerly):
                yield LogStore
        case Mutant.RETRY_AFTER_FAILED_SYNC:
            yield retrying_store
        case Mutant.TRUNCATION_FORGOTTEN:
            with mock.patch.object(GroupCommit, "journal_now", _journal_all_but_truncations):
                yield LogStore
        case Mutant.TORN_IS_DAMAGE:
            yield _SternStore
        case Mutant.RELEASED_TOO_EARLY:
            with mock.patch.object(checkpoint.PartitionSave, "sync_job", _no_sync_job):
                yield LogStore
        case Mutant.DAMAGE_IS_TORN:
            with (
                mock.patch.object(store, "JournalReader", CarelessReader),
                mock.patch.object(live_reader.LiveReader, "_note_damage", cut_instead),
            ):
                yield LogStore
        case Mutant.HEADERS_UNCHECKED:
            with mock.patch.object(segment_reader, "walk_range", _unchecked):
                yield LogStore
        case _:
            yield LogStore


def run_job_eagerly(
    self: DataDirectory, job: BackgroundJob, done: Callable[[OSError | None], None]
) -> None:
    """Answers as soon as the group is written, not when it is synced."""
    if job.sync and all(path.endswith(".jnl") for path in job.sync):
        self.scheduler.call_soon(done, None)
        _run_job(self, job, lambda _: None)
    else:
        _run_job(self, job, done)


def _journal_all_but_truncations(
    self: GroupCommit,
    kind: EntryKind,
    partition: PartitionLog,
    base_offset: int,
    generation: int,
    position: int,
    data: bytes,
) -> None:
    if kind is not EntryKind.TRUNCATE:
        _journal_now(self, kind, partition, base_offset, generation, position, data)


class _SternStore(LogStore):
    """Believes that every byte in a segment was journalled first, in os mode too."""

    def _open_journal(self) -> None:
        self.directory.trusts_segment_ends = True
        super()._open_journal()


def _no_sync_job(self: checkpoint.PartitionSave) -> BackgroundJob:
    return BackgroundJob(sync_directories=(self.partition.directory, PARTITIONS, ""))


class CarelessReader(JournalReader):
    """Stops at the first group it cannot read, as if nothing came after it."""

    def __init__(self, disk: Disk, seed: int, floor: int = 0, mark: int = 0) -> None:
        super().__init__(disk, seed, floor, mark)
        if self.damage:
            first = self.damage[0].first_sequence
            self.groups = [each for each in self.groups if each.sequence < first]
            self.damage = []


class TrustingReader(JournalReader):
    """Believes every group that begins like one."""

    def _group_at(self, file: File, path: str, position: int, end: int) -> GroupRef | None:
        head = file.read(journal._GROUP.size, position)
        if len(head) < journal._GROUP.size:
            return None
        magic, _, length, count, generation, sequence, checkpoint = journal._GROUP.unpack(head)
        if magic != journal._MAGIC or position + journal._GROUP.size + length > end:
            return None
        size = journal._GROUP.size + length
        return GroupRef(path, position, size, count, generation, sequence, checkpoint)


def cut_instead(self: live_reader.LiveReader, bad: Bad) -> None:
    if self._segment.size > bad.position:
        self._cut(bad.position, "were torn")


def _unchecked(data: memoryview, start: int, segment: Segment, each: Range) -> list[Place]:
    """Walks a range with the check that its headers have now."""
    check, position = 0, each.start - start
    stop = min(each.stop - start, len(data))
    while stop - position >= BATCH_HEADER_BYTES:
        _, length, _ = WALK.unpack_from(data, position)
        check = crc32c(data[position : position + WALKED_PREFIX_BYTES], check)
        position += max(length, 0) + LENGTH_PREFIX_BYTES
    return _walk_range(data, start, segment, each._replace(check=check))


# ---- a disk that tries again


class _RetryingFile:
    def __init__(self, file: SimFile) -> None:
        self._file = file
        self.read, self.write = file.read, file.write
        self.truncate, self.size, self.close = file.truncate, file.size, file.close
        self.is_linked = file.is_linked

    def write_durable(self, buffers: Sequence[Buffer], position: int) -> None:
        try:
            self._file.write_durable(buffers, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._file.sync()

    def sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._file.sync()


class _RetryingDisk:
    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def open(self, path: str, mode: Literal["read", "write", "create"]) -> File:
        return _RetryingFile(self._disk.open(path, mode))


def retrying_store(disk: SimDisk, *others: object) -> LogStore:
    return LogStore(_RetryingDisk(disk), *others)  # type: ignore[arg-type]
