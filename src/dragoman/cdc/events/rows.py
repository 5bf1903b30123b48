"""Encoders of whole rows, made once for each table.

What a row becomes is known when its table is: names, order and forms of its columns. A function is
written for exactly that and compiled, as is done for Kafka's messages; a loop over the columns
takes twice as long. The loop is still here, for rows with values that are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from dragoman.errors import CdcError
from dragoman.protocols.postgres.messages import Row, Unchanged
from dragoman.protocols.postgres.values import INLINED, Form, string

#: A row to JSON. Raises `UnknownValueError`, and `CdcError` for a row of another table.
EncodeRow: TypeAlias = Callable[[Row], bytes]


class Field(msgspec.Struct, frozen=True):
    """A column that is shown: its place in the row, its name and how it is written."""

    index: int
    name: str
    form: Form
    #: Not shown at all: the same for every row.
    constant: bytes | None = None
    #: Its name as JSON, and a colon.
    label: bytes = b""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "label", string(self.name.encode()) + b":")


class UnknownValueError(CdcError):
    """The row has values that an update did not touch: it needs `partial`."""


def compiled(
    fields: Sequence[Field], width: int, opening: bytes = b"{", closing: bytes = b"}"
) -> EncodeRow:
    """For rows of `width` columns that are all known."""
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
        """What the expressions cannot do, or why nothing can be done."""
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
    """The object without its closing brace, and the columns whose values are not known, which are
    left out or get the placeholder."""
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
