"""Transactional messages: halves that nobody sees until their producer has decided (37, 39, 323).

A half is held by the broker core, which delivers it once when it is released. When a producer says
nothing for too long, any member of its group is asked for the state of the transaction; if nobody
knows however often it is asked, the message goes to a topic where people find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dragoman.broker.delayed import Target, Token
from dragoman.broker.errors import LabelsDiffer, UnknownDeferredRecord, UnknownTopic
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError, EncodeError
from dragoman.log.batch import Record
from dragoman.outcome import Outcome, acknowledge_to, attempt, start
from dragoman.protocols.rocketmq.constants import (
    CHECKED_TOO_OFTEN_TOPIC,
    PROPERTIES_BYTES_MAX,
    TRANSACTION_MASK,
    Property,
    Response,
    SysFlag,
)
from dragoman.protocols.rocketmq.handlers.lookup import Found, find_record
from dragoman.protocols.rocketmq.handlers.names import (
    physical_offset,
    spelling,
    split_physical,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.records import Sent, message_of, sent_again
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import CheckProducer
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.topics import TOPIC_CONFIG
from dragoman.protocols.rocketmq.messages import (
    NO_HOST,
    encode_message,
    encode_properties,
    offset_message_id,
    read_message_id,
)
from dragoman.security.authorizer import Operation

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker
    from dragoman.protocols.rocketmq.handlers.node import RocketmqNode

_GROUP: Final = "rocketmq.group"
_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_DIGITS_MAX: Final = 9
#: Of properties that are not stored, but added when the producer is asked.
_ROOM_BYTES: Final = 256
_NO_QUEUE: Final = 1 << 31


def hold_half(call: Call, topic: TopicMetadata, queue: int, sent: Sent) -> None:
    """Answered like any message; what comes back names the half when it is decided on."""
    from dragoman.protocols.rocketmq.handlers.send import reply_sent

    broker = call.service.broker
    properties = sent.properties
    group = properties.get(Property.PRODUCER_GROUP) or call.fields.get("producerGroup", "")
    if not group:
        raise Refused(Response.MESSAGE_ILLEGAL, "the half of a transaction names no producer group")
    seconds = properties.get(Property.CHECK_IMMUNITY_TIME, "")
    is_number = seconds.isascii() and seconds.isdigit() and len(seconds) <= _DIGITS_MAX
    _mark(properties, topic.name, queue)
    # As it is to be read: the bits of a half are put back for those who ask about it.
    sent.sys_flag = sent.sys_flag & ~TRANSACTION_MASK | _COMMIT

    def held(token: Token | DragomanError) -> None:
        if isinstance(token, DragomanError):
            call.refuse(token)
        else:
            reply_sent(call, token.partition_id, queue, [token.offset], sent)

    holding = broker.delayed.hold(
        topic.name,
        queue,
        sent.record(broker.clock.wall_ms()),
        {_GROUP: group},
        int(seconds) * 1000 if is_number else None,
    )
    start(holding).then(held)


def _mark(properties: dict[str, str], topic: str, queue: int) -> None:
    """Give a half the properties that its consumers and its producer are shown. Raises `Refused`
    when there is no room for them, and for those that are added when it is asked for.
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


def handle_end_transaction(call: Call) -> None:
    group = call.text("producerGroup")
    physical = call.number("commitLogOffset")
    partition_id, offset = split_physical(physical)
    decision = call.number("commitOrRollback", 0)
    if decision not in (_COMMIT, _ROLLBACK):
        # Not decided yet. In the original there is no answer either.
        call.dismiss()
        return
    if call.number("tranStateTableOffset", offset) != offset:
        text = "the transaction state table offset wrong"
        raise Refused(Response.SYSTEM_ERROR, text)

    def decided(error: DragomanError | None) -> None:
        if isinstance(error, LabelsDiffer):
            error = Refused(Response.SYSTEM_ERROR, "The producer group wrong")
        elif isinstance(error, UnknownDeferredRecord):
            error = Refused(Response.SYSTEM_ERROR, "Find prepared transaction message failed")
        call.done(error)

    delayed = call.service.broker.delayed
    decide = delayed.release if decision == _COMMIT else delayed.drop
    start(decide(Token(partition_id, offset), {_GROUP: group})).then(decided)


# ---- asking back


def watch_halves(node: RocketmqNode) -> None:
    """Have halves that nobody decides about asked for, where they are kept."""

    def check(
        token: Token, record: Record, target: Target, labels: dict[str, str], times: int
    ) -> None:
        group = labels.get(_GROUP)
        if group is None:
            return
        try:
            request = check_request(token, record, target, group, times)
        except EncodeError as error:
            text = "transaction of group %s for %s is not asked for: %s"
            node.log.warning(text, group, target, error)
        else:
            node.check_producer(request)

    async def given_up(_: Token, record: Record, target: Target, labels: dict[str, str]) -> None:
        group = labels.get(_GROUP)
        if group is not None:
            text = "transaction of group %s for %s: nobody knows how it ended"
            node.log.warning(text, group, target)
            await _put_aside(node.broker, record, target, group)

    node.broker.delayed.on_check.append(check)
    node.broker.delayed.on_given_up.append(given_up)


def check_request(
    token: Token, record: Record, target: Target, group: str, times: int
) -> CheckProducer:
    physical = physical_offset(*token)
    topic = spelling(target.topic)
    message = message_of(record, topic, token.partition_id, target.partition, NO_HOST)
    message.queue_offset, message.physical_offset = token.offset, physical
    message.sys_flag = message.sys_flag & ~TRANSACTION_MASK | _PREPARED
    # Halves of earlier releases are stored without it.
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


async def _put_aside(broker: Broker, record: Record, target: Target, group: str) -> None:
    sent = sent_again(record)
    sent.properties[Property.REAL_TOPIC] = spelling(target.topic)
    sent.properties[Property.REAL_QUEUE_ID] = str(target.partition)
    sent.properties[Property.PRODUCER_GROUP] = group

    new = NewTopic(name=CHECKED_TOO_OFTEN_TOPIC, partition_count=1, config=dict(TOPIC_CONFIG))
    error = await attempt(broker.ensure_topic(new))
    topic = broker.image.topics.get(CHECKED_TOO_OFTEN_TOPIC)
    if topic is None:
        raise error or UnknownTopic(f"there is no topic {CHECKED_TOO_OFTEN_TOPIC}")
    placed: Outcome[None] = Outcome()
    record = sent.record(broker.clock.wall_ms())
    broker.relaying.add(topic.partitions[0], record, lambda _, error: placed.acknowledge(error))
    await placed


def handle_resume_check_half_message(call: Call) -> None:
    """A half that nobody knew the end of is asked for again."""
    from dragoman.protocols.rocketmq.handlers.configuration import authorize_cluster

    authorize_cluster(call, Operation.ALTER)
    _, physical = read_message_id(call.text("msgId"))
    broker = call.service.broker

    def found(outcome: Found | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(outcome, DragomanError):
                raise outcome
            _hold_again(call, outcome)

        call.guarded(go_on)

    find_record(broker, physical, found)


def _hold_again(call: Call, found: Found) -> None:
    broker = call.service.broker
    if found.topic != CHECKED_TOO_OFTEN_TOPIC:
        raise Refused(Response.SYSTEM_ERROR, "the message is no half that was given up")
    sent = sent_again(found.record)
    topic = visible_topic(broker.image, sent.properties.get(Property.REAL_TOPIC, ""))
    number = sent.properties.get(Property.REAL_QUEUE_ID, "0")
    # Clients of other protocols may have written there.
    queue = int(number) if number.isdecimal() and len(number) <= _DIGITS_MAX else _NO_QUEUE
    group = sent.properties.get(Property.PRODUCER_GROUP, "")
    if topic is None or queue >= len(topic.partitions):
        raise Refused(Response.TOPIC_NOT_EXIST, "the topic of the message is gone")
    _mark(sent.properties, topic.name, queue)

    record = sent.record(broker.clock.wall_ms())
    holding = broker.delayed.hold(topic.name, queue, record, {_GROUP: group}, 0)
    start(holding).then(acknowledge_to(call.done))
