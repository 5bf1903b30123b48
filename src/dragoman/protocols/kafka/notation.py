"""Reads the notation of `schema.py` into message specifications.

A specification is parsed when it is first asked for, so that starting the broker costs one pass
over the table's lines. Version ranges of nested fields are intersected with those of everything
around them: after parsing, a field's range is the set of message versions that have it on the wire.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.protocols.kafka.schema import TABLE

Direction: TypeAlias = Literal["Request", "Response", ""]

PRIMITIVES: Final = frozenset(
    ("i8", "i16", "i32", "i64", "u16", "f64", "bool", "uuid", "str", "str16", "bytes", "records")
)
_DEFAULTS: Final = {
    "bool": "False",
    "f64": "0.0",
    "uuid": "NO_ID",
    "str": '""',
    "str16": '""',
    "bytes": 'b""',
    "records": "None",
    "array": "[]",
}


class Versions(msgspec.Struct, frozen=True):
    """An inclusive range; empty when `low > high`."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def intersect(self, text: str) -> Versions:
        """The part of this range that `5`, `5+` or `5-7` names."""
        low, _, high = text.removesuffix("+").partition("-")
        top = self.high if text.endswith("+") else int(high or low)
        return Versions(max(self.low, int(low)), min(self.high, top))


class TypeSpec(msgspec.Struct, frozen=True):
    """`kind` is a primitive's name, `array` (with `element`) or `struct` (with `struct`)."""

    kind: str
    element: TypeSpec | None = None
    struct: StructSpec | None = None


class FieldSpec(msgspec.Struct, frozen=True, kw_only=True):
    #: Snake case, the attribute's name.
    name: str
    type: TypeSpec
    versions: Versions
    nullable: Versions | None = None
    tag: int | None = None
    #: As written in the table; None where the type's own default applies.
    default: str | None = None
    #: Whether a value may be dropped when the version lacks the field.
    ignorable: bool = False

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable


class StructSpec(msgspec.Struct, frozen=True):
    class_name: str
    fields: tuple[FieldSpec, ...]


class MessageSpec(msgspec.Struct, frozen=True, kw_only=True):
    #: -1 for structures that have no key.
    api_key: int
    direction: Direction
    versions: Versions
    #: First flexible version; above the valid range when there is none.
    flexible: int
    struct: StructSpec

    @property
    def name(self) -> str:
        return self.struct.class_name


class _Entry(msgspec.Struct, frozen=True):
    """One message of the table before its fields are parsed."""

    api_key: int
    direction: Direction
    versions: Versions
    flexible: int
    text: str


def _index() -> dict[str, _Entry]:
    """Message name to table entry, in the table's order."""
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
    """Class name of an API's request or response; None when the table does not have it."""
    return _NAME_OF.get((api_key, direction))


def versions_of(name: str) -> Versions:
    """Valid versions, without parsing the fields."""
    return _ENTRIES[name].versions


def is_flexible(name: str, version: int) -> bool:
    """Whether this version uses compact encodings and tagged sections."""
    return version >= _ENTRIES[name].flexible


@cache
def message(name: str) -> MessageSpec:
    entry = _ENTRIES[name]
    parser = _Parser(entry.text, name)
    fields = parser.fields(entry.versions)
    parser.expect_end()
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


def default_text(field: FieldSpec) -> str:
    """A field's default as Python source, for `messages.py` and for the compiled codecs."""
    if field.default == "null":
        return "None"
    if field.type.struct is not None:
        return f"{field.type.struct.class_name}()"
    if field.default is not None:
        return field.default.capitalize() if field.type.kind == "bool" else field.default
    return _DEFAULTS.get(field.type.kind, "0")


class _Parser:
    """Recursive descent over one line. The table is ours, so a mistake in it is an assertion."""

    _WORD = re.compile(r"\w+")
    _ATTRIBUTE = re.compile(r" ([^ ;\]}]+)")

    def __init__(self, text: str, message_name: str) -> None:
        self._text = text
        self._message_name = message_name
        self._position = 0

    def fields(self, enclosing: Versions) -> tuple[FieldSpec, ...]:
        fields = [self._field(enclosing)]
        while self._text.startswith("; ", self._position):
            self._position += 2
            fields.append(self._field(enclosing))
        return tuple(fields)

    def expect_end(self) -> None:
        assert self._position == len(self._text), self._where()

    def _field(self, enclosing: Versions) -> FieldSpec:
        name = self._word()
        self._expect(":")
        versions = enclosing
        start = self._position
        # The versions stand after the type and yet bound those inside it: look ahead, then parse.
        self._skip_type()
        attributes = self._attributes()
        end = self._position
        for attribute in attributes:
            if attribute[0] == "v":
                versions = enclosing.intersect(attribute[1:])
        self._position = start
        kind = self._type(versions)
        self._position = end
        return self._described(snake_case(name), kind, versions, attributes)

    @staticmethod
    def _described(
        name: str, kind: TypeSpec, versions: Versions, attributes: list[str]
    ) -> FieldSpec:
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
            type=kind,
            versions=versions,
            nullable=nullable,
            tag=tag,
            default=default,
            ignorable="~" in attributes,
        )

    def _type(self, versions: Versions) -> TypeSpec:
        if self._text.startswith("[", self._position):
            self._position += 1
            element = self._type(versions)
            self._expect("]")
            return TypeSpec("array", element=element)
        word = self._word()
        if self._text.startswith("{", self._position):
            self._position += 1
            fields = self.fields(versions)
            self._expect("}")
            return TypeSpec("struct", struct=StructSpec(self._message_name + word, fields))
        assert word in PRIMITIVES, self._where()
        return TypeSpec(word)

    def _skip_type(self) -> None:
        depth = 0
        for position in range(self._position, len(self._text)):
            character = self._text[position]
            if character in "[{":
                depth += 1
            elif character in "]}" and depth:
                depth -= 1
            elif not depth and character in " ;]}":
                self._position = position
                return
        self._position = len(self._text)

    def _attributes(self) -> list[str]:
        found = []
        while match := self._ATTRIBUTE.match(self._text, self._position):
            found.append(match[1])
            self._position = match.end()
        return found

    def _word(self) -> str:
        match = self._WORD.match(self._text, self._position)
        assert match is not None, self._where()
        self._position = match.end()
        return match[0]

    def _expect(self, text: str) -> None:
        assert self._text.startswith(text, self._position), self._where()
        self._position += len(text)

    def _where(self) -> str:
        return f"schema of {self._message_name} at {self._text[self._position :][:40]!r}"
