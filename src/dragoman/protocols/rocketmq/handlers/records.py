"""Converts RocketMQ's messages to records of the log, and back.

The body is the record's value. A compressed body is stored inflated, so that clients of other
protocols and Spark can read it. The property `KEYS` is the record's key; the other properties are
headers with a prefix, and the fields of the message are one header:

    rocketmq            flag i32, sysFlag i32, born time i64, born host 8, reconsume times i32,
                        prepared offset i64
    rocketmq.NAME       the property NAME

The broker's own properties (`MSG_REGION`, `TRACE_ON`, `CLUSTER`) are the same in all messages. They
are not stored, but replace those of the sender when a message is encoded. Consumers need them for
message traces, and other protocols do not see them.

Records of other protocols are messages, too: the key becomes `KEYS`, and a header whose name and
value allow it becomes a property, so that a Kafka producer may set `TAGS`.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final

from dragoman.errors import DecodeError
from dragoman.limits import ROCKETMQ_INFLATED_BYTES_MAX
from dragoman.log import compression
from dragoman.log.batch import Record
from dragoman.log.compression import Codec
from dragoman.protocols.rocketmq.constants import (
    COMPRESSION_SHIFT,
    DEFAULT_CLUSTER,
    DEFAULT_REGION,
    PROPERTIES_BYTES_MAX,
    Property,
    SysFlag,
)
from dragoman.protocols.rocketmq.handlers.names import physical_offset
from dragoman.protocols.rocketmq.messages import (
    NO_HOST,
    decode_properties,
    encode_properties,
    encode_stored,
)
from dragoman.text_cache import cached_by_text
from dragoman.types import Buffer

PREFIX: Final = "rocketmq."
META: Final = "rocketmq"
_FIELDS: Final = Struct(">iiq8siq")
_KEYS: Final = Property.KEYS
_KEYS_HEADER: Final = PREFIX + Property.KEYS
_BROKERS_OWN: Final = {
    Property.MSG_REGION: DEFAULT_REGION,
    Property.TRACE_SWITCH: "true",
    Property.CLUSTER: DEFAULT_CLUSTER,
}
_BROKERS_OWN_BYTES: Final = encode_properties(_BROKERS_OWN)
_NO_META: Final = (0, 0, -1, NO_HOST, 0, 0)
_COMPRESSION: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE)
_IPV6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
#: Compressions other than zlib.
_CODECS: Final = {1: Codec.LZ4, 2: Codec.ZSTD}


def as_first_try(meta: bytes) -> bytes:
    """The header of a message that was not delivered yet. One of another length is unchanged."""
    if len(meta) != _FIELDS.size:
        return meta
    *first, _, prepared_offset = _FIELDS.unpack(meta)
    return _FIELDS.pack(*first, 0, prepared_offset)


class Sent:
    """A message of a client, without its topic and queue."""

    __slots__ = (
        "body",
        "born_host",
        "born_ms",
        "flag",
        "prepared_offset",
        "properties",
        "reconsume_times",
        "sys_flag",
    )

    def __init__(
        self,
        body: bytes,
        properties: dict[str, str],
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_ms: int = 0,
        born_host: bytes = NO_HOST,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> None:
        self.body = body
        self.properties = properties
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_ms = born_ms
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset

    def record(self, now_ms: int) -> Record:
        properties = self.properties
        meta = _FIELDS.pack(
            self.flag,
            self.sys_flag & ~_IPV6,
            self.born_ms,
            self.born_host,
            self.reconsume_times,
            self.prepared_offset,
        )
        keys = properties.get(_KEYS)
        others = [
            (_header_name(name), value.encode())
            for name, value in properties.items()
            if name != _KEYS
        ]
        return Record(
            key=None if keys is None else keys.encode(),
            value=self.body,
            headers=((META, meta), *others),
            timestamp=now_ms,
        )


@cached_by_text(4096)
def _header_name(name: str) -> str:
    return PREFIX + name


def inflated(body: Buffer, sys_flag: int) -> tuple[bytes, int]:
    """The inflated body, and the flags without the compression flags.

    Raises `DecodeError` when the flags are wrong or the inflated body is too large.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return bytes(body), sys_flag
    kind = (sys_flag & SysFlag.COMPRESSION_TYPE) >> COMPRESSION_SHIFT
    try:
        plain = _inflate(kind, bytes(body))
    except (zlib.error, DecodeError) as error:
        raise DecodeError(f"the body does not match its compression flags: {error}") from None
    return plain, sys_flag & ~_COMPRESSION


def _inflate(kind: int, body: bytes) -> bytes:
    if kind in _CODECS:
        return compression.decompress(_CODECS[kind], body, ROCKETMQ_INFLATED_BYTES_MAX)
    machine = zlib.decompressobj()
    plain = machine.decompress(body, ROCKETMQ_INFLATED_BYTES_MAX)
    if machine.unconsumed_tail or not machine.eof:
        raise DecodeError("it is cut off or too large")
    return plain


# ---- reading


def fields_of(record: Record) -> tuple[tuple[int, int, int, bytes, int, int], bytes]:
    """The message's own fields, and its properties as on the wire."""
    meta = _NO_META
    parts: list[bytes] = []
    has_keys = False
    for name, value in record.headers:
        if name == META:
            if value is not None and len(value) == _FIELDS.size:
                meta = _FIELDS.unpack(value)
        elif value:
            prefix = _property_prefix(name)
            is_ours = name.startswith(PREFIX)
            if prefix is not None and (is_ours or (not _is_separated(value) and _is_text(value))):
                has_keys = has_keys or name in (_KEYS, _KEYS_HEADER)
                parts += (prefix, value, b"\x02")
    key = record.key
    if key and not has_keys and not _is_separated(key) and _is_text(key):
        parts += (b"KEYS\x01", key, b"\x02")
    properties = b"".join(parts)
    if len(properties) > PROPERTIES_BYTES_MAX:
        properties = b""
    return meta, properties


@cached_by_text(4096)
def _property_prefix(name: str) -> bytes | None:
    """The name of the property that a header becomes, and the separator; None if it cannot be
    one.
    """
    property_name = name.removeprefix(PREFIX)
    if "\x01" in name or "\x02" in name or property_name in _BROKERS_OWN:
        return None
    encoded = property_name.encode()
    return encoded + b"\x01" if encoded else None


def delivered(properties: bytes) -> bytes:
    """Properties including the broker's own, if there is room for those."""
    if len(properties) > PROPERTIES_BYTES_MAX - len(_BROKERS_OWN_BYTES):
        return properties
    return properties + _BROKERS_OWN_BYTES


def _is_separated(value: bytes) -> bool:
    return b"\x01" in value or b"\x02" in value


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def properties_of(record: Record) -> dict[str, str]:
    _, properties = fields_of(record)
    return decode_properties(delivered(properties).decode("utf-8", "replace"))


def tags_of(record: Record) -> bytes | None:
    for name, value in record.headers:
        if name in ("rocketmq.TAGS", "TAGS"):
            return value
    return None


def encoded(
    record: Record, topic: bytes, partition_id: int, queue_id: int, store_host: bytes
) -> bytes:
    """The encoded message of a record, as sent to consumers."""
    (flag, sys_flag, born_ms, born_host, times, prepared), properties = fields_of(record)
    return encode_stored(
        topic,
        queue_id,
        flag,
        record.offset,
        physical_offset(partition_id, record.offset),
        sys_flag,
        born_ms if born_ms >= 0 else record.timestamp,
        born_host,
        record.timestamp,
        store_host,
        times,
        prepared,
        record.value or b"",
        delivered(properties),
    )


def sent_again(record: Record) -> Sent:
    """A record as a message for another topic: a retry, a dead letter, or a half."""
    (flag, sys_flag, born_ms, born_host, times, prepared), properties = fields_of(record)
    return Sent(
        record.value or b"",
        decode_properties(properties.decode("utf-8", "replace")),
        flag=flag,
        sys_flag=sys_flag,
        born_ms=born_ms if born_ms >= 0 else record.timestamp,
        born_host=born_host,
        reconsume_times=times,
        prepared_offset=prepared,
    )
