"""The storage of a voter: an ordinary partition of the node's log, the journal, and one file.

Terms are leader epochs and votes are entries of the node's journal, so an election needs no file of
its own, and everything staged in one loop turn becomes durable in one group. Entries that are not
stable yet cannot be read from the partition; they are cached here, so that the disks of leader and
followers work in parallel.

After a start the partition's high watermark may be above the committed end. Only the quorum may
read this partition until a leader has announced that end.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from dragoman.cluster.codec import MetadataEntries
from dragoman.errors import CorruptionError, DecodeError, DiskFullError, LogStoppedError
from dragoman.log.batch import assign, read_header
from dragoman.log.node import Ballot
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.raft.ports import NO_NODE
from dragoman.raft.snapshots import Snapshot, decode_snapshot, encode_snapshot
from dragoman.types import Buffer
from dragoman.world import OUT_OF_FILES, Scheduler, read_whole, replace_file

Result = TypeVar("Result")

SNAPSHOT_FILE = "metadata.snapshot"
#: Delay before a vote that found the disk full is staged again; nothing is sent meanwhile.
_RETRY_S = 1.0
_FULL = (errno.ENOSPC, errno.EDQUOT, *OUT_OF_FILES)


class PartitionStorage:
    def __init__(self, store: LogStore, log: PartitionLog, scheduler: Scheduler) -> None:
        """Raises `CorruptionError` when the snapshot cannot be read."""
        self._store = store
        self._log = log
        self._scheduler = scheduler
        self.snapshot = self._read_snapshot()
        known = self.snapshot.last_term if self.snapshot is not None else 0
        store.restore_term(max(self.last_term, known))
        self.ballot = store.ballot
        self._commit = 0
        #: (first offset, end, batches) of entries that may not be stable, in order.
        self._unstable: deque[tuple[int, int, Buffer]] = deque()

    def _read_snapshot(self) -> Snapshot | None:
        disk = self._store.disk
        if not disk.exists(SNAPSHOT_FILE):
            return None
        # A process killed after replacing the file may not have got to this.
        disk.sync_directory("")
        try:
            return decode_snapshot(read_whole(disk, SNAPSHOT_FILE))
        except DecodeError as error:
            raise CorruptionError(SNAPSHOT_FILE, 0, str(error)) from None

    # ---- term and vote

    @property
    def is_ballot_stable(self) -> bool:
        return self._store.ballot == self.ballot

    def stage_ballot(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self._stage_ballot()

    def _stage_ballot(self) -> None:
        if self.is_ballot_stable or self._store.has_failed():
            return
        try:
            self._store.stage_ballot(self.ballot)
        except DiskFullError:
            self._scheduler.call_later(_RETRY_S, self._stage_ballot)
        except LogStoppedError:
            return

    # ---- the log

    @property
    def start(self) -> int:
        return self._log.log_start_offset

    @property
    def end(self) -> int:
        return self._log.log_end_offset

    @property
    def stable_end(self) -> int:
        return self._log.stable_end

    @property
    def last_term(self) -> int:
        return max(self._log.epochs.latest, 0)

    def term_of(self, offset: int) -> int:
        is_known = self.start - 1 <= offset < self.end
        return self._log.epochs.epoch_at(offset) if is_known else -1

    def end_of_term(self, term: int) -> tuple[int, int]:
        found = self._log.epochs.end_offset(term, self.end)
        return (0, self.start) if found is None else (found[0], max(found[1], self.start))

    def read(self, offset: int, bytes_max: int) -> bytes:
        stable_end = self.stable_end
        self._forget_stable()
        if offset < stable_end:
            return b"".join(self._log.read(offset, bytes_max, stable_end).buffers)
        found: list[Buffer] = []
        size = 0
        for _, end, data in self._unstable:
            if end <= offset:
                continue
            if found and size + len(data) > bytes_max:
                break
            found.append(data)
            size += len(data)
        return b"".join(found)

    def _forget_stable(self) -> None:
        while self._unstable and self._unstable[0][1] <= self.stable_end:
            self._unstable.popleft()

    def append(self, term: int, batch: bytearray) -> None:
        self._forget_stable()
        header = read_header(batch)
        appended = self._even_on_a_full_disk(lambda: self._log.append(batch, header, term))
        self._unstable.append((appended.base_offset, appended.next_offset, batch))

    def append_as_is(self, data: Buffer) -> None:
        self._forget_stable()
        base = self.end
        end = self._even_on_a_full_disk(lambda: self._log.append_as_is(data))
        self._unstable.append((base, end, data))

    def _even_on_a_full_disk(self, append: Callable[[], Result]) -> Result:
        """Changes of the metadata free the disk: the deletion of a topic is one. Raises what
        appends raise.
        """
        try:
            return append()
        except DiskFullError:
            with self._store.commits.using_the_journal():
                return append()

    def truncate(self, offset: int) -> None:
        # Everything else is stable before the log is truncated.
        self._log.truncate(offset)
        self._unstable.clear()

    def committed(self, end: int) -> None:
        self._commit = end
        self.stable()

    def stable(self) -> None:
        """The store made something durable: committed entries may be read up to there."""
        self._log.advance_high_watermark(min(self._commit, self.stable_end))

    def compact(self, offset: int) -> None:
        self._store.settle(self._log)
        self._log.advance_high_watermark(min(offset, self.stable_end))
        self._log.move_log_start(min(offset, self.stable_end))

    def forget(self, offset: int) -> None:
        """Compact so that the files of dropped entries can go: a segment that is still written is
        closed first.
        """
        self._store.settle(self._log)
        self._log.roll(self._log.log_end_offset)
        self.compact(offset)
        # Files are removed once a manifest without them is durable.
        self._store.start_checkpoint()

    def reset(self, end: int, last_term: int) -> None:
        self.truncate(self.start)
        # A placeholder batch, which is never read, sets the log's offset and term.
        batch = MetadataEntries().term_batch(NO_NODE)
        assign(batch, end - 1, last_term)
        self._log.append_as_is(batch)
        self.compact(end)

    # ---- the snapshot

    def save_snapshot(self, snapshot: Snapshot) -> None:
        try:
            replace_file(self._store.disk, SNAPSHOT_FILE, encode_snapshot(snapshot))
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFullError("the disk is full: no room for a snapshot") from None
            self._store.fail(error)
            raise LogStoppedError(f"the log stopped: {error}") from error
        self.snapshot = snapshot
