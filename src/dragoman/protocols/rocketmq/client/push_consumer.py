"""A member of a group that is handed messages as they come.

    start ── heartbeat ── rebalance ──► a lane for each queue that is this member's share
    40, every 20 s, new routes ── rebalance ──► lanes are given up and begun

Each lane pulls by itself, with requests that brokers hold until there is something. Concurrently,
the messages of all lanes are taken by a number of workers; in order, each lane's by itself, while
the broker keeps the queue for this member. What could not be consumed goes back to the broker, or
in order is tried again. Messages come at least once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypedDict, Unpack

from dragoman.client_core.errors import ClientClosedError, ClientError, UnreachableError
from dragoman.errors import ConfigError, DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    ConsumeFrom,
    ConsumerData,
    ConsumerIds,
    ConsumeType,
    MessageModel,
    MessageQueue,
)
from dragoman.protocols.rocketmq.client.allocation import averages
from dragoman.protocols.rocketmq.client.concurrent_work import ConcurrentWork
from dragoman.protocols.rocketmq.client.errors import SubscriptionError, TopicNotFoundError
from dragoman.protocols.rocketmq.client.fetching import Pull, Pulled, PullStatus, pull
from dragoman.protocols.rocketmq.client.filters import Filter
from dragoman.protocols.rocketmq.client.lanes import Lane
from dragoman.protocols.rocketmq.client.listening import Listener
from dragoman.protocols.rocketmq.client.member_answers import MemberAnswers
from dragoman.protocols.rocketmq.client.offset_stores import (
    BrokerOffsets,
    LocalOffsets,
    OffsetStore,
)
from dragoman.protocols.rocketmq.client.orderly_work import OrderlyWork
from dragoman.protocols.rocketmq.client.repeating import often
from dragoman.protocols.rocketmq.constants import (
    RECONSUME_TIMES_MAX,
    RETRY_PREFIX,
    Request,
)

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.facade import RocketmqClient

log = logging.getLogger("dragoman.client.rocketmq")

#: An answer without messages that comes sooner was not held back by the broker.
_HELD_S: Final = 0.05


class ConsumerOptions(TypedDict, total=False):
    """How a consumer is different from others. Times are in seconds."""

    #: Each message to one member, or each to all; the first when not said.
    model: MessageModel
    #: Whether messages of a queue are consumed one after the other.
    is_orderly: bool
    #: Where a group begins that has committed nothing: at the end when not said.
    start: ConsumeFrom
    #: For a start by time, milliseconds since 1970.
    start_ms: int
    #: Listeners at work at the same time, 20 when not said; in order, one per queue.
    concurrency: int
    #: Messages of one queue that are pulled and not consumed, 1000 when not said.
    in_flight_max: int
    #: The same in bytes of their bodies, 100 MiB when not said.
    in_flight_bytes_max: int
    #: Messages in one pull, 32 when not said.
    pull_count: int
    #: How long brokers hold a pull, 15 when not said.
    suspend_s: float
    #: How often a message is tried, 16 when not said; in order for ever.
    reconsume_times_max: int
    #: Pause before a message is tried again in order, 1 when not said.
    orderly_pause_s: float
    #: Where offsets are kept with broadcasting; in memory when not said.
    offsets_path: Path
    #: How long a queue that is given up waits for listeners that are at work, 10 when not said.
    grace_s: float
    #: How often offsets are saved, shares looked at and locks renewed: 5, 20 and 20 when not said.
    commit_s: float
    rebalance_s: float
    lock_s: float


class PushConsumer(MemberAnswers):
    def __init__(
        self,
        client: RocketmqClient,
        group: str,
        subscriptions: Mapping[str, str | Filter],
        listener: Listener,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """By topic: tags with `||` between them, `*`, or a `Filter`. Raises `ConfigError`."""
        if not subscriptions:
            raise ConfigError(f"consumer group {group}: expected at least one topic")
        self.group = group
        self.options = options
        self.client = client
        self.listener = listener
        self.model = options.get("model", MessageModel.CLUSTERING)
        self.is_orderly = options.get("is_orderly", False)
        default_times = (1 << 31) - 1 if self.is_orderly else RECONSUME_TIMES_MAX
        self.reconsume_times_max = options.get("reconsume_times_max", default_times)
        self._version = client.clock.wall_ms()
        self.filters = {
            topic: Filter(each) if isinstance(each, str) else each
            for topic, each in subscriptions.items()
        }
        if self.is_clustering:
            self.filters[RETRY_PREFIX + group] = Filter()
        self.lanes: dict[MessageQueue, Lane] = {}
        self.store: OffsetStore = (
            BrokerOffsets(client, group)
            if self.is_clustering
            else LocalOffsets(options.get("offsets_path"))
        )
        self._work = OrderlyWork(self) if self.is_orderly else ConcurrentWork(self)
        self.grace_s = options.get("grace_s", 10.0)
        self.started_ms = 0
        self._is_started = False
        self._is_closed = False
        self._rebalance_due = asyncio.Event()
        self._rebalancing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_clustering(self) -> bool:
        return self.model is MessageModel.CLUSTERING

    @property
    def assigned(self) -> tuple[MessageQueue, ...]:
        """The queues that this member has at the moment."""
        return tuple(sorted(self.lanes))

    # ---- life

    async def start(self) -> None:
        """Join the group. Raises `ClientError` when no name server answers.

        Topics that do not exist yet are looked for again with every rebalance.
        """
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")
        if self._is_started:
            return
        await self._find_routes()
        self.client.membership.add_consumer(self)
        self.client.started(self.close)
        self._is_started = True
        self.started_ms = self.client.clock.wall_ms()
        self._work.start()
        await self.client.membership.beat()
        await self.rebalance()
        options = self.options
        self._tasks = [
            asyncio.create_task(self._keep_balanced(options.get("rebalance_s", 20.0))),
            asyncio.create_task(often(options.get("commit_s", 5.0), self.commit)),
            asyncio.create_task(often(options.get("lock_s", 20.0), self._work.renew)),
        ]

    async def _find_routes(self) -> None:
        for topic in self.filters:
            try:
                await self.client.routes.refreshed(topic)
            except TopicNotFoundError as error:
                if topic != RETRY_PREFIX + self.group:
                    log.warning("group %s: %s", self.group, error)

    async def close(self) -> None:
        """Commit what was consumed and leave the group. Listeners at work come to their end."""
        self._is_closed = True
        if not self._is_started:
            return
        self._is_started = False
        self.client.ended(self.close)
        async with self._rebalancing:
            # Now nobody is in the middle of sharing queues.
            await _cancelled(self._tasks)
            await self._give_up(tuple(self.lanes))
        await self._work.close()
        await self.client.membership.remove_consumer(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.PASSIVELY,
            message_model=self.model,
            consume_from_where=self.options.get("start", ConsumeFrom.LAST_OFFSET),
            subscription_data_set=[
                each.subscription(topic, self._version) for topic, each in self.filters.items()
            ],
        )

    # ---- shares

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
        """Take this member's share of every topic. What cannot be found out stays as it is."""
        async with self._rebalancing:
            for topic in self.filters:
                try:
                    await self._share(topic)
                except TopicNotFoundError as error:
                    log.debug("group %s: %s", self.group, error)
                except DragomanError as error:
                    log.warning("sharing %s in group %s: %s", topic, self.group, error)

    async def _share(self, topic: str) -> None:
        client = self.client
        queues = (await client.routes.route(topic)).read_queues
        await client.membership.greet()
        if self.is_clustering:
            queues = averages(queues, await self._members(topic), client.client_id)
        mine = set(queues)
        lost = [each for each in self.lanes if each.topic == topic and each not in mine]
        await self._give_up(tuple(lost))
        new = [each for each in queues if each not in self.lanes]
        obtained = await self._work.obtained(new)
        if len(obtained) < len(new):
            # Whoever has the rest gives it up when it hears of this member, which is soon.
            loop = asyncio.get_running_loop()
            loop.call_later(client.settings.backoff_max_s, self.rebalance_soon)
        for queue in obtained:
            start = await self._start(queue)
            wanted = self.filters[topic]
            subscription = wanted.subscription(topic, self._version)
            lane = Lane(
                queue,
                start,
                wanted,
                subscription,
                self.options.get("in_flight_max", 1000),
                self.options.get("in_flight_bytes_max", 100 << 20),
            )
            self.lanes[queue] = lane
            self._work.begin(lane)

    async def _members(self, topic: str) -> list[str]:
        """Any broker of the topic knows them all."""
        client = self.client
        route = await client.routes.route(topic)
        failure: ClientError = UnreachableError(f"topic {topic} has no broker")
        for name in dict.fromkeys(each.broker_name for each in route.data.queue_datas):
            try:
                address = client.remoting.broker(client.routes.any_of(name))
                code, fields = Request.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self.group}
                answer = await client.remoting.call(address, code, fields)
                return bodies.decode(answer.body, ConsumerIds).consumer_id_list
            except ClientError as error:
                failure = error
        raise failure

    async def _give_up(
        self, queues: tuple[MessageQueue, ...], offsets: Mapping[MessageQueue, int] | None = None
    ) -> None:
        """Save where they are, or these offsets instead."""
        lanes = [self.lanes.pop(each) for each in queues]
        for lane in lanes:
            lane.drop()
        outcomes = await asyncio.gather(*(self._work.ended(each) for each in lanes))
        ended = [lane for lane, has_ended in zip(lanes, outcomes, strict=True) if has_ended]
        saved = offsets or {each.queue: each.committable for each in lanes}
        try:
            await self.store.save(saved)
        except DragomanError as error:
            log.warning("offsets of group %s: %s", self.group, error)
        await self._work.released(ended)

    async def restart_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from other offsets, which are committed."""
        async with self._rebalancing:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self.lanes}
            await self._give_up(tuple(mine), mine)
        self.rebalance_soon()

    # ---- offsets

    async def _start(self, queue: MessageQueue) -> int:
        saved = await self.store.load(queue)
        if saved is not None:
            return saved
        start = self.options.get("start", ConsumeFrom.LAST_OFFSET)
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if start is ConsumeFrom.FIRST_OFFSET or (is_retry and start is not ConsumeFrom.TIMESTAMP):
            return 0
        if start is ConsumeFrom.TIMESTAMP and not is_retry:
            start_ms = self.options.get("start_ms", self.started_ms)
            return await self.client.admin.search_offset(queue, start_ms)
        return await self.client.admin.max_offset(queue)

    async def commit(self) -> None:
        """Save how far every queue is. Raises `ClientError`."""
        await self.store.save({queue: lane.committable for queue, lane in self.lanes.items()})

    # ---- pulling, for both ways of work

    async def pulled(self, lane: Lane) -> Pulled | None:
        """The next messages of a lane; None after a failure, or when there is nothing."""
        loop, client = asyncio.get_running_loop(), self.client
        began = loop.time()
        lane.last_pull_ms = client.clock.wall_ms()
        asked = Pull(
            group=self.group,
            queue=lane.queue,
            offset=lane.position,
            subscription=lane.subscription,
            max_count=self.options.get("pull_count", 32),
            suspend_ms=int(self.options.get("suspend_s", 15.0) * 1000),
            broker_id=lane.broker_id,
        )
        try:
            found = await pull(client, asked)
        except DragomanError as error:
            log.info("pulling from %s: %s", lane.queue, error)
            await self._look_again(lane, error)
            return None
        if found.status is PullStatus.FOUND:
            return found
        is_stuck = found.next_offset == lane.position
        if found.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "%s has nothing at %d, going on at %d",
                lane.queue,
                lane.position,
                found.next_offset,
            )
        lane.take_in(found)
        if is_stuck and loop.time() - began < _HELD_S:
            await asyncio.sleep(client.settings.backoff_max_s)
        return None

    async def _look_again(self, lane: Lane, error: DragomanError) -> None:
        """After a failure: the broker may have forgotten the group, or somebody else the queue."""
        lane.broker_id = 0
        await asyncio.sleep(self.client.settings.backoff_max_s)
        try:
            if isinstance(error, SubscriptionError):
                await self.client.membership.beat()
            else:
                await self.client.routes.refreshed(lane.queue.topic)
                self.rebalance_soon()
        except DragomanError as again:
            log.info("route of %s: %s", lane.queue.topic, again)


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
