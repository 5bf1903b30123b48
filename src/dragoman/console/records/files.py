"""Records as lines of a file: JSON lines that `dragoman produce --json` reads, or rows of CSV.

Bytes of a schema become the JSON that they say, other bytes that are no text become base64.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from dragoman.console.records.decoding.decoders import detecting
from dragoman.console.records.decoding.forms import Decoder, UndecodableError, text_of
from dragoman.console.records.shown import Decoders
from dragoman.log.batch import Record

Form: TypeAlias = Literal["jsonl", "csv"]
#: Records with their partitions become the text of their lines.
Write: TypeAlias = Callable[[Sequence[tuple[int, Record]]], str]

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_detect: Final = detecting(None)
_encode: Final = msgspec.json.Encoder().encode


class _Line(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Any


def writer(form: Form, topic: str, decoders: Decoders) -> Write:
    def line(partition: int, record: Record) -> _Line:
        return _Line(
            topic,
            partition,
            record.offset,
            record.timestamp,
            _content(record.key, decoders.key),
            _content(record.value, decoders.value),
            [(name, _content(value, _detect)) for name, value in record.headers],
        )

    def json_lines(found: Sequence[tuple[int, Record]]) -> str:
        return "".join(_encode(line(*each)).decode() + "\n" for each in found)

    def rows(found: Sequence[tuple[int, Record]]) -> str:
        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow
        for each in found:
            write([_cell(value) for value in msgspec.structs.astuple(line(*each))])
        return text.getvalue()

    return json_lines if form == "jsonl" else rows


def header(form: Form) -> str:
    """What a file begins with."""
    return ",".join(COLUMNS) + "\n" if form == "csv" else ""


def _content(raw: bytes | None, decoder: Decoder) -> Any:
    if raw is None:
        return None
    try:
        decoded = decoder(raw)
    except UndecodableError:
        decoded = _detect(raw)
    if decoded.form == "hex":
        return {"base64": base64.b64encode(raw).decode()}
    return text_of(raw, decoded)


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int) else _encode(value).decode()
