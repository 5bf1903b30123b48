"""The blocking Kafka client, for code without an event loop: every call waits for its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from dragoman.client_core.blocking import BlockingClient, BlockingPart, beginning, making, waiting
from dragoman.protocols.kafka.client.client import KafkaClient
from dragoman.protocols.kafka.client.producer import Producer
from dragoman.protocols.kafka.client.reader import Reader
from dragoman.protocols.kafka.client.values import (
    ClientSettings,
    ConsumedRecord,
    NewRecord,
    TopicPartition,
)
from dragoman.world import Clock, Random


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
    list_groups = waiting(KafkaClient.list_groups)
    describe_group = waiting(KafkaClient.describe_group)
    delete_group = waiting(KafkaClient.delete_group)
    committed_offsets = waiting(KafkaClient.committed_offsets)
    commit_offsets = waiting(KafkaClient.commit_offsets)
    delete_offsets = waiting(KafkaClient.delete_offsets)
    open_staging = waiting(KafkaClient.open_staging)
    publish_staged = waiting(KafkaClient.publish_staged)
