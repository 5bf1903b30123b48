"""Reading one partition record by record, and being told when there is more.

For protocols whose clients are sent decoded records: a `Tail` stands at an offset, gives what is
there in bounded pieces, and wakes its owner when something new may be read. Control records and
aborted transactions are left out; nothing past the last stable offset is given, unless records of
open and aborted transactions are wanted too.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.errors import MessageTooLarge, Overloaded, UnknownTopic
from dragoman.broker.fetch import FetchLimits, Wanted, read_all
from dragoman.broker.unread import Unread
from dragoman.errors import (
    CorruptionError,
    DecodeError,
    OffsetOutOfRangeError,
    OversizedBatchError,
)
from dragoman.log.batch import BatchHeader, Record
from dragoman.log.expansion import Expanded, expanded_bytes_max
from dragoman.replication.replica import Replica, not_leader


class Tail:
    """`on_change` is called once after each `wait`: look again. It may be called within `wait`."""

    __slots__ = ("_committed_only", "_is_waiting", "_on_change", "_unread", "offset", "replica")

    def __init__(
        self,
        replica: Replica,
        offset: int,
        on_change: Callable[[], None],
        *,
        committed_only: bool = True,
    ) -> None:
        """An offset past the end waits for it; one that was deleted is told by `read`."""
        self.replica = replica
        #: Of the next record to be given, or of the place where it will be.
        self.offset = offset
        self._on_change = on_change
        self._committed_only = committed_only
        self._is_waiting = False
        #: Read, not given yet: a batch is decoded once, however little is asked for at a time.
        self._unread: Unread | None = None

    @property
    def log_start_offset(self) -> int:
        return self.replica.log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Where readers have to wait."""
        log = self.replica.log
        return log.last_stable_offset if self._committed_only else log.high_watermark

    def seek(self, offset: int) -> None:
        self.offset = offset
        self._unread = None

    def read(self, bytes_max: int, count_max: int) -> list[Record]:
        """The next records, in order; empty when there are none now.

        At least one record is given when there is one, whatever its size. Raises
        `OffsetOutOfRangeError` when the position was deleted, `CorruptionError` for damage,
        `MessageTooLarge` for a compressed batch that expands to more than is taken,
        `UnknownTopic` when the partition is gone, and `NotLeader` when it has moved to other nodes.
        """
        while True:
            if self._unread is None and not self._fill(bytes_max):
                return []
            assert self._unread is not None
            given = self._give(self._unread, bytes_max, count_max)
            if given:
                return given

    def _give(self, unread: Unread, bytes_max: int, count_max: int) -> list[Record]:
        try:
            given = unread.take(bytes_max, count_max)
        except OversizedBatchError as error:
            self._unread = None
            raise MessageTooLarge(f"{self.replica.log.describe()}: {error}") from None
        except DecodeError as error:
            self._unread = None
            raise CorruptionError(self.replica.log.describe(), self.offset, str(error)) from None
        if given:
            self.offset = given[-1].offset + 1
        if unread.is_over:
            # Batches without a record to give (markers, aborted ones) may fill a whole read.
            self.offset = max(self.offset, unread.next_offset)
            self._unread = None
        elif unread.is_large:
            self._unread = None
        return given

    def _fill(self, bytes_max: int) -> bool:
        """Read the next batches; whether there are any."""
        log = self.replica.log
        if log.is_removed:
            raise UnknownTopic(f"{log.describe()} is gone")
        if self.replica.is_moved:
            raise not_leader(self.replica.metadata)
        while self.offset < self.end_offset:
            wanted = Wanted(self.replica, self.offset, bytes_max, may_be_copy=True)
            limits = FetchLimits(0, bytes_max, 0, self._committed_only)
            (found,), _, _ = read_all([wanted], limits)
            if found.error is not None:
                raise found.error
            if found.size:
                view = memoryview(b"".join(found.buffers))
                self._unread = Unread(view, found.aborted or (), self.offset, self._expand)
                return True
            # A gap that compaction left at the end reads as nothing.
            self.offset = self.end_offset
        if self.offset < log.log_start_offset:
            raise OffsetOutOfRangeError(
                f"{log.describe()}: offset {self.offset} is below {log.log_start_offset}"
            )
        return False

    def _expand(self, header: BatchHeader, batch: memoryview) -> Expanded:
        bytes_max = expanded_bytes_max(self.replica.config.max_message_bytes)
        return self.replica.log.expanded(header, batch, bytes_max)

    # ---- waiting

    @property
    def has_more(self) -> bool:
        """Would `read` give something, or say that something is wrong?"""
        is_gone = self.replica.log.is_removed or self.replica.is_moved
        return self._unread is not None or self.offset < self.end_offset or is_gone

    def wait(self) -> None:
        """Call `on_change` when there may be more to read. Raises `Overloaded`."""
        if self._is_waiting:
            return
        if self.has_more:
            self._on_change()
            return
        if not self.replica.park(self):
            raise Overloaded(f"{self.replica.log.describe()}: too many readers are waiting")
        self._is_waiting = True

    def data_arrived(self, replica: Replica) -> None:
        self._is_waiting = False
        if self.has_more or not replica.park(self):
            self._on_change()
        else:
            self._is_waiting = True

    def log_start_moved(self, replica: Replica) -> None:
        self.data_arrived(replica)

    def close(self) -> None:
        self._is_waiting = False
        self.replica.unpark(self)
        self._unread = None
