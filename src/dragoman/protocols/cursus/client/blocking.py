"""The same client for code without an event loop: every call waits for its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self, Unpack

from dragoman.client_core.blocking import BlockingClient, BlockingPart, making, waiting
from dragoman.protocols.cursus.client.consumer import Consumer
from dragoman.protocols.cursus.client.facade import CursusClient
from dragoman.protocols.cursus.client.peer import CursusSettings
from dragoman.protocols.cursus.client.producer import MessageFields, Producer
from dragoman.protocols.cursus.client.values import Record, TopicInfo


class BlockingProducer(BlockingPart[Producer]):
    """See `Producer`."""

    def send(self, topic: str, payload: bytes, **fields: Unpack[MessageFields]) -> int:
        return self._thread.run(lambda: self._part.send(topic, payload, **fields))

    def send_many(self, topic: str, payloads: Sequence[bytes], *, key: bytes = b"") -> list[int]:
        """The offsets, in order, once all are durable: one wait for many messages."""

        async def work() -> list[int]:
            begun = [await self._part.begin(topic, each, key=key) for each in payloads]
            return [await each for each in begun]

        return self._thread.run(work)


class BlockingConsumer(BlockingPart[Consumer]):
    """See `Consumer`. Iterating waits for records without end; `take` within a time."""

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

    def take(self, timeout_s: float | None) -> Record | None:
        return self._thread.run(lambda: self._part.take(timeout_s))

    def commit(self) -> None:
        self._thread.run(self._part.commit)

    def __enter__(self) -> Self:
        """Joins the group."""
        self._thread.run(self._part.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.run(lambda: self._part.__aexit__(*raised))


class BlockingCursusClient(BlockingClient[CursusClient]):
    def __init__(self, addresses: str, settings: CursusSettings | None = None) -> None:
        super().__init__("dragoman-cursus-client", lambda: CursusClient(addresses, settings))

    def create_topic(self, topic: str, partitions: int = 4, **options: str | int) -> TopicInfo:
        return self._thread.run(lambda: self._client.create_topic(topic, partitions, **options))

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
