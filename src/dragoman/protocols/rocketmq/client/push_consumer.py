"""A consumer whose listener receives messages as they arrive, each at least once.

    start ── heartbeat ── rebalance ──► a process queue for each queue of this member's share
    40, every 20 s, new routes ── rebalance ──► process queues are dropped and begun

Each process queue pulls independently, with long polling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypedDict, Unpack

from dragoman.errors import ConfigError, DecodeError, DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    ConsumeFrom,
    ConsumeStatus,
    DirectResult,
    MessageModel,
    MessageQueue,
)
from dragoman.protocols.rocketmq.client.consumption import (
    ConcurrentConsumption,
    Consumption,
    ConsumptionPorts,
    Later,
    Listener,
    OrderlyConsumption,
    ProcessQueue,
    QueueLocks,
    Retries,
    listened,
)
from dragoman.protocols.rocketmq.client.errors import SubscriptionError, TopicNotFoundError
from dragoman.protocols.rocketmq.client.membership import (
    ConsumerMember,
    Membership,
    cancelled,
    repeat,
)
from dragoman.protocols.rocketmq.client.messages import Sent, received
from dragoman.protocols.rocketmq.client.offsets import (
    BrokerOffsets,
    LocalOffsets,
    OffsetStore,
    QueueOffsets,
)
from dragoman.protocols.rocketmq.client.producer import Outgoing
from dragoman.protocols.rocketmq.client.pull import Filter, Pull, Pulled, PullStatus, pull
from dragoman.protocols.rocketmq.client.remoting import Remoting
from dragoman.protocols.rocketmq.client.routes import Routes
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import (
    RECONSUME_TIMES_MAX,
    RETRY_PREFIX,
    VERSION,
    Response,
)
from dragoman.world import Clock

log = logging.getLogger("dragoman.client.rocketmq")

#: An empty response within this time means that the broker did not hold the pull.
_HELD_S: Final = 0.05


class ConsumerOptions(TypedDict, total=False):
    """Options of a push consumer. Times are in seconds."""

    #: Whether a message goes to one member of the group (the default) or to all members.
    model: MessageModel
    #: Whether the messages of a queue are consumed one at a time.
    is_orderly: bool
    #: Where a group without committed offsets starts; the end by default.
    start: ConsumeFrom
    #: The time for `ConsumeFrom.TIMESTAMP`, in milliseconds since 1970.
    start_ms: int
    #: Number of listeners that run concurrently; 20 by default, and one per queue if orderly.
    concurrency: int
    #: Maximum number of messages of a queue in flight; 1000 by default.
    in_flight_max: int
    #: Maximum bytes of their bodies; 100 MiB by default.
    in_flight_bytes_max: int
    #: Number of messages in a pull; 32 by default.
    pull_count: int
    #: How long brokers hold a pull; 15 by default.
    suspend_s: float
    #: Maximum number of redeliveries of a message; 16 by default, unlimited if orderly.
    reconsume_times_max: int
    #: The pause before an orderly retry; 1 by default.
    orderly_pause_s: float
    #: The file for the offsets of a broadcasting consumer; kept only in memory by default.
    offsets_path: Path
    #: How long a dropped queue waits for running listeners; 10 by default.
    grace_s: float
    #: Intervals of commits, rebalances and lock renewals; 5, 20 and 20 by default.
    commit_s: float
    rebalance_s: float
    lock_s: float


class PushConsumer(ConsumerMember):
    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, str | Filter],
        listener: Listener,
        *,
        remoting: Remoting,
        routes: Routes,
        membership: Membership,
        queue_offsets: QueueOffsets,
        deliver: Callable[[Outgoing], Awaitable[Sent]],
        clock: Clock,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Subscriptions by topic are tags separated by `||`, `*`, or a `Filter`.

        `deliver` sends failed messages that cannot be sent back to their broker. Raises
        `ConfigError`.
        """
        if not subscriptions:
            raise ConfigError(f"consumer group {group}: expected at least one topic")
        super().__init__(group, membership)
        self._options = options
        self._remoting = remoting
        self._routes = routes
        self._queue_offsets = queue_offsets
        self._clock = clock
        self._listener = listener
        self._pause_s = remoting.settings.backoff_max_s
        self.model = options.get("model", MessageModel.CLUSTERING)
        self.is_orderly = options.get("is_orderly", False)
        self._version = clock.wall_ms()
        self._filters = {
            topic: Filter(each) if isinstance(each, str) else each
            for topic, each in subscriptions.items()
        }
        self._store: OffsetStore
        retries = None
        if self.is_clustering:
            self._filters[RETRY_PREFIX + group] = Filter()
            self._store = BrokerOffsets(queue_offsets, group)
            retries = Retries(remoting, routes, deliver, group)
        else:
            self._store = LocalOffsets(options.get("offsets_path"))
        self.process_queues: dict[MessageQueue, ProcessQueue] = {}
        self._consumption = self._consumption_of(retries)
        self._started_ms = 0
        self._rebalance_due = asyncio.Event()
        self._rebalancing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def _consumption_of(self, retries: Retries | None) -> Consumption:
        options = self._options
        times_max = (1 << 31) - 1 if self.is_orderly else RECONSUME_TIMES_MAX
        ports = ConsumptionPorts(
            pull_next=self._pull_next,
            listener=self._listener,
            retries=retries,
            clock=self._clock,
            reconsume_times_max=options.get("reconsume_times_max", times_max),
            concurrency=options.get("concurrency", 20),
            grace_s=options.get("grace_s", 10.0),
            pause_s=self._pause_s,
            retry_pause_s=options.get("orderly_pause_s", 1.0),
        )
        if not self.is_orderly:
            return ConcurrentConsumption(ports)
        locks = None
        if self.is_clustering:
            locks = QueueLocks(self._remoting, self._routes, self.group)
        return OrderlyConsumption(ports, locks, self._store.load)

    @property
    def is_clustering(self) -> bool:
        """Whether each message goes to one member of the group."""
        return self.model is MessageModel.CLUSTERING

    @property
    def assigned(self) -> tuple[MessageQueue, ...]:
        """The queues that are assigned to this member."""
        return tuple(sorted(self.process_queues))

    # ---- start and end

    async def start(self) -> None:
        """Join the group. Raises `ClientError` when no name server answers.

        Topics may be created later: each rebalance looks them up again.
        """
        if not self._may_start():
            return
        await self._find_routes()
        self._membership.add(self)
        self._is_started = True
        self._started_ms = self._clock.wall_ms()
        self._consumption.start()
        await self._membership.beat()
        await self.rebalance()
        options = self._options
        self._tasks = [
            asyncio.create_task(self._keep_balanced(options.get("rebalance_s", 20.0))),
            asyncio.create_task(repeat(options.get("commit_s", 5.0), self.commit)),
            asyncio.create_task(repeat(options.get("lock_s", 20.0), self._renew)),
        ]

    async def _find_routes(self) -> None:
        for topic in self._filters:
            try:
                await self._routes.refreshed(topic)
            except TopicNotFoundError as error:
                if topic != RETRY_PREFIX + self.group:
                    log.warning("group %s: %s", self.group, error)

    async def close(self) -> None:
        """Commit the offsets of consumed messages, and leave the group.

        Running listeners finish first, within `grace_s`.
        """
        await super().close()

    async def _leave(self) -> None:
        async with self._rebalancing:
            # The lock ensures that no rebalance is cancelled halfway.
            await cancelled(self._tasks)
            await self._give_up(tuple(self.process_queues))
        await self._consumption.close()
        await super()._leave()

    def heartbeat(self) -> bodies.ConsumerData:
        return bodies.ConsumerData(
            group_name=self.group,
            consume_type=bodies.ConsumeType.PASSIVELY,
            message_model=self.model,
            consume_from_where=self._options.get("start", ConsumeFrom.LAST_OFFSET),
            subscription_data_set=[
                each.subscription(topic, self._version) for topic, each in self._filters.items()
            ],
        )

    # ---- assignment

    def rebalance_soon(self) -> None:
        self._rebalance_due.set()

    async def _keep_balanced(self, interval_s: float) -> None:
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._rebalance_due.wait()
            except TimeoutError:
                pass
            self._rebalance_due.clear()
            await self.rebalance()

    async def rebalance(self) -> None:
        """Update this member's share of every topic. If that fails, the old share is kept."""
        async with self._rebalancing:
            for topic in self._filters:
                try:
                    await self._share(topic)
                except TopicNotFoundError as error:
                    log.debug("group %s: %s", self.group, error)
                except DragomanError as error:
                    log.warning("rebalancing %s in group %s: %s", topic, self.group, error)

    async def _share(self, topic: str) -> None:
        queues = (await self._routes.route(topic)).read_queues
        await self._membership.greet()
        if self.is_clustering:
            queues = await self._membership.share(self.group, topic, queues)
        mine = set(queues)
        lost = [each for each in self.process_queues if each.topic == topic and each not in mine]
        await self._give_up(tuple(lost))
        new = [each for each in queues if each not in self.process_queues]
        obtained = await self._consumption.obtained(new)
        if len(obtained) < len(new):
            # Other members release their locks once they have noticed this one.
            asyncio.get_running_loop().call_later(self._pause_s, self.rebalance_soon)
        for queue in obtained:
            start = await self._start(queue)
            wanted = self._filters[topic]
            process_queue = self.process_queues[queue] = ProcessQueue(
                queue,
                start,
                wanted,
                wanted.subscription(topic, self._version),
                self._options.get("in_flight_max", 1000),
                self._options.get("in_flight_bytes_max", 100 << 20),
            )
            self._consumption.begin(process_queue)

    async def _give_up(
        self, queues: tuple[MessageQueue, ...], offsets: Mapping[MessageQueue, int] | None = None
    ) -> None:
        """Drop queues, and save these offsets or, if there are none, their committable ones."""
        dropped = [self.process_queues.pop(each) for each in queues]
        for each in dropped:
            each.drop()
        outcomes = await asyncio.gather(*(self._consumption.ended(each) for each in dropped))
        saved = offsets or {each.queue: each.committable for each in dropped}
        try:
            await self._store.save(saved)
        except DragomanError as error:
            log.warning("offsets of group %s: %s", self.group, error)
        await self._consumption.released(
            [each.queue for each, has_ended in zip(dropped, outcomes, strict=True) if has_ended]
        )

    async def _renew(self) -> None:
        await self._consumption.renew(self.process_queues.values())

    # ---- offsets

    async def _start(self, queue: MessageQueue) -> int:
        saved = await self._store.load(queue)
        if saved is not None:
            return saved
        start = self._options.get("start", ConsumeFrom.LAST_OFFSET)
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if start is ConsumeFrom.FIRST_OFFSET or (is_retry and start is not ConsumeFrom.TIMESTAMP):
            return 0
        if start is ConsumeFrom.TIMESTAMP and not is_retry:
            start_ms = self._options.get("start_ms", self._started_ms)
            return await self._queue_offsets.search_offset(queue, start_ms)
        return await self._queue_offsets.max_offset(queue)

    async def commit(self) -> None:
        """Commit the offsets of all queues. Raises `ClientError`."""
        await self._store.save(
            {queue: each.committable for queue, each in self.process_queues.items()}
        )

    # ---- pulls

    async def _pull_next(self, process_queue: ProcessQueue) -> Pulled | None:
        """Pull the next messages of a queue. None if there are none, or after a failure."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        process_queue.last_pull_ms = self._clock.wall_ms()
        request = Pull(
            group=self.group,
            queue=process_queue.queue,
            offset=process_queue.position,
            subscription=process_queue.subscription,
            max_count=self._options.get("pull_count", 32),
            suspend_ms=int(self._options.get("suspend_s", 15.0) * 1000),
            broker_id=process_queue.broker_id,
        )
        try:
            found = await pull(self._remoting, self._routes, request)
        except DragomanError as error:
            log.info("pulling from %s: %s", process_queue.queue, error)
            await self._recover(process_queue, error)
            return None
        if found.status is PullStatus.FOUND:
            return found
        is_stuck = found.next_offset == process_queue.position
        if found.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "%s has no offset %d, continuing at %d",
                process_queue.queue,
                process_queue.position,
                found.next_offset,
            )
        process_queue.take_in(found)
        if is_stuck and loop.time() - began < _HELD_S:
            await asyncio.sleep(self._pause_s)
        return None

    async def _recover(self, process_queue: ProcessQueue, error: DragomanError) -> None:
        """Recover from a failure: register again with the broker, or refresh the route."""
        process_queue.broker_id = 0
        await asyncio.sleep(self._pause_s)
        try:
            if isinstance(error, SubscriptionError):
                await self._membership.beat()
            else:
                await self._routes.refreshed(process_queue.queue.topic)
                self.rebalance_soon()
        except DragomanError as again:
            log.info("route of %s: %s", process_queue.queue.topic, again)

    # ---- requests of brokers

    async def reset_offsets(self, request: Command) -> None:
        """Continue at the offsets that an operator has set for the group."""
        try:
            offsets = bodies.by_queue(bodies.decode(request.body, bodies.ResetOffset).offset_table)
        except DecodeError:
            found = bodies.decode(request.body, bodies.ResetOffsetList).offset_table
            offsets = {_queue_of(each): each.offset for each in found}
        await self._restart_at(offsets)

    def offsets(self, topic: str) -> Command:
        table = {
            queue: process_queue.committable
            for queue, process_queue in self.process_queues.items()
            if queue.topic == topic
        }
        return _answer(bodies.ClientOffsets(message_queue_table=bodies.keyed(table)))

    def running_info(self) -> Command:
        data = self.heartbeat()
        table = {
            queue: process_queue.info(is_orderly=self.is_orderly)
            for queue, process_queue in self.process_queues.items()
        }
        info = bodies.ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": str(data.consume_type),
                "PROP_CONSUMEORDERLY": "true" if self.is_orderly else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_NAMESERVER_ADDR": ";".join(self._routes.name_servers.addresses),
                "PROP_CLIENT_VERSION": str(VERSION),
                "PROP_THREADPOOL_CORE_SIZE": "1",
            },
            subscription_set=data.subscription_data_set,
            mq_table=bodies.keyed(table),
            status_table={each.topic: ConsumeStatus() for each in data.subscription_data_set},
        )
        return _answer(info)

    async def consume_directly(self, request: Command) -> Command:
        """Consume one message for an operator. Offsets do not change."""
        messages = received(request.body)
        if len(messages) != 1:
            raise DecodeError(f"expected one message to consume, got {len(messages)}")
        messages[0].broker_name = request.fields.get("brokerName", "")
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome, failure = await listened(self._listener, messages[0])
        result = DirectResult.LATER if isinstance(outcome, Later) else DirectResult.SUCCESS
        done = bodies.DirectConsumption(
            order=self.is_orderly,
            consume_result=DirectResult.THROW_EXCEPTION if failure else result,
            remark=failure or None,
            spent_time_mills=int((loop.time() - began) * 1000),
        )
        return _answer(done)

    async def _restart_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit these offsets, and continue there."""
        async with self._rebalancing:
            mine = {
                queue: offset for queue, offset in offsets.items() if queue in self.process_queues
            }
            await self._give_up(tuple(mine), mine)
        self.rebalance_soon()


def _queue_of(queue: MessageQueue) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)


def _answer(body: bodies.Body) -> Command:
    return Command(code=Response.SUCCESS, body=bodies.encode(body, object_keys=True))
