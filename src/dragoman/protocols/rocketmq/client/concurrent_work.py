"""Messages of all lanes, consumed by a number of workers in no order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.lanes import Lane
from dragoman.protocols.rocketmq.client.listening import Later, listened
from dragoman.protocols.rocketmq.client.send_back import send_back
from dragoman.protocols.rocketmq.client.values import ReceivedMessage

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.push_consumer import PushConsumer

log = logging.getLogger("dragoman.client.rocketmq")


class ConcurrentWork:
    def __init__(self, consumer: PushConsumer) -> None:
        self._consumer = consumer
        #: Bounded by what lanes may have in flight.
        self._due: asyncio.Queue[tuple[Lane, ReceivedMessage]] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        count = self._consumer.options.get("concurrency", 20)
        self._workers = [asyncio.create_task(self._work()) for _ in range(count)]

    async def close(self) -> None:
        """Lanes have ended; who is at work nevertheless had enough time."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    # ---- lanes

    async def obtained(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Which of these may be begun."""
        return queues

    def begin(self, lane: Lane) -> None:
        lane.run(self._keep_pulling(lane))

    async def ended(self, lane: Lane) -> bool:
        """Wait, within limits, until nothing of a lane that was dropped is at work."""
        if lane.task is not None:
            await asyncio.gather(lane.task, return_exceptions=True)
        try:
            async with asyncio.timeout(self._consumer.grace_s):
                await lane.idle()
        except TimeoutError:
            return False
        return True

    async def released(self, lanes: Iterable[Lane]) -> None:
        """Lanes have ended, and their offsets are saved."""

    async def renew(self) -> None:
        """Nothing is kept for this consumer."""

    async def _keep_pulling(self, lane: Lane) -> None:
        while not lane.is_dropped:
            await lane.room()
            found = await self._consumer.pulled(lane)
            if found is not None and not lane.is_dropped:
                for message in lane.take_in(found):
                    self._due.put_nowait((lane, message))

    # ---- messages

    async def _work(self) -> None:
        while True:
            lane, message = await self._due.get()
            if lane.is_dropped:
                continue
            lane.begin(message)
            try:
                await self._consume(lane, message)
            finally:
                lane.end(message)

    async def _consume(self, lane: Lane, message: ReceivedMessage) -> None:
        consumer = self._consumer
        while True:
            lane.last_consume_ms = consumer.client.clock.wall_ms()
            outcome, _ = await listened(consumer.listener, message)
            if not isinstance(outcome, Later) or await self._given_back(message, outcome):
                lane.done(message)
                return
            if lane.is_dropped:
                return
            await asyncio.sleep(consumer.client.settings.backoff_max_s)

    async def _given_back(self, message: ReceivedMessage, outcome: Later) -> bool:
        consumer = self._consumer
        if not consumer.is_clustering:
            log.warning("message %s is given up: broadcasting has no retries", message.unique_id)
            return True
        try:
            await send_back(
                consumer.client,
                consumer.group,
                message,
                outcome.delay_level,
                consumer.reconsume_times_max,
            )
        except DragomanError as error:
            log.warning("message %s is tried again here: %s", message.unique_id, error)
            return False
        return True
