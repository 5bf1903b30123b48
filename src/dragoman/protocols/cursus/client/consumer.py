"""A member of a consumer group: streams of its partitions, heartbeats and commits.

    joined ── heartbeat or commit refused ──► rejoins, with the same id if the group still has it
           ── stream ends, connection lost ──► the stream is reopened, with increasing pauses

A new stream begins at the committed offset; records that were received before are dropped. Streams
are not read while too many records are queued.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, Self, TypedDict, Unpack
from uuid import uuid4

from dragoman.client_core.errors import ClientClosedError, ClientError
from dragoman.errors import DragomanError
from dragoman.limits import CURSUS_CLIENT_QUEUE_MAX
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.client.connection import (
    Commands,
    MemberFencedError,
    NotLeaderError,
    Record,
    broker_address,
    encoded,
    open_stream,
    server_error,
)
from dragoman.protocols.cursus.constants import ERROR_PREFIX, STREAM_CONTROL
from dragoman.protocols.cursus.messages import Batch, KeepAlive, Text

log = logging.getLogger("dragoman.client.cursus")


class ConsumerOptions(TypedDict, total=False):
    """Options of a consumer. Times are in seconds."""

    #: Name of the member. The broker appends digits.
    member: str
    #: Where to start without a committed offset, or if its record was deleted; default: earliest.
    reset: Literal["earliest", "latest"]
    #: Interval between commits of the records that the caller has processed; default: 5. None
    #: disables automatic commits.
    auto_commit_s: float | None
    #: Interval of heartbeats; default: 3.
    heartbeat_s: float
    #: A stream without records or keep-alives for this long is reopened; default: 15.
    stream_silence_s: float


def offsets_text(offsets: dict[int, int]) -> str:
    """Offsets by partition, as commits encode them."""
    return ",".join(f"P{index}:{offset}" for index, offset in offsets.items())


class _Partition:
    """One assigned partition: its positions, and the task that keeps its stream open."""

    def __init__(self, start: int) -> None:
        #: Offsets of the next record to queue and the next record to deliver, and the committed
        #: offset.
        self.position = self.delivered = self.committed = start
        self.reader: asyncio.Task[None] | None = None


class Consumer:
    def __init__(
        self, client: Commands, topic: str, group: str, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._member = options.get("member") or f"dragoman-{uuid4().hex[:8]}"
        self._reset = options.get("reset", "earliest")
        self._auto_commit_s = options.get("auto_commit_s", 5.0)
        self._heartbeat_s = options.get("heartbeat_s", 3.0)
        self._silence_s = options.get("stream_silence_s", 15.0)
        self.generation = 0
        self.assigned: tuple[int, ...] = ()
        self._partitions: dict[int, _Partition] = {}
        self._queue: deque[Record] = deque()
        #: The last delivered record, which the caller may be processing until it takes the next
        #: one.
        self._processing: Record | None = None
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._joining = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: DragomanError | None = None
        self._is_joined = False

    @property
    def member_id(self) -> str:
        return self._member

    # ---- public methods

    async def start(self) -> None:
        """Join the group. Raises `ClientError`."""
        await self._join()
        self._tasks = [asyncio.create_task(self._often(self._heartbeat_s, self._beat))]
        if self._auto_commit_s is not None:
            commit = self._often(self._auto_commit_s, self._commit_done)
            self._tasks.append(asyncio.create_task(commit))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        if not any(raised):
            self._processing = None
        await self._close()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        """The next record. The previous one counts as processed."""
        record = await self.take(None)
        assert record is not None
        return record

    async def take(self, timeout_s: float | None) -> Record | None:
        """The next record; None on a timeout. The previous one counts as processed."""
        self._processing = None
        try:
            async with asyncio.timeout(timeout_s):
                while (record := self._next()) is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return None
        self._processing = record
        return record

    def _next(self) -> Record | None:
        if self._failed is not None:
            raise self._failed
        while self._queue:
            record = self._queue.popleft()
            if len(self._queue) <= CURSUS_CLIENT_QUEUE_MAX // 2:
                self._has_room.set()
            partition = self._partitions.get(record.partition)
            if partition is not None and record.offset >= partition.delivered:
                partition.delivered = record.offset + 1
                return record
        return None

    async def commit(self) -> None:
        """Commit all delivered records. Raises `MemberFencedError` if another member owns one of
        their partitions.
        """
        self._processing = None
        await self._commit_done()

    async def _commit_done(self) -> None:
        offsets = self.handed_out()
        if self._processing is not None and self._processing.partition in offsets:
            offsets[self._processing.partition] = self._processing.offset
        offsets = {
            index: offset
            for index, offset in offsets.items()
            if offset > self._partitions[index].committed
        }
        if not offsets:
            return
        await self._client.command("BATCH_COMMIT", self.identity(), last=offsets_text(offsets))
        for index, offset in offsets.items():
            if index in self._partitions:
                self._partitions[index].committed = offset

    def handed_out(self) -> dict[int, int]:
        """The next offset of each partition with delivered records that are not committed."""
        return {
            index: each.delivered
            for index, each in self._partitions.items()
            if each.delivered > each.committed
        }

    async def close(self) -> None:
        """Commit if commits are automatic, leave the group, and end the streams.

        When an exception leaves the `async with` block, the last record is not committed.
        """
        self._processing = None
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            if self._is_joined and self._failed is None:
                if self._auto_commit_s is not None:
                    await self._commit_done()
                await self._client.command("LEAVE_GROUP", self.identity(), repeat=False)
        except ClientError as error:
            log.info("leaving group %s: %s", self._group, error)
        finally:
            self._is_joined = False
            self._failed = self._failed or ClientClosedError("the consumer is closed")
            self._changed.set()
            await self._give_up(set(self._partitions))
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- membership

    def identity(self) -> dict[str, str | int]:
        """The arguments that identify this member in its commands."""
        return {
            "topic": self._topic,
            "group": self._group,
            "member": self._member,
            "generation": self.generation,
        }

    async def _join(self) -> None:
        async with self._joining:
            who = self.identity()
            if not self._is_joined:
                del who["generation"]
            try:
                found = await self._client.fields("JOIN_GROUP", who)
            except MemberFencedError:
                # The group has removed the member: join as a new one, without the digits.
                self._member = re.sub(r"-\d{4,}$", "", self._member)
                self._is_joined = False
                who = {"topic": self._topic, "group": self._group, "member": self._member}
                found = await self._client.fields("JOIN_GROUP", who)
            self._is_joined = True
            self._member = found["member"]
            self.generation = int(found["generation"])
            self.assigned = tuple(map(int, re.findall(r"\d+", found["assignments"])))
            await self._assign()

    async def _assign(self) -> None:
        await self._give_up(set(self._partitions) - set(self.assigned))
        for index in self.assigned:
            if index in self._partitions:
                continue
            start = await self._client.committed(self._group, self._topic, index)
            if not start and self._reset == "latest":
                start = (await self._client.offsets(self._topic))[index].latest
            partition = self._partitions[index] = _Partition(start)
            partition.reader = asyncio.create_task(self._keep_reading(index, partition))

    async def _give_up(self, indexes: set[int]) -> None:
        readers = [self._partitions.pop(index).reader for index in indexes]
        for each in readers:
            if each is not None:
                each.cancel()
        await asyncio.gather(*(each for each in readers if each), return_exceptions=True)
        self._queue = deque(each for each in self._queue if each.partition not in indexes)

    async def _beat(self) -> None:
        await self._client.command("HEARTBEAT", self.identity())
        if self._partitions.keys() != set(self.assigned):
            # The last join was incomplete.
            await self._join_again()

    async def _often(self, interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await action()
            except MemberFencedError:
                await self._join_again()
            except ClientError as error:
                log.warning("group %s: %s", self._group, error)

    async def _join_again(self) -> None:
        try:
            await self._join()
        except ClientError as error:
            if not error.retriable:
                self._fail(error)
            log.warning("joining group %s again: %s", self._group, error)

    def _fail(self, error: DragomanError) -> None:
        self._failed = error
        self._changed.set()

    # ---- streams

    async def _keep_reading(self, index: int, partition: _Partition) -> None:
        failures = 0
        while True:
            before = partition.position
            try:
                await self._read(index, partition)
            except (NotLeaderError, MemberFencedError) as error:
                # The next attempt looks up the leader; the next heartbeat detects a lost
                # membership.
                log.info("stream of %s-%d: %s", self._topic, index, error)
            except DragomanError as error:
                if isinstance(error, ClientError) and not error.retriable:
                    self._fail(error)
                    return
                # This includes undecodable bytes: the next connection may be intact.
                log.info("stream of %s-%d: %s", self._topic, index, error)
            failures = 0 if partition.position > before else failures + 1
            await asyncio.sleep(self._client.retry.pause_s(max(1, failures)))

    async def _read(self, index: int, partition: _Partition) -> None:
        """Read one stream until it ends."""
        info = await self._client.topic(self._topic)
        request = self.identity() | {"partition": index, "offset": partition.position}
        settings, payload = self._client.settings, encoded("STREAM", request)
        leader = broker_address(info.leaders[index])
        async with open_stream(leader, settings, payload) as stream:
            while True:
                if not self._has_room.is_set():
                    # Back-pressure: unread frames fill the socket, then the broker stops sending.
                    stream.channel.pause()
                    await self._has_room.wait()
                    stream.channel.resume()
                if await self._take_in(index, partition, await stream.next(self._silence_s)):
                    return

    async def _take_in(self, index: int, partition: _Partition, frame: bytearray) -> bool:
        """Handle a frame. Returns whether the stream has ended."""
        match codec.decode_reply(frame):
            case KeepAlive():
                return False
            case Batch(messages=messages):
                for each in messages:
                    if each.offset >= partition.position:
                        partition.position = each.offset + 1
                        self._queue.append(
                            Record(
                                topic=self._topic,
                                partition=index,
                                offset=each.offset,
                                key=each.key,
                                payload=each.payload,
                            )
                        )
                if len(self._queue) > CURSUS_CLIENT_QUEUE_MAX:
                    self._has_room.clear()
                self._changed.set()
                return False
            case Text(text=text):
                return await self._obey(partition, text)

    async def _obey(self, partition: _Partition, text: str) -> bool:
        if text.startswith(ERROR_PREFIX):
            raise server_error(text)
        if text.startswith(STREAM_CONTROL) and "reason=offset_out_of_range" in text:
            found = dict(re.findall(r"(earliest|latest)=(\d+)", text))
            # The broker prefers the committed offset to the requested one, so commit the new one.
            partition.position = int(found[self._reset])
            partition.delivered = max(partition.delivered, partition.position)
            if partition.delivered > partition.committed:
                await self._commit_done()
        elif "reason=replaced" in text:
            # Another member now reads the partition, and a new stream would end that member's. The
            # next heartbeat detects whether this member has lost the partition.
            await asyncio.sleep(self._heartbeat_s)
        return True
