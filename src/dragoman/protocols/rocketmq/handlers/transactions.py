"""Transactional messages: halves that nobody sees until their producer has decided (37, 39, 323).

A half is held by the broker core, which delivers it once when it is released. When a producer says
nothing for too long, its group is asked for the state of the transaction (`half_checks.py`).
"""

from __future__ import annotations

from typing import Final

from dragoman.broker.deferring import Token
from dragoman.broker.errors import LabelsDiffer, UnknownDeferredRecord
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError, EncodeError
from dragoman.protocols.rocketmq.constants import (
    CHECKED_TOO_OFTEN_TOPIC,
    PROPERTIES_BYTES_MAX,
    TRANSACTION_MASK,
    Property,
    Response,
    SysFlag,
)
from dragoman.protocols.rocketmq.handlers.half_checks import GROUP_LABEL
from dragoman.protocols.rocketmq.handlers.lookup import Found, find_record
from dragoman.protocols.rocketmq.handlers.names import (
    spelling,
    split_physical,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.records import Sent, sent_again
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.messages import (
    encode_properties,
    read_message_id,
)
from dragoman.security.authorizer import Operation

_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
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

    broker.deferring.hold(
        topic.name,
        queue,
        sent.record(broker.clock.wall_ms()),
        {GROUP_LABEL: group},
        int(seconds) * 1000 if is_number else None,
        held,
    )


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

    deferring = call.service.broker.deferring
    decide = deferring.release if decision == _COMMIT else deferring.drop
    decide(Token(partition_id, offset), {GROUP_LABEL: group}, decided)


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

    def held(token: Token | DragomanError) -> None:
        call.done(token if isinstance(token, DragomanError) else None)

    record = sent.record(broker.clock.wall_ms())
    broker.deferring.hold(topic.name, queue, record, {GROUP_LABEL: group}, 0, held)
