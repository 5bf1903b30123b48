"""`CursusClient`: topics, records, event streams and transactions of a Cursus broker.

`BlockingCursusClient` is for code without an event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self, Unpack

import msgspec

from dragoman.client_core.blocking_client import BlockingClient, BlockingPart, making, waiting
from dragoman.client_core.errors import ClientClosedError
from dragoman.errors import MALFORMED
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.client.connection import (
    Appended,
    Arguments,
    Broker,
    Commands,
    CursusSettings,
    Event,
    EventStream,
    Record,
    Snapshot,
    TopicInfo,
    broker_address,
    checked,
    encoded,
    open_stream,
    server_error,
)
from dragoman.protocols.cursus.client.consumer import Consumer, ConsumerOptions
from dragoman.protocols.cursus.client.producer import Producer, Transaction
from dragoman.protocols.cursus.constants import ERROR
from dragoman.protocols.cursus.messages import Batch, Message


class _StreamHead(msgspec.Struct):
    status: str
    error: str = ""
    snapshot: Snapshot | None = None


class CursusClient(Commands):
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- topics

    async def create_topic(
        self, /, topic: str, partitions: int = 4, **options: str | int
    ) -> TopicInfo:
        """Create a topic, or add partitions to it. `options` are those of CREATE, such as
        `cleanup_policy`, `idempotent`, `event_sourcing`, `partitioner`, `retention_hours`.
        """
        await self.command("CREATE", {"topic": topic, "partitions": partitions, **options})
        return await self.topic(topic)

    async def delete_topic(self, topic: str) -> None:
        await self.command("DELETE", {"topic": topic}, repeat=False)

    async def topics(self) -> list[str]:
        found = await self.fields("LIST")
        return [each for each in found["topics"].split(",") if each]

    # ---- records

    async def publish(
        self, topic: str, payload: bytes, *, key: str = "", producer_id: str = "dragoman"
    ) -> int:
        """Publish one message by a text command and return its offset. It is not retried if the
        broker may have received it: use a `Producer` for messages that must be stored exactly once.
        Text commands cannot carry payloads that begin or end with blanks or zeros (`EncodeError`).
        """
        given = {"topic": topic, "producerId": producer_id, "key": key}
        text = await self.command("PUBLISH", given, message=payload, repeat=False)
        return checked(codec.decode_ack(text)).last_offset

    async def consume(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        group: str = "",
        count_max: int = 8192,
        wait_s: float = 0.0,
    ) -> Sequence[Message]:
        """Records from `offset` on, or from the group's committed offset if there is one.

        The call opens its own connection, because brokers keep a position per connection.
        """
        given: Arguments = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "member": "dragoman",
            "group": group or "dragoman-reader",
            "batch": count_max,
            "wait_ms": int(wait_s * 1000),
        }
        payload = encoded("CONSUME", given)

        async def attempt() -> Sequence[Message]:
            leader = (await self.topic(topic)).leaders[partition]
            broker = Broker(broker_address(leader), self.settings)
            try:
                reply = await self.ask(payload, broker, wait_s)
            finally:
                broker.close(ClientClosedError("the client is closed"))
            assert isinstance(reply, Batch)
            return reply.messages

        return await self.retry.call(attempt)

    def producer(self, *, acks: str = "all") -> Producer:
        """A new producer. Close it before the client."""
        return Producer(self, acks=acks)

    def consumer(self, topic: str, group: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A member of a group; see `Consumer`. Close it before the client."""
        return Consumer(self, topic, group, **options)

    def transaction(self, transactional_id: str) -> Transaction:
        return Transaction(self, transactional_id)

    # ---- event streams

    async def append_event(self, topic: str, key: str, version: int, event: Event) -> Appended:
        """Append an event. `version` is the stream's current version plus 1.

        Raises `VersionConflictError`. After an error with an unknown outcome, `stream_version`
        shows whether the event was appended.
        """
        given: Arguments = {
            "topic": topic,
            "key": key,
            "version": version,
            "event_type": event.event_type,
            "schema_version": event.schema_version,
            "metadata": event.metadata,
        }
        found = await self.fields("APPEND_STREAM", given, message=event.payload, repeat=False)
        return Appended(version, int(found["offset"]), int(found["partition"]))

    async def stream_version(self, topic: str, key: str) -> int:
        return int((await self.fields("STREAM_VERSION", {"topic": topic, "key": key}))["version"])

    async def read_events(self, topic: str, key: str, from_version: int = 1) -> EventStream:
        """The newest snapshot at or above `from_version`, and the events after it."""
        given: Arguments = {"topic": topic, "key": key, "from_version": from_version}
        payload = encoded("READ_STREAM", given)
        return await self.retry.call(lambda: self._read_events(payload))

    async def _read_events(self, payload: bytes) -> EventStream:
        timeout_s = self.settings.request_timeout_s
        async with open_stream(self._addresses.first, self.settings, payload) as stream:
            head = _stream_head(await stream.next(timeout_s))
            batch = codec.decode_batch(bytes(await stream.next(timeout_s)))
        events = [
            Event(
                payload=each.payload,
                event_type=each.event_type,
                schema_version=each.schema_version,
                metadata=each.metadata,
                version=each.aggregate_version,
            )
            for each in batch.messages
        ]
        return EventStream(head.snapshot, events)

    async def save_snapshot(self, topic: str, key: str, version: int, payload: str) -> None:
        where: Arguments = {"topic": topic, "key": key, "version": version}
        await self.command("SAVE_SNAPSHOT", where, message=payload.encode())

    async def read_snapshot(self, topic: str, key: str) -> Snapshot | None:
        text = await self.command("READ_SNAPSHOT", {"topic": topic, "key": key})
        return msgspec.json.decode(text.removeprefix("snapshot="), type=Snapshot | None)


def _stream_head(frame: bytearray) -> _StreamHead:
    """Raises `CursusError`."""
    try:
        head = msgspec.json.decode(frame, type=_StreamHead)
    except MALFORMED:
        raise server_error(frame.decode("utf-8", "replace")) from None
    if head.status == ERROR:
        raise server_error(head.error)
    return head


class BlockingProducer(BlockingPart[Producer]):
    """A blocking `Producer`."""

    send = waiting(Producer.send)

    def send_many(self, topic: str, payloads: Sequence[bytes], *, key: bytes = b"") -> list[int]:
        """Send many messages and return their offsets, in order, once all are durable."""

        async def work() -> list[int]:
            begun = [await self._part.begin(topic, each, key=key) for each in payloads]
            return [await each for each in begun]

        return self._thread.run(work)


class BlockingConsumer(BlockingPart[Consumer]):
    """A blocking `Consumer`. Iteration waits for records without limit, `take` up to a timeout."""

    @property
    def assigned(self) -> tuple[int, ...]:
        return self._part.assigned

    @property
    def member_id(self) -> str:
        return self._part.member_id

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        return self._thread.run(self._part.__anext__)

    take = waiting(Consumer.take)
    commit = waiting(Consumer.commit)

    def __enter__(self) -> Self:
        """Join the group."""
        self._thread.run(self._part.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.run(lambda: self._part.__aexit__(*raised))


class BlockingCursusClient(BlockingClient[CursusClient]):
    def __init__(self, addresses: str, settings: CursusSettings | None = None) -> None:
        super().__init__("dragoman-cursus-client", lambda: CursusClient(addresses, settings))

    create_topic = waiting(CursusClient.create_topic)
    delete_topic = waiting(CursusClient.delete_topic)
    topics = waiting(CursusClient.topics)
    topic = waiting(CursusClient.topic)
    offsets = waiting(CursusClient.offsets)
    publish = waiting(CursusClient.publish)
    consume = waiting(CursusClient.consume)
    committed = waiting(CursusClient.committed)
    command = waiting(CursusClient.command)
    append_event = waiting(CursusClient.append_event)
    stream_version = waiting(CursusClient.stream_version)
    read_events = waiting(CursusClient.read_events)
    save_snapshot = waiting(CursusClient.save_snapshot)
    read_snapshot = waiting(CursusClient.read_snapshot)
    producer = making(CursusClient.producer, BlockingProducer)
    consumer = making(CursusClient.consumer, BlockingConsumer)
