"""Checks of transactions that the producer has not ended in time (39).

The broker requests the state of the transaction from any member of the producer's group. After too
many requests without a decision, it moves the message to `TRANS_CHECK_MAX_TIME_TOPIC` for
operators.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.delayed import Target, Token
from dragoman.broker.errors import UnknownTopic
from dragoman.broker.topics import NewTopic
from dragoman.errors import EncodeError
from dragoman.log.batch import Record
from dragoman.log_limiter import LogLimiter
from dragoman.outcome import attempt, ignore, start
from dragoman.protocols.rocketmq.constants import (
    CHECKED_TOO_OFTEN_TOPIC,
    TOPIC_CONFIG,
    TRANSACTION_MASK,
    Property,
    SysFlag,
)
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.names import physical_offset, spelling
from dragoman.protocols.rocketmq.handlers.records import encoded, sent_again
from dragoman.protocols.rocketmq.handlers.rpc import CheckProducer
from dragoman.protocols.rocketmq.messages import (
    NO_HOST,
    decode_messages,
    encode_message,
    offset_message_id,
)

#: The label of a held record with the producer's group.
GROUP_LABEL: Final = "rocketmq.group"
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)


class Node(Protocol):
    """What this module uses of the node."""

    broker: Core
    log: LogLimiter

    async def check_producer(self, request: CheckProducer) -> None: ...


def watch_halves(node: Node) -> None:
    """Start checking the transactions of halves that this node holds."""
    node.broker.delayed.on_check.append(partial(_check, node))
    node.broker.delayed.on_given_up.append(partial(_give_up, node))


def _check(
    node: Node, token: Token, record: Record, target: Target, labels: dict[str, str], times: int
) -> None:
    group = labels.get(GROUP_LABEL)
    if group is None:
        return
    try:
        request = check_request(token, record, target, group, times)
    except EncodeError as error:
        text = "transaction of group %s for %s is not checked: %s"
        node.log.warning(text, group, target, error)
    else:
        start(node.check_producer(request)).then(ignore)


async def _give_up(
    node: Node, _token: Token, record: Record, target: Target, labels: dict[str, str]
) -> None:
    group = labels.get(GROUP_LABEL)
    if group is not None:
        text = "transaction of group %s for %s was checked too often without a decision"
        node.log.warning(text, group, target)
        await _move_aside(node.broker, record, target, group)


def check_request(
    token: Token, record: Record, target: Target, group: str, times: int
) -> CheckProducer:
    physical = physical_offset(*token)
    topic = spelling(target.topic)
    data = encoded(record, topic.encode(), token.partition_id, target.partition, NO_HOST)
    (message,) = decode_messages(data)
    message.queue_offset, message.physical_offset = token.offset, physical
    message.sys_flag = message.sys_flag & ~TRANSACTION_MASK | _PREPARED
    # Halves of earlier releases are stored without this property.
    message.properties[Property.TRANSACTION_PREPARED] = "true"
    message.properties[Property.TRANSACTION_CHECK_TIMES] = str(times)
    unique = message.properties.get(Property.UNIQUE_KEY, "")
    fields = {
        "tranStateTableOffset": str(token.offset),
        "commitLogOffset": str(physical),
        "msgId": unique,
        "transactionId": message.properties.get(Property.TRANSACTION_ID, unique),
        "offsetMsgId": offset_message_id(NO_HOST, physical),
        "topic": topic,
    }
    return CheckProducer(group=group, fields=fields, body=encode_message(message))


async def _move_aside(broker: Core, record: Record, target: Target, group: str) -> None:
    sent = sent_again(record)
    sent.properties[Property.REAL_TOPIC] = spelling(target.topic)
    sent.properties[Property.REAL_QUEUE_ID] = str(target.partition)
    sent.properties[Property.PRODUCER_GROUP] = group
    new = NewTopic(name=CHECKED_TOO_OFTEN_TOPIC, partition_count=1, config=dict(TOPIC_CONFIG))
    error = await attempt(broker.topics.ensure(new))
    topic = broker.image.topics.get(CHECKED_TOO_OFTEN_TOPIC)
    if topic is None:
        raise error or UnknownTopic(f"there is no topic {CHECKED_TOO_OFTEN_TOPIC}")
    moved = sent.record(broker.clock.wall_ms())
    await broker.leader_queues.append(topic.partitions[0], moved, caller=NODE_ITSELF)
