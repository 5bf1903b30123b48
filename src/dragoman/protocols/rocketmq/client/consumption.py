"""Consumption by a push consumer: passes messages from its assigned queues to its listener.

A process queue has the messages of a queue that were pulled but not consumed yet:

    position    the offset of the next pull
    in flight   pulled but not consumed; at the bound, pulling pauses
    committable the offset of the oldest message in flight, or else the position

A dropped process queue stops pulling, and passes no more messages to the listener. Concurrent
consumption passes the messages of all queues to a number of workers; a failed message is sent back
to the broker. Orderly consumption passes the messages of each queue one at a time, while the broker
keeps a lock on the queue for this member; a failed message is retried in place.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from dragoman.client_core.errors import ClientError
from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage, Sent
from dragoman.protocols.rocketmq.client.producer import Outgoing
from dragoman.protocols.rocketmq.client.pull import Filter, Pulled
from dragoman.protocols.rocketmq.client.remoting import Fields, Remoting
from dragoman.protocols.rocketmq.client.routes import Routes
from dragoman.protocols.rocketmq.constants import RETRY_PREFIX, Property, Request
from dragoman.world import Clock

log = logging.getLogger("dragoman.client.rocketmq")

#: How long a lock is trusted. Brokers keep it for twice as long.
_LOCK_TRUSTED_S: Final = 30.0
#: The delay level of the first retry when the client sends the message itself.
_FIRST_LEVEL: Final = 3


# ---- listeners


class Later(msgspec.Struct, frozen=True):
    """The outcome of a message that was not consumed and must be delivered again."""

    #: 1 to 18; 0 lets the broker choose, with a longer delay each time; -1 makes a dead letter.
    delay_level: int = 0


Outcome: TypeAlias = Later | None
#: A message counts as consumed if the listener returns None, but not if it raises.
Listener: TypeAlias = Callable[[ReceivedMessage], Outcome | Awaitable[Outcome]]


async def listened(listener: Listener, message: ReceivedMessage) -> tuple[Outcome, str]:
    """Call the listener. Returns the outcome and the text of its exception, which counts as
    `Later`.
    """
    try:
        outcome = listener(message)
        return (await outcome if inspect.isawaitable(outcome) else outcome), ""
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        # A cancellation inside the listener does not cancel the worker.
        log.exception("a listener failed on message %s", message.unique_id)
        return Later(), repr(error)


# ---- queues


class ProcessQueue:
    """A queue of a push consumer, and its messages in flight."""

    def __init__(
        self,
        queue: MessageQueue,
        position: int,
        wanted: Filter,
        subscription: bodies.SubscriptionData,
        in_flight_max: int,
        in_flight_bytes_max: int,
    ) -> None:
        self.queue = queue
        self.position = position
        self.wanted = wanted
        self.subscription = subscription
        self.broker_id = 0
        self.is_dropped = False
        #: For orderly consumption: the loop time up to which the broker's lock is trusted.
        self.locked_until = 0.0
        self.task: asyncio.Task[None] | None = None
        #: For orderly consumption: False while the listener runs in the queue's task.
        self.is_interruptible = True
        self._in_flight: dict[int, ReceivedMessage] = {}
        #: The offsets of messages that listeners are processing.
        self._at_work: set[int] = set()
        self._in_flight_max = in_flight_max
        self._in_flight_bytes = 0
        self._in_flight_bytes_max = in_flight_bytes_max
        self._changed = asyncio.Event()
        self.last_pull_ms = 0
        self.last_consume_ms = 0

    def run(self, work: Coroutine[None, None, None]) -> None:
        """Run the task that pulls until the queue is dropped."""
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("reading %s has stopped", self.queue, exc_info=error)

    @property
    def committable(self) -> int:
        return next(iter(self._in_flight), self.position)

    def take_in(self, pulled: Pulled) -> list[ReceivedMessage]:
        """Advance the position, and return the messages that match the filter."""
        self.position = pulled.next_offset
        self.broker_id = pulled.suggested_broker_id
        kept = self.wanted.kept(pulled.messages)
        for message in kept:
            self._in_flight[message.queue_offset] = message
            self._in_flight_bytes += len(message.body)
        return kept

    def done(self, message: ReceivedMessage) -> None:
        """Note that the message was consumed."""
        if self._in_flight.pop(message.queue_offset, None) is not None:
            self._in_flight_bytes -= len(message.body)
        self._changed.set()

    async def room(self) -> None:
        """Wait until the messages in flight are below the bounds."""
        while (
            len(self._in_flight) >= self._in_flight_max
            or self._in_flight_bytes >= self._in_flight_bytes_max
        ):
            self._changed.clear()
            await self._changed.wait()

    def begin(self, message: ReceivedMessage) -> None:
        """Note that a listener is processing the message, until `end`."""
        self._at_work.add(message.queue_offset)

    def end(self, message: ReceivedMessage) -> None:
        self._at_work.discard(message.queue_offset)
        self._changed.set()

    async def idle(self) -> None:
        """Wait until no listener is processing a message."""
        while self._at_work:
            self._changed.clear()
            await self._changed.wait()

    def restart(self, position: int) -> None:
        """Drop the messages in flight, and pull from this position."""
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self.position = position

    def drop(self) -> None:
        """Stop pulling. Running listeners finish."""
        self.is_dropped = True
        if self.task is not None and self.is_interruptible:
            self.task.cancel()

    def info(self, *, is_orderly: bool) -> bodies.ProcessQueueInfo:
        offsets = list(self._in_flight)
        return bodies.ProcessQueueInfo(
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


#: Pulls messages for a process queue; None after a failure, or when there are none.
PullNext: TypeAlias = Callable[[ProcessQueue], Awaitable[Pulled | None]]


# ---- messages that failed


class Retries:
    """Sends failed messages back for a later delivery."""

    def __init__(
        self,
        remoting: Remoting,
        routes: Routes,
        deliver: Callable[[Outgoing], Awaitable[Sent]],
        group: str,
    ) -> None:
        self._remoting = remoting
        self._routes = routes
        self._deliver = deliver
        self._group = group

    async def add(self, message: ReceivedMessage, delay_level: int, times_max: int) -> None:
        """Send a message back to its broker or, if that fails, to the group's retry topic.

        Raises `ClientError` if both fail.
        """
        fields: Fields = {
            "offset": message.physical_offset,
            "group": self._group,
            "delayLevel": delay_level,
            "originMsgId": message.message_id,
            "originTopic": message.topic,
            "unitMode": False,
            "maxReconsumeTimes": times_max,
            "bname": message.broker_name,
        }
        try:
            address = self._remoting.broker(self._routes.master(message.broker_name))
            await self._remoting.call(address, Request.CONSUMER_SEND_MSG_BACK, fields)
        except ClientError as error:
            log.info("message %s is sent as a new message: %s", message.unique_id, error)
            await self._deliver(self._copy(message, delay_level, times_max))

    def _copy(self, message: ReceivedMessage, delay_level: int, times_max: int) -> Outgoing:
        times = message.reconsume_times + 1
        origin = message.properties.get(Property.ORIGIN_MESSAGE_ID) or message.message_id
        properties = message.properties | {
            Property.RETRY_TOPIC: message.topic,
            Property.ORIGIN_MESSAGE_ID: origin,
            Property.RECONSUME_TIME: str(times),
            Property.MAX_RECONSUME_TIMES: str(times_max),
            Property.DELAY: str(delay_level if delay_level > 0 else _FIRST_LEVEL + times - 1),
        }
        properties.pop(Property.TRANSACTION_PREPARED, None)
        return Outgoing(
            RETRY_PREFIX + self._group,
            message.body,
            properties,
            flag=message.flag,
            # A count above the maximum makes the message a dead letter.
            reconsume_times=times_max + 1 if delay_level < 0 else times,
            max_reconsume_times=times_max,
        )


# ---- consumption


class ConsumptionPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What consumption uses of the consumer. Times are in seconds."""

    pull_next: PullNext
    listener: Listener
    #: None for broadcasting, which has no retries.
    retries: Retries | None
    clock: Clock
    reconsume_times_max: int
    #: The number of workers of concurrent consumption.
    concurrency: int
    #: How long dropped queues wait for running listeners.
    grace_s: float
    #: The pause after a request to a broker has failed.
    pause_s: float
    #: The pause before orderly consumption retries a message.
    retry_pause_s: float


class Consumption:
    """A way to pass messages to the listener."""

    def __init__(self, ports: ConsumptionPorts) -> None:
        self._ports = ports

    def start(self) -> None:
        """Called before the first queue begins."""

    async def close(self) -> None:
        """Called after the last queue has ended."""

    async def obtained(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """The queues whose consumption may begin: all, unless they must be locked first."""
        return queues

    def begin(self, process_queue: ProcessQueue) -> None:
        """Consume a queue until it is dropped."""
        raise NotImplementedError

    async def ended(self, process_queue: ProcessQueue) -> bool:
        """Wait for the end of a dropped queue. False if its listeners take too long."""
        raise NotImplementedError

    async def released(self, queues: Sequence[MessageQueue]) -> None:
        """Called when queues have ended and their offsets are saved."""

    async def renew(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Renew the locks on queues, if they are locked."""


class ConcurrentConsumption(Consumption):
    """Workers consume the messages of all queues, in no particular order."""

    def __init__(self, ports: ConsumptionPorts) -> None:
        super().__init__(ports)
        #: Messages for workers, bounded by the maximum in flight.
        self._due: asyncio.Queue[tuple[ProcessQueue, ReceivedMessage]] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        count = self._ports.concurrency
        self._workers = [asyncio.create_task(self._work()) for _ in range(count)]

    async def close(self) -> None:
        """Cancel the workers. Listeners that are still running have exceeded the grace period."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def begin(self, process_queue: ProcessQueue) -> None:
        process_queue.run(self._keep_pulling(process_queue))

    async def ended(self, process_queue: ProcessQueue) -> bool:
        if process_queue.task is not None:
            await asyncio.gather(process_queue.task, return_exceptions=True)
        try:
            async with asyncio.timeout(self._ports.grace_s):
                await process_queue.idle()
        except TimeoutError:
            return False
        return True

    async def _keep_pulling(self, process_queue: ProcessQueue) -> None:
        while not process_queue.is_dropped:
            await process_queue.room()
            found = await self._ports.pull_next(process_queue)
            if found is not None and not process_queue.is_dropped:
                for message in process_queue.take_in(found):
                    self._due.put_nowait((process_queue, message))

    async def _work(self) -> None:
        while True:
            process_queue, message = await self._due.get()
            if process_queue.is_dropped:
                continue
            process_queue.begin(message)
            try:
                await self._consume(process_queue, message)
            finally:
                process_queue.end(message)

    async def _consume(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        while True:
            process_queue.last_consume_ms = self._ports.clock.wall_ms()
            outcome, _ = await listened(self._ports.listener, message)
            if not isinstance(outcome, Later) or await self._returned(message, outcome):
                process_queue.done(message)
                return
            if process_queue.is_dropped:
                return
            await asyncio.sleep(self._ports.pause_s)

    async def _returned(self, message: ReceivedMessage, outcome: Later) -> bool:
        if self._ports.retries is None:
            log.warning("message %s is dropped: broadcasting has no retries", message.unique_id)
            return True
        try:
            await self._ports.retries.add(
                message, outcome.delay_level, self._ports.reconsume_times_max
            )
        except DragomanError as error:
            log.warning("message %s is retried here: %s", message.unique_id, error)
            return False
        return True


class QueueLocks:
    """Locks on queues. A master grants each lock to one member of a group at a time."""

    def __init__(self, remoting: Remoting, routes: Routes, group: str) -> None:
        self._remoting = remoting
        self._routes = routes
        self._group = group

    async def lock(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Lock queues. Returns those that are now locked for this member."""
        locked: set[MessageQueue] = set()
        for address, some in self._by_broker(queues).items():
            try:
                answer = await self._remoting.call(
                    address, Request.LOCK_BATCH_MQ, body=self._batch(some)
                )
                locked |= set(bodies.decode(answer.body, bodies.LockedBatch).lock_ok_mq_set)
            except DragomanError as error:
                log.warning("locking queues of group %s: %s", self._group, error)
        return locked

    async def unlock(self, queues: Sequence[MessageQueue]) -> None:
        for address, some in self._by_broker(queues).items():
            try:
                await self._remoting.call(address, Request.UNLOCK_BATCH_MQ, body=self._batch(some))
            except ClientError as error:
                # The lock expires anyway.
                log.info("unlocking queues of group %s: %s", self._group, error)

    def _batch(self, queues: list[MessageQueue]) -> bytes:
        client_id = self._remoting.identity.client_id
        return bodies.encode(
            bodies.LockBatch(consumer_group=self._group, client_id=client_id, mq_set=queues)
        )

    def _by_broker(self, queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
        """Queues by their master's address. Queues of brokers without a master are left out."""
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            try:
                address = self._remoting.broker(self._routes.master(queue.broker_name))
            except ClientError:
                continue
            found.setdefault(address, []).append(queue)
        return found


class OrderlyConsumption(Consumption):
    """Consumes the messages of each queue one at a time.

    A queue is pulled and consumed only under a lock, which brokers keep for a minute and the client
    trusts for half of that. The lock is renewed, and released when the queue is dropped. A failed
    message is retried in place while the messages behind it wait. Broadcasting needs no locks.
    """

    def __init__(
        self,
        ports: ConsumptionPorts,
        locks: QueueLocks | None,
        saved_offset: Callable[[MessageQueue], Awaitable[int | None]],
    ) -> None:
        super().__init__(ports)
        self._locks = locks
        self._saved_offset = saved_offset

    async def obtained(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """The queues that the brokers have locked for this member."""
        if self._locks is None:
            return queues
        locked = await self._locks.lock(queues)
        return [each for each in queues if each in locked]

    def begin(self, process_queue: ProcessQueue) -> None:
        process_queue.locked_until = asyncio.get_running_loop().time() + _LOCK_TRUSTED_S
        process_queue.run(self._keep_consuming(process_queue))

    async def ended(self, process_queue: ProcessQueue) -> bool:
        """Wait for the end of a dropped queue. If False, its lock is left to expire."""
        assert process_queue.task is not None
        await asyncio.wait((process_queue.task,), timeout=self._ports.grace_s)
        return process_queue.task.done()

    async def released(self, queues: Sequence[MessageQueue]) -> None:
        if self._locks is not None:
            await self._locks.unlock(queues)

    async def renew(self, process_queues: Iterable[ProcessQueue]) -> None:
        by_queue = {each.queue: each for each in process_queues}
        if self._locks is None or not by_queue:
            return
        until = asyncio.get_running_loop().time() + _LOCK_TRUSTED_S
        for queue in await self._locks.lock(list(by_queue)) & by_queue.keys():
            by_queue[queue].locked_until = until

    def _is_locked(self, process_queue: ProcessQueue) -> bool:
        if self._locks is None:
            return True
        return process_queue.locked_until > asyncio.get_running_loop().time()

    async def _keep_consuming(self, process_queue: ProcessQueue) -> None:
        while not process_queue.is_dropped:
            if self._locks is not None and not self._is_locked(process_queue):
                await self._lock_again(process_queue, self._locks)
                continue
            found = await self._ports.pull_next(process_queue)
            if found is None:
                continue
            for message in process_queue.take_in(found):
                if not await self._consumed(process_queue, message):
                    break
            if not process_queue.is_dropped:
                # A message was not consumed: it and those behind it are pulled again.
                process_queue.restart(process_queue.committable)

    async def _lock_again(self, process_queue: ProcessQueue, locks: QueueLocks) -> None:
        until = asyncio.get_running_loop().time() + _LOCK_TRUSTED_S
        if process_queue.queue not in await locks.lock([process_queue.queue]):
            await asyncio.sleep(self._ports.pause_s)
            return
        try:
            saved = await self._saved_offset(process_queue.queue)
        except DragomanError as error:
            log.warning("offset of %s: %s", process_queue.queue, error)
            return
        # Another member may have consumed the queue in the meantime.
        process_queue.position = max(process_queue.position, saved or 0)
        process_queue.locked_until = until

    async def _consumed(self, process_queue: ProcessQueue, message: ReceivedMessage) -> bool:
        """Consume the message. False if the queue or its lock is lost."""
        while not process_queue.is_dropped and self._is_locked(process_queue):
            process_queue.last_consume_ms = self._ports.clock.wall_ms()
            process_queue.is_interruptible = False
            outcome, _ = await listened(self._ports.listener, message)
            is_done = not isinstance(outcome, Later) or await self._given_up(message, outcome)
            process_queue.is_interruptible = True
            if is_done:
                process_queue.done(message)
                return True
            message.reconsume_times += 1
            if not process_queue.is_dropped:
                await asyncio.sleep(self._ports.retry_pause_s)
        return False

    async def _given_up(self, message: ReceivedMessage, outcome: Later) -> bool:
        """Whether the message has failed too often and become a dead letter."""
        is_too_often = message.reconsume_times >= self._ports.reconsume_times_max
        if not is_too_often and outcome.delay_level >= 0:
            return False
        if self._ports.retries is None:
            return True
        try:
            await self._ports.retries.add(message, -1, 0)
        except DragomanError as error:
            log.warning("message %s stays at the head: %s", message.unique_id, error)
            return False
        return True
