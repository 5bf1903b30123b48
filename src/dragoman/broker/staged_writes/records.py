"""Writers as records of the internal topic `__publications`.

    key    version u8 = 1, writer id in UTF-8
    value  version u8 = 1, one MessagePack array:
           query id, producer id, batch id, is single, updated ms,
           [[partition id, first sequence,
             [[staging partition, first offset, next offset, record count, checksum], …]], …]

The topic is compacted, so a value is always the whole state, and no value removes the writer. A
later version may append elements to the arrays; a reader of this version ignores them. Anything
else needs a new version byte.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.broker.internal_topic import KeyValue
from dragoman.broker.staged_writes.publication import Target, Writer
from dragoman.errors import MALFORMED, CorruptionError, FormatError

TOPIC: Final = "__publications"
VERSION: Final = 1
_PREFIX = bytes([VERSION])


class _Value(msgspec.Struct, array_like=True, frozen=True):
    query_id: str
    producer_id: int
    batch_id: int
    is_single: bool
    updated_ms: int
    targets: tuple[Target, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Value)


def to_record(writer: Writer) -> KeyValue:
    value = _Value(
        writer.query_id,
        writer.producer_id,
        writer.batch_id,
        writer.is_single,
        writer.updated_ms,
        writer.targets,
    )
    return encode_key(writer.writer_id), _PREFIX + _encoder.encode(value)


def encode_key(writer_id: str) -> bytes:
    return _PREFIX + writer_id.encode()


def decode_key(key: bytes) -> str:
    """Raises `FormatError` for a version from the future, `CorruptionError` for other bytes."""
    _check_version(key, "key")
    try:
        return key[1:].decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(TOPIC, 1, f"key is not UTF-8: {error}") from error


def decode_value(writer_id: str, value: bytes) -> Writer:
    """Raises like `decode_key`."""
    _check_version(value, "value")
    try:
        stored = _decoder.decode(memoryview(value)[1:])
    except MALFORMED as error:
        raise CorruptionError(TOPIC, 1, f"value of {writer_id}: {error}") from error
    return Writer(
        writer_id=writer_id,
        query_id=stored.query_id,
        producer_id=stored.producer_id,
        batch_id=stored.batch_id,
        targets=stored.targets,
        is_single=stored.is_single,
        updated_ms=stored.updated_ms,
    )


def _check_version(data: bytes, part: str) -> None:
    if not data:
        raise CorruptionError(TOPIC, 0, f"{part} is empty")
    if data[0] != VERSION:
        raise FormatError(f"{TOPIC}: {part} has version {data[0]}, known is {VERSION}")
