"""Generates the encoder of a message version as straight-line Python.

The emitted function appends byte strings to a list that the caller joins once. One call packs
consecutive fixed-width values and the length of the string or array that follows; the empty tagged
section that ends almost every structure is a pad byte in the same call:

    b4 = m3.name.encode()
    n5 = len(b4) + 1
    out += (pack_hB(m3.error_code, n5) if n5 < 128 else pack_h(m3.error_code) + uvarint(n5), b4)

Messages with records have a second list: before large records, the pending parts are joined and
appended to it, followed by the records, which are never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import error as StructError  # noqa: N812
from typing import Final, NoReturn, TypeAlias

from dragoman.errors import EncodeError
from dragoman.limits import KAFKA_RECORDS_INLINE_BYTES_MAX
from dragoman.primitives import UVARINT_BYTE, uvarint
from dragoman.protocols.kafka.emitter import FIXED, Emitter, Layouts, default_of, tagged_fields
from dragoman.protocols.kafka.messages import Message
from dragoman.protocols.kafka.notation import FieldSpec, MessageSpec, StructSpec, TypeSpec
from dragoman.types import Buffer

#: `encode(message, out, buffers)`: `buffers` receives the first parts, and `out` the last ones.
Encoder: TypeAlias = Callable[[Message, list[Buffer], list[Buffer]], None]

#: Exceptions of packing for values of a wrong type or out of range.
FAULTS: Final = (StructError, TypeError, AttributeError, UnicodeEncodeError, OverflowError)


def compile_encoder(spec: MessageSpec, version: int) -> Encoder:
    """The encoder of one version. Takes a millisecond or two."""
    return _EncoderEmitter(spec, version).compile()


class _EncoderEmitter(Emitter):
    def __init__(self, spec: MessageSpec, version: int) -> None:
        super().__init__(spec, version)
        #: Name of the list that parts are appended to; another one inside a tagged field.
        self._target = "out"
        #: Fixed-width values not yet packed: struct code and expression; pad bytes have none.
        self._run: list[tuple[str, str]] = []
        #: Expressions not yet appended.
        self._parts: list[str] = []

    def compile(self) -> Encoder:
        function: Encoder = self._compiled("encode", self.source(), _SUPPORT)  # type: ignore[assignment]
        return function

    def source(self) -> str:
        out = self._out
        with out.block("try:"):
            self._struct(self._spec.struct, "m", self._what)
            self._flush()
            out.line("return")
        with out.block("except FAULTS as error:"):
            out.line(f"raise unfit({self._what!r}, error) from error")
        return out.text("def encode(m, out, buffers):")

    # ---- structures

    def _struct(self, struct: StructSpec, holder: str, path: str) -> None:
        for field in struct.fields:
            if self._version not in field.versions:
                self._check_absent(struct, field, holder, path)
            elif field.tag is None:
                self._field(field, f"{holder}.{field.name}", f"{path}.{field.name}")
        if self._flexible:
            self._tagged_section(struct, holder, path)

    def _check_absent(self, struct: StructSpec, field: FieldSpec, holder: str, path: str) -> None:
        """Emit a check: a value that this version cannot carry must not be dropped silently."""
        if not field.ignorable:
            with self._out.block(f"if {self._differs(struct, field, holder)}:"):
                self._out.line(f"not_in_version({path + '.' + field.name!r})")

    def _differs(self, struct: StructSpec, field: FieldSpec, holder: str) -> str:
        """The condition that the value is not the default."""
        expression = f"{holder}.{field.name}"
        default = default_of(self._out, struct, field)
        if default == "None":
            return f"{expression} is not None"
        if default == "[]":
            return f"({expression} is None or {expression})" if field.nullable else expression
        if field.type.struct is not None:
            return f"({expression} is not {default} and {expression} != {default})"
        return f"{expression} != {default}"

    def _tagged_section(self, struct: StructSpec, holder: str, path: str) -> None:
        fields = tagged_fields(struct, self._version)
        if not fields:
            self._run.append(("x", ""))
            return
        out = self._out
        section = out.fresh("t")
        conditions = [self._differs(struct, field, holder) for field in fields]
        out.line(f"{section} = NO_TAGS")
        with out.block(f"if {' or '.join(conditions)}:"):
            self._filled_section(fields, conditions, holder, path, section)
        self._part(section)

    def _filled_section(
        self, fields: list[FieldSpec], conditions: list[str], holder: str, path: str, section: str
    ) -> None:
        """Emit the slow path: at least one tagged field has a value."""
        out = self._out
        found = out.fresh("g")
        out.line(f"{found} = []")
        for field, condition in zip(fields, conditions, strict=True):
            with out.block(f"if {condition}:"):
                payload = out.fresh("g")
                out.line(f"{payload} = []")
                outer = self._target, self._run, self._parts
                self._target, self._run, self._parts = payload, [], []
                self._field(field, f"{holder}.{field.name}", f"{path}.{field.name}")
                self._flush()
                self._target, self._run, self._parts = outer
                out.line(f"{found}.append(({field.tag}, {payload}))")
        out.line(f"{section} = tagged_section({found})")

    # ---- values

    def _field(self, field: FieldSpec, expression: str, path: str) -> None:
        nullable = field.is_nullable(self._version)
        if field.type.kind in FIXED:
            self._fixed(field.type.kind, expression, path)
        elif field.type.struct is not None:
            self._inner_struct(field.type.struct, expression, path, nullable)
        elif field.type.kind == "records":
            self._records(expression, nullable, path)
        else:
            self._sized(field.type, expression, nullable, path)

    def _fixed(self, kind: str, expression: str, path: str) -> None:
        if kind == "uuid":
            # Packing would pad or cut silently.
            with self._out.block(f"if len({expression}) != 16:"):
                self._out.line(f"wrong_id({path!r}, {expression})")
        self._run.append((FIXED[kind], expression))

    def _inner_struct(self, struct: StructSpec, expression: str, path: str, nullable: bool) -> None:
        out = self._out
        holder = out.fresh("m")
        out.line(f"{holder} = {expression}")
        if not nullable:
            self._struct(struct, holder, path)
            return
        self._flush()
        with out.block(f"if {holder} is None:"):
            out.line(f"{self._target}.append(b'\\xff')")
        with out.block("else:"):
            self._run.append(("b", "1"))
            self._struct(struct, holder, path)
            self._flush()

    def _sized(self, kind: TypeSpec, expression: str, nullable: bool, path: str) -> None:
        """Emit code for a value with a length prefix: string, bytes or array."""
        out = self._out
        value, count = out.fresh("v"), out.fresh("n")
        compact = self._flexible and kind.kind != "str16"
        text = kind.kind in ("str", "str16")
        filled = f"len({value})" + (" + 1" if compact else "")
        bytes_of = f"{expression}.encode()" if text else expression
        if nullable:
            with out.block(f"if {expression} is None:"):
                out.line(f"{count} = {0 if compact else -1}")
                out.line(f"{value} = {'()' if kind.element else 'EMPTY'}")
            with out.block("else:"):
                out.line(f"{value} = {bytes_of}")
                out.line(f"{count} = {filled}")
        else:
            out.line(f"{value} = {bytes_of}")
            out.line(f"{count} = {filled}")
        self._length(count, compact, "h" if text else "i")
        if kind.element is None:
            self._part(value)
        else:
            self._elements(kind.element, value, path)

    def _elements(self, element: TypeSpec, value: str, path: str) -> None:
        out = self._out
        if element.kind in FIXED:
            table = out.constant(f"PACK_{element.kind}", PACKERS[FIXED[element.kind]])
            self._part(f"{table}[len({value})](*{value})")
            return
        self._flush()
        item = out.fresh("m")
        with out.block(f"for {item} in {value}:"):
            if element.struct is not None:
                self._struct(element.struct, item, path)
            else:
                self._sized(element, item, False, path)
            self._flush()

    def _records(self, expression: str, nullable: bool, path: str) -> None:
        out = self._out
        value, count = out.fresh("r"), out.fresh("n")
        out.line(f"{value} = {expression}")
        with out.block(f"if {value} is None:"):
            if nullable:
                out.line(f"{count} = {0 if self._flexible else -1}")
                out.line(f"{value} = EMPTY")
            else:
                out.line(f"not_null({path!r})")
        extra = " + 1" if self._flexible else ""
        with out.block(f"elif type({value}) is tuple:"):
            out.line(f"{count} = sum(map(len, {value})){extra}")
        with out.block("else:"):
            out.line(f"{count} = len({value}){extra}")
        self._length(count, self._flexible, "i")
        self._flush()
        with out.block(f"if {count} > {KAFKA_RECORDS_INLINE_BYTES_MAX}:"):
            out.line(f"buffers.append(join({self._target}))")
            out.line(f"{self._target}.clear()")
            out.line(f"place(buffers, {value})")
        with out.block(f"elif type({value}) is tuple:"):
            out.line(f"{self._target} += {value}")
        with out.block("else:"):
            out.line(f"{self._target}.append({value})")

    # ---- parts

    def _length(self, count: str, compact: bool, code: str) -> None:
        """Append a length to the current run."""
        if not compact:
            self._run.append((code, count))
            return
        if not self._run:
            self._part(f"(UVARINT_BYTE[{count}] if {count} < 128 else uvarint({count}))")
            return
        run, self._run = self._run, []
        short = self._packed([*run, ("B", count)])
        long = f"{self._packed(run)} + uvarint({count})"
        self._parts.append(f"({short} if {count} < 128 else {long})")

    def _packed(self, run: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in run)
        if not codes.strip("x"):
            return repr(bytes(len(codes)))
        values = ", ".join(value for _, value in run if value)
        return f"{self._out.layout('pack', codes)}({values})"

    def _part(self, expression: str) -> None:
        self._close_run()
        self._parts.append(expression)

    def _close_run(self) -> None:
        run, self._run = self._run, []
        if run:
            self._parts.append(self._packed(run))

    def _flush(self) -> None:
        """Emit an append of all pending values."""
        self._close_run()
        parts, self._parts = self._parts, []
        if len(parts) == 1:
            self._out.line(f"{self._target}.append({parts[0]})")
        elif parts:
            self._out.line(f"{self._target} += ({', '.join(parts)})")


# ---- called by emitted code


PACKERS: Final = {code: Layouts("pack", code) for code in ("b", "i", "q")}


def tagged_section(fields: Iterable[tuple[int, list[Buffer]]]) -> bytes:
    """The section for these tags, in ascending order, with the parts of their payloads."""
    parts: list[Buffer] = []
    count = 0
    for tag, payload in fields:
        data = b"".join(payload)
        parts += (uvarint(tag), uvarint(len(data)), data)
        count += 1
    return b"".join((uvarint(count), *parts))


def place(buffers: list[Buffer], records: Buffer | tuple[Buffer, ...]) -> None:
    """Append records to the buffers without copying them."""
    if isinstance(records, tuple):
        buffers.extend(records)
    else:
        buffers.append(records)


def not_in_version(path: str) -> NoReturn:
    raise EncodeError(f"{path} has a value that this version cannot carry")


def not_null(path: str) -> NoReturn:
    raise EncodeError(f"{path} must not be null")


def wrong_id(path: str, value: Buffer) -> NoReturn:
    raise EncodeError(f"{path} has {len(value)} bytes, an id has 16")


def unfit(what: str, error: Exception) -> EncodeError:
    return EncodeError(f"{what} cannot be encoded: {error}")


_SUPPORT: Final[dict[str, object]] = {
    "EMPTY": b"",
    "FAULTS": FAULTS,
    "NO_TAGS": b"\0",
    "UVARINT_BYTE": UVARINT_BYTE,
    "join": b"".join,
    "not_in_version": not_in_version,
    "not_null": not_null,
    "place": place,
    "tagged_section": tagged_section,
    "unfit": unfit,
    "uvarint": uvarint,
    "wrong_id": wrong_id,
}
