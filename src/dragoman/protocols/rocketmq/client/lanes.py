"""One queue that a push consumer has: what was pulled of it, what is done, and where it stands.

    position    of the next pull
    in flight   pulled and not consumed; at the bound the queue is not pulled
    committable the oldest in flight, or the position when there is none

A lane that was given up (`is_dropped`) pulls no more; of what is in flight, nothing more is begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from dragoman.protocols.rocketmq.bodies import MessageQueue, ProcessQueueInfo, SubscriptionData
from dragoman.protocols.rocketmq.client.fetching import Pulled
from dragoman.protocols.rocketmq.client.filters import Filter
from dragoman.protocols.rocketmq.client.values import ReceivedMessage

log = logging.getLogger("dragoman.client.rocketmq")


class Lane:
    def __init__(
        self,
        queue: MessageQueue,
        position: int,
        wanted: Filter,
        subscription: SubscriptionData,
        in_flight_max: int,
        in_flight_bytes_max: int,
    ) -> None:
        self.queue = queue
        self.position = position
        self.wanted = wanted
        self.subscription = subscription
        self.broker_id = 0
        self.is_dropped = False
        #: Loop time until which the broker keeps the queue for this consumer; orderly only.
        self.locked_until = 0.0
        self.task: asyncio.Task[None] | None = None
        #: Not while its own task has a listener at work; orderly only.
        self.is_interruptible = True
        self._in_flight: dict[int, ReceivedMessage] = {}
        #: Those that a listener has.
        self._at_work: set[int] = set()
        self._in_flight_max = in_flight_max
        self._in_flight_bytes = 0
        self._in_flight_bytes_max = in_flight_bytes_max
        self._changed = asyncio.Event()
        self.last_pull_ms = 0
        self.last_consume_ms = 0

    def run(self, work: Coroutine[None, None, None]) -> None:
        """What pulls, until the lane is dropped."""
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s is read no more", self.queue, exc_info=error)

    @property
    def committable(self) -> int:
        return next(iter(self._in_flight), self.position)

    def take_in(self, pulled: Pulled) -> list[ReceivedMessage]:
        """Those to be consumed."""
        self.position = pulled.next_offset
        self.broker_id = pulled.suggested_broker_id
        kept = self.wanted.kept(pulled.messages)
        for message in kept:
            self._in_flight[message.queue_offset] = message
            self._in_flight_bytes += len(message.body)
        return kept

    def done(self, message: ReceivedMessage) -> None:
        if self._in_flight.pop(message.queue_offset, None) is not None:
            self._in_flight_bytes -= len(message.body)
        self._changed.set()

    async def room(self) -> None:
        while (
            len(self._in_flight) >= self._in_flight_max
            or self._in_flight_bytes >= self._in_flight_bytes_max
        ):
            self._changed.clear()
            await self._changed.wait()

    def begin(self, message: ReceivedMessage) -> None:
        """A listener has the message until `end`."""
        self._at_work.add(message.queue_offset)

    def end(self, message: ReceivedMessage) -> None:
        self._at_work.discard(message.queue_offset)
        self._changed.set()

    async def idle(self) -> None:
        """Until no listener has a message."""
        while self._at_work:
            self._changed.clear()
            await self._changed.wait()

    def restart(self, position: int) -> None:
        """Forget what is in flight, and pull from here."""
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self.position = position

    def drop(self) -> None:
        """What is at work comes to its end; the rest belongs to somebody else."""
        self.is_dropped = True
        if self.task is not None and self.is_interruptible:
            self.task.cancel()

    def info(self, *, is_orderly: bool) -> ProcessQueueInfo:
        offsets = list(self._in_flight)
        return ProcessQueueInfo(
            commit_offset=self.committable,
            cached_msg_min_offset=offsets[0] if offsets else 0,
            cached_msg_max_offset=offsets[-1] if offsets else 0,
            cached_msg_count=len(offsets),
            cached_msg_size_in_mib=self._in_flight_bytes >> 20,
            locked=is_orderly and self.locked_until > asyncio.get_running_loop().time(),
            droped=self.is_dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )
