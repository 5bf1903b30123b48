"""Parses the notation of `schema.py` into message specifications.

A specification is parsed on first use, so that starting the broker costs only one pass over the
table's lines. Version ranges of nested fields are intersected with those of the enclosing
structures: after parsing, a field's range is the set of message versions that have it on the wire.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.protocols.kafka.schema import TABLE

Direction: TypeAlias = Literal["Request", "Response", ""]

PRIMITIVES: Final = frozenset(
    ("i8", "i16", "i32", "i64", "u16", "f64", "bool", "uuid", "str", "str16", "bytes", "records")
)
#: The value on the wire for a missing topic id, directory id or client instance id.
NO_ID: Final = bytes(16)
_DEFAULTS: Final[dict[str, object]] = {
    "bool": False,
    "f64": 0.0,
    "uuid": NO_ID,
    "str": "",
    "str16": "",
    "bytes": b"",
    "records": None,
    "array": [],
}


class Versions(msgspec.Struct, frozen=True):
    """An inclusive range; empty when `low > high`."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def intersect(self, text: str) -> Versions:
        """The intersection with the range `5`, `5+` or `5-7`."""
        low, _, high = text.removesuffix("+").partition("-")
        top = self.high if text.endswith("+") else int(high or low)
        return Versions(max(self.low, int(low)), min(self.high, top))


class TypeSpec(msgspec.Struct, frozen=True):
    """`kind` is a primitive's name, `array` (with `element`) or `struct` (with `struct`)."""

    kind: str
    element: TypeSpec | None = None
    struct: StructSpec | None = None


class FieldSpec(msgspec.Struct, frozen=True, kw_only=True):
    #: The attribute's name, in snake case.
    name: str
    type: TypeSpec
    versions: Versions
    nullable: Versions | None = None
    tag: int | None = None
    #: As written in the table; None if the type's default applies.
    default: str | None = None
    #: Whether a value may be dropped when the version lacks the field.
    ignorable: bool = False

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable

    @property
    def inner(self) -> StructSpec | None:
        """The structure of this field, or of its array's elements."""
        return (self.type.element or self.type).struct

    @property
    def is_structure_by_default(self) -> bool:
        return self.type.struct is not None and self.default != "null"


class StructSpec(msgspec.Struct, frozen=True):
    class_name: str
    fields: tuple[FieldSpec, ...]


class MessageSpec(msgspec.Struct, frozen=True, kw_only=True):
    #: -1 for structures that have no key.
    api_key: int
    direction: Direction
    versions: Versions
    #: First flexible version; above the valid range if there is none.
    flexible: int
    struct: StructSpec

    @property
    def name(self) -> str:
        return self.struct.class_name


class _Entry(msgspec.Struct, frozen=True):
    """A message of the table whose fields are not parsed yet."""

    api_key: int
    direction: Direction
    versions: Versions
    flexible: int
    text: str


def _index() -> dict[str, _Entry]:
    """Table entries by message name, in the table's order."""
    entries: dict[str, _Entry] = {}
    directions: dict[str, Direction] = {"Q": "Request", "R": "Response", "D": ""}
    key, name, versions, flexible = -1, "", Versions(0, -1), 0
    for line in TABLE.splitlines():
        first, _, rest = line.partition(" ")
        direction = directions.get(first)
        if direction is None:
            name, span, _, flex = rest.split(" ")
            key = -1 if first == "-" else int(first)
            low, _, high = span.partition("-")
            versions = Versions(int(low), int(high))
            flexible = versions.high + 1 if flex == "none" else int(flex)
        else:
            entries[name + direction] = _Entry(key, direction, versions, flexible, rest)
    return entries


_ENTRIES: Final = _index()
_NAME_OF: Final = {(entry.api_key, entry.direction): name for name, entry in _ENTRIES.items()}


def message_names() -> list[str]:
    """Class names of all messages, in the table's order."""
    return list(_ENTRIES)


def name_of(api_key: int, direction: Direction) -> str | None:
    """Class name of an API's request or response; None if the table lacks it."""
    return _NAME_OF.get((api_key, direction))


def name_of_message_with(class_name: str) -> str | None:
    """The message that has a structure of this name. The structure's name starts with the
    message's.
    """
    ends = range(len(class_name), 0, -1)
    return next((class_name[:end] for end in ends if class_name[:end] in _ENTRIES), None)


def versions_of(name: str) -> Versions:
    """Valid versions, without parsing the fields."""
    return _ENTRIES[name].versions


def is_flexible(name: str, version: int) -> bool:
    """Whether this version uses compact encodings and tagged sections."""
    return version >= _ENTRIES[name].flexible


@cache
def message(name: str) -> MessageSpec:
    entry = _ENTRIES[name]
    fields = _Parser(entry.text, name).message_fields(entry.versions)
    return MessageSpec(
        api_key=entry.api_key,
        direction=entry.direction,
        versions=entry.versions,
        flexible=entry.flexible,
        struct=StructSpec(name, fields),
    )


def snake_case(name: str) -> str:
    """`TimeoutMs` to `timeout_ms`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def default_value(field: FieldSpec) -> object:
    """A field's default. A structure has a default of its own."""
    if field.default == "null":
        return None
    if field.default is not None:
        return field.default == "true" if field.type.kind == "bool" else int(field.default)
    return _DEFAULTS.get(field.type.kind, 0)


_TOKEN: Final = re.compile(r"[\[\]{}:;]|[^\s\[\]{}:;]+")
#: Versions follow a type in the notation but limit the fields inside it, so a type is built only
#: after they are parsed.
_BuildType: TypeAlias = Callable[[Versions], TypeSpec]
_BuildField: TypeAlias = Callable[[Versions], FieldSpec]


class _Parser:
    """A recursive-descent parser for one line. The table is part of the program, so an error in it
    is an assertion failure.
    """

    def __init__(self, text: str, message_name: str) -> None:
        self._tokens = deque(_TOKEN.findall(text))
        self._message_name = message_name

    def message_fields(self, versions: Versions) -> tuple[FieldSpec, ...]:
        fields = self._fields()
        assert not self._tokens, self._where()
        return tuple(build(versions) for build in fields)

    def _fields(self) -> list[_BuildField]:
        fields = [self._field()]
        while self._takes(";"):
            fields.append(self._field())
        return fields

    def _field(self) -> _BuildField:
        name = snake_case(self._tokens.popleft())
        assert self._takes(":"), self._where()
        build_type = self._type()
        attributes = []
        while self._tokens and self._tokens[0] not in ";]}":
            attributes.append(self._tokens.popleft())
        return lambda enclosing: _described(name, build_type, attributes, enclosing)

    def _type(self) -> _BuildType:
        word = self._tokens.popleft()
        if word == "[":
            element = self._type()
            assert self._takes("]"), self._where()
            return lambda versions: TypeSpec("array", element=element(versions))
        if self._takes("{"):
            fields = self._fields()
            assert self._takes("}"), self._where()
            return lambda versions: TypeSpec(
                "struct",
                struct=StructSpec(
                    self._message_name + word, tuple(build(versions) for build in fields)
                ),
            )
        assert word in PRIMITIVES, self._where()
        return lambda _: TypeSpec(word)

    def _takes(self, token: str) -> bool:
        if not self._tokens or self._tokens[0] != token:
            return False
        self._tokens.popleft()
        return True

    def _where(self) -> str:
        return f"schema of {self._message_name} before {list(self._tokens)[:8]}"


def _described(
    name: str, build_type: _BuildType, attributes: list[str], enclosing: Versions
) -> FieldSpec:
    versions = enclosing
    for attribute in attributes:
        if attribute[0] == "v":
            versions = enclosing.intersect(attribute[1:])
    nullable: Versions | None = None
    tag: int | None = None
    default: str | None = None
    for attribute in attributes:
        if attribute.startswith("null"):
            nullable = versions.intersect(attribute[4:]) if attribute[4:] else versions
        elif attribute.startswith("tag"):
            tag = int(attribute[3:])
        elif attribute.startswith("="):
            default = attribute[1:]
    if default == "null" and nullable is None:
        nullable = versions
    return FieldSpec(
        name=name,
        type=build_type(versions),
        versions=versions,
        nullable=nullable,
        tag=tag,
        default=default,
        ignorable="~" in attributes,
    )
