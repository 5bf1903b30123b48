"""Generates `messages.pyi` from the schema table.

    python -m dragoman.protocols.kafka.generate > src/dragoman/protocols/kafka/messages.pyi

The stub is checked in for type checkers and editors; a test compares it with the generated text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from dragoman.protocols.kafka import notation
from dragoman.protocols.kafka.notation import (
    FieldSpec,
    MessageSpec,
    StructSpec,
    TypeSpec,
    Versions,
    default_value,
)

_HEAD = '''\
"""Kafka's messages as values. Made from `schema.py` by `generate.py`: change those, not this.

One class per structure, for all versions. A comment gives the versions that have a field, where
that is not all of those that have its structure. In others it keeps its default when decoded, and a
value that is not the default cannot be encoded, unless the comment says `else dropped`. Fields are
in wire order and best given by keyword.

`records` is never copied. Decoded, it is a view of the frame. To be encoded, a response's may also
be a tuple of buffers, sent one after the other.
"""

import msgspec

from dragoman.protocols.kafka.notation import NO_ID as NO_ID
from dragoman.types import Buffer

class Message(msgspec.Struct, frozen=True, gc=False): ...
'''

_ANNOTATIONS = {
    "bool": "bool",
    "f64": "float",
    "uuid": "bytes",
    "str": "str",
    "str16": "str",
    "bytes": "bytes",
}


def render() -> str:
    """The text of `messages.pyi`."""
    seen: dict[str, str] = {}
    for name in notation.message_names():
        spec = notation.message(name)
        for struct, versions in _structs(spec.struct, spec.versions):
            text = _class(spec, struct, versions)
            # A structure may occur twice in a message; both must be the same.
            assert seen.setdefault(struct.class_name, text) == text, struct.class_name
    return _HEAD + "".join(seen.values())


def _structs(struct: StructSpec, versions: Versions) -> Iterator[tuple[StructSpec, Versions]]:
    """Structures of a message and the versions that have them, inner before outer."""
    for field in struct.fields:
        if field.inner is not None:
            yield from _structs(field.inner, field.versions)
    yield struct, versions


def _class(spec: MessageSpec, struct: StructSpec, versions: Versions) -> str:
    lines = ["", f"class {struct.class_name}(Message, frozen=True):"]
    if struct is spec.struct:
        lines += [f'    """{_title(spec)}"""', ""]
    for field in struct.fields:
        note = _note(field, versions)
        line = f"    {field.name}: {_annotation(spec, field)} = {_default(field)}"
        lines.append(f"{line}  # {note}" if note else line)
    return "\n".join(lines) + "\n"


def _default(field: FieldSpec) -> str:
    if field.is_structure_by_default or field.type.kind == "uuid":
        return "..."
    return repr(default_value(field)).replace("'", '"')


def _title(spec: MessageSpec) -> str:
    low, high = spec.versions.low, spec.versions.high
    versions = f"version {low}" if low == high else f"versions {low}-{high}"
    if spec.api_key < 0:
        return f"No key, {versions}."
    return f"Key {spec.api_key}, {versions}."


def _annotation(spec: MessageSpec, field: FieldSpec) -> str:
    if field.type.kind == "records":
        gathered = " | tuple[Buffer, ...]" if spec.direction == "Response" else ""
        return f"Buffer{gathered} | None"
    text = _type_text(field.type)
    return f"{text} | None" if field.nullable is not None else text


def _type_text(kind: TypeSpec) -> str:
    if kind.element is not None:
        return f"list[{_type_text(kind.element)}]"
    if kind.struct is not None:
        return kind.struct.class_name
    return _ANNOTATIONS.get(kind.kind, "int")


def _note(field: FieldSpec, enclosing: Versions) -> str:
    if field.versions == enclosing:
        return ""
    return _range(field.versions, enclosing) + (", else dropped" if field.ignorable else "")


def _range(versions: Versions, enclosing: Versions) -> str:
    if versions.high == enclosing.high:
        return f"{versions.low}+"
    return f"{versions.low}-{versions.high}" if versions.low < versions.high else f"{versions.low}"


if __name__ == "__main__":
    sys.stdout.write(render())
