"""Commands about messages and dead letters."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from dragoman.cli.output import Fields, Output, show
from dragoman.cli.rocketmq.command import Group, Session, Topic, time_text
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.client.rocketmq import DeadLetter, Message, MessageQueue, ReceivedMessage

MaxCount = Annotated[int, Parameter(name=["--max", "-m"])]


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    queue: int
    offset: int
    message_id: str
    unique_id: str
    tags: str
    keys: list[str]
    born: str
    stored: str
    reconsume_times: int
    properties: dict[str, str]
    body_bytes: int
    #: The body as text. Bytes that are not UTF-8 are escaped.
    body: str


class MessageRow(msgspec.Struct, frozen=True):
    message_id: str
    unique_id: str
    queue: int
    offset: int
    stored: str


def _view_of(message: ReceivedMessage) -> MessageView:
    return MessageView(
        topic=message.topic,
        queue=message.queue_id,
        offset=message.queue_offset,
        message_id=message.message_id,
        unique_id=message.unique_id,
        tags=message.tags,
        keys=message.keys,
        born=time_text(message.born_ms),
        stored=time_text(message.store_ms),
        reconsume_times=message.reconsume_times,
        properties=message.properties,
        body_bytes=len(message.body),
        body=message.body.decode(errors="backslashreplace"),
    )


def _show_one(message: ReceivedMessage, output: Output) -> None:
    view = _view_of(message)
    properties = " ".join(f"{name}={value}" for name, value in view.properties.items())
    shown = msgspec.structs.asdict(view) | {"keys": " ".join(view.keys), "properties": properties}
    fields = Fields((name.replace("_", " "), value) for name, value in shown.items())
    show(output, view, MessageView, fields)


def query_msg_by_id(
    session: Session,
    *,
    message_id: Annotated[str, Parameter(name=["--message-id", "-i", "--msgId"])],
    topic: Annotated[str | None, Parameter(name=["--topic", "-t"])] = None,
    output: Output = "table",
) -> None:
    """Show a message by its id.

    Parameters
    ----------
    message_id
        Offset message id or, with --topic, unique id of the producer.
    topic
        Topic of the message.

    Examples
    --------
    dragoman rocketmq query-msg-by-id -i 7F00000100002A9F0000000000000000
    """
    if topic is None:
        message = session.admin.query_message_by_id(message_id)
    else:
        message = session.admin.view_message(topic, message_id)
    _show_one(message, output)


def query_msg_by_unique_key(
    session: Session,
    *,
    topic: Topic,
    message_id: Annotated[str, Parameter(name=["--message-id", "-i", "--msgId"])],
    output: Output = "table",
) -> None:
    """Show a message by the unique id of its producer.

    Parameters
    ----------
    message_id
        Unique id.

    Examples
    --------
    dragoman rocketmq query-msg-by-unique-key -t orders -i 7F0000010001000000000001
    """
    _show_one(session.admin.query_message_by_unique_key(topic, message_id), output)


def query_msg_by_key(
    session: Session,
    *,
    topic: Topic,
    key: Annotated[str, Parameter(name=["--key", "-k", "--msgKey"])],
    max_count: Annotated[int, Parameter(name=["--max", "-m", "--maxNum"])] = 64,
    output: Output = "table",
) -> None:
    """List the messages with a key.

    Parameters
    ----------
    key
        Key of the messages.
    max_count
        Maximum number of messages.

    Examples
    --------
    dragoman rocketmq query-msg-by-key -t orders -k order-17
    """
    found = session.admin.query_message(topic, key, max_count=max_count)
    if output != "table":
        show(output, [_view_of(each) for each in found], MessageView)
        return
    rows = [
        MessageRow(
            each.message_id,
            each.unique_id,
            each.queue_id,
            each.queue_offset,
            time_text(each.store_ms),
        )
        for each in found
    ]
    show(output, rows, MessageRow)


def query_msg_by_offset(
    session: Session,
    *,
    topic: Topic,
    broker_name: Annotated[str, Parameter(name=["--broker-name", "-b", "--brokerName"])],
    queue_id: Annotated[int, Parameter(name=["--queue", "-i", "--queueId"])],
    offset: Annotated[int, Parameter(name=["--offset", "-o"])],
    output: Output = "table",
) -> None:
    """Show the message at an offset of a queue.

    Parameters
    ----------
    broker_name
        Name of the broker, not its address.
    queue_id
        Queue of the topic at this broker.
    offset
        Offset in the queue.

    Examples
    --------
    dragoman rocketmq query-msg-by-offset -t orders -b node-1 -i 0 -o 0
    """
    queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
    _show_one(session.admin.query_message_by_offset(queue, offset), output)


class SentView(msgspec.Struct, frozen=True):
    broker: str
    queue: int
    offset: int
    status: str
    message_id: str
    unique_id: str


def send_message(
    session: Session,
    *,
    topic: Topic,
    body: Annotated[str, Parameter(name=["--body", "-p"])],
    keys: Annotated[str, Parameter(name=["--keys", "-k"])] = "",
    tags: Annotated[str, Parameter(name=["--tags", "-c"])] = "",
    delay_level: Annotated[int, Parameter(name=["--delay-level"])] = 0,
    broker_name: Annotated[
        str | None, Parameter(name=["--broker-name", "-b", "--brokerName"])
    ] = None,
    queue_id: Annotated[int | None, Parameter(name=["--queue", "-i", "--qid"])] = None,
    output: Output = "table",
) -> None:
    """Send a message.

    Parameters
    ----------
    body
        Body, as text.
    keys
        Keys to find the message by, separated by spaces.
    tags
        Tag, by which consumers filter.
    delay_level
        1 to 18, for a delay of one second to two hours.
    broker_name
        Name of the broker, given together with --queue; any by default.
    queue_id
        Queue of this broker.

    Examples
    --------
    dragoman rocketmq send-message -t orders -p 'two apples' -k order-17 -c eu
    """
    if (broker_name is None) != (queue_id is None):
        raise CommandError("--broker-name and --queue: expected both or none", USAGE)
    message = Message(
        topic=topic, body=body.encode(), keys=keys.split(), tags=tags, delay_level=delay_level
    )
    queue = None
    if broker_name is not None and queue_id is not None:
        queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
    if queue is not None:
        # The call looks up the address of the broker.
        session.producer.queues(topic)
    sent = session.producer.send(message, queue=queue)
    view = SentView(
        sent.queue.broker_name,
        sent.queue.queue_id,
        sent.queue_offset,
        sent.status.name,
        sent.message_id,
        sent.unique_id,
    )
    if output == "table":
        say(f"sent message {view.unique_id}")
        show(output, [view], SentView)
    else:
        show(output, view, SentView)


# ---- dead letters


class LetterRow(msgspec.Struct, frozen=True):
    message_id: str
    origin_topic: str
    origin_message_id: str
    keys: str
    tried: int
    stored: str


class LetterView(msgspec.Struct, frozen=True):
    origin_topic: str
    origin_message_id: str
    message: MessageView


def dlq_list(
    session: Session, *, group: Group, max_count: MaxCount = 1000, output: Output = "table"
) -> None:
    """List the dead letters of a group.

    Parameters
    ----------
    max_count
        Maximum number of dead letters.

    Examples
    --------
    dragoman rocketmq dlq-list -g reports
    """
    letters = session.admin.list_dead_letters(group, max_count=max_count)
    if output == "table":
        show(output, [_row(each) for each in letters], LetterRow)
        return
    views = [
        LetterView(each.origin_topic, each.origin_message_id, _view_of(each.message))
        for each in letters
    ]
    show(output, views, LetterView)


def _row(letter: DeadLetter) -> LetterRow:
    message = letter.message
    return LetterRow(
        message.message_id,
        letter.origin_topic,
        letter.origin_message_id,
        " ".join(message.keys),
        message.reconsume_times,
        time_text(message.store_ms),
    )


def dlq_resend(
    session: Session,
    *,
    group: Group,
    message_id: Annotated[
        tuple[str, ...], Parameter(name=["--message-id", "-i", "--msgId"], negative="")
    ] = (),
    resend_all: Annotated[bool, Parameter(name=["--all"], negative="")] = False,
    max_count: MaxCount = 1000,
) -> str:
    """Send dead letters to their group again. They also stay in the dead-letter topic.

    Parameters
    ----------
    message_id
        Id as shown by `dlq-list`; may be given several times.
    resend_all
        Resend all dead letters.
    max_count
        Maximum number of dead letters to read.

    Examples
    --------
    dragoman rocketmq dlq-resend -g reports --all
    """
    if bool(message_id) == resend_all:
        raise CommandError("expected either --message-id or --all", USAGE)
    letters = session.admin.list_dead_letters(group, max_count=max_count)
    if message_id:
        known = {each.message.message_id: each for each in letters}
        missing = [each for each in message_id if each not in known]
        if missing:
            raise CommandError(f"group {group!r} has no dead letter {missing[0]}")
        letters = [known[each] for each in message_id]
    return f"resent messages: {len(session.admin.resend_dead_letters(letters))}"


COMMANDS = (
    query_msg_by_id,
    query_msg_by_key,
    query_msg_by_unique_key,
    query_msg_by_offset,
    send_message,
    dlq_list,
    dlq_resend,
)
