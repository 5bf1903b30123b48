"""Messages as applications give and get them, and what comes of sending one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.compression import inflate
from dragoman.protocols.rocketmq.constants import Property, Response, SysFlag
from dragoman.protocols.rocketmq.messages import Message as StoredMessage
from dragoman.protocols.rocketmq.messages import iterate_messages
from dragoman.types import Buffer


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be sent."""

    topic: str
    body: bytes = b""
    #: What consumers filter by; brokers know one tag per message.
    tags: str = ""
    #: What it is found by.
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    #: The application's own.
    flag: int = 0
    #: 1 to 18: one second to two hours. 0: at once.
    delay_level: int = 0
    #: When it is to be delivered, in milliseconds since 1970; brokers of 5.x and Dragoman.
    deliver_at_ms: int | None = None
    #: Messages with the same one go to the same queue.
    sharding_key: str = ""

    def all_properties(self) -> dict[str, str]:
        found = dict(self.properties)
        if self.tags:
            found[Property.TAGS] = self.tags
        if self.keys:
            # A single one given as text is not a sequence of letters.
            keys = (self.keys,) if isinstance(self.keys, str) else self.keys
            found[Property.KEYS] = " ".join(keys)
        if self.delay_level:
            found[Property.DELAY] = str(self.delay_level)
        if self.deliver_at_ms is not None:
            found[Property.TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        if self.sharding_key:
            found[Property.SHARDING_KEY] = self.sharding_key
        found.setdefault(Property.WAIT, "true")
        return found


class ReceivedMessage(StoredMessage, kw_only=True):
    """A message as a consumer gets it: inflated, and under the topic it was sent to."""

    broker_name: str = ""
    #: Of the queue it came from, which for one that is tried again is the retry topic's.
    queue: MessageQueue | None = None

    @property
    def tags(self) -> str:
        return self.properties.get(Property.TAGS, "")

    @property
    def keys(self) -> list[str]:
        return self.properties.get(Property.KEYS, "").split()

    @property
    def unique_id(self) -> str:
        """What its producer called it; the offset message id when it had no name for it."""
        return self.properties.get(Property.UNIQUE_KEY) or self.message_id


def received(data: Buffer, queue: MessageQueue | None = None) -> list[ReceivedMessage]:
    """The messages of a reply. Raises `DecodeError`.

    A body that cannot be inflated is left as it is: one message must not hold up its queue.
    """
    return [_received(each, queue) for each in iterate_messages(bytes(data))]


def _received(stored: StoredMessage, queue: MessageQueue | None) -> ReceivedMessage:
    fields = {name: getattr(stored, name) for name in stored.__struct_fields__}
    message = ReceivedMessage(**fields, broker_name=queue.broker_name if queue else "", queue=queue)
    message.topic = message.properties.get(Property.RETRY_TOPIC) or message.topic
    try:
        message.body = inflate(stored.body, stored.sys_flag)
    except DecodeError:
        return message
    message.sys_flag &= ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE)
    return message


class SendStatus(IntEnum):
    """All of them mean that the broker has the message."""

    OK = Response.SUCCESS
    FLUSH_DISK_TIMEOUT = Response.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = Response.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = Response.FLUSH_SLAVE_TIMEOUT


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    status: SendStatus
    #: What the producer called it; of a batch, all with commas.
    unique_id: str
    #: By which brokers find it; of a batch, all with commas.
    message_id: str
    queue: MessageQueue
    #: Of the first message of a batch.
    queue_offset: int
    transaction_id: str = ""
