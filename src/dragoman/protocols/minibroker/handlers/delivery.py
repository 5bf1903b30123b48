"""Delivers records to a connection: in small portions, fair to all partitions, replies first.

Replies and pushes share the connection's buffers, and a reply must never wait behind many pushes.
So one portion is pushed per loop turn, and none until the peer has received the previous ones
(`PUSHED_UNSENT_BYTES_MAX`). After each portion a partition moves to the end of the queue. For a
peer that does not read, only one portion of records is kept in memory.

A group subscription also has a window, which bounds how far its pushes may run ahead of the
client's commits. The original client queues up to 256 records per subscription, and stops reading
the connection when the queue is full. A handler that then commits waits forever, because its OK is
behind unread records. Only commits reveal to the server which records the program has processed. So
at most `PUSH_WINDOW_RECORDS` uncommitted records are pushed.

Not every client commits after each record, and some never commit. They must not be delayed for
long:

- A commit of many records at once shows how often the client commits: the window grows to that
  number plus the usual one.
- A commit that leaves nothing in flight shows that the client waited for records: the window
  doubles.
- When a client does not commit although its window is full, the window grows fourfold after
  `PUSH_PATIENCE_S`, or after `PUSH_PATIENCE_COMMITTING_S` if the client has committed before.
- Past `PUSH_WINDOW_RECORDS_MAX` the window is unbounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from dragoman.broker.errors import Overloaded
from dragoman.broker.readers import Readers
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.limits import (
    PUSH_PATIENCE_COMMITTING_S,
    PUSH_PATIENCE_S,
    PUSH_PORTION_BYTES_MAX,
    PUSH_PORTION_RECORDS_MAX,
    PUSH_WINDOW_RECORDS,
    PUSH_WINDOW_RECORDS_MAX,
    TAIL_PARKING_PAUSE_S,
)
from dragoman.log.batch import Record
from dragoman.protocols.minibroker.codec import DeliveredFrames
from dragoman.protocols.minibroker.errors import reader_failed
from dragoman.types import Buffer
from dragoman.world import Handle, Scheduler


class Recipient(Protocol):
    """The session that records are pushed to."""

    @property
    def can_send(self) -> bool:
        """Whether the peer accepts data. `Pusher.resume` is called when it does so again."""
        ...

    def push(self, *buffers: Buffer) -> None: ...

    def end(self, reason: str) -> None:
        """Send the reason and close the connection."""
        ...


class Window:
    def __init__(self, scheduler: Scheduler, pusher: Pusher, *, commits: bool = False) -> None:
        self._scheduler = scheduler
        self._pusher = pusher
        #: Whether the client is known to commit.
        self.commits = commits
        self.size = PUSH_WINDOW_RECORDS
        #: Offsets that were pushed and not committed, by partition, in order.
        self._sent: dict[int, deque[int]] = {}
        self._in_flight = 0
        self._waiting: list[Stream] = []
        self._timer: Handle | None = None

    @property
    def is_bounded(self) -> bool:
        return self.size <= PUSH_WINDOW_RECORDS_MAX

    @property
    def room(self) -> int:
        """The number of further records that may be pushed now."""
        return self.size - self._in_flight if self.is_bounded else PUSH_WINDOW_RECORDS_MAX

    def sent(self, partition: int, offsets: list[int]) -> None:
        if self.is_bounded:
            self._sent.setdefault(partition, deque()).extend(offsets)
            self._in_flight += len(offsets)

    def wait(self, stream: Stream) -> None:
        """Queue the stream when the window has room again."""
        self._waiting.append(stream)
        if self._timer is None:
            patience = PUSH_PATIENCE_COMMITTING_S if self.commits else PUSH_PATIENCE_S
            self._timer = self._scheduler.call_later(patience, self._lose_patience)

    def committed(self, partition: int, offset: int) -> None:
        sent = self._sent.get(partition, deque())
        was_full = self.room <= 0
        taken = 0
        while sent and sent[0] < offset:
            sent.popleft()
            taken += 1
        self._in_flight -= taken
        if not taken or not self.is_bounded:
            return
        if not self.commits:
            # The client does commit: undo the growth for clients that do not.
            self.commits = True
            self.size = PUSH_WINDOW_RECORDS
        if was_full and not self._in_flight:
            self.size *= 2
        self.size = max(self.size, taken + PUSH_WINDOW_RECORDS)
        self._resume()

    def forget(self, partition: int) -> None:
        """Drop a partition that now belongs to another member: do not wait for its commits."""
        self._in_flight -= len(self._sent.pop(partition, ()))
        self._resume()

    def close(self) -> None:
        self._stop_timer()
        self._waiting.clear()

    def _lose_patience(self) -> None:
        self._timer = None
        self.size *= 4
        self._resume()

    def _resume(self) -> None:
        if not self.is_bounded:
            self._sent.clear()
            self._in_flight = 0
        if self.room > 0:
            self._stop_timer()
            waiting, self._waiting = self._waiting, []
            for stream in waiting:
                if not stream.is_closed:
                    self._pusher.line_up(stream)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Stream:
    """Reads one partition for one connection."""

    __slots__ = (
        "_count_sent",
        "_frames",
        "_index",
        "_pusher",
        "_tail",
        "_topic",
        "_window",
        "is_closed",
        "is_queued",
    )

    def __init__(
        self,
        pusher: Pusher,
        readers: Readers,
        partition: PartitionMetadata,
        offset: int,
        window: Window | None,
        count_sent: Callable[[Sequence[Record]], None],
    ) -> None:
        self._pusher = pusher
        self._count_sent = count_sent
        self._topic = partition.topic.name
        self._index = partition.index
        self._tail = readers.open(partition, offset, self._changed)
        self._frames = DeliveredFrames(self._topic, self._index)
        self._window = window
        self.is_closed = False
        #: Set by the pusher.
        self.is_queued = False

    def begin(self) -> None:
        self._pusher.line_up(self)

    def _changed(self) -> None:
        if not self.is_closed:
            self._pusher.line_up(self)

    def next_frames(self, bytes_max: int, count_max: int) -> list[Buffer]:
        """The next frames. If there are none, the stream is queued again once there are more."""
        window = self._window
        if window is not None:
            count_max = min(count_max, window.room)
            if count_max <= 0:
                window.wait(self)
                return []
        records = self._read(bytes_max, count_max)
        if not records:
            self._wait()
            return []
        if window is not None:
            window.sent(self._index, [record.offset for record in records])
        self._count_sent(records)
        frame = self._frames.frame
        return [frame(each.offset, each.key or b"", each.value or b"") for each in records]

    def _read(self, bytes_max: int, count_max: int) -> list[Record]:
        """Read the next records; below the log start, from the oldest remaining record."""
        try:
            return self._tail.read(bytes_max, count_max)
        except OffsetOutOfRangeError:
            self._tail.seek(self._tail.log_start_offset)
            return self._tail.read(bytes_max, count_max)

    def _wait(self) -> None:
        try:
            self._tail.wait()
        except Overloaded:
            self._pusher.scheduler.call_later(TAIL_PARKING_PAUSE_S, self._changed)

    def failure(self, error: DragomanError) -> str:
        return reader_failed(self._topic, self._index, str(error))

    def close(self) -> None:
        self.is_closed = True
        self._tail.close()


class Pusher:
    def __init__(self, session: Recipient, scheduler: Scheduler) -> None:
        self._session = session
        self.scheduler = scheduler
        #: Streams that may have records to push.
        self._queue: deque[Stream] = deque()
        #: By topic: the latest assignment to announce to the client.
        self._announced: dict[str, bytes] = {}
        self._is_due = False

    def line_up(self, stream: Stream) -> None:
        if not stream.is_queued:
            stream.is_queued = True
            self._queue.append(stream)
        self.resume()

    def announce(self, topic: str, frame: bytes) -> None:
        """Push an assignment before any more records. A later one replaces it if it has not
        left.
        """
        self._announced[topic] = frame
        if self._session.can_send:
            self._push_announced()

    def forget(self, topic: str) -> None:
        self._announced.pop(topic, None)

    def resume(self) -> None:
        if not self._is_due and (self._queue or self._announced) and self._session.can_send:
            self._is_due = True
            self.scheduler.call_soon(self._push_portion)

    def _push_announced(self) -> None:
        if self._announced:
            self._session.push(*self._announced.values())
            self._announced.clear()

    def _push_portion(self) -> None:
        self._is_due = False
        if not self._session.can_send:
            return
        self._push_announced()
        queue = self._queue
        room, count = PUSH_PORTION_BYTES_MAX, PUSH_PORTION_RECORDS_MAX
        while queue and room > 0 and count > 0:
            stream = queue.popleft()
            stream.is_queued = False
            if stream.is_closed:
                continue
            try:
                frames = stream.next_frames(room, count)
            except DragomanError as error:
                stream.close()
                self._session.end(stream.failure(error))
                return
            if frames:
                self._session.push(*frames)
                room -= sum(map(len, frames))
                count -= len(frames)
                stream.is_queued = True
                queue.append(stream)
        self.resume()
