"""Random Kafka messages from a seed, for round trips, oracles and fuzzing.

Values include the edges of every type. A few fields are kept to what the oracles can hold at all:
error codes are known ones, and times fit a date.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from dragoman.protocols.kafka import messages, notation
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.messages import Message
from dragoman.protocols.kafka.notation import FieldSpec, StructSpec, TypeSpec

_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_TEXTS = ("", "a", "orders", "größe", "x" * 126, "y" * 127, "z" * 300)
_CODES = [int(code) for code in ErrorCode]


def all_versions(name: str) -> range:
    versions = notation.versions_of(name)
    return range(versions.low, versions.high + 1)


def api_messages() -> Iterator[tuple[str, int]]:
    """Every message with one of Kafka's API keys, in every version."""
    for name in notation.message_names():
        if 0 <= notation.message(name).api_key < ApiKey.OPEN_STAGING:
            for version in all_versions(name):
                yield name, version


def random_message(rng: random.Random, name: str, version: int) -> Message:
    return _random_struct(rng, notation.message(name).struct, version)


def _random_struct(rng: random.Random, struct: StructSpec, version: int) -> Message:
    values = {
        field.name: _random_field(rng, field, version)
        for field in struct.fields
        if version in field.versions and not (field.tag is not None and rng.random() < 0.4)
    }
    made: Message = getattr(messages, struct.class_name)(**values)
    return made


def _random_field(rng: random.Random, field: FieldSpec, version: int) -> object:
    if field.is_nullable(version) and rng.random() < 0.25:
        return None
    if field.type.kind in ("i16", "i32", "i64"):
        if field.name.endswith("error_code"):
            return rng.choice(_CODES)
        if "time" in field.name or field.name.endswith("_ms"):
            return rng.randrange(1 << (31 if field.type.kind == "i32" else 41))
    return _random_value(rng, field.type, version)


def _random_value(rng: random.Random, kind: TypeSpec, version: int) -> object:
    if kind.struct is not None:
        return _random_struct(rng, kind.struct, version)
    if kind.element is not None:
        count = rng.choice((0, 1, 1, 2, 3))
        if kind.element.struct is None and rng.random() < 0.05:
            count = 130
        return [_random_value(rng, kind.element, version) for _ in range(count)]
    if kind.kind in _BITS:
        return _random_integer(rng, _BITS[kind.kind])
    return _random_other(rng, kind.kind)


def _random_integer(rng: random.Random, bits: int) -> int:
    top = 1 << (bits - 1)
    return rng.choice((0, 1, -1, top - 1, -top, rng.randrange(-top, top)))


def _random_other(rng: random.Random, kind: str) -> object:
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "u16":
        return rng.choice((0, 65535, rng.randrange(65536)))
    if kind == "f64":
        return rng.choice((0.0, -1.5, 1e300, rng.random()))
    if kind == "uuid":
        return bytes(16) if rng.random() < 0.2 else rng.randbytes(16)
    if kind in ("str", "str16"):
        return rng.choice(_TEXTS)
    assert kind in ("bytes", "records")
    return rng.randbytes(rng.choice((0, 1, 20, 126, 127, 128, 5000, 17000)))
