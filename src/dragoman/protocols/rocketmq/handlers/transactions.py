"""Transactional messages: halves that no consumer sees until their producer decides (37, 323).

The broker core holds a half, and delivers it once when it is released. If the producer takes too
long to decide, the broker requests the state of the transaction from its group (`half_checks.py`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Final

from dragoman.broker.delayed import Token
from dragoman.broker.errors import LabelsDiffer, NotAuthorized, UnknownDelayedRecord
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import EncodeError
from dragoman.protocols.rocketmq.constants import (
    CHECKED_TOO_OFTEN_TOPIC,
    PROPERTIES_BYTES_MAX,
    TRANSACTION_MASK,
    Property,
    Response,
    SysFlag,
)
from dragoman.protocols.rocketmq.handlers.half_checks import GROUP_LABEL
from dragoman.protocols.rocketmq.handlers.names import spelling, split_physical, visible_topic
from dragoman.protocols.rocketmq.handlers.queries import find_record
from dragoman.protocols.rocketmq.handlers.records import Sent, sent_again
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.messages import encode_properties, read_message_id
from dragoman.security.access import Operation

_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_DIGITS_MAX: Final = 9
#: Space for the properties that a check request adds.
_ROOM_BYTES: Final = 256
_NO_QUEUE: Final = 1 << 31


def hold_half(
    call: Call, topic: TopicMetadata, queue: int, sent: Sent
) -> Coroutine[object, None, Token]:
    """Hold a half. The token identifies it when the producer ends the transaction."""
    properties = sent.properties
    group = properties.get(Property.PRODUCER_GROUP) or call.fields.get("producerGroup", "")
    if not group:
        raise Refused(Response.MESSAGE_ILLEGAL, "the half of a transaction has no producer group")
    seconds = properties.get(Property.CHECK_IMMUNITY_TIME, "")
    is_number = seconds.isascii() and seconds.isdigit() and len(seconds) <= _DIGITS_MAX
    _mark(properties, topic.name, queue)
    # The flags that consumers receive. A check request restores those of a half.
    sent.sys_flag = sent.sys_flag & ~TRANSACTION_MASK | _COMMIT
    return _hold(call, topic, queue, sent, group, int(seconds) * 1000 if is_number else None)


def _hold(
    call: Call, topic: TopicMetadata, queue: int, sent: Sent, group: str, check_after_ms: int | None
) -> Coroutine[object, None, Token]:
    broker = call.broker
    record, labels = sent.record(broker.clock.wall_ms()), {GROUP_LABEL: group}
    return broker.delayed.hold(topic.name, queue, record, labels, check_after_ms, call.caller)


def _mark(properties: dict[str, str], topic: str, queue: int) -> None:
    """Add the properties of a half. Raises `Refused` if they leave no space for those that a check
    request adds.
    """
    properties[Property.TRANSACTION_PREPARED] = "true"
    properties[Property.REAL_TOPIC] = spelling(topic)
    properties[Property.REAL_QUEUE_ID] = str(queue)
    unique = properties.get(Property.UNIQUE_KEY)
    if unique:
        properties[Property.TRANSACTION_ID] = unique
    try:
        is_short = len(encode_properties(properties)) <= PROPERTIES_BYTES_MAX - _ROOM_BYTES
    except EncodeError:
        is_short = False
    if not is_short:
        text = f"the properties of a half take more than {PROPERTIES_BYTES_MAX - _ROOM_BYTES} bytes"
        raise Refused(Response.MESSAGE_ILLEGAL, text)


async def handle_end_transaction(call: Call) -> None:
    group = call.text("producerGroup")
    physical = call.number("commitLogOffset")
    partition_id, offset = split_physical(physical)
    decision = call.number("commitOrRollback", 0)
    if decision not in (_COMMIT, _ROLLBACK):
        # The producer does not know the state. RocketMQ does not answer, either.
        call.dismiss()
        return
    if call.number("tranStateTableOffset", offset) != offset:
        text = "the transaction state table offset wrong"
        raise Refused(Response.SYSTEM_ERROR, text)
    delayed = call.broker.delayed
    decide = delayed.release if decision == _COMMIT else delayed.drop
    try:
        await decide(Token(partition_id, offset), {GROUP_LABEL: group}, call.caller)
    except LabelsDiffer:
        raise Refused(Response.SYSTEM_ERROR, "The producer group wrong") from None
    except (UnknownDelayedRecord, NotAuthorized):
        # A refusal would reveal the topic of a half that the producer only guesses.
        text = "Find prepared transaction message failed"
        raise Refused(Response.SYSTEM_ERROR, text) from None


async def handle_resume_check_half_message(call: Call) -> None:
    """Hold a half whose transaction was checked too often, and resume checking it."""
    call.authorize_cluster(Operation.ALTER)
    _, physical = read_message_id(call.text("msgId"))
    broker = call.broker
    found = await find_record(broker, physical)
    if found.topic != CHECKED_TOO_OFTEN_TOPIC:
        raise Refused(Response.SYSTEM_ERROR, f"the message is not in {CHECKED_TOO_OFTEN_TOPIC}")
    sent = sent_again(found.record)
    topic = visible_topic(broker.image, sent.properties.get(Property.REAL_TOPIC, ""))
    number = sent.properties.get(Property.REAL_QUEUE_ID, "0")
    # Clients of other protocols may have written the record.
    queue = int(number) if number.isdecimal() and len(number) <= _DIGITS_MAX else _NO_QUEUE
    group = sent.properties.get(Property.PRODUCER_GROUP, "")
    if topic is None or queue >= len(topic.partitions):
        raise Refused(Response.TOPIC_NOT_EXIST, "the topic of the message is gone")
    _mark(sent.properties, topic.name, queue)
    await _hold(call, topic, queue, sent, group, 0)
