"""Reading one partition record by record, and being told when there is more.

For protocols whose clients are sent decoded records: a `Tail` stands at an offset, gives what is
there in bounded pieces, and wakes its owner when something new may be read. Control records and
aborted transactions are left out; nothing past the last stable offset is given, unless records of
open and aborted transactions are wanted too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from dragoman.broker.errors import Overloaded, UnknownTopic
from dragoman.broker.fetch import FetchLimits, Wanted, read_all
from dragoman.broker.replica import Replica, not_leader
from dragoman.errors import CorruptionError, DecodeError, OffsetOutOfRangeError
from dragoman.log.batch import Record
from dragoman.log.isolation import visible_records


class Tail:
    """`on_change` is called once after each `wait`: look again. It may be called within `wait`."""

    __slots__ = ("_committed_only", "_is_waiting", "_left", "_on_change", "offset", "replica")

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
        #: Decoded, not given yet: a batch is decoded once, however little is asked for at a time.
        self._left: deque[Record] = deque()

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
        self._left.clear()

    def read(self, bytes_max: int, count_max: int) -> list[Record]:
        """The next records, in order; empty when there are none now.

        At least one record is given when there is one, whatever its size. Raises
        `OffsetOutOfRangeError` when the position was deleted, `CorruptionError` for damage,
        `UnknownTopic` when the partition is gone, and `NotLeader` when it has moved to other nodes.
        """
        if not self._left:
            self._fill(bytes_max)
        given: list[Record] = []
        size = 0
        while self._left and len(given) < count_max:
            record = self._left[0]
            size += len(record.key or b"") + len(record.value or b"")
            if given and size > bytes_max:
                break
            given.append(self._left.popleft())
        if given:
            self.offset = given[-1].offset + 1
        return given

    def _fill(self, bytes_max: int) -> None:
        log = self.replica.log
        if log.is_removed:
            raise UnknownTopic(f"{log.describe()} is gone")
        if self.replica.is_moved:
            raise not_leader(self.replica.metadata)
        # Batches without a record to give (markers, aborted ones) may fill a whole read.
        while self.offset < self.end_offset and not self._left:
            wanted = Wanted(self.replica, self.offset, bytes_max, may_be_copy=True)
            limits = FetchLimits(0, bytes_max, 0, self._committed_only)
            (found,), _, _ = read_all([wanted], limits)
            if found.error is not None:
                raise found.error
            view = memoryview(b"".join(found.buffers))
            try:
                records, next_offset = visible_records(view, found.aborted or (), self.offset)
            except DecodeError as error:
                raise CorruptionError(log.describe(), self.offset, str(error)) from None
            self._left.extend(records)
            if not records:
                # A gap that compaction left at the end reads as nothing.
                self.offset = next_offset if found.size else self.end_offset
        if self.offset < log.log_start_offset:
            raise OffsetOutOfRangeError(
                f"{log.describe()}: offset {self.offset} is below {log.log_start_offset}"
            )

    # ---- waiting

    @property
    def has_more(self) -> bool:
        """Would `read` give something, or say that something is wrong?"""
        is_gone = self.replica.log.is_removed or self.replica.is_moved
        return bool(self._left) or self.offset < self.end_offset or is_gone

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
        self._left.clear()
