"""Pulls from a queue: the filter, the request, and the answer of the broker."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq.bodies import MessageQueue, SubscriptionData
from dragoman.protocols.rocketmq.client.errors import refusal
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage, received
from dragoman.protocols.rocketmq.client.remoting import Remoting
from dragoman.protocols.rocketmq.client.routes import Routes
from dragoman.protocols.rocketmq.constants import PullFlag, Request, Response
from dragoman.protocols.rocketmq.messages import tag_hash

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"


class Filter(msgspec.Struct, frozen=True):
    """What a consumer wants of a topic.

    Tags with `||` between them, `*` for all messages, or an expression with the type `SQL92`.
    """

    expression: str = ALL
    type: str = TAG

    @property
    def tags(self) -> frozenset[str]:
        """The wanted tags. An empty set stands for all messages."""
        if self.type != TAG or self.expression.strip() in ("", ALL):
            return frozenset()
        return frozenset(each.strip() for each in self.expression.split("||") if each.strip())

    def kept(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """The messages with the wanted tags. Brokers have compared only hashes of tags."""
        tags = self.tags
        return [each for each in messages if not tags or each.tags in tags]

    def subscription(self, topic: str, version: int) -> SubscriptionData:
        """The filter as requests carry it."""
        tags = sorted(self.tags)
        return SubscriptionData(
            topic=topic,
            sub_string=self.expression.strip() or ALL,
            tags_set=tags,
            code_set=[tag_hash(each) for each in tags],
            sub_version=version,
            expression_type=self.type,
        )


class PullStatus(IntEnum):
    FOUND = Response.SUCCESS
    #: The offset is the end of the queue.
    NO_NEW_MESSAGE = Response.PULL_NOT_FOUND
    #: The filter matches none of the messages at the offset.
    NO_MATCHED_MESSAGE = Response.PULL_RETRY_IMMEDIATELY
    #: The queue has no such offset; `next_offset` is one that it has.
    OFFSET_ILLEGAL = Response.PULL_OFFSET_MOVED


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull asks for."""

    group: str
    queue: MessageQueue
    offset: int
    subscription: SubscriptionData
    max_count: int = 32
    #: How long the broker may wait for messages; with 0 it answers at once.
    suspend_ms: int = 0
    #: The offset that the pull also commits for the group.
    commit_offset: int | None = None
    #: The copy of the broker that is asked. Masters suggest slaves.
    broker_id: int = 0


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull has found."""

    status: PullStatus
    messages: list[ReceivedMessage] = []
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    suggested_broker_id: int = 0


async def pull(remoting: Remoting, routes: Routes, asked: Pull) -> Pulled:
    """Pull messages from a queue. Raises `ClientError` and `DecodeError`."""
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
    address = remoting.broker(routes.any_of(asked.queue.broker_name, asked.broker_id))
    timeout_s = remoting.settings.request_timeout_s + asked.suspend_ms / 1000
    response = await remoting.ask(address, Request.PULL_MESSAGE, fields, timeout_s=timeout_s)
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
