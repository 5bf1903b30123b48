"""`CursusClient`: topics, publishing, consuming, event streams and transactions of a Cursus broker.

Commands go to one broker of the list, in order, over one connection, and to the next when it cannot
be reached. What may be repeated is repeated while brokers cannot be reached; what may not (a
publish without an identity) raises an error that says whether the outcome is known.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self, TypeVar, Unpack

import msgspec

from dragoman.client_core.errors import ClientError, ConnectionLostError
from dragoman.errors import DecodeError
from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.client.consumer import Consumer, ConsumerOptions
from dragoman.protocols.cursus.client.errors import CursusError, server_error
from dragoman.protocols.cursus.client.peer import (
    Arguments,
    CursusSettings,
    Peer,
    encoded,
    listening,
    parse_addresses,
)
from dragoman.protocols.cursus.client.producer import Producer
from dragoman.protocols.cursus.client.transactions import Transaction
from dragoman.protocols.cursus.client.values import (
    Appended,
    Event,
    EventStream,
    OffsetRange,
    Snapshot,
    TopicInfo,
)
from dragoman.protocols.cursus.constants import ERROR, ERROR_PREFIX
from dragoman.protocols.cursus.messages import Ack, Batch, Message, Text

Result = TypeVar("Result")
_FIELD: Final = re.compile(r"(\w+)=(\[[^\]]*\]|\S*)")
_OFFSETS: Final = re.compile(r"P\d+:earliest=(\d+):latest=(\d+)")


class _StreamHead(msgspec.Struct):
    status: str
    error: str = ""
    snapshot: Snapshot | None = None


class CursusClient:
    def __init__(self, addresses: str, settings: CursusSettings | None = None) -> None:
        self.settings = settings or CursusSettings()
        self._addresses = parse_addresses(addresses)
        self._peers: dict[str, Peer] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    # ---- how everything is asked

    @property
    def address(self) -> str:
        """Of the broker that is asked first."""
        return self._addresses[0]

    def _peer(self, address: str) -> Peer:
        found = self._peers.get(address)
        if found is None:
            found = self._peers[address] = Peer(address, self.settings)
        return found

    async def ask(
        self, payload: bytes, peer: Peer | None = None, wait_s: float = 0.0
    ) -> str | Batch:
        """One try. Raises `CursusError` for a reply that is an error."""
        answer = await (peer or self._peer(self.address)).ask(payload, wait_s)
        match codec.decode_reply(answer):
            case Batch() as batch:
                return batch
            case Text(text=text) if text.startswith(ERROR_PREFIX):
                raise server_error(text)
            case Text(text=text):
                return text
        raise DecodeError("a keep-alive is no reply")

    async def retried(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Try again, on all brokers in turn, what may be repeated."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settings.operation_timeout_s
        failures = 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                failures += 1
                pause = self.settings.backoff_s(failures)
                if not error.retriable or loop.time() + pause >= end:
                    raise
                self._follow(error)
            await asyncio.sleep(pause)

    def _follow(self, error: ClientError) -> None:
        """Go where the error points, else to the next address."""
        if not isinstance(error, CursusError):
            self._addresses = self._addresses[1:] + self._addresses[:1]
        elif error.leader:
            others = [each for each in self._addresses if each != error.leader]
            self._addresses = [error.leader, *others]

    async def command(
        self,
        word: str,
        arguments: Arguments | None = None,
        *,
        message: bytes | None = None,
        last: str = "",
        repeat: bool = True,
    ) -> str:
        """Any text command; the reply without its `OK`. Raises `CursusError`.

        Without `repeat`, for what must not be done twice, only a broker that was not reached is
        gone past.
        """
        payload = encoded(word, arguments or {}, message=message, last=last)

        async def attempt() -> str:
            try:
                reply = await self.ask(payload)
            except ClientError as error:
                error.retriable = error.retriable and (repeat or not error.is_ambiguous)
                raise
            assert isinstance(reply, str)
            return reply.removeprefix("OK").strip()

        return await self.retried(attempt)

    async def fields(
        self,
        word: str,
        arguments: Arguments | None = None,
        *,
        message: bytes | None = None,
        repeat: bool = True,
    ) -> dict[str, str]:
        """The same for a reply of `name=value`."""
        reply = await self.command(word, arguments, message=message, repeat=repeat)
        return dict(_FIELD.findall(reply))

    # ---- topics

    async def create_topic(
        self, topic: str, partitions: int = 4, **options: str | int
    ) -> TopicInfo:
        """Makes or grows a topic. `options` are those of CREATE, such as `cleanup_policy`,
        `idempotent`, `event_sourcing`, `partitioner`, `retention_hours`."""
        await self.command("CREATE", {"topic": topic, "partitions": partitions, **options})
        return await self.topic(topic)

    async def delete_topic(self, topic: str) -> None:
        await self.command("DELETE", {"topic": topic}, repeat=False)

    async def topics(self) -> list[str]:
        found = await self.fields("LIST")
        return [each for each in found["topics"].split(",") if each]

    async def topic(self, topic: str) -> TopicInfo:
        found = await self.fields("METADATA", {"topic": topic})
        if not found.keys() >= {"partitions", "leaders"}:
            raise ConnectionLostError(f"{self.address} does not speak Cursus")
        return TopicInfo(
            topic=topic,
            partitions=int(found["partitions"]),
            leaders=tuple(each or self.address for each in found["leaders"].split(",")),
            is_hashed=found.get("partitioner", "hash_key") == "hash_key",
        )

    async def offsets(self, topic: str) -> list[OffsetRange]:
        """Earliest and latest offset of each partition."""
        found = _OFFSETS.findall(await self.command("LIST_OFFSETS", {"topic": topic}))
        return [OffsetRange(int(earliest), int(latest)) for earliest, latest in found]

    # ---- records

    async def publish(
        self, topic: str, payload: bytes, *, key: str = "", producer_id: str = "dragoman"
    ) -> int:
        """One message, by text; its offset. Not repeated: use a `Producer` for what must not be
        lost or doubled, and for bytes that end with blanks or zeros, which text commands lose
        (`EncodeError`)."""
        given = {"topic": topic, "producerId": producer_id, "key": key}
        text = await self.command("PUBLISH", given, message=payload, repeat=False)
        return _checked(codec.decode_ack(text)).last_offset

    async def publish_batch(self, batch: Batch, *, address: str = "") -> Ack:
        """One try. Raises `CursusError`; an acknowledgement of a part is returned."""
        payload = compression.compress(self.settings.compression, codec.encode_batch(batch))
        reply = await self.ask(payload, self._peer(address or self.address))
        assert isinstance(reply, str)
        return _checked(codec.decode_ack(reply))

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
        """Records from `offset` on, on a connection of their own: brokers remember, for each
        connection, where it has read to. A group's committed offset goes before `offset`."""
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
            peer = Peer((await self.topic(topic)).leaders[partition], self.settings)
            try:
                reply = await self.ask(payload, peer, wait_s)
            finally:
                peer.close()
            assert isinstance(reply, Batch)
            return reply.messages

        return await self.retried(attempt)

    async def committed(self, group: str, topic: str, partition: int) -> int:
        """0 when nothing was committed."""
        where: Arguments = {"topic": topic, "partition": partition, "group": group}
        return int((await self.fields("FETCH_OFFSET", where))["offset"])

    def producer(self, *, acks: str = "all") -> Producer:
        """Close it before the client."""
        return Producer(self, acks=acks)

    def consumer(self, topic: str, group: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A member of a group; see `Consumer`. Close it before the client."""
        return Consumer(self, topic, group, **options)

    def transaction(self, transactional_id: str) -> Transaction:
        return Transaction(self, transactional_id)

    # ---- event streams

    async def append_event(self, topic: str, key: str, version: int, event: Event) -> Appended:
        """`version` is the stream's present one plus 1. Raises `VersionConflictError`; after an
        error that leaves the outcome open, `stream_version` tells."""
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
        return await self.retried(lambda: self._read_events(payload))

    async def _read_events(self, payload: bytes) -> EventStream:
        timeout_s = self.settings.request_timeout_s
        async with listening(self.address, self.settings, payload) as pushes:
            head = _stream_head(await pushes.next(timeout_s))
            batch = codec.decode_batch(bytes(await pushes.next(timeout_s)))
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
    except msgspec.DecodeError:
        raise server_error(frame.decode("utf-8", "replace")) from None
    if head.status == ERROR:
        raise server_error(head.error)
    return head


def _checked(ack: Ack) -> Ack:
    if ack.status == ERROR:
        raise server_error(ack.error or "broker_error")
    return ack
