"""Messages of each lane one after the other, while the broker keeps its queue for this member.

A queue is pulled and consumed only under a lock, which brokers hold for a minute and this end
trusts for half of one; it is renewed often, and given back when the queue is given up. A message
that fails is tried again here, and those behind it wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from dragoman.client_core.errors import ClientError
from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import LockBatch, LockedBatch, MessageQueue
from dragoman.protocols.rocketmq.client.lanes import Lane
from dragoman.protocols.rocketmq.client.listening import Later, listened
from dragoman.protocols.rocketmq.client.send_back import send_back
from dragoman.protocols.rocketmq.client.values import ReceivedMessage
from dragoman.protocols.rocketmq.constants import Request

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.push_consumer import PushConsumer

log = logging.getLogger("dragoman.client.rocketmq")
#: Half of what the broker does.
_TRUSTED_S: Final = 30.0


class OrderlyWork:
    def __init__(self, consumer: PushConsumer) -> None:
        self._consumer = consumer

    def start(self) -> None:
        """Lanes work by themselves."""

    async def close(self) -> None:
        """Lanes have ended."""

    # ---- lanes

    async def obtained(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Those that the brokers have locked for this member."""
        if not self._consumer.is_clustering:
            return queues
        locked = await self._locked(queues)
        return [each for each in queues if each in locked]

    def begin(self, lane: Lane) -> None:
        lane.locked_until = asyncio.get_running_loop().time() + _TRUSTED_S
        lane.run(self._keep_consuming(lane))

    async def ended(self, lane: Lane) -> bool:
        """Else its listener takes too long, and the lock is left to run out."""
        assert lane.task is not None
        await asyncio.wait((lane.task,), timeout=self._consumer.grace_s)
        return lane.task.done()

    async def released(self, lanes: Iterable[Lane]) -> None:
        if not self._consumer.is_clustering:
            return
        for address, some in self._by_broker([lane.queue for lane in lanes]).items():
            try:
                await self._consumer.client.remoting.call(
                    address, Request.UNLOCK_BATCH_MQ, body=bodies.encode(self._batch(some))
                )
            except ClientError as error:
                # It runs out.
                log.info("unlocking queues of group %s: %s", self._consumer.group, error)

    async def renew(self) -> None:
        if not self._consumer.is_clustering or not self._consumer.lanes:
            return
        until = asyncio.get_running_loop().time() + _TRUSTED_S
        locked = await self._locked(list(self._consumer.lanes))
        for queue in locked & self._consumer.lanes.keys():
            self._consumer.lanes[queue].locked_until = until

    async def _locked(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        locked: set[MessageQueue] = set()
        for address, some in self._by_broker(queues).items():
            try:
                answer = await self._consumer.client.remoting.call(
                    address, Request.LOCK_BATCH_MQ, body=bodies.encode(self._batch(some))
                )
                locked |= set(bodies.decode(answer.body, LockedBatch).lock_ok_mq_set)
            except DragomanError as error:
                log.warning("locking queues of group %s: %s", self._consumer.group, error)
        return locked

    def _batch(self, queues: list[MessageQueue]) -> LockBatch:
        consumer = self._consumer
        return LockBatch(
            consumer_group=consumer.group, client_id=consumer.client.client_id, mq_set=queues
        )

    def _by_broker(self, queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
        """Only masters lock. Queues of brokers that have none are left out."""
        client = self._consumer.client
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            try:
                address = client.remoting.broker(client.routes.master(queue.broker_name))
            except ClientError:
                continue
            found.setdefault(address, []).append(queue)
        return found

    def _is_locked(self, lane: Lane) -> bool:
        if not self._consumer.is_clustering:
            return True
        return lane.locked_until > asyncio.get_running_loop().time()

    # ---- messages

    async def _keep_consuming(self, lane: Lane) -> None:
        while not lane.is_dropped:
            if not self._is_locked(lane):
                await self._lock_again(lane)
                continue
            found = await self._consumer.pulled(lane)
            if found is None:
                continue
            for message in lane.take_in(found):
                if not await self._consumed(lane, message):
                    break
            if not lane.is_dropped:
                # Those behind a message that was left are pulled again.
                lane.restart(lane.committable)

    async def _lock_again(self, lane: Lane) -> None:
        consumer = self._consumer
        until = asyncio.get_running_loop().time() + _TRUSTED_S
        if lane.queue not in await self._locked([lane.queue]):
            await asyncio.sleep(consumer.client.settings.backoff_max_s)
            return
        try:
            saved = await consumer.store.load(lane.queue)
        except DragomanError as error:
            log.warning("offset of %s: %s", lane.queue, error)
            return
        # Somebody else may have had the queue meanwhile, and gone further.
        lane.position = max(lane.position, saved or 0)
        lane.locked_until = until

    async def _consumed(self, lane: Lane, message: ReceivedMessage) -> bool:
        """Whether it is done with; else the queue is no longer this member's."""
        consumer = self._consumer
        while not lane.is_dropped and self._is_locked(lane):
            lane.last_consume_ms = consumer.client.clock.wall_ms()
            lane.is_interruptible = False
            outcome, _ = await listened(consumer.listener, message)
            is_done = not isinstance(outcome, Later) or await self._given_up(message, outcome)
            lane.is_interruptible = True
            if is_done:
                lane.done(message)
                return True
            message.reconsume_times += 1
            if not lane.is_dropped:
                await asyncio.sleep(consumer.options.get("orderly_pause_s", 1.0))
        return False

    async def _given_up(self, message: ReceivedMessage, outcome: Later) -> bool:
        """Whether it was tried too often and could be handed to the broker."""
        consumer = self._consumer
        is_too_often = message.reconsume_times >= consumer.reconsume_times_max
        if not is_too_often and outcome.delay_level >= 0:
            return False
        if not consumer.is_clustering:
            return True
        try:
            await send_back(consumer.client, consumer.group, message, -1, 0)
        except DragomanError as error:
            log.warning("message %s stays at the head: %s", message.unique_id, error)
            return False
        return True
