"""The same client for code without an event loop: every call waits for its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from dragoman.client_core.blocking import BlockingClient, BlockingPart, making, waiting
from dragoman.protocols.cursus.client.client import CursusClient
from dragoman.protocols.cursus.client.consumer import Consumer
from dragoman.protocols.cursus.client.producer import Producer
from dragoman.protocols.cursus.client.settings import CursusSettings
from dragoman.protocols.cursus.client.values import Record


class BlockingProducer(BlockingPart[Producer]):
    """See `Producer`."""

    send = waiting(Producer.send)

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

    take = waiting(Consumer.take)
    commit = waiting(Consumer.commit)

    def __enter__(self) -> Self:
        """Joins the group."""
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
