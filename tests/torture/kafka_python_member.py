"""A group member on kafka-python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from typing import Any

from torture.member import (
    ANSWER_S,
    GROUP,
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Book,
    Place,
)

with warnings.catch_warnings():
    # It reads its definitions through a function that the standard library has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata


class PythonMember(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, protocol: str, servers: str, book: Book) -> None:
        assignor = {
            "range": RangePartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }[protocol]
        self._is_incremental = protocol != "range"
        self._book = book
        self._consumer = self._connected(servers, assignor)
        self._consumer.subscribe([TOPIC], listener=self)

    @staticmethod
    def _connected(servers: str, assignor: type) -> KafkaConsumer:
        while True:
            try:
                return KafkaConsumer(
                    bootstrap_servers=servers,
                    group_id=GROUP,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    session_timeout_ms=SESSION_MS,
                    heartbeat_interval_ms=HEARTBEAT_MS,
                    max_poll_interval_ms=REBALANCE_MS,
                    request_timeout_ms=REBALANCE_MS + 5_000,
                    reconnect_backoff_max_ms=500,
                    fetch_max_wait_ms=100,
                    partition_assignment_strategy=[assignor],
                )
            except KafkaError:
                time.sleep(0.1)  # The broker may be down; this client then gives up at once.

    def _place(self) -> Place:
        metadata = self._consumer.group_metadata()
        return metadata.generation_id, metadata.member_id

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._book.takes([each.partition for each in assigned], self._place())

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._book.gives_up([each.partition for each in revoked], self._place())

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._book.gives_up([each.partition for each in lost], self._place(), lost=True)

    def run(self) -> None:
        while not self._book.is_leaving:
            for partition, records in self._consumer.poll(timeout_ms=50).items():
                for record in self._fresh(partition, records):
                    self._book.reads(partition.partition, record.offset)
            self._commit(self._book.to_commit())
        self._consumer.close(autocommit=False)

    def _fresh(self, partition: TopicPartition, records: list[Any]) -> list[Any]:
        """The records from the committed offset on. The client keeps its position, and what it has
        fetched, when it loses a partition and gets it again in the next generation; what it had
        read and not committed would then never come again."""
        if not self._book.is_at_start(partition.partition):
            return records
        started = time.monotonic()
        committed = self._consumer.committed(partition) or 0
        if committed not in [record.offset for record in records]:
            self._consumer.seek(partition, committed)
            return []
        self._book.resumes(started, {partition.partition: committed})
        return [record for record in records if record.offset >= committed]

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        place, started = self._place(), time.monotonic()
        wanted = {
            TopicPartition(TOPIC, each): OffsetAndMetadata(offset, "", -1)
            for each, offset in offsets.items()
        }
        try:
            self._consumer.commit(wanted, timeout_ms=ANSWER_S * 1000)
        except KafkaError as error:
            self._book.refused(started, offsets, error)
        else:
            self._book.committed(started, offsets, place)
