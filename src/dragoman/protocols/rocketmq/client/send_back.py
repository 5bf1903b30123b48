"""Messages that could not be consumed, given back to the broker to come again later."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dragoman.client_core.errors import ClientError
from dragoman.protocols.rocketmq.client.producer import Outgoing
from dragoman.protocols.rocketmq.client.values import ReceivedMessage
from dragoman.protocols.rocketmq.constants import RETRY_PREFIX, Property, Request

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.facade import RocketmqClient

log = logging.getLogger("dragoman.client.rocketmq")
#: The delay level of the first repetition, when the client has to say it.
_FIRST_LEVEL = 3


async def send_back(
    client: RocketmqClient, group: str, message: ReceivedMessage, delay_level: int, times_max: int
) -> None:
    """By the broker that has the message, else as a new message to the group's retry topic.

    Raises `ClientError` when neither is possible.
    """
    fields: dict[str, str | int | bool | None] = {
        "offset": message.physical_offset,
        "group": group,
        "delayLevel": delay_level,
        "originMsgId": message.message_id,
        "originTopic": message.topic,
        "unitMode": False,
        "maxReconsumeTimes": times_max,
        "bname": message.broker_name,
    }
    try:
        address = client.remoting.broker(client.routes.master(message.broker_name))
        await client.remoting.call(address, Request.CONSUMER_SEND_MSG_BACK, fields)
    except ClientError as error:
        log.info("message %s is sent again instead of back: %s", message.unique_id, error)
        await _send_again(client, group, message, delay_level, times_max)


async def _send_again(
    client: RocketmqClient, group: str, message: ReceivedMessage, delay_level: int, times_max: int
) -> None:
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
    outgoing = Outgoing(
        RETRY_PREFIX + group,
        message.body,
        properties,
        flag=message.flag,
        # More than allowed: a dead letter.
        reconsume_times=times_max + 1 if delay_level < 0 else times,
        max_reconsume_times=times_max,
    )
    await client.own_producer().deliver(outgoing)
