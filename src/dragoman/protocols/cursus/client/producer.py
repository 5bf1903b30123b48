"""Producers: `Producer` delivers each message once and in order; `Transaction` spans partitions.

Every producer has a unique id and numbers its messages per partition, so that the broker recognises
duplicates. There is no linger time: while a batch of a partition is in flight, the next one fills.
`send` waits while too many bytes are unsent.

    async with client.transaction("billing") as transaction:
        await transaction.publish("orders", b"...")

Leaving the block commits the transaction; an exception in it aborts. Each transaction requests a
new epoch, which aborts any transaction that an earlier instance has left open under the same id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple, Self, TypedDict, Unpack
from uuid import uuid4

from dragoman.client_core.errors import ClientClosedError, ClientError, ConnectionLostError
from dragoman.errors import DragomanError
from dragoman.limits import CURSUS_CLIENT_BATCH_BYTES, CURSUS_CLIENT_BUFFER_BYTES_MAX
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.client.connection import Commands, CursusError, TopicInfo
from dragoman.protocols.cursus.client.consumer import Consumer, offsets_text
from dragoman.protocols.cursus.constants import PARTIAL
from dragoman.protocols.cursus.messages import Batch, Message

#: Maximum number of messages in a batch. The protocol allows ten times as many.
_BATCH_MESSAGES_MAX = 10_000


class _Waiting(NamedTuple):
    """A message, and the future of its offset."""

    message: Message
    sent: asyncio.Future[int]


class _Lane:
    """The messages of one partition."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.next_sequence = 1
        self.sender: asyncio.Task[None] | None = None
        self.address = ""


class MessageFields(TypedDict, total=False):
    """Optional fields of a message."""

    key: bytes
    #: By default the key determines the partition, and messages without a key go round-robin.
    partition: int | None
    event_type: str
    metadata: str


class Producer:
    def __init__(self, client: Commands, *, acks: str = "all") -> None:
        self._client = client
        self._acks = acks
        self.producer_id = f"dragoman-{uuid4().hex}"
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._turn = 0
        self._unsent_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._failed: DragomanError | None = None

    async def send(self, topic: str, payload: bytes, **fields: Unpack[MessageFields]) -> int:
        """Send a message and return its offset, once it is durable. Raises `ClientError`."""
        return await (await self.begin(topic, payload, **fields))

    async def begin(
        self, topic: str, payload: bytes, **fields: Unpack[MessageFields]
    ) -> asyncio.Future[int]:
        """Queue a message and return the future of its offset."""
        while not self._has_room.is_set() and self._failed is None:
            await self._has_room.wait()
        info = self._topics.get(topic)
        if info is None:
            info = self._topics[topic] = await self._client.topic(topic)
        if self._failed is not None:
            raise self._failed
        key, partition = fields.get("key", b""), fields.get("partition")
        if partition is None:
            partition = self._route(info, key)
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane()
            lane.address = info.leaders[partition] if partition < info.partitions else ""
        message = Message(
            seq_num=lane.next_sequence,
            producer_id=self.producer_id,
            key=key,
            payload=payload,
            event_type=fields.get("event_type", ""),
            metadata=fields.get("metadata", ""),
        )
        lane.next_sequence += 1
        sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        lane.waiting.append(_Waiting(message, sent))
        self._count(len(payload) + len(key))
        if lane.sender is None:
            lane.sender = asyncio.create_task(self._send_all(topic, partition, lane))
        return sent

    def _route(self, info: TopicInfo, key: bytes) -> int:
        if key and info.is_hashed:
            return codec.fnv1a_64(key) % info.partitions
        self._turn += 1
        return self._turn % info.partitions

    def _count(self, size: int) -> None:
        self._unsent_bytes += size
        if self._unsent_bytes > CURSUS_CLIENT_BUFFER_BYTES_MAX:
            self._has_room.clear()
        else:
            self._has_room.set()

    async def _send_all(self, topic: str, partition: int, lane: _Lane) -> None:
        try:
            while lane.waiting:
                taken = _take(lane.waiting)
                try:
                    await self._deliver(topic, partition, lane, taken)
                except DragomanError as error:
                    self._fail(error, taken)
                    return
        finally:
            lane.sender = None

    async def _deliver(
        self, topic: str, partition: int, lane: _Lane, taken: list[_Waiting]
    ) -> None:
        """Send messages until all are acknowledged. The broker drops duplicates."""
        while taken:
            first, last = taken[0].message, taken[-1].message
            batch = Batch(
                topic=topic,
                partition=partition,
                messages=[each.message for each in taken],
                acks=self._acks,
                idempotent=True,
                seq_start=first.seq_num,
                seq_end=last.seq_num,
            )

            async def attempt(batch: Batch = batch) -> tuple[int, int]:
                try:
                    ack = await self._client.publish_batch(batch, address=lane.address)
                except ClientError as error:
                    if error.retriable:
                        # The leader may have changed.
                        lane.address = error.leader if isinstance(error, CursusError) else ""
                    raise
                done = ack.seq_end if ack.status == PARTIAL else batch.seq_end
                return done, ack.last_offset

            done, last_offset = await self._client.retry.call(attempt)
            if done < first.seq_num:
                raise ConnectionLostError(
                    f"{topic}-{partition}: the broker accepted no message of a batch"
                )
            for each in taken:
                number = each.message.seq_num
                if number <= done:
                    self._count(-len(each.message.payload) - len(each.message.key))
                    if not each.sent.done():
                        each.sent.set_result(last_offset - (done - number))
            taken = [each for each in taken if each.message.seq_num > done]

    def _fail(self, error: DragomanError, taken: list[_Waiting]) -> None:
        """Fail the producer after a message that cannot be sent, because later ones would leave a
        gap.
        """
        self._failed = error
        self._has_room.set()
        left = [*taken, *(each for lane in self._lanes.values() for each in lane.waiting)]
        for lane in self._lanes.values():
            lane.waiting.clear()
        for each in left:
            if not each.sent.done():
                each.sent.set_exception(error)
                # Mark the exception as retrieved: a caller that does not await the future gets the
                # error from its next call.
                each.sent.exception()

    async def flush(self) -> None:
        """Wait until all queued messages are acknowledged. Raises the first failure."""
        while senders := [lane.sender for lane in self._lanes.values() if lane.sender is not None]:
            await asyncio.wait(senders)
        if self._failed is not None:
            raise self._failed

    async def close(self) -> None:
        try:
            if self._failed is None:
                await self.flush()
        finally:
            self._failed = self._failed or ClientClosedError("the producer is closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _take(waiting: deque[_Waiting]) -> list[_Waiting]:
    taken: list[_Waiting] = []
    size = 0
    while waiting and len(taken) < _BATCH_MESSAGES_MAX:
        size += len(waiting[0].message.payload) + len(waiting[0].message.key) + 100
        if taken and size > CURSUS_CLIENT_BATCH_BYTES:
            break
        taken.append(waiting.popleft())
    return taken


class Transaction:
    def __init__(self, client: Commands, transactional_id: str) -> None:
        self._client = client
        self._who: dict[str, str | int] = {"transactional_id": transactional_id}
        self._sequence = 0

    async def begin(self) -> None:
        found = await self._client.fields("INIT_PRODUCER_ID", self._who)
        self._who |= {"producerId": found["producerId"], "epoch": found["epoch"]}
        await self._client.command("BEGIN_TXN", self._who)

    async def publish(
        self, topic: str, payload: bytes, *, key: str = "", partition: int | None = None
    ) -> None:
        self._sequence += 1
        where: dict[str, str | int] = {"topic": topic, "key": key, "seqNum": self._sequence}
        if partition is not None:
            where["partition"] = partition
        # Retried only if the broker recognises the duplicate: a keyless message may go to another
        # partition.
        repeat = partition is not None or bool(key)
        sent = self._who | where
        await self._client.command("TXN_PUBLISH", sent, message=payload, repeat=repeat)

    async def send_offsets(self, consumer: Consumer) -> None:
        """Commit the offsets of the records that the consumer has delivered, in this
        transaction.
        """
        offsets = consumer.handed_out()
        if offsets:
            sent = self._who | consumer.identity()
            await self._client.command("SEND_OFFSETS_TO_TXN", sent, last=offsets_text(offsets))

    async def commit(self) -> None:
        await self._client.command("END_TXN", self._who | {"result": "commit"})

    async def abort(self) -> None:
        await self._client.command("END_TXN", self._who | {"result": "abort"})

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.commit()
            return
        try:
            await self.abort()
        except ClientError:
            # The broker aborts the transaction after a timeout. The block's own exception matters
            # more.
            return
