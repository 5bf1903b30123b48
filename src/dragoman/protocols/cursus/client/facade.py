"""`CursusClient`: topics, publishing, consuming, event streams and transactions of a Cursus broker.

Commands go to one broker of the list, in order, over one connection, and to the next when it cannot
be reached. What may be repeated is repeated while brokers cannot be reached; what may not (a
publish without an identity) raises an error that says whether the outcome is known.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, Self, TypeVar

import msgspec

from dragoman.dialing.errors import ClientError, ConnectionLostError
from dragoman.errors import DecodeError
from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.client.consumer import Consumer
from dragoman.protocols.cursus.client.errors import CursusError, NotLeaderError, server_error
from dragoman.protocols.cursus.client.peer import (
    CursusSettings,
    Peer,
    open_link,
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
from dragoman.protocols.cursus.constants import ERROR_PREFIX
from dragoman.protocols.cursus.messages import Ack, Batch, Command, Message, Text

Result = TypeVar("Result")
_FIELD: Final = re.compile(r"(\w+)=(\[[^\]]*\]|\S*)")
_OFFSETS: Final = re.compile(r"P(\d+):earliest=(\d+):latest=(\d+):leo=(\d+):hwm=(\d+)")


class _StreamHead(msgspec.Struct):
    status: str
    partition: int = 0
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

    def peer(self, address: str) -> Peer:
        found = self._peers.get(address)
        if found is None:
            found = self._peers[address] = Peer(address, self.settings)
        return found

    async def ask(self, payload: bytes, *, address: str = "", wait_s: float = 0.0) -> Text | Batch:
        """One try. Raises `CursusError` for a reply that is an error."""
        reply = codec.decode_reply(await self.peer(address or self.address).ask(payload, wait_s))
        if isinstance(reply, Text) and reply.text.startswith(ERROR_PREFIX):
            raise server_error(reply.text)
        if not isinstance(reply, Text | Batch):
            raise DecodeError("a keep-alive is no reply")
        return reply

    async def retried(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Try again, on all brokers in turn, what may be repeated."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settings.operation_timeout_s
        failures = 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not error.retriable:
                    raise
                failures += 1
                pause = self.settings.backoff_s(failures)
                if loop.time() + pause >= end:
                    raise
                self._follow(error)
            await asyncio.sleep(pause)

    def _follow(self, error: ClientError) -> None:
        """Go where the error points, else to the next address."""
        text = str(error)
        host, port = re.search(r"host=(\S+)", text), re.search(r"port=(\d+)", text)
        if isinstance(error, NotLeaderError) and error.leader is not None:
            told: str | None = error.leader
        else:
            told = f"{host[1]}:{port[1]}" if host is not None and port is not None else None
        if told is not None and isinstance(error, CursusError):
            self._addresses = [told, *(each for each in self._addresses if each != told)]
        elif not isinstance(error, CursusError):
            self._addresses = self._addresses[1:] + self._addresses[:1]

    async def command(
        self,
        word: str,
        arguments: dict[str, str | int] | None = None,
        *,
        message: bytes | None = None,
        last: str = "",
        repeat: bool = True,
    ) -> str:
        """Any text command; the reply without its `OK`. Raises `CursusError`."""
        given = {name: str(value) for name, value in (arguments or {}).items() if value != ""}
        sent = Command(word=word, arguments=given, message=message, last=last)
        payload = codec.encode_command(sent)

        async def attempt() -> str:
            reply = await self.ask(payload)
            assert isinstance(reply, Text)
            return reply.text.removeprefix("OK").strip()

        return await (self.retried(attempt) if repeat else self._first_reachable(attempt))

    async def _first_reachable(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """For what must not be done twice: only a broker that was not reached is gone past."""

        async def once() -> Result:
            try:
                return await attempt()
            except ClientError as error:
                if error.is_ambiguous:
                    error.retriable = False
                raise

        return await self.retried(once)

    async def fields(
        self, word: str, arguments: dict[str, str | int], last: str = ""
    ) -> dict[str, str]:
        return dict(_FIELD.findall(await self.command(word, arguments, last=last)))

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
        found = dict(_FIELD.findall(await self.command("LIST")))
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
        return [OffsetRange(int(each[1]), int(each[2])) for each in found]

    # ---- records

    async def publish(
        self, topic: str, payload: bytes, *, key: str = "", producer_id: str = "dragoman"
    ) -> int:
        """One message, by text; its offset. Not repeated: use a `Producer` for what must not be
        lost or doubled, and for bytes that end with blanks or zeros, which text commands lose
        (`EncodeError`)."""
        text = await self.command(
            "PUBLISH",
            {"topic": topic, "producerId": producer_id, "key": key},
            message=payload,
            repeat=False,
        )
        return _checked(codec.decode_ack(text)).last_offset

    async def publish_batch(self, batch: Batch, *, address: str = "") -> Ack:
        """One try. Raises `CursusError`; an acknowledgement of a part is returned."""
        payload = compression.compress(self.settings.compression, codec.encode_batch(batch))
        reply = await self.ask(payload, address=address)
        assert isinstance(reply, Text)
        return _checked(codec.decode_ack(reply.text))

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
        address = (await self.topic(topic)).leaders[partition]
        arguments: dict[str, str | int] = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "member": "dragoman",
            "group": group or "dragoman-reader",
            "batch": count_max,
            "wait_ms": int(wait_s * 1000),
        }
        given = {name: str(value) for name, value in arguments.items()}
        payload = codec.encode_command(Command(word="CONSUME", arguments=given))

        async def attempt() -> Sequence[Message]:
            peer = Peer(address, self.settings)
            try:
                reply = codec.decode_reply(await peer.ask(payload, wait_s))
            finally:
                peer.close()
            if isinstance(reply, Batch):
                return reply.messages
            raise server_error(reply.text if isinstance(reply, Text) else "no reply")

        return await self.retried(attempt)

    async def committed(self, group: str, topic: str, partition: int) -> int:
        """0 when nothing was committed."""
        where: dict[str, str | int] = {"topic": topic, "partition": partition, "group": group}
        return int((await self.fields("FETCH_OFFSET", where))["offset"])

    def producer(self, *, acks: str = "all") -> Producer:
        """Close it before the client."""
        return Producer(self, acks=acks)

    def consumer(
        self,
        topic: str,
        group: str,
        *,
        member: str = "",
        reset: Literal["earliest", "latest"] = "earliest",
        auto_commit_s: float | None = 5.0,
        heartbeat_s: float = 3.0,
    ) -> Consumer:
        """A member of a group; see `Consumer`. Close it before the client."""
        return Consumer(
            self,
            topic,
            group,
            member=member,
            reset=reset,
            auto_commit_s=auto_commit_s,
            heartbeat_s=heartbeat_s,
        )

    def transaction(self, transactional_id: str) -> Transaction:
        return Transaction(self, transactional_id)

    # ---- event streams

    async def append_event(self, topic: str, key: str, version: int, event: Event) -> Appended:
        """`version` is the stream's present one plus 1. Raises `VersionConflictError`; after an
        error that leaves the outcome open, `stream_version` tells."""
        text = await self.command(
            "APPEND_STREAM",
            {
                "topic": topic,
                "key": key,
                "version": version,
                "event_type": event.event_type,
                "schema_version": event.schema_version,
                "metadata": event.metadata,
            },
            message=event.payload,
            repeat=False,
        )
        found = dict(_FIELD.findall(text))
        return Appended(version, int(found["offset"]), int(found["partition"]))

    async def stream_version(self, topic: str, key: str) -> int:
        return int((await self.fields("STREAM_VERSION", {"topic": topic, "key": key}))["version"])

    async def read_events(self, topic: str, key: str, from_version: int = 1) -> EventStream:
        """The newest snapshot at or above `from_version`, and the events after it."""
        given = {"topic": topic, "key": key, "from_version": str(from_version)}
        payload = codec.encode_command(Command(word="READ_STREAM", arguments=given))
        return await self.retried(lambda: self._read_events(payload))

    async def _read_events(self, payload: bytes) -> EventStream:
        # Two frames answer this one request: the second one is taken as a push.
        events: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()

        def lost(error: ClientError) -> None:
            if not events.done():
                events.set_exception(error)
                events.exception()

        link = await open_link(
            self.address,
            self.settings,
            is_push=lambda frame: frame[:2] == b"\xba\x7c",
            on_push=lambda frame: None if events.done() else events.set_result(frame),
            on_lost=lost,
        )
        try:
            reply = await link.request(codec.frame(payload), self.settings.request_timeout_s)
            head = msgspec.json.decode(bytes(reply), type=_StreamHead)
            if head.status != "OK":
                raise server_error(head.error)
            async with asyncio.timeout(self.settings.request_timeout_s):
                batch = codec.decode_batch(bytes(await events))
        except msgspec.DecodeError:
            raise server_error(bytes(reply).decode("utf-8", "replace")) from None
        finally:
            link.close()
        found = [
            Event(
                payload=each.payload,
                event_type=each.event_type,
                schema_version=each.schema_version,
                metadata=each.metadata,
                version=each.aggregate_version,
            )
            for each in batch.messages
        ]
        return EventStream(head.snapshot, found)

    async def save_snapshot(self, topic: str, key: str, version: int, payload: str) -> None:
        where: dict[str, str | int] = {"topic": topic, "key": key, "version": version}
        await self.command("SAVE_SNAPSHOT", where, message=payload.encode())

    async def read_snapshot(self, topic: str, key: str) -> Snapshot | None:
        text = await self.command("READ_SNAPSHOT", {"topic": topic, "key": key})
        return msgspec.json.decode(text.removeprefix("snapshot="), type=Snapshot | None)


def _checked(ack: Ack) -> Ack:
    if ack.status == "ERROR":
        raise server_error(ack.error or "broker_error")
    return ack
