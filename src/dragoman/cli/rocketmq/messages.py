"""Commands about messages."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from dragoman.cli.output import Output, print_fields, print_json
from dragoman.cli.rocketmq.options import (
    DEFAULT_NAMESRV,
    NameServers,
    Topic,
    administering,
    sending,
    show,
    time_text,
)
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.client.rocketmq import (
    Message,
    MessageQueue,
    ReceivedMessage,
)


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
    #: As text; bytes that are none are escaped.
    body: str


class MessageRow(msgspec.Struct, frozen=True):
    message_id: str
    unique_id: str
    queue: int
    offset: int
    stored: str


def view_of(message: ReceivedMessage) -> MessageView:
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
    view = view_of(message)
    if output == "json":
        print_json(view)
        return
    properties = " ".join(f"{name}={value}" for name, value in view.properties.items())
    shown = msgspec.structs.asdict(view) | {"keys": " ".join(view.keys), "properties": properties}
    print_fields((name.replace("_", " "), value) for name, value in shown.items())


def query_msg_by_id(
    *,
    message_id: Annotated[str, Parameter(name=["--message-id", "-i", "--msgId"])],
    topic: Annotated[str | None, Parameter(name=["--topic", "-t"])] = None,
    namesrv: NameServers = DEFAULT_NAMESRV,
    output: Output = "table",
) -> None:
    """Show a message by its id.

    Parameters
    ----------
    message_id
        The id that names a broker; with a topic, also the one that its producer gave.
    topic
        Topic of the message.
    """
    with administering(namesrv) as admin:
        if topic is None:
            message = admin.query_message_by_id(message_id)
        else:
            message = admin.view_message(topic, message_id)
    _show_one(message, output)


def query_msg_by_unique_key(
    *,
    topic: Topic,
    message_id: Annotated[str, Parameter(name=["--message-id", "-i", "--msgId"])],
    namesrv: NameServers = DEFAULT_NAMESRV,
    output: Output = "table",
) -> None:
    """Show a message by the id that its producer gave it.

    Parameters
    ----------
    message_id
        The id.
    """
    with administering(namesrv) as admin:
        message = admin.query_message_by_unique_key(topic, message_id)
    _show_one(message, output)


def query_msg_by_key(
    *,
    topic: Topic,
    key: Annotated[str, Parameter(name=["--key", "-k", "--msgKey"])],
    max_count: Annotated[int, Parameter(name=["--max", "-m", "--maxNum"])] = 64,
    namesrv: NameServers = DEFAULT_NAMESRV,
    output: Output = "table",
) -> None:
    """List the messages with a key.

    Parameters
    ----------
    key
        The key.
    max_count
        How many are listed at most.
    """
    with administering(namesrv) as admin:
        found = admin.query_message(topic, key, max_count=max_count)
    if output == "json":
        print_json([view_of(each) for each in found])
    else:
        show([row_of(each) for each in found], MessageRow, output)


def row_of(message: ReceivedMessage) -> MessageRow:
    return MessageRow(
        message.message_id,
        message.unique_id,
        message.queue_id,
        message.queue_offset,
        time_text(message.store_ms),
    )


def query_msg_by_offset(
    *,
    topic: Topic,
    broker_name: Annotated[str, Parameter(name=["--broker-name", "-b", "--brokerName"])],
    queue_id: Annotated[int, Parameter(name=["--queue", "-i", "--queueId"])],
    offset: Annotated[int, Parameter(name=["--offset", "-o"])],
    namesrv: NameServers = DEFAULT_NAMESRV,
    output: Output = "table",
) -> None:
    """Show the message at an offset of a queue.

    Parameters
    ----------
    broker_name
        Name, not address, of the broker.
    queue_id
        Queue of the topic there.
    offset
        Offset in the queue.
    """
    queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
    with administering(namesrv) as admin:
        message = admin.query_message_by_offset(queue, offset)
    _show_one(message, output)


class SentView(msgspec.Struct, frozen=True):
    broker: str
    queue: int
    offset: int
    status: str
    message_id: str
    unique_id: str


def send_message(
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
    namesrv: NameServers = DEFAULT_NAMESRV,
    output: Output = "table",
) -> None:
    """Send a message.

    Parameters
    ----------
    body
        Its body, as text.
    keys
        What it is found by, with blanks between them.
    tags
        What consumers filter by.
    delay_level
        1 to 18: when it is delivered, one second to two hours later.
    broker_name
        Broker that it goes to, with a queue; any when left out.
    queue_id
        Queue of that broker.
    """
    if (broker_name is None) != (queue_id is None):
        raise CommandError("--broker-name and --queue: expected both or none", USAGE)
    message = Message(
        topic=topic, body=body.encode(), keys=keys.split(), tags=tags, delay_level=delay_level
    )
    queue = None
    if broker_name is not None and queue_id is not None:
        queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
    with sending(namesrv) as producer:
        if queue is not None:
            # Where the broker is.
            producer.queues(topic)
        sent = producer.send(message, queue=queue)
    view = SentView(
        sent.queue.broker_name,
        sent.queue.queue_id,
        sent.queue_offset,
        sent.status.name,
        sent.message_id,
        sent.unique_id,
    )
    if output == "json":
        print_json(view)
    else:
        say(f"sent message {view.unique_id}")
        show([view], SentView, output)


COMMANDS = {
    "query-msg-by-id queryMsgById": query_msg_by_id,
    "query-msg-by-key queryMsgByKey": query_msg_by_key,
    "query-msg-by-unique-key queryMsgByUniqueKey": query_msg_by_unique_key,
    "query-msg-by-offset queryMsgByOffset": query_msg_by_offset,
    "send-message sendMessage": send_message,
}
