"""A reader of the local replica of a partition, record by record.

For protocols that send decoded records to their clients. A `LocalReader` has a position, returns
the records from there in bounded pieces, and calls its owner back when more can be read. Control
records and records of aborted transactions are skipped. It stops at the last stable offset, or at
the high watermark where records of open and aborted transactions are wanted too.

Batches are decoded when their records are needed, and large ones a few records at a time: a
compressed batch of a hundred kilobytes may hold half a million records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from dragoman.broker.errors import MessageTooLarge, Overloaded, UnknownTopic
from dragoman.broker.fetch import FetchLimits, Wanted, read_all
from dragoman.errors import CorruptionError, DecodeError, OffsetOutOfRangeError, OversizedBatchError
from dragoman.limits import (
    BATCH_HEADER_BYTES,
    DECODED_AT_ONCE_BYTES_MAX,
    DECODED_AT_ONCE_RECORDS_MAX,
)
from dragoman.log.batch import CODEC_MASK, BatchHeader, Record, records
from dragoman.log.expansion import Expanded, expanded_bytes_max, expands_beyond
from dragoman.log.isolation import Aborted, VisibleBatches
from dragoman.replication.replica import Replica, not_leader

#: Yields the records of a batch that is decoded piece by piece. Raises `DecodeError`.
Expand: TypeAlias = Callable[[BatchHeader, memoryview], Expanded]


class RecordBuffer:
    """Batches that were read, and their records that were not returned yet."""

    __slots__ = ("_batches", "_error", "_expand", "_left", "_offset", "_source", "_walk")

    def __init__(self, view: memoryview, aborted: Aborted, offset: int, expand: Expand) -> None:
        self._walk = VisibleBatches(view, aborted, offset)
        self._batches = iter(self._walk)
        self._expand = expand
        self._offset = offset
        self._left: deque[Record] = deque()
        #: The rest of a large batch.
        self._source: Iterator[Record] | None = None
        self._error: DecodeError | None = None
        self._pull()

    @property
    def is_over(self) -> bool:
        """Whether all records were returned; `next_offset` is the next position then."""
        return not self._left and self._error is None

    @property
    def next_offset(self) -> int:
        return self._walk.next_offset

    @property
    def is_large(self) -> bool:
        """Whether the batch is decoded piece by piece; it is better read again than kept."""
        return self._source is not None

    def take(self, bytes_max: int, count_max: int) -> list[Record]:
        """The next records, at least one if there is any. Raises `DecodeError` at a malformed
        one.
        """
        if not self._left and self._error is not None:
            raise self._error
        given: list[Record] = []
        size = 0
        while self._left and len(given) < count_max:
            record = self._left[0]
            size += len(record.key or b"") + len(record.value or b"")
            if given and size > bytes_max:
                break
            given.append(self._left.popleft())
            if not self._left:
                self._pull()
        return given

    def _pull(self) -> None:
        try:
            while not self._left:
                if self._source is not None:
                    self._left.extend(islice(self._source, DECODED_AT_ONCE_RECORDS_MAX))
                    if not self._left:
                        self._source = None
                    continue
                found = next(self._batches, None)
                if found is None:
                    return
                self._open(*found)
        except DecodeError as error:
            self._error = error.with_traceback(None)

    def _open(self, header: BatchHeader, batch: memoryview) -> None:
        codec = header.attributes & CODEC_MASK
        if header.record_count > DECODED_AT_ONCE_RECORDS_MAX or (
            codec and expands_beyond(codec, batch[BATCH_HEADER_BYTES:], DECODED_AT_ONCE_BYTES_MAX)
        ):
            self._source = self._expand(header, batch).records(self._offset)
            return
        try:
            decoded = records(batch, header, DECODED_AT_ONCE_BYTES_MAX)
        except OversizedBatchError:
            # The batch states a false size.
            self._source = self._expand(header, batch).records(self._offset)
            return
        if header.base_offset < self._offset:
            decoded = [record for record in decoded if record.offset >= self._offset]
        self._left.extend(decoded)


class LocalReader:
    """`on_change` is called once after each `wait`, perhaps within the call: read again."""

    __slots__ = ("_committed_only", "_is_waiting", "_on_change", "_unread", "offset", "replica")

    def __init__(
        self,
        replica: Replica,
        offset: int,
        on_change: Callable[[], None],
        *,
        committed_only: bool = True,
    ) -> None:
        """An offset past the end waits for it; `read` reports a deleted one."""
        self.replica = replica
        #: The offset of the next record to return, or of the next one appended.
        self.offset = offset
        self._on_change = on_change
        self._committed_only = committed_only
        self._is_waiting = False
        #: Batches that were read, so that each is decoded once, however small the pieces.
        self._unread: RecordBuffer | None = None

    @property
    def log_start_offset(self) -> int:
        return self.replica.log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The end for this reader."""
        log = self.replica.log
        return log.last_stable_offset if self._committed_only else log.high_watermark

    def seek(self, offset: int) -> None:
        self.offset = offset
        self._unread = None

    def read(self, bytes_max: int, count_max: int) -> list[Record]:
        """The next records, in order; empty when there are none now.

        At least one record is returned if there is any, whatever its size. Raises
        `OffsetOutOfRangeError` when the position was deleted, `CorruptionError` for damage,
        `MessageTooLarge` for a compressed batch that expands too far, `UnknownTopic` when the
        partition is gone, and `NotLeader` when it has moved to other nodes.
        """
        while True:
            if self._unread is None and not self._fill(bytes_max):
                return []
            assert self._unread is not None
            given = self._give(self._unread, bytes_max, count_max)
            if given:
                return given

    def _give(self, unread: RecordBuffer, bytes_max: int, count_max: int) -> list[Record]:
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
            # Batches without visible records (markers, aborted ones) may fill a whole read.
            self.offset = max(self.offset, unread.next_offset)
            self._unread = None
        elif unread.is_large:
            self._unread = None
        return given

    def _fill(self, bytes_max: int) -> bool:
        """Read the next batches; returns whether there are any."""
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
                self._unread = RecordBuffer(view, found.aborted or (), self.offset, self._expand)
                return True
            # A gap that compaction left at the end reads as empty.
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
        """Whether `read` would return records or raise."""
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
