"""Sends prepared batches when they are due, a bounded number at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Final

from dragoman.cli.load.batches import Prepared
from dragoman.cli.load.measurement import Measurement
from dragoman.cli.load.plan import Plan
from dragoman.cli.load.schedule import Schedule
from dragoman.client.kafka import NO_OFFSET, KafkaClient
from dragoman.errors import DragomanError
from dragoman.protocols.kafka.client.values import Acks

#: After an error, so that a broker that refuses everything is not flooded.
PAUSE_S: Final = 0.1
_ACKS: Final[dict[str, Acks]] = {"all": -1, "1": 1, "0": 0}
#: Called with a batch, when it was due, its base offset and when it was acknowledged.
OnWritten = Callable[[Prepared, float, int, float], None]


class Sender:
    """All clients of a worker."""

    def __init__(
        self,
        plan: Plan,
        clients: Sequence[KafkaClient],
        prepared: Sequence[Prepared],
        measurement: Measurement,
        schedule: Schedule,
        on_written: OnWritten,
    ) -> None:
        self._plan = plan
        self._clients = clients
        self._turns: Iterator[Prepared] = cycle(prepared)
        self._measurement = measurement
        self._schedule = schedule
        self._on_written = on_written

    async def run(self) -> None:
        """Until no batch is due any more, and all are answered."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for client in self._clients:
                    for _ in range(self._plan.in_flight):
                        tasks.create_task(self._send(client))
        finally:
            overdue = self._schedule.overdue(time.monotonic())
            self._measurement.tally.unsent_records += overdue * self._plan.batch_records

    async def _send(self, client: KafkaClient) -> None:
        acks = _ACKS[self._plan.acks]
        tally = self._measurement.tally
        while (due := self._schedule.take(time.monotonic())) is not None:
            if not await self._is_due(due):
                return
            prepared = next(self._turns)
            topic, partition = prepared.where
            try:
                written = await client.produce(
                    topic, partition, prepared.data, acks=acks, auto_create=False
                )
            except DragomanError as error:
                tally.add_error(error)
                await asyncio.sleep(PAUSE_S)
            except asyncio.CancelledError:
                tally.count_error("NoReplyAtTheEnd")
                raise
            else:
                assert acks == 0 or written.base_offset != NO_OFFSET
                self._on_written(prepared, due, written.base_offset, time.monotonic())

    async def _is_due(self, due: float) -> bool:
        """Wait until then; false if the user stops the benchmark before."""
        pause = due - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        return not self._measurement.stopped.is_set()
