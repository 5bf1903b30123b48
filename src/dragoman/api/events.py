"""Records as Server-Sent Events, from the moment a client asks until either side ends it.

    id: 0:42,1:7@9f3a01c2          next offsets by partition, and the topic's id, for Last-Event-ID
    data: {"partition":0,…}        a record, as in a page of records

    event: start                   the first event: where the stream begins
    event: lagging                 records were deleted before the client had received them
    event: end                     why the node ends the stream
    :                              a heartbeat, after some seconds without an event

A stream has positions and no queue: it reads the next records when the client has received those
before, so a slow client costs no memory. A client that receives nothing for `HTTP_DELIVERY_SECONDS`
is disconnected (`connection.py`). A stream holds its right (`broker/grants.py`): it ends with the
right, or with the login.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial

import msgspec

from dragoman import limits
from dragoman.api.declaration import ApiError, EventStream
from dragoman.api.record_reader import PartitionReader, Turns
from dragoman.api.record_values import ReadRecord
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.log.batch import Record

#: Makes the reader of a partition, given what to call when there is more.
OpenReader = Callable[[int, Callable[[], None]], PartitionReader]
#: The JSON of a record of a partition.
Show = Callable[[int, Record], ReadRecord]


class Lagging(msgspec.Struct, frozen=True, kw_only=True):
    """Records that the stream leaves out."""

    partition: int
    #: The offset at which the stream was, and that at which it continues.
    before: int
    after: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    detail: str


class RecordEvents(EventStream):
    def __init__(
        self,
        positions: dict[int, int],
        mark: str,
        open_reader: OpenReader,
        show: Show,
        turns: Turns,
        count: Callable[[int], float],
        released: Callable[[RecordEvents], None],
    ) -> None:
        """`positions` are the first offsets by partition, in a topic with this mark (`mark_of`);
        `count` counts bytes that are sent, and says for how long to pause; `released` is called
        once, at the end.
        """
        self._show = show
        self._turns = turns
        self._count = count
        self._pause_s = 0.0
        self._ended = asyncio.Event()
        self._released = released
        self._changed = asyncio.Event()
        self._end: DragomanError | None = None
        self._is_closed = False
        self._checked_at = asyncio.get_running_loop().time()
        #: Records that were read in the last step, with their partition.
        self._unsent: deque[tuple[int, Record]] = deque()
        #: Partitions that may have more, in the order of their turns.
        self._ready: dict[int, None] = dict.fromkeys(positions)
        self._readers = {
            index: open_reader(index, partial(self._on_change, index)) for index in positions
        }
        self.positions = positions
        self._mark = mark

    def end(self, error: DragomanError) -> None:
        """End the stream with an event that says why."""
        self._end = self._end or error
        self._changed.set()
        self._ended.set()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            for each in self._readers.values():
                each.close()
            self._released(self)

    def _on_change(self, index: int) -> None:
        self._ready[index] = None
        self._changed.set()

    async def events(self) -> AsyncIterator[bytes]:
        yield self._event("start", msgspec.json.encode(self.positions))
        while self._end is None:
            self._check_again()
            if self._pause_s:
                await self._pause()
                yield b":\n\n"
            elif self._unsent:
                yield await self._shown()
            elif self._ready:
                chunk = await self._step()
                if chunk:
                    yield chunk
            elif not await self._is_changed():
                yield b":\n\n"
        ended = Ended(code=self._end.code, detail=str(self._end))
        yield self._event("end", msgspec.json.encode(ended))

    async def _is_changed(self) -> bool:
        """Whether there may be more; False after the time of a heartbeat."""
        self._changed.clear()
        try:
            async with asyncio.timeout(limits.HTTP_HEARTBEAT_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _pause(self) -> None:
        """Send nothing while a quota is exceeded, or until a heartbeat is due."""
        seconds = min(self._pause_s, limits.HTTP_HEARTBEAT_SECONDS)
        self._pause_s -= seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def _check_again(self) -> None:
        """A token may have expired, which is no change that grants hear of."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < limits.HTTP_HEARTBEAT_SECONDS:
            return
        self._checked_at = now
        try:
            self.check()
        except DragomanError as error:
            self.end(error)

    async def _step(self) -> bytes:
        """Read the next records of a partition; returns an event about a gap before them."""
        index = next(iter(self._ready))
        del self._ready[index]
        reader = self._readers[index]
        try:
            records = await reader.read(
                limits.HTTP_EVENT_BYTES_PER_STEP, limits.HTTP_SHOWN_RECORDS_PER_TURN
            )
            if not records:
                self.positions[index] = reader.offset
                reader.wait()
                return b""
        except OffsetOutOfRangeError:
            return self._skipped(index, reader)
        except DragomanError as error:
            self.end(error)
            return b""
        # Other partitions have their turns before the next records of this one.
        self._ready[index] = None
        self._unsent.extend((index, each) for each in records)
        return b""

    def _skipped(self, index: int, reader: PartitionReader) -> bytes:
        before, after = reader.offset, reader.log_start_offset
        if after <= before:
            # Not deleted: the log is shorter than it was.
            self.end(OffsetOutOfRangeError(f"partition {index} has no offset {before} any more"))
            return b""
        reader.seek(after)
        self.positions[index] = after
        self._ready[index] = None
        lagging = Lagging(partition=index, before=before, after=after)
        return self._event("lagging", msgspec.json.encode(lagging))

    async def _shown(self) -> bytes:
        """Events of records that were read, as many as are made in one turn of the loop."""
        shown = bytearray()
        async with self._turns.one():
            while self._unsent and len(shown) < limits.HTTP_SHOWN_BYTES_PER_TURN:
                index, record = self._unsent.popleft()
                self.positions[index] = record.offset + 1
                shown += self._event("", msgspec.json.encode(self._show(index, record)))
        self._pause_s = self._count(len(shown))
        return bytes(shown)

    def _event(self, kind: str, data: bytes) -> bytes:
        # A value that is shown as JSON may have line ends between its tokens.
        line = data.replace(b"\n", b" ").replace(b"\r", b" ")
        name = f"event: {kind}\n".encode() if kind else b""
        known = ",".join(f"{index}:{offset}" for index, offset in self.positions.items())
        return b"id: %s@%s\n%sdata: %s\n\n" % (known.encode(), self._mark.encode(), name, line)


def mark_of(topic_id: bytes) -> str:
    """What tells a topic from a later one of the same name."""
    return topic_id.hex()[:8]


def positions_of(last_event_id: str, mark: str) -> dict[int, int]:
    """Next offsets by partition, in the topic with this mark. Raises `ApiError`, and
    `OffsetOutOfRangeError` if they are of another topic.
    """
    found: dict[int, int] = {}
    offsets, at, known_mark = last_event_id.partition("@")
    if at and known_mark != mark:
        raise OffsetOutOfRangeError("the topic was deleted and created again: begin anew")
    for each in offsets.split(",") if offsets else ():
        index, colon, offset = each.partition(":")
        are_numbers = all(part.isascii() and part.isdigit() for part in (index, offset))
        if not (colon and are_numbers and len(index) <= 9 and len(offset) <= 18):
            text = f"Last-Event-ID: expected PARTITION:OFFSET,…, got {last_event_id[:100]!r}"
            raise ApiError(400, "invalid_request", text)
        found[int(index)] = int(offset)
    return found
