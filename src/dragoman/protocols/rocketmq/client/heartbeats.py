"""What a client is to brokers: the groups that it has, told to them often, and their requests.

Brokers send requests that concern a group: a producer's are asked what became of a transaction, a
consumer's to share queues anew, to move offsets, or how they are.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from dragoman.client_core.errors import ClientError
from dragoman.errors import ConfigError, DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import ConsumerData, HeartbeatData, ProducerData
from dragoman.protocols.rocketmq.client.errors import RocketmqError
from dragoman.protocols.rocketmq.client.identity import Identity
from dragoman.protocols.rocketmq.client.remoting import Remoting
from dragoman.protocols.rocketmq.client.routes import MASTER_ID, Routes
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Request, Response

log = logging.getLogger("dragoman.client.rocketmq")


class ProducerMember(Protocol):
    group: str

    async def check_transaction(self, address: str, request: Command) -> None: ...


class ConsumerMember(Protocol):
    group: str

    def heartbeat(self) -> ConsumerData: ...

    def rebalance_soon(self) -> None: ...

    async def reset_offsets(self, request: Command) -> None: ...

    def offsets(self, topic: str) -> Command: ...

    def running_info(self) -> Command: ...

    async def consume_directly(self, request: Command) -> Command: ...


class Membership:
    def __init__(self, remoting: Remoting, routes: Routes, identity: Identity) -> None:
        self._remoting = remoting
        self._routes = routes
        self._identity = identity
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self._beating = asyncio.Lock()
        #: Grows with the members; and what both numbers were when all were told last.
        self._generation = 0
        self._told = (-1, -1)
        on_request = remoting.on_request
        on_request(Request.CHECK_TRANSACTION_STATE, self._check_transaction)
        on_request(Request.NOTIFY_CONSUMER_IDS_CHANGED, self._rebalance)
        on_request(Request.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        on_request(Request.GET_CONSUMER_STATUS_FROM_CLIENT, self._offsets)
        on_request(Request.GET_CONSUMER_RUNNING_INFO, self._running_info)
        on_request(Request.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    # ---- members

    def add_producer(self, member: ProducerMember) -> None:
        """Raises `ConfigError` when the group has one in this client."""
        if member.group in self.producers:
            raise ConfigError(f"producer group {member.group}: this client has one already")
        self.producers[member.group] = member
        self._generation += 1

    def add_consumer(self, member: ConsumerMember) -> None:
        if member.group in self.consumers:
            raise ConfigError(f"consumer group {member.group}: this client has one already")
        self.consumers[member.group] = member
        self._generation += 1

    async def remove_producer(self, member: ProducerMember) -> None:
        if self.producers.pop(member.group, None) is not None:
            await self._unregister(producer_group=member.group)

    async def remove_consumer(self, member: ConsumerMember) -> None:
        if self.consumers.pop(member.group, None) is not None:
            await self._unregister(consumer_group=member.group)

    async def _unregister(self, producer_group: str = "", consumer_group: str = "") -> None:
        fields = {
            "clientID": self._identity.client_id,
            "producerGroup": producer_group or None,
            "consumerGroup": consumer_group or None,
        }
        for address in self._addresses(with_slaves=bool(consumer_group)):
            try:
                await self._remoting.call(address, Request.UNREGISTER_CLIENT, fields)
            except ClientError as error:
                log.info("leaving %s: %s", producer_group or consumer_group, error)

    def _addresses(self, *, with_slaves: bool) -> list[str]:
        return [
            self._remoting.broker(address)
            for addresses in list(self._routes.brokers.values())
            for number, address in addresses.items()
            if with_slaves or number == MASTER_ID
        ]

    # ---- heartbeats

    async def greet(self, *, is_joining: bool = False) -> None:
        """A heartbeat for brokers and members that are new to each other, if there are any.

        Raises `RocketmqError` when a broker refuses somebody who is joining a group.
        """
        if self._told != (self._generation, self._routes.generation):
            refused = await self._beat_all()
            if is_joining and refused:
                raise refused[0]

    async def beat(self) -> None:
        """Tell all brokers that are known. Those that cannot be told are tried again later."""
        await self._beat_all()

    async def _beat_all(self) -> list[RocketmqError]:
        """What brokers have refused."""
        if not self.producers and not self.consumers:
            return []
        async with self._beating:
            self._told = (self._generation, self._routes.generation)
            addresses = self._addresses(with_slaves=bool(self.consumers))
            outcomes = await asyncio.gather(*(self._beat(address) for address in addresses))
        return [each for each in outcomes if each is not None]

    async def _beat(self, address: str) -> RocketmqError | None:
        body = HeartbeatData(
            client_id=self._identity.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self.producers],
            consumer_data_set=[each.heartbeat() for each in self.consumers.values()],
        )
        try:
            await self._remoting.call(address, Request.HEART_BEAT, body=bodies.encode(body))
        except RocketmqError as error:
            log.warning("heartbeat refused: %s", error)
            return error
        except DragomanError as error:
            log.info("heartbeat: %s", error)
        return None

    # ---- what brokers ask for

    async def _check_transaction(self, address: str, request: Command) -> None:
        # Only the message inside says whose it is: each producer looks for its own.
        for producer in list(self.producers.values()):
            await producer.check_transaction(address, request)

    async def _rebalance(self, _address: str, request: Command) -> None:
        consumer = self.consumers.get(request.fields.get("consumerGroup", ""))
        if consumer is not None:
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
        """Raises `RocketmqError`, which the broker is told."""
        consumer = self.consumers.get(group)
        if consumer is None:
            text = f"the consumer group {group} has no consumer in this client"
            raise RocketmqError(Response.SYSTEM_ERROR, text)
        return consumer
