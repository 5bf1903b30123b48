"""`KafkaClient`: all calls of the low-level client. Calls about topics, offsets, groups and staged
writes are in `admin.py`, `fetch.py`, `groups.py` and `staged_writes.py`.

    async with KafkaClient("127.0.0.1:9092") as client:
        await client.create_topic(NewTopic(name="orders", partitions=3))
        ...

It belongs to the event loop on which it was opened. Concurrent calls share connections.
`BlockingKafkaClient` is the same for code without an event loop: every call waits for its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from dragoman.client_core.addresses import parse_addresses
from dragoman.client_core.blocking_client import (
    BlockingClient,
    BlockingPart,
    beginning,
    making,
    waiting,
)
from dragoman.limits import KAFKA_CLIENT_FETCH_BYTES, KAFKA_CLIENT_FETCH_PARTITION_BYTES
from dragoman.operating_system import SystemClock, system_random
from dragoman.protocols.kafka.client.admin import TopicCalls
from dragoman.protocols.kafka.client.cluster import Cluster
from dragoman.protocols.kafka.client.fetch import FetchOptions, OffsetCalls, fetch
from dragoman.protocols.kafka.client.groups import GroupCalls
from dragoman.protocols.kafka.client.produce import ProduceOptions, new_producer_identity, produce
from dragoman.protocols.kafka.client.producer import Producer, ProducerOptions
from dragoman.protocols.kafka.client.reader import Reader
from dragoman.protocols.kafka.client.staged_writes import StagingCalls
from dragoman.protocols.kafka.client.transactions import TransactionalProducer, TransactionOptions
from dragoman.protocols.kafka.client.values import (
    DEFAULT_PORT,
    Acks,
    ClientSettings,
    ClusterInfo,
    ConsumedRecord,
    Fetched,
    FetchFrom,
    Isolation,
    NewRecord,
    Produced,
    ProducerIdentity,
    RecordPosition,
    TopicInfo,
    TopicPartition,
)
from dragoman.types import Buffer
from dragoman.world import Clock, Random


class KafkaClient(TopicCalls, OffsetCalls, GroupCalls, StagingCalls):
    """A client of a Kafka cluster, of Dragoman or of Apache Kafka.

    `bootstrap` is `HOST:PORT`, or several separated by commas. Retriable errors are retried for
    `settings.operation_timeout_s`; `errors` lists the exceptions.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: ClientSettings | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.settings = settings or ClientSettings()
        self._clock = clock or SystemClock()
        self._random = random or system_random()
        addresses = parse_addresses((bootstrap,), default_port=DEFAULT_PORT)
        cluster = Cluster(addresses, self.settings, self._random)
        super().__init__(cluster)

    # ---- lifecycle

    async def open(self) -> Self:
        """Connect to a broker, trying each address once. Raises `UnreachableError`."""
        await self._cluster.bootstrap()
        return self

    async def close(self) -> None:
        """Close all connections. Calls that wait for a reply raise `ClientClosedError`."""
        self._cluster.close()
        # Sockets are closed in the next loop turn, which must run before the loop may end.
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        try:
            return await self.open()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- the cluster

    async def cluster(self, topics: Sequence[str] | None = None) -> ClusterInfo:
        """Current brokers and topics. None: all topics, without those in error."""

        async def attempt() -> ClusterInfo:
            return await self._cluster.metadata(topics)

        return await self._cluster.retry.call(attempt)

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """A topic's partitions, from the cache or a broker. Raises `UnknownTopicError`."""

        async def attempt() -> TopicInfo:
            return await self._cluster.topic(name, auto_create=auto_create)

        return await self._cluster.retry.call(attempt)

    async def served_versions(self) -> dict[str, tuple[int, int]]:
        """The first and the last version of each request that one of the brokers serves."""

        async def attempt() -> dict[str, tuple[int, int]]:
            return (await self._cluster.served()).ranges()

        return await self._cluster.retry.call(attempt)

    # ---- whole batches

    async def fetch(
        self,
        partitions: Mapping[TopicPartition, FetchFrom],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = KAFKA_CLIENT_FETCH_BYTES,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> dict[TopicPartition, Fetched]:
        """Fetch whole batches of each partition from its offset on; none at the end of a partition.

        Each leader gets one request, concurrently, and may wait `max_wait_ms` for `min_bytes`;
        `max_bytes` is per leader. Raises the first error that is not retriable, such as
        `OffsetRangeError`.
        """
        options = FetchOptions(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation=isolation,
        )
        return await fetch(self._cluster, partitions, options)

    async def produce(
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
        """Append one batch of magic 2 unchanged.

        A batch with a producer id in its header is always retried, and written once. For a batch
        without one, an error with `is_ambiguous` means that it may or may not have been written.
        Raises `DecodeError` unless the bytes are exactly one batch.
        """
        options = ProduceOptions(
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=transactional_id,
            auto_create=auto_create,
        )
        where = TopicPartition(topic, partition)
        return await produce(self._cluster, where, batch, options)

    async def new_producer_identity(self) -> ProducerIdentity:
        """A new producer id, for batches with sequence numbers."""
        return await new_producer_identity(self._cluster)

    # ---- records

    def producer(self, options: ProducerOptions | None = None) -> Producer:
        """A producer of single records. Close it after use, or use it with `async with`."""
        options = options or ProducerOptions()
        return Producer(self._cluster, options, self._clock, self._random)

    def transactional_producer(self, options: TransactionOptions) -> TransactionalProducer:
        """A producer whose records become visible together. Call its `initialise` first."""
        return TransactionalProducer(self._cluster, options)

    async def produce_records(
        self, topic: str, records: Iterable[NewRecord], options: ProducerOptions | None = None
    ) -> list[RecordPosition]:
        """Write records and wait for all of them. Returns their positions in the same order."""
        async with self.producer(options) as producer:
            sent = await producer.send_many(topic, records)
            await producer.flush()
            return [await delivery for delivery in sent]

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
    ) -> Reader:
        """A reader of decoded records from these offsets up to those of `until`, exclusive.

        The reader follows partitions that `until` does not name forever. Close it after use, or use
        it with `async with`.
        """
        options = FetchOptions(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation=isolation,
        )
        return Reader(
            self._cluster,
            starts,
            until=until or {},
            options=options,
            partition_bytes=partition_bytes,
        )


class BlockingProducer(BlockingPart[Producer]):
    """A blocking `Producer`. `send_many` passes many records to the event loop at the cost of
    one.
    """

    @property
    def written_records(self) -> int:
        return self._part.written_records

    def send(self, topic: str, record: NewRecord) -> None:
        self.send_many(topic, (record,))

    def send_many(self, topic: str, records: Iterable[NewRecord]) -> None:
        """Enqueue records. Raises an earlier failure that the next flush would raise."""
        self._thread.run(lambda: self._send_many(topic, records))

    async def _send_many(self, topic: str, records: Iterable[NewRecord]) -> None:
        if self._part.has_failed:
            await self._part.flush()
        await self._part.send_many(topic, records)

    flush = waiting(Producer.flush)


class BlockingReader(BlockingPart[Reader]):
    """A blocking `Reader`."""

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._part.positions

    next_records = waiting(Reader.next_records)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        while records := self.next_records():
            yield from records


class BlockingKafkaClient(BlockingClient[KafkaClient]):
    """`KafkaClient` with blocking methods. `KafkaClient` documents them."""

    def __init__(
        self,
        bootstrap: str,
        settings: ClientSettings | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(
            "dragoman-kafka-client",
            lambda: KafkaClient(bootstrap, settings, clock=clock, random=random),
        )

    def open(self) -> Self:
        self._thread.run(self._client.open)
        return self

    # ---- calls

    cluster = waiting(KafkaClient.cluster)
    topic = waiting(KafkaClient.topic)
    served_versions = waiting(KafkaClient.served_versions)
    fetch = waiting(KafkaClient.fetch)
    produce = waiting(KafkaClient.produce)
    begin_produce = beginning(KafkaClient.produce)
    new_producer_identity = waiting(KafkaClient.new_producer_identity)
    list_offsets = waiting(KafkaClient.list_offsets)
    producer = making(KafkaClient.producer, BlockingProducer)
    produce_records = waiting(KafkaClient.produce_records)
    reader = making(KafkaClient.reader, BlockingReader)
    create_topic = waiting(KafkaClient.create_topic)
    delete_topic = waiting(KafkaClient.delete_topic)
    create_partitions = waiting(KafkaClient.create_partitions)
    describe_configs = waiting(KafkaClient.describe_configs)
    alter_configs = waiting(KafkaClient.alter_configs)
    log_directories = waiting(KafkaClient.log_directories)
    delete_records = waiting(KafkaClient.delete_records)
    describe_producers = waiting(KafkaClient.describe_producers)
    list_groups = waiting(KafkaClient.list_groups)
    describe_group = waiting(KafkaClient.describe_group)
    delete_group = waiting(KafkaClient.delete_group)
    committed_offsets = waiting(KafkaClient.committed_offsets)
    commit_offsets = waiting(KafkaClient.commit_offsets)
    delete_offsets = waiting(KafkaClient.delete_offsets)
    open_staging = waiting(KafkaClient.open_staging)
    publish_staged = waiting(KafkaClient.publish_staged)
