"""The same client for code without an event loop: every call waits for its result.

The real client lives on a loop in a thread of its own; calls are handed over to it. A call may be
made from any thread. An interrupt (Ctrl-C) while a call waits cancels that call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from dragoman.limits import KAFKA_CLIENT_FETCH_BYTES, KAFKA_CLIENT_FETCH_PARTITION_BYTES
from dragoman.protocols.kafka.client.errors import ClientClosedError
from dragoman.protocols.kafka.client.facade import KafkaClient
from dragoman.protocols.kafka.client.producer import Producer, ProducerOptions
from dragoman.protocols.kafka.client.reader import Reader
from dragoman.protocols.kafka.client.settings import ClientSettings
from dragoman.protocols.kafka.client.values import (
    Acks,
    ClusterInfo,
    CommittedOffset,
    ConfigEntry,
    ConsumedRecord,
    Fetched,
    FetchFrom,
    GroupDetails,
    GroupListing,
    Isolation,
    NewRecord,
    NewTopic,
    OffsetAt,
    Produced,
    ProducerIdentity,
    RecordPosition,
    ResourceType,
    TopicInfo,
    TopicPartition,
)
from dragoman.types import Buffer
from dragoman.world import Clock, Random

Result = TypeVar("Result")


class _LoopThread:
    """An event loop that runs beside the caller."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run_loop, name="dragoman-kafka-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[None, None, Result]) -> Result:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise ClientClosedError("the client is closed") from None
        try:
            return future.result()
        except BaseException:
            # An interrupt ends the waiting, and must end the work as well.
            future.cancel()
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run_loop(self) -> None:
        # All of the loop's life is in this thread: the caller's may have a running loop already.
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


class BlockingProducer:
    """See `Producer`. `send_many` hands over many records at the cost of one."""

    def __init__(self, thread: _LoopThread, producer: Producer) -> None:
        self._thread = thread
        self._producer = producer

    @property
    def written_records(self) -> int:
        return self._producer.written_records

    def send(self, topic: str, record: NewRecord) -> None:
        self.send_many(topic, (record,))

    def send_many(self, topic: str, records: Iterable[NewRecord]) -> None:
        """Take records in. An earlier failure is raised here instead of at the next flush."""
        self._thread.run(self._send_many(topic, records))

    async def _send_many(self, topic: str, records: Iterable[NewRecord]) -> None:
        if self._producer.has_failed:
            await self._producer.flush()
        await self._producer.send_many(topic, records)

    def flush(self) -> None:
        """Wait until all records are written. Raises the first failure since the last flush."""
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        self._thread.run(self._producer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BlockingReader:
    """See `Reader`."""

    def __init__(self, thread: _LoopThread, reader: Reader) -> None:
        self._thread = thread
        self._reader = reader

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._reader.positions

    def next_records(self) -> list[ConsumedRecord]:
        return self._thread.run(self._reader.next_records())

    def __iter__(self) -> Iterator[ConsumedRecord]:
        while records := self.next_records():
            yield from records

    def close(self) -> None:
        self._thread.run(self._reader.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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
        self._thread = _LoopThread()
        try:
            self._client = self._thread.run(
                _make(lambda: KafkaClient(bootstrap, settings, clock=clock, random=random))
            )
        except BaseException:
            self._thread.close()
            raise

    # ---- life

    def open(self) -> Self:
        self._thread.run(self._client.open())
        return self

    def close(self) -> None:
        try:
            self._thread.run(self._client.close())
        except ClientClosedError:
            return
        self._thread.close()

    def __enter__(self) -> Self:
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- the cluster

    def cluster(self, topics: Sequence[str] | None = None) -> ClusterInfo:
        return self._thread.run(self._client.cluster(topics))

    def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        return self._thread.run(self._client.topic(name, auto_create=auto_create))

    # ---- whole batches

    def fetch(
        self,
        partitions: Mapping[TopicPartition, FetchFrom],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = KAFKA_CLIENT_FETCH_BYTES,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> dict[TopicPartition, Fetched]:
        return self._thread.run(
            self._client.fetch(
                partitions,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation=isolation,
            )
        )

    def produce(
        self,
        topic: str,
        partition: int,
        batch: Buffer,
        *,
        acks: Acks = -1,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
        auto_create: bool = True,
    ) -> Produced:
        return self._thread.run(
            self._client.produce(
                topic,
                partition,
                batch,
                acks=acks,
                timeout_ms=timeout_ms,
                transactional_id=transactional_id,
                auto_create=auto_create,
            )
        )

    def new_producer_identity(self) -> ProducerIdentity:
        return self._thread.run(self._client.new_producer_identity())

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> dict[TopicPartition, OffsetAt]:
        return self._thread.run(self._client.list_offsets(partitions, isolation=isolation))

    # ---- records

    def producer(self, options: ProducerOptions | None = None) -> BlockingProducer:
        made = self._thread.run(_make(lambda: self._client.producer(options)))
        return BlockingProducer(self._thread, made)

    def produce_records(
        self, topic: str, records: Iterable[NewRecord], options: ProducerOptions | None = None
    ) -> list[RecordPosition]:
        return self._thread.run(self._client.produce_records(topic, records, options))

    def reader(
        self,
        starts: Mapping[TopicPartition, int],
        *,
        until: Mapping[TopicPartition, int] | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = KAFKA_CLIENT_FETCH_BYTES,
        partition_bytes: int = KAFKA_CLIENT_FETCH_PARTITION_BYTES,
    ) -> BlockingReader:
        reader = self._client.reader(
            starts,
            until=until,
            isolation=isolation,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_bytes=partition_bytes,
        )
        return BlockingReader(self._thread, reader)

    # ---- administration

    def create_topic(self, topic: NewTopic) -> TopicInfo:
        return self._thread.run(self._client.create_topic(topic))

    def delete_topic(self, name: str) -> None:
        self._thread.run(self._client.delete_topic(name))

    def create_partitions(self, topic: str, count: int) -> TopicInfo:
        return self._thread.run(self._client.create_partitions(topic, count))

    def describe_configs(self, kind: ResourceType, name: str) -> list[ConfigEntry]:
        return self._thread.run(self._client.describe_configs(kind, name))

    def alter_configs(
        self, kind: ResourceType, name: str, changes: Mapping[str, str | None]
    ) -> None:
        self._thread.run(self._client.alter_configs(kind, name, changes))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self._thread.run(self._client.delete_records(before))

    # ---- groups

    def list_groups(self) -> list[GroupListing]:
        return self._thread.run(self._client.list_groups())

    def describe_group(self, group: str) -> GroupDetails:
        return self._thread.run(self._client.describe_group(group))

    def delete_group(self, group: str) -> None:
        self._thread.run(self._client.delete_group(group))

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        return self._thread.run(self._client.committed_offsets(group, partitions))

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> None:
        self._thread.run(self._client.commit_offsets(group, offsets))

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        self._thread.run(self._client.delete_offsets(group, partitions))


async def _make(build: Callable[[], Result]) -> Result:
    """Build something on the loop that it will belong to."""
    return build()
