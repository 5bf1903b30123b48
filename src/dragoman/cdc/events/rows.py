"""Encoders of whole rows, compiled once for each table.

Names, order and forms of the columns are known with the table. A function is generated for exactly
these and compiled, as for the messages of Kafka; a loop over the columns takes twice as long. The
loop exists, too, for rows with unknown values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from dragoman.errors import CdcError
from dragoman.protocols.postgres.messages import Row, Unchanged
from dragoman.protocols.postgres.values import INLINED, Form, string

#: Encodes a row as JSON. Raises `UnknownValueError`, and `CdcError` for a row of another table.
EncodeRow: TypeAlias = Callable[[Row], bytes]


class Field(msgspec.Struct, frozen=True):
    """A column in events: its index in the row, its name and its form."""

    index: int
    name: str
    form: Form
    #: The text for every row, instead of the value.
    constant: bytes | None = None
    #: The name as JSON, with a colon.
    label: bytes = b""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "label", string(self.name.encode()) + b":")


class UnknownValueError(CdcError):
    """The row has values that an update did not change. `partial` encodes it."""


def compiled(
    fields: Sequence[Field], width: int, opening: bytes = b"{", closing: bytes = b"}"
) -> EncodeRow:
    """An encoder for rows of `width` columns whose values are all known."""
    names: dict[str, object] = {"null": b"null", **INLINED}
    pieces: list[str] = []
    text = opening
    for number, field in enumerate(fields):
        text += (b"," if number else b"") + field.label
        if field.constant is not None:
            text += field.constant
            continue
        names[f"form{number}"] = field.form.to_json
        value = f"c{field.index}"
        written = (field.form.expression or f"form{number}({{0}})").format(value)
        pieces += (repr(text), f"(null if {value} is None else {written})")
        text = b""
    pieces.append(repr(text + closing))
    columns = "".join(f"c{index}, " for index in range(width)) or "()"

    def otherwise(row: Row, error: Exception) -> bytes:
        """Encode a row that the expressions cannot encode, or raise the reason."""
        if any(isinstance(text, Unchanged) for text in row):
            raise UnknownValueError("a value that was not changed is not known") from None
        if len(row) != width:
            raise CdcError(f"a row has {len(row)} columns, its table {width}") from None
        if not isinstance(error, UnicodeDecodeError):
            raise CdcError(f"a row does not fit its table's columns: {error!r}") from error
        return opening + partial(fields, row)[0][1:] + closing

    names["otherwise"] = otherwise
    source = _SOURCE.format(columns=columns, pieces=", ".join(pieces))
    exec(compile(source, "<row>", "exec"), names)
    encode: EncodeRow = names["encode"]  # type: ignore[assignment]
    return encode


_SOURCE = """
def encode(row):
    try:
        {columns} = row
        return b"".join(({pieces},))
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        return otherwise(row, error)
"""


def partial(
    fields: Sequence[Field], row: Row, placeholder: bytes | None = None
) -> tuple[bytes, list[str]]:
    """The object without its closing brace, and the columns whose values are not known. They are
    left out, or get the placeholder.
    """
    pieces, missing = [], []
    for field in fields:
        text = None if field.constant is not None else row[field.index]
        if isinstance(text, Unchanged):
            missing.append(field.name)
            if placeholder is None:
                continue
            shown = placeholder
        elif field.constant is not None:
            shown = field.constant
        else:
            shown = b"null" if text is None else field.form.to_json(text)
        pieces.append(field.label + shown)
    return b"{" + b",".join(pieces), missing
