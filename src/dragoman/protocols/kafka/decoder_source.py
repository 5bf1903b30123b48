"""Generates the decoder of a message version as straight-line Python.

The emitted function walks the frame with a position `p`. One call unpacks consecutive fields of
fixed width, and the length of the string or array that follows, since that has a fixed width, too
(in compact encodings its first byte, which is rarely followed by more):

    i4, n5 = unpack_iB(d, p)
    p += 5
    if n5 > 127:
        n5, p = rest_of_uvarint(d, p, n5)

Safety: unpacking and indexing beyond the frame raise an exception, which becomes `DecodeError` at
the end of the function. Slicing does not, so every length is compared with the remaining bytes
before it is used. An array's count is bounded by the remaining bytes divided by an element's
minimum size. `bounds.py` bounds the sum of all counts of a message, tagged fields included: `left`
is the number of elements that are still allowed. Records are views of the frame; strings and byte
fields are copies.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError  # noqa: N812
from typing import Final, NoReturn, TypeAlias

from dragoman.errors import DecodeError
from dragoman.primitives import read_uvarint
from dragoman.protocols.kafka.bounds import bound_of
from dragoman.protocols.kafka.emitter import (
    FIXED,
    Emitter,
    Layouts,
    class_of,
    default_of,
    has_records,
    size_min,
    tagged_fields,
    width,
)
from dragoman.protocols.kafka.errors import OversizedMessageError
from dragoman.protocols.kafka.messages import Message
from dragoman.protocols.kafka.notation import FieldSpec, MessageSpec, StructSpec, TypeSpec

#: `decode(data, position) -> message`: reads from `position` to the end of `data`.
Decoder: TypeAlias = Callable[[bytes | bytearray, int], Message]

#: Exceptions of indexing, unpacking and decoding on malformed bytes.
FAULTS: Final = (IndexError, StructError, UnicodeDecodeError)

#: By kind, the expression that extracts a value from the frame; strings are decoded.
_TAKEN: Final = {"records": "view[p:{}]", "bytes": "bytes(d[p:{}])"}
_EMPTY: Final = {"records": "view[p:p]", "bytes": "b''"}


def compile_decoder(spec: MessageSpec, version: int) -> Decoder:
    """The decoder of one version. Takes a millisecond or two."""
    return _DecoderEmitter(spec, version).compile()


class _DecoderEmitter(Emitter):
    def __init__(self, spec: MessageSpec, version: int) -> None:
        super().__init__(spec, version)
        #: Fixed-width values not yet unpacked: struct code and local name.
        self._run: list[tuple[str, str]] = []

    def compile(self) -> Decoder:
        function: Decoder = self._compiled("decode", self.source(), _SUPPORT)  # type: ignore[assignment]
        return function

    def source(self) -> str:
        out = self._out
        out.line("size = len(d)")
        if has_records(self._spec.struct, self._version):
            out.line("view = memoryview(d)")
        out.line(f"left = {bound_of(self._spec.name).items_max}")
        with out.block("try:"):
            result = self._struct(self._spec.struct, self._what)
            # Bytes after a request are ignored, as in Kafka: librdkafka 2.16 writes four bytes
            # instead of one for the null array of a Metadata request for all topics. Structures
            # without a key are embedded in a field and may have a newer version, of which readers
            # ignore unknown fields.
            if self._spec.direction == "Response":
                with out.block("if p != size:"):
                    out.line(f"left_over({self._what!r}, p, size)")
            out.line(f"return {result}")
        with out.block("except FAULTS as error:"):
            out.line(f"raise malformed({self._what!r}, p, error) from None")
        return out.text("def decode(d, p):")

    # ---- structures

    def _struct(self, struct: StructSpec, path: str) -> str:
        """Emit code that reads all fields; returns the constructor call."""
        values: dict[str, str] = {}
        for field in struct.fields:
            if self._version in field.versions and field.tag is None:
                values[field.name] = self._field(field, f"{path}.{field.name}")
        if self._flexible:
            values.update(self._tagged_section(struct, path))
        self._flush()
        return self._construct(struct, values)

    def _construct(self, struct: StructSpec, values: dict[str, str]) -> str:
        """A positional constructor call, which is the fastest; trailing defaults are left to the
        class.
        """
        arguments: list[str] = []
        for field in reversed(struct.fields):
            if field.name in values:
                arguments.append(values[field.name])
            elif arguments:
                arguments.append(default_of(self._out, struct, field))
        self._out.namespace[struct.class_name] = class_of(struct)
        return f"{struct.class_name}({', '.join(reversed(arguments))})"

    def _tagged_section(self, struct: StructSpec, path: str) -> dict[str, str]:
        out = self._out
        fields = tagged_fields(struct, self._version)
        values = {field.name: out.fresh("t") for field in fields}
        count = self._fixed("B")
        self._flush()
        for field in fields:
            out.line(f"{values[field.name]} = {default_of(out, struct, field)}")
        with out.block(f"if {count}:"):
            if fields:
                self._known_tags(fields, values, count, path)
            else:
                out.line(f"p, left = skip_tags(d, p, {count}, {path!r}, left)")
        return values

    def _known_tags(
        self, fields: list[FieldSpec], values: dict[str, str], count: str, path: str
    ) -> None:
        out = self._out
        tag, last, end = out.fresh("g"), out.fresh("g"), out.fresh("e")
        with out.block(f"if {count} > 127:"):
            out.line(f"{count}, p = rest_of_uvarint(d, p, {count})")
        self._count(count, path)
        out.line(f"{last} = -1")
        with out.block(f"for _ in range({count}):"):
            out.line(f"{tag}, {end}, p = tag_header(d, p, {last}, {path!r})")
            out.line(f"{last} = {tag}")
            word = "if"
            for field in fields:
                with out.block(f"{word} {tag} == {field.tag}:"):
                    value = self._field(field, f"{path}.{field.name}")
                    self._flush()
                    out.line(f"{values[field.name]} = {value}")
                word = "elif"
            with out.block("else:"):
                out.line(f"p = {end}")
            with out.block(f"if p != {end}:"):
                out.line(f"wrong_tag_size({path!r}, {tag}, p, {end})")

    # ---- values

    def _field(self, field: FieldSpec, path: str) -> str:
        """Emit code that reads a value; returns the variable that holds it."""
        nullable = field.is_nullable(self._version)
        if field.type.kind in FIXED:
            return self._fixed(FIXED[field.type.kind])
        if field.type.struct is not None:
            return self._inner_struct(field.type.struct, path, nullable)
        return self._sized(field.type, path, nullable)

    def _inner_struct(self, struct: StructSpec, path: str, nullable: bool) -> str:
        out = self._out
        value = out.fresh("s")
        if not nullable:
            out.line(f"{value} = {self._struct(struct, path)}")
            return value
        presence = self._fixed("b")
        self._flush()
        out.line(f"{value} = None")
        with out.block(f"if {presence} >= 0:"):
            out.line(f"{value} = {self._struct(struct, path)}")
        return value

    def _sized(self, kind: TypeSpec, path: str, nullable: bool) -> str:
        """Emit code that reads a value with a length prefix: string, bytes, records or array.

        The emptiness check comes second and is nearly free; many fields are empty.
        """
        out = self._out
        count = self._length(kind)
        value = out.fresh("v")
        if kind.element is not None:
            out.line(f"{value} = []")
        with out.block(f"if {count} > 0:"):
            if kind.element is not None:
                self._array(kind.element, path, count, value)
            else:
                self._content(kind, path, count, value)
        if kind.element is None:
            with out.block(f"elif {count} == 0:"):
                out.line(f"{value} = {_EMPTY.get(kind.kind, repr(''))}")
        if nullable:
            with out.block(f"elif {count} == -1:"):
                out.line(f"{value} = None")
        with out.block("else:" if kind.element is None else f"elif {count} < 0:"):
            out.line(f"wrong_length({path!r}, {count}, p, size)")
        return value

    def _content(self, kind: TypeSpec, path: str, count: str, value: str) -> None:
        out = self._out
        end = out.fresh("e")
        out.line(f"{end} = p + {count}")
        with out.block(f"if {end} > size:"):
            out.line(f"wrong_length({path!r}, {count}, p, size)")
        out.line(f"{value} = {_TAKEN.get(kind.kind, 'd[p:{}].decode()').format(end)}")
        out.line(f"p = {end}")

    def _array(self, element: TypeSpec, path: str, count: str, value: str) -> None:
        out = self._out
        smallest = size_min(element, self._spec, self._version)
        with out.block(f"if {count} * {smallest} > size - p:"):
            out.line(f"wrong_length({path!r}, {count}, p, size)")
        self._count(count, path)
        if element.kind in FIXED:
            code = FIXED[element.kind]
            table = out.constant(f"UNPACK_{element.kind}", UNPACKERS[code])
            out.line(f"{value} = list({table}[{count}](d, p))")
            out.line(f"p += {count} * {width(code)}")
            return
        with out.block(f"for _ in range({count}):"):
            item = self._element(element, path)
            out.line(f"{value}.append({item})")

    def _count(self, count: str, path: str) -> None:
        """Emit a check of the number of elements that the message may still have."""
        self._out.line(f"left -= {count}")
        with self._out.block("if left < 0:"):
            self._out.line(f"too_many_items({path!r}, p)")

    def _element(self, element: TypeSpec, path: str) -> str:
        if element.struct is not None:
            return self._struct(element.struct, path)
        return self._sized(element, path, nullable=False)

    # ---- integers

    def _fixed(self, code: str) -> str:
        name = self._out.fresh("i")
        self._run.append((code, name))
        return name

    def _length(self, kind: TypeSpec) -> str:
        """Emit code that reads a length or count; null is -1 in every encoding."""
        if self._flexible and kind.kind != "str16":
            name = self._fixed("B")
            self._flush()
            with self._out.block(f"if {name} > 127:"):
                self._out.line(f"{name}, p = rest_of_uvarint(d, p, {name})")
            self._out.line(f"{name} -= 1")
            return name
        name = self._fixed("h" if kind.kind in ("str", "str16") else "i")
        self._flush()
        return name

    def _flush(self) -> None:
        """Emit one unpack call for all pending values."""
        run, self._run = self._run, []
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if codes == "B":
            self._out.line(f"{run[0][1]} = d[p]")
        else:
            names = "".join(f"{name}, " for _, name in run).strip()
            names = names if len(run) == 1 else names.removesuffix(",")
            self._out.line(f"{names} = {self._out.layout('unpack', codes)}(d, p)")
        self._out.line(f"p += {width(codes)}")


# ---- called by emitted code


UNPACKERS: Final = {code: Layouts("unpack_from", code) for code in ("b", "i", "q")}


def rest_of_uvarint(data: bytes | bytearray, position: int, first: int) -> tuple[int, int]:
    """The value of a varint whose first byte was read and announces more bytes.

    The cases of two and three bytes are unrolled: they cover records up to 2 MiB.
    """
    second = data[position]
    if second < 128:
        return first - 128 + (second << 7), position + 1
    third = data[position + 1]
    if third < 128:
        return first - 128 + (second - 128 << 7) + (third << 14), position + 2
    return read_uvarint(data, position - 1)


def tag_header(
    data: bytes | bytearray, position: int, last: int, path: str
) -> tuple[int, int, int]:
    """Tag, end of its payload, and start of its payload."""
    tag, position = read_uvarint(data, position)
    if tag <= last:
        raise DecodeError(f"{path}: tag {tag} after tag {last} at byte {position}")
    size, position = read_uvarint(data, position)
    end = position + size
    if end > len(data):
        wrong_length(f"{path} tag {tag}", size, position, len(data))
    return tag, end, position


def skip_tags(
    data: bytes | bytearray, position: int, first: int, path: str, left: int
) -> tuple[int, int]:
    """Skip a tagged section with unknown tags. Returns the position after it, and how many of the
    `left` elements are still allowed.
    """
    count = first
    if first > 127:
        count, position = rest_of_uvarint(data, position, first)
    if count > left:
        too_many_items(path, position)
    last = -1
    for _ in range(count):
        last, position, _ = tag_header(data, position, last, path)
    return position, left - count


def wrong_length(path: str, length: int, position: int, size: int) -> NoReturn:
    if length == -1:
        raise DecodeError(f"{path} is null at byte {position}, which this version does not allow")
    raise DecodeError(
        f"{path}: length {length} at byte {position}, {size - position} bytes are left"
    )


def wrong_tag_size(path: str, tag: int, position: int, end: int) -> NoReturn:
    raise DecodeError(
        f"{path}: tag {tag} ends at byte {position} and was announced to end at {end}"
    )


def too_many_items(path: str, position: int) -> NoReturn:
    name, _, version = path.partition(" v")
    bound = f" ({bound_of(name).items_max} at most)" if version else ""
    raise OversizedMessageError(f"{path} at byte {position}: too many items in one message{bound}")


def left_over(what: str, position: int, size: int) -> NoReturn:
    raise DecodeError(f"{what}: {size - position} bytes left over at byte {position}")


def malformed(what: str, position: int, error: Exception) -> DecodeError:
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"{what}: text at byte {position} is not UTF-8")
    return DecodeError(f"{what} is cut off at byte {position}")


_SUPPORT: Final[dict[str, object]] = {
    "FAULTS": FAULTS,
    "left_over": left_over,
    "malformed": malformed,
    "rest_of_uvarint": rest_of_uvarint,
    "skip_tags": skip_tags,
    "tag_header": tag_header,
    "too_many_items": too_many_items,
    "wrong_length": wrong_length,
    "wrong_tag_size": wrong_tag_size,
}
