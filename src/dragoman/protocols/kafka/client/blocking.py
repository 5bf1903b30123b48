"""The same client for code without an event loop: every call waits for its result.

The real client lives on a loop in a thread of its own; calls are handed over to it. A call may be
made from any thread. An interrupt (Ctrl-C) while a call waits cancels that call.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

from dragoman.dialing.errors import ClientClosedError
from dragoman.dialing.loop_thread import LoopThread
from dragoman.protocols.kafka.client.facade import KafkaClient
from dragoman.protocols.kafka.client.producer import Producer
from dragoman.protocols.kafka.client.reader import Reader
from dragoman.protocols.kafka.client.settings import ClientSettings
from dragoman.protocols.kafka.client.values import (
    ConsumedRecord,
    NewRecord,
    TopicPartition,
)
from dragoman.world import Clock, Random

Result = TypeVar("Result")
Face = TypeVar("Face")
Parameters = ParamSpec("Parameters")


class BlockingProducer:
    """See `Producer`. `send_many` hands over many records at the cost of one."""

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._thread = thread
        self._producer = producer

    @property
    def written_records(self) -> int:
        return self._producer.written_records

    def send(self, topic: str, record: NewRecord) -> None:
        self.send_many(topic, (record,))

    def send_many(self, topic: str, records: Iterable[NewRecord]) -> None:
        """Take records in. An earlier failure is raised here instead of at the next flush."""
        self._thread.run(lambda: self._send_many(topic, records))

    async def _send_many(self, topic: str, records: Iterable[NewRecord]) -> None:
        if self._producer.has_failed:
            await self._producer.flush()
        await self._producer.send_many(topic, records)

    def flush(self) -> None:
        """Wait until all records are written. Raises the first failure since the last flush."""
        self._thread.run(self._producer.flush)

    def close(self) -> None:
        self._thread.run(self._producer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingReader:
    """See `Reader`."""

    def __init__(self, thread: LoopThread, reader: Reader) -> None:
        self._thread = thread
        self._reader = reader

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._reader.positions

    def next_records(self) -> list[ConsumedRecord]:
        return self._thread.run(self._reader.next_records)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        while records := self.next_records():
            yield from records

    def close(self) -> None:
        self._thread.run(self._reader.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- the bridge: a type checker sees the parameters and results of the methods it is given


def _waiting(
    method: Callable[Concatenate[KafkaClient, Parameters], Coroutine[None, None, Result]],
) -> Callable[Concatenate[BlockingKafkaClient, Parameters], Result]:
    """The method that hands over to this one and waits."""

    @wraps(method)
    def wait(
        self: BlockingKafkaClient, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        return self._thread.run(lambda: method(self._client, *args, **kwargs))

    return wait


def _beginning(
    method: Callable[Concatenate[KafkaClient, Parameters], Coroutine[None, None, Result]],
) -> Callable[Concatenate[BlockingKafkaClient, Parameters], Future[Result]]:
    """The method that hands over to this one and returns what can be waited for."""

    @wraps(method)
    def begin(
        self: BlockingKafkaClient, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        return self._thread.begin(lambda: method(self._client, *args, **kwargs))

    return begin


def _making(
    method: Callable[Concatenate[KafkaClient, Parameters], Result],
    face: Callable[[LoopThread, Result], Face],
) -> Callable[Concatenate[BlockingKafkaClient, Parameters], Face]:
    """The method that has this one make something, and returns its blocking face."""

    @wraps(method)
    def make(
        self: BlockingKafkaClient, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Face:
        made = self._thread.make(lambda: method(self._client, *args, **kwargs))
        return face(self._thread, made)

    return make


class BlockingKafkaClient:
    """`KafkaClient` with methods that wait. Their meaning is described there."""

    def __init__(
        self,
        bootstrap: str,
        settings: ClientSettings | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._thread = LoopThread("dragoman-kafka-client")
        try:
            self._client = self._thread.make(
                lambda: KafkaClient(bootstrap, settings, clock=clock, random=random)
            )
        except BaseException:
            self._thread.close()
            raise

    # ---- life

    def open(self) -> Self:
        self._thread.run(self._client.open)
        return self

    def close(self) -> None:
        try:
            self._thread.run(self._client.close)
        except ClientClosedError:
            return
        self._thread.close()

    def __enter__(self) -> Self:
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what it does

    cluster = _waiting(KafkaClient.cluster)
    topic = _waiting(KafkaClient.topic)
    fetch = _waiting(KafkaClient.fetch)
    produce = _waiting(KafkaClient.produce)
    begin_produce = _beginning(KafkaClient.produce)
    new_producer_identity = _waiting(KafkaClient.new_producer_identity)
    list_offsets = _waiting(KafkaClient.list_offsets)
    producer = _making(KafkaClient.producer, BlockingProducer)
    produce_records = _waiting(KafkaClient.produce_records)
    reader = _making(KafkaClient.reader, BlockingReader)
    create_topic = _waiting(KafkaClient.create_topic)
    delete_topic = _waiting(KafkaClient.delete_topic)
    create_partitions = _waiting(KafkaClient.create_partitions)
    describe_configs = _waiting(KafkaClient.describe_configs)
    alter_configs = _waiting(KafkaClient.alter_configs)
    log_directories = _waiting(KafkaClient.log_directories)
    delete_records = _waiting(KafkaClient.delete_records)
    list_groups = _waiting(KafkaClient.list_groups)
    describe_group = _waiting(KafkaClient.describe_group)
    delete_group = _waiting(KafkaClient.delete_group)
    committed_offsets = _waiting(KafkaClient.committed_offsets)
    commit_offsets = _waiting(KafkaClient.commit_offsets)
    delete_offsets = _waiting(KafkaClient.delete_offsets)
    open_staging = _waiting(KafkaClient.open_staging)
    publish_staged = _waiting(KafkaClient.publish_staged)
