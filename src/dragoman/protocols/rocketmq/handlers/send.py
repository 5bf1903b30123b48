"""Messages from producers (10, 310, 320), and replies of request/reply messaging (324, 325).

The partition's leader appends a message to the partition of its queue. A delayed message is held
until it is due, and the half of a transaction until its producer decides.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Final, NamedTuple

from dragoman.broker.delayed import Token
from dragoman.broker.errors import MessageTooLarge
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import ROCKETMQ_INFLATED_BYTES_MAX
from dragoman.outcome import start
from dragoman.plural import plural
from dragoman.protocols.rocketmq.constants import (
    BODY_BYTES_MAX,
    CLOSED_TOPICS,
    DEFAULT_REGION,
    DELAY_LEVELS_S,
    PROPERTIES_BYTES_MAX,
    RETRY_PREFIX,
    TEMPLATE_TOPIC,
    TIMER_DELAY_MS_MAX,
    TRANSACTION_MASK,
    VERSION,
    Perm,
    Property,
    Request,
    Response,
    Serialization,
    SysFlag,
)
from dragoman.protocols.rocketmq.handlers.names import (
    check_topic_name,
    physical_offset,
    topic_name,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.records import Sent, inflated
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.retries import dead_letter
from dragoman.protocols.rocketmq.handlers.rpc import ForwardReply
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.handlers.topics import (
    attributes_of,
    make_topic,
    own_topic,
    read_queues,
    record_caller,
    write_queues,
)
from dragoman.protocols.rocketmq.handlers.transactions import hold_half
from dragoman.protocols.rocketmq.messages import (
    decode_batch,
    decode_properties,
    host_text,
    offset_message_id,
)
from dragoman.security.access import Operation

_FIRST_QUEUES_MAX: Final = 4
_WRITE: Final = Operation.WRITE
_I32: Final = range(-(1 << 31), 1 << 31)
_I64: Final = range(-(1 << 63), 1 << 63)
_BATCH: Final = int(Request.SEND_BATCH_MESSAGE)
_UNIQUE_KEY: Final = Property.UNIQUE_KEY
_TIMERS: Final = (
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELAY_SEC,
    Property.START_DELIVER_TIME,
)
_DELAYS: Final = frozenset((Property.DELAY, *_TIMERS))


class Names(NamedTuple):
    """The field names of a send request."""

    group: str
    topic: str
    template: str
    template_queues: str
    queue: str
    sys_flag: str
    born_ms: str
    flag: str
    properties: str
    reconsume_times: str
    unit_mode: str
    reconsume_times_max: str
    batch: str


_LONG: Final = Names(
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
    *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes"),
    "batch",
)
#: The names in requests 310, 320 and 325.
_SHORT: Final = Names(*"abcdefghijklm")


class Head(NamedTuple):
    """The fields of a send request."""

    group: str
    topic: str
    template: str
    template_queues: int
    queue: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: str
    reconsume_times: int
    reconsume_times_max: int
    is_batch: bool


def handle_send_message(call: Call) -> None:
    _send(call, _LONG)


def handle_send_message_v2(call: Call) -> None:
    _send(call, _SHORT)


handle_send_batch_message = handle_send_message_v2


def _send(call: Call, names: Names) -> None:
    head = _head(call, names)
    if head.topic in CLOSED_TOPICS:
        text = f"the topic[{head.topic}] is conflict with system topic."
        raise Refused(Response.NO_PERMISSION, text)
    # First: the refusal does not reveal whether the topic exists.
    call.authorize_topic(_WRITE, topic_name(head.topic))
    sent = _batch(call, head) if head.is_batch else [_single(call, head)]
    topic = visible_topic(call.broker.image, head.topic)
    if topic is None:
        call.after(_make_topic(call, head), lambda made: _append(call, head, made, sent))
    else:
        _append(call, head, topic, sent)


def _head(call: Call, names: Names) -> Head:
    """Raises `Refused` if a field is missing or is not a number."""
    fields = call.fields
    get = fields.get
    try:
        # This is faster than `call.number`, and suffices for nearly all requests.
        numbers = (
            int(get(names.template_queues, _FIRST_QUEUES_MAX)),
            int(fields[names.queue]),
            int(get(names.sys_flag, 0)),
            int(get(names.born_ms, -1)),
            int(get(names.flag, 0)),
            int(get(names.reconsume_times, 0)),
            int(get(names.reconsume_times_max, -1)),
        )
    except (KeyError, ValueError):
        number = call.number
        numbers = (
            number(names.template_queues, _FIRST_QUEUES_MAX),
            number(names.queue),
            number(names.sys_flag, 0),
            number(names.born_ms, -1),
            number(names.flag, 0),
            number(names.reconsume_times, 0),
            number(names.reconsume_times_max, -1),
        )
    queues, queue, sys_flag, born_ms, flag, times, times_max = numbers
    if queue not in _I32 or sys_flag not in _I32 or flag not in _I32 or times not in _I32:
        raise _too_large(names.queue, names.sys_flag, names.flag, names.reconsume_times)
    if born_ms not in _I64:
        raise _too_large(names.born_ms)
    return Head(
        get(names.group, ""),
        call.text(names.topic),
        get(names.template, TEMPLATE_TOPIC),
        queues,
        queue,
        sys_flag,
        born_ms,
        flag,
        get(names.properties, ""),
        times,
        times_max,
        call.code == _BATCH or call.flag(names.batch),
    )


def _too_large(*names: str) -> Refused:
    shown = " or ".join(f"<{name}>" for name in names)
    return Refused(Response.SYSTEM_ERROR, f"the custom field {shown} is too large")


def _single(call: Call, head: Head) -> Sent:
    _check_sizes(len(call.body), len(head.properties.encode()))
    return _sent(call, head, call.body, head.flag, decode_properties(head.properties))


def _batch(call: Call, head: Head) -> list[Sent]:
    if head.topic.startswith(RETRY_PREFIX):
        text = f"batch request does not support retry group {head.topic}"
        raise Refused(Response.MESSAGE_ILLEGAL, text)
    try:
        messages = decode_batch(call.body)
    except DecodeError as error:
        raise Refused(Response.MESSAGE_ILLEGAL, str(error)) from None
    if not messages:
        raise Refused(Response.MESSAGE_ILLEGAL, "the batch is empty")
    found = []
    size = 0
    for each in messages:
        _check_sizes(len(each.body), len(each.properties))
        try:
            properties = decode_properties(each.properties.decode())
        except UnicodeDecodeError as error:
            raise Refused(Response.MESSAGE_ILLEGAL, f"properties: {error}") from None
        if Property.DELAY in properties:
            raise Refused(Response.MESSAGE_ILLEGAL, "a batch cannot have delayed messages")
        sent = _sent(call, head, each.body, each.flag, properties)
        size += len(sent.body)
        if size > ROCKETMQ_INFLATED_BYTES_MAX:
            text = f"a batch of more than {ROCKETMQ_INFLATED_BYTES_MAX} bytes when inflated"
            raise Refused(Response.MESSAGE_ILLEGAL, text)
        found.append(sent)
    return found


def _check_sizes(body: int, properties: int) -> None:
    if body > BODY_BYTES_MAX:
        text = f"message body size {body} is over the limit of {BODY_BYTES_MAX}"
        raise Refused(Response.MESSAGE_ILLEGAL, text)
    if properties > PROPERTIES_BYTES_MAX:
        text = f"message properties length {properties} is over {PROPERTIES_BYTES_MAX}"
        raise Refused(Response.MESSAGE_ILLEGAL, text)


def _sent(
    call: Call,
    head: Head,
    body: bytes | bytearray | memoryview,
    flag: int,
    properties: dict[str, str],
) -> Sent:
    try:
        plain, sys_flag = inflated(body, head.sys_flag)
    except DecodeError as error:
        raise Refused(Response.MESSAGE_ILLEGAL, str(error)) from None
    session = call.session
    if Property.UNIQUE_KEY not in properties:
        # Tools find messages by this property.
        properties[Property.UNIQUE_KEY] = call.node.unique_id(session.store_host)
    return Sent(
        plain,
        properties,
        flag=flag,
        sys_flag=sys_flag,
        born_ms=head.born_ms if head.born_ms >= 0 else call.broker.clock.wall_ms(),
        born_host=session.peer_host,
        reconsume_times=head.reconsume_times,
    )


# ---- the topic


def _make_topic(call: Call, head: Head) -> Coroutine[object, None, TopicMetadata]:
    broker = call.broker
    check_topic_name(head.topic)
    if head.topic.startswith(RETRY_PREFIX):
        return own_topic(call, head.topic, 1)
    if head.template == TEMPLATE_TOPIC and broker.settings.auto_create_topics_enable:
        return make_topic(call, head.topic, max(1, min(head.template_queues, _FIRST_QUEUES_MAX)))
    text = f"topic[{head.topic}] not exist, apply first please!"
    raise Refused(Response.TOPIC_NOT_EXIST, text)


def _append(call: Call, head: Head, topic: TopicMetadata, sent: list[Sent]) -> None:
    if not attributes_of(topic).perm & Perm.WRITE:
        text = f"the broker[{call.node.broker_name}] sending message is forbidden"
        raise Refused(Response.NO_PERMISSION, text)
    queue = _queue(call, head, topic)
    if head.topic.startswith(RETRY_PREFIX) and _is_dead(call, head):
        call.answer_with(dead_letter(call, head.topic.removeprefix(RETRY_PREFIX), sent[0]))
        return
    first = sent[0]
    if first.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_PREPARED and not head.is_batch:
        start(hold_half(call, topic, queue, first)).then(partial(_held, call, queue, first))
        return
    due_ms = due_at(first.properties, call.broker.clock.wall_ms())
    if due_ms is not None and not head.is_batch:
        _delay(call, topic, queue, first, due_ms)
    else:
        _place(call, topic, queue, sent)


def _queue(call: Call, head: Head, topic: TopicMetadata) -> int:
    count = max(read_queues(topic), write_queues(topic))
    if head.queue >= count:
        queues = plural(count, "queue")
        text = f"request queueId[{head.queue}] is illegal, topic {head.topic} has {queues}"
        raise Refused(Response.INVALID_PARAMETER, text)
    if head.queue < 0:
        return call.broker.random.randrange(max(1, write_queues(topic)))
    return head.queue


def _is_dead(call: Call, head: Head) -> bool:
    """Whether a message that was sent to a retry topic directly has been retried too often."""
    group = head.topic.removeprefix(RETRY_PREFIX)
    times_max = head.reconsume_times_max
    if times_max < 0:
        times_max = call.node.group_config(group).retry_max_times
    return head.reconsume_times > times_max


def _place(call: Call, topic: TopicMetadata, queue: int, sent: list[Sent]) -> None:
    """Append messages to a queue, atomically unless they exceed a batch of the log. A message with
    `WAIT=false` does not wait for other replicas, and is not refused when there are too few.
    """
    broker = call.broker
    partition = topic.partitions[queue]
    now_ms = broker.clock.wall_ms()
    placed = _Placed(call, topic.name, partition.partition_id, queue, sent)
    is_leader_only = sent[0].properties.get(Property.WAIT) == "false"
    caller = record_caller(call, topic)
    add = partial(broker.leader_queues.add, is_leader_only=is_leader_only, caller=caller)
    if len(sent) == 1:
        add(partition, sent[0].record(now_ms), placed)
        return
    records = [each.record(now_ms) for each in sent]
    try:
        broker.leader_queues.add_all(
            partition, records, placed.all, is_leader_only=is_leader_only, caller=caller
        )
    except MessageTooLarge:
        for record in records:
            add(partition, record, placed)


class _Placed:
    """Answers a send when its messages are appended."""

    __slots__ = ("_call", "_offsets", "_partition_id", "_queue", "_sent", "_topic")

    def __init__(
        self, call: Call, topic: str, partition_id: int, queue: int, sent: list[Sent]
    ) -> None:
        self._call = call
        self._topic = topic
        self._partition_id = partition_id
        self._queue = queue
        self._sent = sent
        self._offsets: list[int] = []

    def __call__(self, offset: int, error: DragomanError | None) -> None:
        """Callback for one message."""
        if error is not None:
            self._call.refuse(error)
            return
        self._offsets.append(offset)
        if len(self._offsets) == len(self._sent):
            self._answer(self._offsets)

    def all(self, offset: int, error: DragomanError | None) -> None:
        """Callback for all messages, with the offset of the first."""
        if error is not None:
            self._call.refuse(error)
        else:
            self._answer(range(offset, offset + len(self._sent)))

    def _answer(self, offsets: Sequence[int]) -> None:
        flow = self._call.service.received[self._topic]
        flow.add(sum(len(each.body) for each in self._sent), len(self._sent))
        reply_sent(self._call, self._partition_id, self._queue, offsets, self._sent[0])


def reply_sent(
    call: Call, partition_id: int, queue: int, offsets: Sequence[int], first: Sent
) -> None:
    store_host = call.session.store_host
    ids = [offset_message_id(store_host, physical_offset(partition_id, each)) for each in offsets]
    unique = first.properties[_UNIQUE_KEY]
    if call.request.serialization == Serialization.JSON and unique.isalnum():
        call.reply_with(
            f'{{"code":0,"extFields":{{"msgId":"{",".join(ids)}","queueId":"{queue}",'
            f'"queueOffset":"{offsets[0]}","transactionId":"{unique}","MSG_REGION":'
            f'"{DEFAULT_REGION}","TRACE_ON":"true"}},"flag":1,"language":"JAVA","opaque":'
            f'{call.request.opaque},"version":{VERSION}}}'
        )
        return
    call.reply(
        fields={
            "msgId": ",".join(ids),
            "queueId": str(queue),
            "queueOffset": str(offsets[0]),
            "transactionId": unique,
            "MSG_REGION": DEFAULT_REGION,
            "TRACE_ON": "true",
        }
    )


# ---- delays


def due_at(properties: dict[str, str], now_ms: int) -> int | None:
    """The delivery time of a message; None for immediate delivery. Raises `Refused`."""
    if _DELAYS.isdisjoint(properties):
        return None
    level = properties.get(Property.DELAY)
    if level is not None:
        number = _whole(Property.DELAY, level)
        if number > 0:
            return now_ms + DELAY_LEVELS_S[min(number, len(DELAY_LEVELS_S)) - 1] * 1000
    for name, base, unit in (
        (Property.TIMER_DELIVER_MS, 0, 1),
        (Property.TIMER_DELAY_MS, now_ms, 1),
        (Property.TIMER_DELAY_SEC, now_ms, 1000),
        (Property.START_DELIVER_TIME, 0, 1),
    ):
        text = properties.get(name)
        if text is not None:
            due_ms = base + _whole(name, text) * unit
            if name != Property.START_DELIVER_TIME and due_ms > now_ms + TIMER_DELAY_MS_MAX:
                reason = f"timer message illegal: a delay of more than {TIMER_DELAY_MS_MAX} ms"
                raise Refused(Response.MESSAGE_ILLEGAL, reason)
            return due_ms if due_ms > now_ms else None
    return None


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Refused(
            Response.MESSAGE_ILLEGAL, f"the property {name} is not a number: {text[:40]!r}"
        )
    return int(text)


def _delay(call: Call, topic: TopicMetadata, queue: int, sent: Sent, due_ms: int) -> None:
    """Hold a message until it is due, without the properties that delay it."""
    broker = call.broker
    for name in _DELAYS:
        sent.properties.pop(name, None)
    record = sent.record(broker.clock.wall_ms())
    caller = record_caller(call, topic)
    held = broker.delayed.delay(topic.name, queue, record, due_ms, caller)
    start(held).then(partial(_held, call, queue, sent))


def _held(call: Call, queue: int, sent: Sent, token: Token | DragomanError) -> None:
    """Answer as for an appended message."""
    if isinstance(token, DragomanError):
        call.refuse(token)
    else:
        reply_sent(call, token.partition_id, queue, (token.offset,), sent)


# ---- request and reply


async def handle_send_reply_message_v2(call: Call) -> Answer:
    return await _send_reply(call, _SHORT)


async def handle_send_reply_message(call: Call) -> Answer:
    return await _send_reply(call, _LONG)


async def _send_reply(call: Call, names: Names) -> Answer:
    """Send a reply to the client that waits for it, on any node."""
    head = _head(call, names)
    _check_sizes(len(call.body), len(head.properties.encode()))
    call.authorize_topic(_WRITE, topic_name(head.topic))
    client_id = decode_properties(head.properties).get(Property.REPLY_TO_CLIENT)
    if not client_id:
        reason = f"reply message properties[{Property.REPLY_TO_CLIENT}] is null"
        raise Refused(Response.SYSTEM_ERROR, reason)
    fields = {
        "bornHost": host_text(call.session.peer_host),
        "storeHost": host_text(call.session.store_host),
        "storeTimestamp": str(call.broker.clock.wall_ms()),
        "producerGroup": head.group,
        "topic": head.topic,
        "defaultTopic": head.template,
        "defaultTopicQueueNums": str(head.template_queues),
        "queueId": str(head.queue),
        "sysFlag": str(head.sys_flag),
        "bornTimestamp": str(head.born_ms),
        "flag": str(head.flag),
        "properties": head.properties,
        "reconsumeTimes": str(head.reconsume_times),
        "unitMode": "false",
    }

    request = ForwardReply(client_id=client_id, fields=fields, body=bytes(call.body))
    if not await call.node.forward_reply(request):
        raise Refused(Response.SYSTEM_ERROR, f"push reply message fail, client {client_id}")
    return Answer(fields={"msgId": "", "queueId": fields["queueId"], "queueOffset": "0"})
