"""Delayed and held records as records of the internal topic `__deferred_records`.

    key    version u8 = 1, kind u8, partition u32, number u64
    kind   1  a delayed or held record. The number is its own offset.
              value: target's partition id, when to look at it, whether it is held, labels,
                     key, value, headers
           2  the decision to release it. The number is the offset of the record.
              value: when it was made
           3  what is on its way to a target. The number is the target's partition id.
              value: producer id, first sequence, when it was decided on, [offset of a record, …]

Values are a version byte = 1 and one MessagePack array. The topic is compacted: the last value of a
key is all that there is to it, and no value removes it. A later version may append elements to the
arrays; a reader of this version ignores them. Anything else needs a new version byte.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple, TypeVar

import msgspec

from dragoman.broker.delayed.state import Batch
from dragoman.broker.internal_topic import KeyValue
from dragoman.errors import MALFORMED, CorruptionError, FormatError
from dragoman.log.batch import Record

TOPIC: Final = "__deferred_records"
VERSION: Final = 1
_PREFIX = bytes([VERSION])
_KEY = Struct(">BBIQ")


class Kind(IntEnum):
    RECORD = 1
    RELEASE = 2
    BATCH = 3


class Key(NamedTuple):
    kind: Kind
    #: The partition of the internal topic.
    partition: int
    number: int


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """A delayed or held record, and its target."""

    target_id: int
    when_ms: int
    is_held: bool
    labels: dict[str, str]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def record(self, timestamp: int) -> Record:
        return Record(key=self.key, value=self.value, headers=self.headers, timestamp=timestamp)


class Release(msgspec.Struct, frozen=True, array_like=True):
    released_ms: int


Value = TypeVar("Value", Stored, Release, Batch)


def encode_key(kind: Kind, partition: int, number: int) -> bytes:
    return _KEY.pack(VERSION, kind, partition, number)


def decode_key(key: bytes) -> Key:
    """Raises `FormatError` for a version from the future, `CorruptionError` for other bytes."""
    _check_version(key, "key")
    try:
        _, kind, partition, number = _KEY.unpack(key)
        return Key(Kind(kind), partition, number)
    except (StructError, ValueError) as error:
        raise CorruptionError(TOPIC, 1, f"key {key.hex()}: {error}") from error


def encode_value(value: Stored | Release | Batch) -> bytes:
    return _PREFIX + msgspec.msgpack.encode(value)


def decode_value(kind: type[Value], value: bytes) -> Value:
    """Raises like `decode_key`."""
    _check_version(value, "value")
    try:
        return msgspec.msgpack.decode(memoryview(value)[1:], type=kind)
    except MALFORMED as error:
        raise CorruptionError(TOPIC, 1, f"value of a {kind.__name__}: {error}") from error


def removal(partition: int, offset: int, *, is_released: bool) -> list[KeyValue]:
    """The changes that remove a record."""
    kinds = (Kind.RECORD, Kind.RELEASE) if is_released else (Kind.RECORD,)
    return [(encode_key(kind, partition, offset), None) for kind in kinds]


def _check_version(data: bytes, part: str) -> None:
    if not data:
        raise CorruptionError(TOPIC, 0, f"{part} is empty")
    if data[0] != VERSION:
        raise FormatError(f"{TOPIC}: {part} has version {data[0]}, known is {VERSION}")
