"""Pushing records to one connection: in small portions, fair to all partitions, replies first.

Replies and pushes share the connection's buffers, so what a reply may have to wait for is kept
small: a portion is pushed per loop turn, and none while the peer has not taken what it was sent
before (`PUSHED_UNSENT_BYTES_MAX`). A partition takes its place at the end of the line after each
portion. Nothing is held for a connection that does not take it but what was read for one portion.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dragoman.broker.errors import Overloaded
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.limits import (
    PUSH_PORTION_BYTES_MAX,
    PUSH_PORTION_RECORDS_MAX,
    TAIL_PARKING_PAUSE_S,
)
from dragoman.log.batch import Record
from dragoman.protocols.minibroker.codec import DeliveredFrames
from dragoman.protocols.minibroker.errors import reader_failed
from dragoman.protocols.minibroker.handlers.window import Window
from dragoman.types import Buffer
from dragoman.world import Scheduler

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker
    from dragoman.protocols.minibroker.handlers.session import MinibrokerSession


class Stream:
    """One partition on its way to one connection."""

    __slots__ = (
        "_frames",
        "_index",
        "_pusher",
        "_tail",
        "_topic",
        "_window",
        "is_closed",
        "is_in_line",
    )

    def __init__(
        self,
        pusher: Pusher,
        broker: Broker,
        partition: PartitionMetadata,
        offset: int,
        window: Window | None,
    ) -> None:
        self._pusher = pusher
        self._topic = partition.topic.name
        self._index = partition.index
        self._tail = broker.readers.open(partition, offset, self._changed)
        self._frames = DeliveredFrames(self._topic, self._index)
        self._window = window
        self.is_closed = False
        #: Kept by the pusher.
        self.is_in_line = False

    def begin(self) -> None:
        self._pusher.line_up(self)

    def _changed(self) -> None:
        if not self.is_closed:
            self._pusher.line_up(self)

    def next_frames(self, bytes_max: int, count_max: int) -> list[Buffer]:
        """Empty when there is nothing now: then the stream comes back by itself."""
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
        frame = self._frames.frame
        return [frame(each.offset, each.key or b"", each.value or b"") for each in records]

    def _read(self, bytes_max: int, count_max: int) -> list[Record]:
        """A place that was deleted meanwhile is left for the oldest that is there."""
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
    def __init__(self, session: MinibrokerSession, scheduler: Scheduler) -> None:
        self._session = session
        self.scheduler = scheduler
        #: Streams that may have something.
        self._line: deque[Stream] = deque()
        #: By topic: the last assignment that the client is to know of.
        self._announced: dict[str, bytes] = {}
        self._is_due = False

    def line_up(self, stream: Stream) -> None:
        if not stream.is_in_line:
            stream.is_in_line = True
            self._line.append(stream)
        self.go_on()

    def announce(self, topic: str, frame: bytes) -> None:
        """Before any more records. Only the last one counts, so that none pile up."""
        self._announced[topic] = frame
        if self._session.can_push:
            self._push_announced()

    def forget(self, topic: str) -> None:
        self._announced.pop(topic, None)

    def go_on(self) -> None:
        if not self._is_due and (self._line or self._announced) and self._session.can_push:
            self._is_due = True
            self.scheduler.call_soon(self._push_portion)

    def _push_announced(self) -> None:
        if self._announced:
            self._session.push(*self._announced.values())
            self._announced.clear()

    def _push_portion(self) -> None:
        self._is_due = False
        if not self._session.can_push:
            return
        self._push_announced()
        line = self._line
        room, count = PUSH_PORTION_BYTES_MAX, PUSH_PORTION_RECORDS_MAX
        while line and room > 0 and count > 0:
            stream = line.popleft()
            stream.is_in_line = False
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
                stream.is_in_line = True
                line.append(stream)
        self.go_on()
