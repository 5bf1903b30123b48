r"""Records as lines of text: what `dragoman produce` reads and `dragoman consume` prints.

Plain lines are values, or keys and values with a separator between them. JSON lines are objects:

    {"key": "k", "value": "v", "headers": {"name": "text"}, "partition": 0, "timestamp": 1700000000}

The timestamp is in milliseconds. Every field may be missing or null. Bytes that are not UTF-8 are
written as {"base64": "…"}. A value that is any other object, or an array, is read as its JSON text
without white space. Headers may also be a list of pairs, which can repeat a name. `produce`
reads the lines that `dragoman consume --json` prints, and ignores their `topic` and `offset`.

A format string of `consume` is copied, with these tokens replaced:

    %t topic    %p partition    %o offset    %T timestamp in ms    %h headers as name=value,…
    %k key      %s value        %K and %S their sizes in bytes, -1 for null    %% a percent sign
    \n \r \t \0 \\ \xNN

Keys and values are copied byte for byte; null prints nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from dragoman.cli.output import csv_cells, csv_columns, csv_line
from dragoman.cli.record_clients.session import Feature, IncomingRecord, OutgoingRecord
from dragoman.cli.status import CommandError
from dragoman.limits import CLI_LINE_BYTES_MAX, CLI_READ_BYTES


class Binary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that JSON text cannot hold."""

    base64: bytes


class JsonRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of JSON, in the order in which `consume` prints its fields."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    key: str | Binary | None = None
    value: str | Binary | None = None
    headers: dict[str, str | Binary | None] | list[tuple[str, str | Binary | None]] | None = None


class JsonLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of JSON that `produce` reads."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    key: str | Binary | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")
    headers: dict[str, str | Binary | None] | list[tuple[str, str | Binary | None]] | None = None


# ---- lines to records

_INT32_MAX = (1 << 31) - 1

#: Fields of JSON lines that can be left out.
LineField: TypeAlias = Literal["key", "headers", "partition", "timestamp"]


class LineFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a line becomes a record, with the fields that all records share."""

    is_json: bool = False
    without: frozenset[LineField] = frozenset()
    key_separator: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    empty_is_null: bool = False
    #: By feature, why the protocol cannot express it.
    cannot_have: Mapping[Feature, str] = {}


_DECODER = msgspec.json.Decoder(JsonLine)
_FIELDS_OF_VALUE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE = msgspec.json.Decoder(str | Binary | None)


def parse_line(line: bytes, form: LineFormat) -> OutgoingRecord:
    """Parse a line. Raises a `ValueError` that describes its fault."""
    return _parse_json(line, form) if form.is_json else _parse_plain(line, form)


def _parse_plain(line: bytes, form: LineFormat) -> OutgoingRecord:
    key, value = form.key, line
    if form.key_separator is not None:
        key, found, value = line.partition(form.key_separator)
        if not found:
            raise ValueError(f"expected the key separator {form.key_separator.decode()!r}")
    return OutgoingRecord(
        key=None if form.empty_is_null and not key else key,
        value=None if form.empty_is_null and not value else value,
        headers=form.headers,
        partition=form.partition,
    )


def _parse_json(line: bytes, form: LineFormat) -> OutgoingRecord:
    try:
        found = _DECODER.decode(line)
        value = _value(found.value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a record in JSON: {error}") from None
    if form.without:
        found = msgspec.structs.replace(found, **dict.fromkeys(form.without))
    if found.partition is not None and not 0 <= found.partition <= _INT32_MAX:
        raise ValueError(f"partition {found.partition} does not exist")
    if found.timestamp is not None and not -1 <= found.timestamp < 1 << 63:
        raise ValueError(f"timestamp {found.timestamp} is out of range")
    pairs = found.headers.items() if isinstance(found.headers, dict) else found.headers or ()
    own = tuple((name, _bytes(content)) for name, content in pairs)
    key = _bytes(found.key)
    record = OutgoingRecord(
        key=form.key if key is None else key,
        value=value,
        headers=form.headers + own,
        partition=found.partition if form.partition is None else form.partition,
        timestamp=found.timestamp,
    )
    if form.cannot_have:
        _check_fields(record, form.cannot_have)
    return record


def _check_fields(record: OutgoingRecord, cannot_have: Mapping[Feature, str]) -> None:
    if record.value is None and "null" in cannot_have:
        raise ValueError(f"value is null: {cannot_have['null']}")
    present: tuple[tuple[LineField, bool], ...] = (
        ("key", record.key is not None),
        ("headers", bool(record.headers)),
        ("partition", record.partition is not None),
        ("timestamp", record.timestamp is not None),
    )
    for field, is_present in present:
        if is_present and field in cannot_have:
            raise ValueError(f"{field}: {cannot_have[field]}; --without {field} leaves it out")


def _value(raw: msgspec.Raw) -> bytes | None:
    """Raises `msgspec.DecodeError`, `UnicodeDecodeError`."""
    data = bytes(raw)
    is_structured = data[:1] == b"["
    if data[:1] == b"{":
        is_structured = _FIELDS_OF_VALUE.decode(data).keys() != {"base64"}
    if not is_structured:
        return _bytes(_VALUE.decode(data))
    # Texts inside a raw value were not decoded yet.
    data.decode()
    return msgspec.json.format(data, indent=-1)


def _bytes(value: str | Binary | None) -> bytes | None:
    match value:
        case Binary():
            return value.base64
        case None:
            return None
        case _:
            return value.encode()


class ByteSource(Protocol):
    def read1(self, size: int, /) -> bytes:
        """The bytes that are available, at least one and at most `size`; empty at the end."""
        ...


def read_lines(source: ByteSource) -> Iterator[list[bytes]]:
    """Lines without their line ends, as many as one read returns; a terminal returns one at a
    time.
    """
    rest: list[bytes] = []
    rest_size = 0
    count = 0
    while data := source.read1(CLI_READ_BYTES):
        head, newline, tail = data.rpartition(b"\n")
        rest_size += len(data)
        if not newline:
            rest.append(data)
            if rest_size > CLI_LINE_BYTES_MAX:
                raise CommandError(f"line {count + 1}: longer than {CLI_LINE_BYTES_MAX} bytes")
            continue
        lines = b"".join((*rest, head)).split(b"\n")
        count += len(lines)
        yield lines
        rest, rest_size = ([tail], len(tail)) if tail else ([], 0)
    if rest:
        yield [b"".join(rest)]


def parse_header(text: str) -> tuple[str, bytes | None]:
    """`NAME=VALUE`, or `NAME` alone for a header without a value. Raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"expected NAME=VALUE, got {text!r}")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


# ---- records to text

Write: TypeAlias = Callable[[IncomingRecord], bytes]

_TOKEN = re.compile(r"%.|%$|\\x[0-9a-fA-F]{2}|\\.|\\$|[^%\\]+", re.DOTALL)
_ESCAPES: Final = {
    "\\n": b"\n",
    "\\r": b"\r",
    "\\t": b"\t",
    "\\0": b"\0",
    "\\\\": b"\\",
    "%%": b"%",
}
DEFAULT_FORMAT: Final = r"%s\n"


def _headers(record: IncomingRecord) -> bytes:
    return b",".join(
        name.encode() + (b"" if content is None else b"=" + content)
        for name, content in record.headers or ()
    )


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


_FIELDS: Final[dict[str, Write]] = {
    "%t": lambda record: record.topic.encode(),
    "%p": lambda record: b"%d" % record.partition,
    "%o": lambda record: b"%d" % record.offset,
    "%T": lambda record: b"%d" % (-1 if record.timestamp is None else record.timestamp),
    "%k": lambda record: record.key or b"",
    "%s": lambda record: record.value or b"",
    "%K": lambda record: _size(record.key),
    "%S": lambda record: _size(record.value),
    "%h": _headers,
}
#: By token, the feature that a protocol must have.
_NEEDED: Final[dict[str, Feature]] = {
    "%T": "timestamp",
    "%k": "key",
    "%K": "key",
    "%h": "headers",
}


def needed_features(text: str) -> dict[str, Feature]:
    """By token, the features that a format needs and that some protocols lack."""
    return {token: _NEEDED[token] for token in _TOKEN.findall(text) if token in _NEEDED}


def compile_format(text: str) -> Write:
    """A function that formats a record. Raises a `ValueError` that names an unknown token."""
    parts: list[bytes | Write] = []
    for token in _TOKEN.findall(text):
        if token in _FIELDS:
            parts.append(_FIELDS[token])
        elif token in _ESCAPES:
            parts.append(_ESCAPES[token])
        elif token.startswith("\\x") and len(token) == 4:
            parts.append(bytes.fromhex(token[2:]))
        elif token[0] in "%\\":
            raise ValueError(f"unknown token {token!r}; `dragoman consume --help` lists all")
        else:
            parts.append(token.encode("utf-8", "surrogateescape"))
    return _joined(parts)


def _joined(parts: Sequence[bytes | Write]) -> Write:
    def write(record: IncomingRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return write


_ENCODER = msgspec.json.Encoder()
_COLUMNS: Final = csv_columns(JsonRecord)


def write_json(record: IncomingRecord) -> bytes:
    """One line of JSON that `dragoman produce --json` reads back."""
    return _ENCODER.encode(_json_record(record)) + b"\n"


def write_csv(record: IncomingRecord) -> bytes:
    """One row of CSV, below `csv_header`."""
    return csv_line(csv_cells(_json_record(record), _COLUMNS))


def csv_header() -> bytes:
    return csv_line(_COLUMNS)


def _json_record(record: IncomingRecord) -> JsonRecord:
    return JsonRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=_text(record.key),
        value=_text(record.value),
        headers=None
        if record.headers is None
        else [(name, _text(content)) for name, content in record.headers],
    )


def _text(data: bytes | None) -> str | Binary | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Binary(data)
