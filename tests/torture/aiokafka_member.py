"""A group member on aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

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


class AioMember(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, protocol: str, servers: str, book: Book) -> None:
        assert protocol == "range", "aiokafka rebalances eagerly only"
        self._servers = servers
        self._book = book

    def _place(self) -> Place:
        coordinator = self._consumer._coordinator
        return coordinator.generation, coordinator.member_id

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._book.takes([each.partition for each in assigned], self._place())

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        # It knows no other way to say that partitions are lost.
        is_lost = self._place()[0] < 0
        self._book.gives_up([each.partition for each in revoked], self._place(), lost=is_lost)

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=REBALANCE_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            fetch_max_wait_ms=100,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        self._consumer.subscribe([TOPIC], listener=self)
        while True:
            try:
                await self._consumer.start()
                break
            except KafkaError:
                await asyncio.sleep(0.1)
        while not self._book.is_leaving:
            for partition, records in (await self._consumer.getmany(timeout_ms=50)).items():
                for record in records:
                    self._book.reads(partition.partition, record.offset)
            await self._commit(self._book.to_commit())
        await self._consumer.stop()

    async def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        place, started = self._place(), time.monotonic()
        wanted = {TopicPartition(TOPIC, each): offset for each, offset in offsets.items()}
        try:
            await asyncio.wait_for(self._consumer.commit(wanted), ANSWER_S)
        except (KafkaError, TimeoutError) as error:
            self._book.refused(started, offsets, error)
        else:
            self._book.committed(started, offsets, place)
