"""Group membership: joining and leaving, heartbeats to brokers, and queue assignment.

Brokers send requests to the members of a group: producers return the state of a transaction;
consumers rebalance, reset their offsets, describe themselves, or consume one message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar, Self

from dragoman.client_core.errors import ClientClosedError, ClientError, UnreachableError
from dragoman.errors import ConfigError, DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.errors import RocketmqError
from dragoman.protocols.rocketmq.client.remoting import Remoting
from dragoman.protocols.rocketmq.client.routes import MASTER_ID, Routes
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Request, Response

log = logging.getLogger("dragoman.client.rocketmq")


# ---- tasks in the background


async def repeat(interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
    """Repeat an action until cancelled. Failures are logged."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await action()
        except DragomanError as error:
            log.warning("%s", error)


async def cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# ---- members


class Member:
    """A producer or consumer, which joins its group once and leaves when it is closed."""

    kind: ClassVar[str]

    def __init__(self, group: str, membership: Membership) -> None:
        self.group = group
        self._membership = membership
        self._is_started = False
        self._is_closed = False

    async def start(self) -> None:
        """Join the group. Calls that need membership join implicitly.

        Raises `ConfigError` when this client has such a member of the group already.
        """
        if self._may_start():
            self._membership.add(self)
            self._is_started = True

    async def close(self) -> None:
        """Leave the group. A closed member cannot be started again."""
        self._is_closed = True
        if self._is_started:
            self._is_started = False
            await self._leave()

    def _may_start(self) -> bool:
        """Whether the member may start: False if it has already. Raises `ClientClosedError`."""
        if self._is_closed:
            raise ClientClosedError(f"the {self.kind} is closed")
        return not self._is_started

    async def _leave(self) -> None:
        await self._membership.remove(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ProducerMember(Member):
    kind = "producer"

    async def check_transaction(self, address: str, request: Command) -> None:
        """Send the state of a transaction to a broker that requests it. Only transactional
        producers have one.
        """


class ConsumerMember(Member):
    """A consumer, which refuses requests of brokers unless a subclass answers them."""

    kind = "consumer"

    def heartbeat(self) -> bodies.ConsumerData:
        raise NotImplementedError

    def rebalance_soon(self) -> None:
        """Start a rebalance without waiting for it."""

    async def reset_offsets(self, request: Command) -> None:
        raise _unable(request.code)

    def offsets(self, topic: str) -> Command:
        raise _unable(f"offsets of {topic}")

    def running_info(self) -> Command:
        raise _unable("running info")

    async def consume_directly(self, request: Command) -> Command:
        raise _unable(request.code)


def _unable(what: object) -> RocketmqError:
    return RocketmqError(Response.SYSTEM_ERROR, f"a pull consumer cannot do this: {what}")


class Membership:
    """The members of groups in one client."""

    def __init__(self, remoting: Remoting, routes: Routes) -> None:
        self._remoting = remoting
        self._routes = routes
        self._identity = remoting.identity
        #: By kind and group, in joining order.
        self._members: dict[tuple[str, str], Member] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False
        self._beating = asyncio.Lock()
        #: Incremented when a member joins.
        self._generation = 0
        #: Generations of members and routes at the last heartbeat to all brokers.
        self._announced = (-1, -1)
        on_request = remoting.on_request
        on_request(Request.CHECK_TRANSACTION_STATE, self._check_transaction)
        on_request(Request.NOTIFY_CONSUMER_IDS_CHANGED, self._rebalance)
        on_request(Request.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        on_request(Request.GET_CONSUMER_STATUS_FROM_CLIENT, self._offsets)
        on_request(Request.GET_CONSUMER_RUNNING_INFO, self._running_info)
        on_request(Request.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    @property
    def producers(self) -> list[ProducerMember]:
        return [each for each in self._members.values() if isinstance(each, ProducerMember)]

    @property
    def consumers(self) -> list[ConsumerMember]:
        return [each for each in self._members.values() if isinstance(each, ConsumerMember)]

    async def close(self) -> None:
        """Close all members, newest first."""
        self._is_closed = True
        for member in reversed(list(self._members.values())):
            await member.close()
        await cancelled(self._tasks)

    # ---- joining and leaving

    def add(self, member: Member) -> None:
        """Raises `ConfigError` when the client has such a member of the group already."""
        if (member.kind, member.group) in self._members:
            raise ConfigError(f"{member.kind} group {member.group}: this client has one already")
        if self._is_closed:
            raise ClientClosedError("the client is closed")
        self._members[member.kind, member.group] = member
        self._generation += 1
        if not self._tasks:
            settings = self._remoting.settings
            self._tasks = [
                asyncio.create_task(repeat(settings.heartbeat_s, self.beat)),
                asyncio.create_task(repeat(settings.route_refresh_s, self._routes.refresh)),
            ]

    async def remove(self, member: Member) -> None:
        del self._members[member.kind, member.group]
        fields = {"clientID": self._identity.client_id, f"{member.kind}Group": member.group}
        for address in self._addresses(with_slaves=isinstance(member, ConsumerMember)):
            try:
                await self._remoting.call(address, Request.UNREGISTER_CLIENT, fields)
            except ClientError as error:
                log.info("leaving %s: %s", member.group, error)

    def _addresses(self, *, with_slaves: bool) -> list[str]:
        return [
            self._remoting.broker(address)
            for addresses in list(self._routes.brokers.values())
            for number, address in addresses.items()
            if with_slaves or number == MASTER_ID
        ]

    # ---- heartbeats

    async def greet(self, *, is_joining: bool = False) -> None:
        """Send a heartbeat if there are new brokers or new members.

        With `is_joining`, raises `RocketmqError` when a broker refuses it.
        """
        if self._announced != (self._generation, self._routes.generation):
            refused = await self._beat_all()
            if is_joining and refused:
                raise refused[0]

    async def beat(self) -> None:
        """Send a heartbeat to all known brokers. Failures are logged."""
        await self._beat_all()

    async def _beat_all(self) -> list[RocketmqError]:
        """Send a heartbeat to all known brokers, and return the refusals."""
        if not self._members:
            return []
        async with self._beating:
            self._announced = (self._generation, self._routes.generation)
            addresses = self._addresses(with_slaves=bool(self.consumers))
            outcomes = await asyncio.gather(*(self._beat(address) for address in addresses))
        return [each for each in outcomes if each is not None]

    async def _beat(self, address: str) -> RocketmqError | None:
        body = bodies.HeartbeatData(
            client_id=self._identity.client_id,
            producer_data_set=[
                bodies.ProducerData(group_name=each.group) for each in self.producers
            ],
            consumer_data_set=[each.heartbeat() for each in self.consumers],
        )
        try:
            await self._remoting.call(address, Request.HEART_BEAT, body=bodies.encode(body))
        except RocketmqError as error:
            log.warning("heartbeat refused: %s", error)
            return error
        except DragomanError as error:
            log.info("heartbeat: %s", error)
        return None

    # ---- assignment

    async def share(
        self, group: str, topic: str, queues: Sequence[MessageQueue]
    ) -> tuple[MessageQueue, ...]:
        """The queues of a topic that are assigned to this member of a group. Raises
        `ClientError`.
        """
        members = await self._consumer_ids(group, topic)
        return averages(queues, members, self._identity.client_id)

    async def _consumer_ids(self, group: str, topic: str) -> list[str]:
        """The ids of a group's members, from any broker of the topic."""
        route = await self._routes.route(topic)
        failure: ClientError = UnreachableError(f"topic {topic} has no broker")
        for name in dict.fromkeys(each.broker_name for each in route.data.queue_datas):
            try:
                address = self._remoting.broker(self._routes.any_of(name))
                code, fields = Request.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}
                answer = await self._remoting.call(address, code, fields)
                return bodies.decode(answer.body, bodies.ConsumerIds).consumer_id_list
            except ClientError as error:
                failure = error
        raise failure

    # ---- requests of brokers

    async def _check_transaction(self, address: str, request: Command) -> None:
        # Only the message in the request names a group, so each producer checks for its own.
        for producer in self.producers:
            await producer.check_transaction(address, request)

    async def _rebalance(self, _address: str, request: Command) -> None:
        consumer = self._members.get(("consumer", request.fields.get("consumerGroup", "")))
        if isinstance(consumer, ConsumerMember):
            consumer.rebalance_soon()

    async def _reset(self, _address: str, request: Command) -> None:
        await self._consumer(request.fields.get("group", "")).reset_offsets(request)

    async def _offsets(self, _address: str, request: Command) -> Command:
        consumer = self._consumer(request.fields.get("group", ""))
        return consumer.offsets(request.fields.get("topic", ""))

    async def _running_info(self, _address: str, request: Command) -> Command:
        return self._consumer(request.fields.get("consumerGroup", "")).running_info()

    async def _consume_directly(self, _address: str, request: Command) -> Command:
        consumer = self._consumer(request.fields.get("consumerGroup", ""))
        return await consumer.consume_directly(request)

    def _consumer(self, group: str) -> ConsumerMember:
        """The consumer of a group. Raises `RocketmqError`, which is the response to the broker."""
        consumer = self._members.get(("consumer", group))
        if not isinstance(consumer, ConsumerMember):
            text = f"the consumer group {group} has no consumer in this client"
            raise RocketmqError(Response.SYSTEM_ERROR, text)
        return consumer


def averages(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> tuple[MessageQueue, ...]:
    """The contiguous share of a member; all shares have about the same size.

    Every member computes its own share. The shares are disjoint because all members use the same
    rule.
    """
    ids, ordered = sorted(set(members)), sorted(queues)
    if member not in ids:
        return ()
    index = ids.index(member)
    size, rest = divmod(len(ordered), len(ids))
    # The first `rest` members have one more queue.
    start = index * size + min(index, rest)
    return tuple(ordered[start : start + size + (index < rest)])
