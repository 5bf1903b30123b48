"""Records as Server-Sent Events, from the moment a client asks until either side ends it.

    id: 0:42,1:7                   next offsets by partition, for Last-Event-ID
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
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial

import msgspec

from dragoman import limits
from dragoman.api.declaration import ApiError, EventStream
from dragoman.api.record_reader import PartitionReader
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
        open_reader: OpenReader,
        show: Show,
        released: Callable[[RecordEvents], None],
    ) -> None:
        """`positions` are the first offsets by partition; `released` is called once, at the end."""
        self._show = show
        self._released = released
        self._changed = asyncio.Event()
        self._end: DragomanError | None = None
        self._is_closed = False
        #: Partitions that may have more, in the order of their turns.
        self._ready: dict[int, None] = dict.fromkeys(positions)
        self._readers = {
            index: open_reader(index, partial(self._on_change, index)) for index in positions
        }
        self.positions = positions

    def end(self, error: DragomanError) -> None:
        """End the stream with an event that says why."""
        self._end = self._end or error
        self._changed.set()

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
            if self._ready:
                index = next(iter(self._ready))
                del self._ready[index]
                chunk = await self._step(index)
                if chunk:
                    yield chunk
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(limits.HTTP_HEARTBEAT_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                self._check()
                yield b":\n\n"
        ended = Ended(code=self._end.code, detail=str(self._end))
        yield self._event("end", msgspec.json.encode(ended))

    def _check(self) -> None:
        """A token may have expired."""
        try:
            self.check()
        except DragomanError as error:
            self.end(error)

    async def _step(self, index: int) -> bytes:
        """The next events of a partition; empty when there are none now."""
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
        return b"".join(self._shown(index, records))

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

    def _shown(self, index: int, records: Iterable[Record]) -> Iterable[bytes]:
        for record in records:
            self.positions[index] = record.offset + 1
            yield self._event("", msgspec.json.encode(self._show(index, record)))

    def _event(self, kind: str, data: bytes) -> bytes:
        # A value that is shown as JSON may have line ends between its tokens.
        line = data.replace(b"\n", b" ").replace(b"\r", b" ")
        name = f"event: {kind}\n".encode() if kind else b""
        known = ",".join(f"{index}:{offset}" for index, offset in self.positions.items())
        return b"id: %s\n%sdata: %s\n\n" % (known.encode(), name, line)


def positions_of(last_event_id: str) -> dict[int, int]:
    """Next offsets by partition. Raises `ApiError`."""
    found: dict[int, int] = {}
    for each in last_event_id.split(",") if last_event_id else ():
        index, colon, offset = each.partition(":")
        are_numbers = all(part.isascii() and part.isdigit() for part in (index, offset))
        if not (colon and are_numbers and len(index) <= 9 and len(offset) <= 18):
            text = f"Last-Event-ID: expected PARTITION:OFFSET,…, got {last_event_id[:100]!r}"
            raise ApiError(400, "invalid_request", text)
        found[int(index)] = int(offset)
    return found
