"""The same client for code without an event loop: every call waits for its result.

The real client lives on a loop in a thread of its own; calls may be made from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import wraps
from typing import Concatenate, Literal, ParamSpec, Self, TypeVar

from dragoman.dialing.loop_thread import LoopThread
from dragoman.protocols.cursus.client.consumer import Consumer
from dragoman.protocols.cursus.client.facade import CursusClient
from dragoman.protocols.cursus.client.peer import CursusSettings
from dragoman.protocols.cursus.client.producer import Producer
from dragoman.protocols.cursus.client.values import Record, TopicInfo

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def _waiting(
    method: Callable[Concatenate[CursusClient, Parameters], Coroutine[None, None, Result]],
) -> Callable[Concatenate[BlockingCursusClient, Parameters], Result]:
    """The method of the real client, waited for."""

    @wraps(method)
    def call(
        self: BlockingCursusClient, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        return self._thread.run(lambda: method(self._client, *args, **kwargs))

    return call


class BlockingProducer:
    """See `Producer`."""

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._thread = thread
        self._producer = producer

    def send(
        self, topic: str, payload: bytes, *, key: bytes = b"", partition: int | None = None
    ) -> int:
        return self._thread.run(
            lambda: self._producer.send(topic, payload, key=key, partition=partition)
        )

    def send_many(self, topic: str, payloads: Sequence[bytes], *, key: bytes = b"") -> list[int]:
        """The offsets, in order, once all are durable: one wait for many messages."""

        async def work() -> list[int]:
            begun = [await self._producer.begin(topic, each, key=key) for each in payloads]
            return [await each for each in begun]

        return self._thread.run(work)

    def close(self) -> None:
        self._thread.run(self._producer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingConsumer:
    """See `Consumer`. Iterating waits for records without end; `take` within a time."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    @property
    def assigned(self) -> tuple[int, ...]:
        return self._consumer.assigned

    @property
    def member_id(self) -> str:
        return self._consumer.member_id

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        return self._thread.run(self._consumer.__anext__)

    def take(self, timeout_s: float | None) -> Record | None:
        return self._thread.run(lambda: self._consumer.take(timeout_s))

    def commit(self) -> None:
        self._thread.run(self._consumer.commit)

    def close(self) -> None:
        self._thread.run(self._consumer.close)

    def __enter__(self) -> Self:
        self._thread.run(self._consumer.start)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingCursusClient:
    def __init__(self, addresses: str, settings: CursusSettings | None = None) -> None:
        self._thread = LoopThread("dragoman-cursus-client")
        try:
            self._client = self._thread.make(lambda: CursusClient(addresses, settings))
        except BaseException:
            self._thread.close()
            raise

    delete_topic = _waiting(CursusClient.delete_topic)
    topics = _waiting(CursusClient.topics)
    topic = _waiting(CursusClient.topic)
    offsets = _waiting(CursusClient.offsets)
    publish = _waiting(CursusClient.publish)
    consume = _waiting(CursusClient.consume)
    committed = _waiting(CursusClient.committed)
    command = _waiting(CursusClient.command)
    append_event = _waiting(CursusClient.append_event)
    stream_version = _waiting(CursusClient.stream_version)
    read_events = _waiting(CursusClient.read_events)
    save_snapshot = _waiting(CursusClient.save_snapshot)
    read_snapshot = _waiting(CursusClient.read_snapshot)

    def create_topic(self, topic: str, partitions: int = 4, **options: str | int) -> TopicInfo:
        return self._thread.run(lambda: self._client.create_topic(topic, partitions, **options))

    def producer(self, *, acks: str = "all") -> BlockingProducer:
        made = self._thread.make(lambda: self._client.producer(acks=acks))
        return BlockingProducer(self._thread, made)

    def consumer(
        self,
        topic: str,
        group: str,
        *,
        member: str = "",
        reset: Literal["earliest", "latest"] = "earliest",
        auto_commit_s: float | None = 5.0,
        heartbeat_s: float = 3.0,
    ) -> BlockingConsumer:
        """Joins when it is entered (`with`)."""
        made = self._thread.make(
            lambda: self._client.consumer(
                topic,
                group,
                member=member,
                reset=reset,
                auto_commit_s=auto_commit_s,
                heartbeat_s=heartbeat_s,
            )
        )
        return BlockingConsumer(self._thread, made)

    def close(self) -> None:
        self._thread.run(self._client.close)
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
