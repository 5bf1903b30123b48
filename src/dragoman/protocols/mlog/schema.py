"""The fields of each message as a table: what both encodings walk over."""

from __future__ import annotations

from enum import Enum, auto
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

import msgspec


class Kind(Enum):
    TEXT = auto()
    BYTES = auto()
    BOOL = auto()
    INT = auto()
    MESSAGE = auto()


class Field(NamedTuple):
    #: From 1, in the order of declaration: protobuf's field number.
    number: int
    name: str
    json_name: str
    kind: Kind
    is_list: bool
    #: Of an integer: the smallest and the largest.
    low: int = 0
    high: int = 0
    #: Of a message: which.
    message: type[msgspec.Struct] | None = None


_INTEGERS = {
    "uint64": (0, (1 << 64) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
}


@cache
def fields_of(message: type[msgspec.Struct]) -> tuple[Field, ...]:
    return tuple(
        _field(number, each) for number, each in enumerate(msgspec.structs.fields(message), 1)
    )


def _field(number: int, info: msgspec.structs.FieldInfo) -> Field:
    kind = _without_none(info.type)
    is_list = get_origin(kind) is list
    if is_list:
        kind = _without_none(get_args(kind)[0])
    field = Field(number, info.name, info.encode_name, Kind.MESSAGE, is_list)
    simple = {str: Kind.TEXT, bytes: Kind.BYTES, bool: Kind.BOOL}.get(kind)
    if simple is not None:
        return field._replace(kind=simple)
    metadata = getattr(kind, "__metadata__", ())
    if metadata:
        low, high = _INTEGERS[metadata[0].title]
        return field._replace(kind=Kind.INT, low=low, high=high)
    assert issubclass(kind, msgspec.Struct)
    return field._replace(message=kind)


def _without_none(kind: Any) -> Any:
    """`X` of `X | None`."""
    found = [each for each in get_args(kind) if each is not NoneType]
    is_union = NoneType in get_args(kind)
    return found[0] if is_union else kind
