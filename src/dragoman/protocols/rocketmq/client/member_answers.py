"""What a push consumer answers to brokers that ask it something."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    ClientOffsets,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeStatus,
    DirectConsumption,
    DirectResult,
    MessageQueue,
    ResetOffset,
    ResetOffsetList,
)
from dragoman.protocols.rocketmq.client.lanes import Lane
from dragoman.protocols.rocketmq.client.listening import Later, Listener, listened
from dragoman.protocols.rocketmq.client.values import received
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import VERSION, Response

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.facade import RocketmqClient


class MemberAnswers:
    """The part of a push consumer that brokers talk to."""

    client: RocketmqClient
    listener: Listener
    lanes: dict[MessageQueue, Lane]
    is_orderly: bool
    started_ms: int

    def heartbeat(self) -> ConsumerData:
        raise NotImplementedError

    async def restart_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        raise NotImplementedError

    async def reset_offsets(self, request: Command) -> None:
        """An operator has moved the group."""
        try:
            offsets = bodies.by_queue(bodies.decode(request.body, ResetOffset).offset_table)
        except DecodeError:
            found = bodies.decode(request.body, ResetOffsetList).offset_table
            offsets = {_queue_of(each): each.offset for each in found}
        await self.restart_at(offsets)

    def offsets(self, topic: str) -> Command:
        table = {
            queue: lane.committable for queue, lane in self.lanes.items() if queue.topic == topic
        }
        return _answer(ClientOffsets(message_queue_table=bodies.keyed(table)))

    def running_info(self) -> Command:
        data = self.heartbeat()
        table = {queue: lane.info(is_orderly=self.is_orderly) for queue, lane in self.lanes.items()}
        info = ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": str(data.consume_type),
                "PROP_CONSUMEORDERLY": "true" if self.is_orderly else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self.started_ms),
                "PROP_NAMESERVER_ADDR": ";".join(self.client.name_servers.addresses),
                "PROP_CLIENT_VERSION": str(VERSION),
                "PROP_THREADPOOL_CORE_SIZE": "1",
            },
            subscription_set=data.subscription_data_set,
            mq_table=bodies.keyed(table),
            status_table={each.topic: ConsumeStatus() for each in data.subscription_data_set},
        )
        return _answer(info)

    async def consume_directly(self, request: Command) -> Command:
        """An operator wants one message consumed, whatever becomes of the offsets."""
        messages = received(request.body)
        if len(messages) != 1:
            raise DecodeError(f"{len(messages)} messages to be consumed, expected one")
        messages[0].broker_name = request.fields.get("brokerName", "")
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome, failure = await listened(self.listener, messages[0])
        result = DirectResult.LATER if isinstance(outcome, Later) else DirectResult.SUCCESS
        done = DirectConsumption(
            order=self.is_orderly,
            consume_result=DirectResult.THROW_EXCEPTION if failure else result,
            remark=failure or None,
            spent_time_mills=int((loop.time() - began) * 1000),
        )
        return _answer(done)


def _queue_of(queue: MessageQueue) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)


def _answer(body: bodies.Body) -> Command:
    return Command(code=Response.SUCCESS, body=bodies.encode(body, object_keys=True))
