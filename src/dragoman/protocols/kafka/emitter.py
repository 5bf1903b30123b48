"""Shared by the emitters of decoders and encoders: source text, names and fixed-width layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from struct import Struct, calcsize
from typing import Final

from dragoman.protocols.kafka import messages
from dragoman.protocols.kafka.notation import (
    FieldSpec,
    MessageSpec,
    StructSpec,
    TypeSpec,
    default_value,
)

#: Struct codes of fixed-width types. Like `?`, Kafka treats any non-zero byte as true.
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
    """Lines of a function under construction, and the objects that its free names refer to."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._indent = 1
        self._counter = 0
        self.namespace: dict[str, object] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A context in which lines are indented one level deeper than `head`."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """An unused local name."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def layout(self, kind: str, codes: str) -> str:
        """A name for the `pack` or `unpack_from` of a big-endian layout. Each layout is one
        object.
        """
        name = f"{kind}_{codes}".replace("?", "o")
        if name not in self.namespace:
            layout = Struct(">" + codes)
            self.namespace[name] = layout.pack if kind == "pack" else layout.unpack_from
        return name

    def constant(self, name: str, value: object) -> str:
        """Bind `name` to `value`."""
        assert self.namespace.setdefault(name, value) is value, name
        return name

    def text(self, head: str) -> str:
        return "\n".join([head, *self._lines, ""])


class Emitter:
    """Base class of the decoder and encoder emitters of a message version."""

    def __init__(self, spec: MessageSpec, version: int) -> None:
        self._spec = spec
        self._version = version
        self._flexible = version >= spec.flexible
        self._what = f"{spec.name} v{version}"
        self._out = SourceText()

    def _compiled(self, function: str, text: str, support: Mapping[str, object]) -> object:
        """Compile the text and return the function of this name; `support` has the globals that it
        uses.
        """
        namespace = self._out.namespace
        namespace.update(support)
        exec(compile(text, f"<{function} of {self._what}>", "exec"), namespace)
        return namespace[function]


class Layouts(dict[int, Callable[..., object]]):
    """By count, the `pack` or `unpack_from` of that many values of one type, created on first
    use.
    """

    #: Layouts of longer arrays are rare, so they are created each time.
    _KEPT_MAX: Final = 64

    def __init__(self, method: str, code: str) -> None:
        super().__init__()
        self._method = method
        self._code = code

    def __missing__(self, count: int) -> Callable[..., object]:
        made: Callable[..., object] = getattr(Struct(f">{count}{self._code}"), self._method)
        if count <= self._KEPT_MAX:
            self[count] = made
        return made


def width(codes: str) -> int:
    return calcsize(">" + codes)


def class_of(struct: StructSpec) -> type[messages.Message]:
    found: type[messages.Message] = getattr(messages, struct.class_name)
    return found


def default_of(source: SourceText, struct: StructSpec, field: FieldSpec) -> str:
    """The default of a field of `struct` as an expression of the emitted code."""
    if field.is_structure_by_default:
        # The same object that the class uses, so that most comparisons are identity tests.
        name = f"DEFAULT_{struct.class_name}_{field.name}"
        return source.constant(name, getattr(class_of(struct)(), field.name))
    return repr(default_value(field))


def tagged_fields(struct: StructSpec, version: int) -> list[FieldSpec]:
    """Fields of the tagged section in this version, by ascending tag."""
    found = [
        field for field in struct.fields if field.tag is not None and version in field.versions
    ]
    return sorted(found, key=lambda field: field.tag or 0)


def size_min(kind: TypeSpec, spec: MessageSpec, version: int) -> int:
    """The minimum encoded size of this type, which bounds an array's count before the array is
    read.
    """
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
        if field.type.kind == "records":
            return True
        if field.inner is not None and has_records(field.inner, version):
            return True
    return False
