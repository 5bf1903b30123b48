"""What the decoder and the encoder emitters share: source text, names and fixed-width layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct, calcsize
from typing import Final

from dragoman.protocols.kafka import messages
from dragoman.protocols.kafka.notation import (
    FieldSpec,
    MessageSpec,
    StructSpec,
    TypeSpec,
    default_text,
)

#: Struct codes of the types whose width does not depend on the value. Kafka takes any non-zero byte
#: for true, which is what `?` does.
FIXED: Final = {
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u16": "H",
    "f64": "d",
    "bool": "?",
    "uuid": "16s",
}


class SourceText:
    """Lines of a function under construction, and the objects its free names stand for."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._indent = 1
        self._counter = 0
        self.namespace: dict[str, object] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Everything written inside is one level deeper than `head`."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """A local name that nothing else uses."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def layout(self, kind: str, codes: str) -> str:
        """A name for the `pack` or `unpack_from` of a big-endian layout; one object per layout."""
        name = f"{kind}_{codes}".replace("?", "o")
        if name not in self.namespace:
            layout = Struct(">" + codes)
            self.namespace[name] = layout.pack if kind == "pack" else layout.unpack_from
        return name

    def constant(self, name: str, value: object) -> str:
        """Let `name` stand for `value`."""
        assert self.namespace.setdefault(name, value) is value, name
        return name

    def text(self, head: str) -> str:
        return "\n".join([head, *self._lines, ""])


def width(codes: str) -> int:
    return calcsize(">" + codes)


def class_of(struct: StructSpec) -> type[messages.Message]:
    found: type[messages.Message] = getattr(messages, struct.class_name)
    return found


def default_of(source: SourceText, struct: StructSpec, field: FieldSpec) -> str:
    """The default of a field of `struct` as an expression of the emitted code."""
    if field.type.struct is not None and field.default != "null":
        # The very object that the class uses, so that comparing is mostly an identity test.
        name = f"DEFAULT_{struct.class_name}_{field.name}"
        return source.constant(name, getattr(class_of(struct)(), field.name))
    if field.type.kind == "uuid":
        return source.constant("NO_ID", messages.NO_ID)
    return default_text(field)


def tagged_fields(struct: StructSpec, version: int) -> list[FieldSpec]:
    """Fields of the tagged section in this version, by ascending tag."""
    found = [
        field for field in struct.fields if field.tag is not None and version in field.versions
    ]
    return sorted(found, key=lambda field: field.tag or 0)


def size_min(kind: TypeSpec, spec: MessageSpec, version: int) -> int:
    """The fewest bytes a value of this type takes; what caps an array's count before it is read."""
    flexible = version >= spec.flexible
    if kind.struct is not None:
        fields = [f for f in kind.struct.fields if version in f.versions and f.tag is None]
        sizes = (size_min_field(field, spec, version) for field in fields)
        return sum(sizes) + (1 if flexible else 0)
    if kind.kind in FIXED:
        return width(FIXED[kind.kind])
    if kind.kind == "str16" or (kind.kind == "str" and not flexible):
        return 2
    return 1 if flexible else 4


def size_min_field(field: FieldSpec, spec: MessageSpec, version: int) -> int:
    if field.type.struct is not None and field.is_nullable(version):
        return 1
    return size_min(field.type, spec, version)


def has_records(struct: StructSpec, version: int) -> bool:
    """Whether any field of this version carries record batches."""
    for field in struct.fields:
        if version not in field.versions:
            continue
        inner = field.type.element or field.type
        if inner.kind == "records":
            return True
        if inner.struct is not None and has_records(inner.struct, version):
            return True
    return False
