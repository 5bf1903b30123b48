"""Messages as applications send and receive them, and the compression of their bodies.

Producers compress bodies, brokers store them unchanged, and consumers inflate them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from dragoman.errors import DecodeError
from dragoman.limits import ROCKETMQ_CLIENT_INFLATED_BYTES_MAX
from dragoman.log import compression
from dragoman.log.compression import Codec
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.constants import COMPRESSION_SHIFT, Property, Response, SysFlag
from dragoman.protocols.rocketmq.messages import Message as StoredMessage
from dragoman.protocols.rocketmq.messages import iterate_messages
from dragoman.types import Buffer

#: The compression level of RocketMQ's Java clients.
_LEVEL: Final = 5


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send."""

    topic: str
    body: bytes = b""
    #: The tag of the message, by which consumers filter. Brokers support one.
    tags: str = ""
    #: Keys by which the message can be found.
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    #: A number for the application's own use.
    flag: int = 0
    #: 1 to 18 delays delivery by one second to two hours; 0 does not delay it.
    delay_level: int = 0
    #: The time of delivery in milliseconds since 1970, for brokers of 5.x and Dragoman.
    deliver_at_ms: int | None = None
    #: Messages with the same sharding key go to the same queue.
    sharding_key: str = ""

    def all_properties(self) -> dict[str, str]:
        """The properties on the wire, which include tags, keys and delays."""
        found = dict(self.properties)
        if self.tags:
            found[Property.TAGS] = self.tags
        if self.keys:
            # A string is one key, not a sequence of characters.
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
    """A message as a consumer receives it: inflated, and with the topic that it was sent to."""

    broker_name: str = ""
    #: The queue that the message was read from. For a retry, it is one of the retry topic.
    queue: MessageQueue | None = None

    @property
    def tags(self) -> str:
        return self.properties.get(Property.TAGS, "")

    @property
    def keys(self) -> list[str]:
        return self.properties.get(Property.KEYS, "").split()

    @property
    def unique_id(self) -> str:
        """The unique id from the producer or, without one, the offset message id."""
        return self.properties.get(Property.UNIQUE_KEY) or self.message_id


def received(data: Buffer, queue: MessageQueue | None = None) -> list[ReceivedMessage]:
    """The messages in a response. Raises `DecodeError`.

    A body that cannot be inflated stays compressed, so that it does not block its queue.
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
    """The result of a send. With every status, the broker has stored the message."""

    OK = Response.SUCCESS
    FLUSH_DISK_TIMEOUT = Response.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = Response.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = Response.FLUSH_SLAVE_TIMEOUT


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message, or a batch, was stored."""

    status: SendStatus
    #: The unique id from the producer; for a batch, all ids separated by commas.
    unique_id: str
    #: The offset message id; for a batch, all ids separated by commas.
    message_id: str
    queue: MessageQueue
    #: The offset of the message, or of the first one of a batch.
    queue_offset: int
    transaction_id: str = ""


# ---- compression


def deflate(body: bytes) -> bytes:
    """Compress the body with zlib."""
    return zlib.compress(body, _LEVEL)


def inflate(body: bytes, sys_flag: int) -> bytes:
    """Inflate the body. Raises `DecodeError`, also if it would exceed the bound."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    bytes_max = ROCKETMQ_CLIENT_INFLATED_BYTES_MAX
    match (sys_flag & SysFlag.COMPRESSION_TYPE) >> COMPRESSION_SHIFT:
        case 0 | 3:
            return _inflate_zlib(body, bytes_max)
        case 1:
            return compression.decompress(Codec.LZ4, body, bytes_max)
        case 2:
            return compression.decompress(Codec.ZSTD, body, bytes_max)
        case kind:
            raise DecodeError(f"body in unknown compression {kind}")


def _inflate_zlib(body: bytes, bytes_max: int) -> bytes:
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(body, bytes_max)
        # If the body ends exactly at the bound, its checksum must still be read.
        rest = inflating.decompress(inflating.unconsumed_tail, 1)
    except zlib.error as error:
        raise DecodeError(f"bad zlib data: {error}") from None
    if rest:
        raise DecodeError(f"body of more than {bytes_max} bytes when inflated")
    if not inflating.eof:
        raise DecodeError("bad zlib data: it is cut off")
    return plain
