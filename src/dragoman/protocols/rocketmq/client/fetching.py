"""One pull from a queue: what was asked, and what the broker said."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq.bodies import MessageQueue, SubscriptionData
from dragoman.protocols.rocketmq.client.errors import refusal
from dragoman.protocols.rocketmq.client.values import ReceivedMessage, received
from dragoman.protocols.rocketmq.constants import PullFlag, Request, Response

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.facade import RocketmqClient


class PullStatus(IntEnum):
    FOUND = Response.SUCCESS
    #: Everything was read.
    NO_NEW_MESSAGE = Response.PULL_NOT_FOUND
    #: The filter kept nothing of what there was.
    NO_MATCHED_MESSAGE = Response.PULL_RETRY_IMMEDIATELY
    #: There is nothing at this offset; `next_offset` says where there is.
    OFFSET_ILLEGAL = Response.PULL_OFFSET_MOVED


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    queue: MessageQueue
    offset: int
    subscription: SubscriptionData
    max_count: int = 32
    #: How long the broker may hold the reply back; 0: not at all.
    suspend_ms: int = 0
    #: Committed on the way.
    commit_offset: int | None = None
    #: Who is asked; slaves are where masters say so.
    broker_id: int = 0


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    status: PullStatus
    messages: list[ReceivedMessage] = []
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    suggested_broker_id: int = 0


async def pull(client: RocketmqClient, asked: Pull) -> Pulled:
    """Raises `ClientError` and `DecodeError`."""
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if asked.suspend_ms else 0)
    # Slaves take no commits.
    if asked.commit_offset is not None and asked.broker_id == 0:
        flags |= PullFlag.COMMIT_OFFSET
    fields: dict[str, str | int | bool | None] = {
        "consumerGroup": asked.group,
        "topic": asked.queue.topic,
        "queueId": asked.queue.queue_id,
        "queueOffset": asked.offset,
        "maxMsgNums": asked.max_count,
        "sysFlag": int(flags),
        "commitOffset": asked.commit_offset or 0,
        "suspendTimeoutMillis": asked.suspend_ms,
        "subscription": asked.subscription.sub_string,
        "subVersion": asked.subscription.sub_version,
        "expressionType": asked.subscription.expression_type,
        "bname": asked.queue.broker_name,
    }
    address = client.remoting.broker(client.routes.any_of(asked.queue.broker_name, asked.broker_id))
    timeout_s = client.settings.request_timeout_s + asked.suspend_ms / 1000
    response = await client.remoting.ask(address, Request.PULL_MESSAGE, fields, timeout_s=timeout_s)
    try:
        status = PullStatus(response.code)
    except ValueError:
        raise refusal(response, address) from None
    found = response.fields
    try:
        return Pulled(
            status=status,
            messages=received(response.body, asked.queue) if status is PullStatus.FOUND else [],
            next_offset=int(found.get("nextBeginOffset", asked.offset)),
            min_offset=int(found.get("minOffset", 0)),
            max_offset=int(found.get("maxOffset", 0)),
            suggested_broker_id=int(found.get("suggestWhichBrokerId", 0)),
        )
    except ValueError:
        raise DecodeError(f"{address} answered a pull with {found}") from None
