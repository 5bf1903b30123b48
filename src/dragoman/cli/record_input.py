"""Lines of text to records: what `dragoman produce` reads.

Plain lines are values, or keys and values with a separator between them. JSON lines are objects:

    {"key": "k", "value": "v", "headers": {"name": "text"}, "partition": 0, "timestamp": 1700000000}

The timestamp is in milliseconds. Every field may be missing or null. Bytes that are not UTF-8 are
written as {"base64": "…"}. Headers may also be a list of pairs, which keeps names that occur twice.
The lines that `dragoman consume --json` prints are read back; their `topic` and `offset` mean
nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from dragoman.cli.record_clients.records import Feature, OutgoingRecord
from dragoman.cli.status import CommandError
from dragoman.limits import CLI_LINE_BYTES_MAX, CLI_READ_BYTES

_INT32_MAX = (1 << 31) - 1

#: Fields of JSON lines that can be left out.
LineField: TypeAlias = Literal["key", "headers", "partition", "timestamp"]


class LineFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a line becomes a record, and what all records have in common."""

    is_json: bool = False
    without: frozenset[LineField] = frozenset()
    key_separator: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    empty_is_null: bool = False
    #: What the protocol has no word for, and why.
    cannot_have: Mapping[Feature, str] = {}


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


_DECODER = msgspec.json.Decoder(JsonRecord)


def parse_line(line: bytes, form: LineFormat) -> OutgoingRecord:
    """Raises `ValueError` that says what is wrong with the line."""
    return _parse_json(line, form) if form.is_json else _parse_plain(line, form)


def _parse_plain(line: bytes, form: LineFormat) -> OutgoingRecord:
    key, value = form.key, line
    if form.key_separator is not None:
        key, found, value = line.partition(form.key_separator)
        if not found:
            raise ValueError(f"no key separator {form.key_separator.decode()!r}")
    return OutgoingRecord(
        key=None if form.empty_is_null and not key else key,
        value=None if form.empty_is_null and not value else value,
        headers=form.headers,
        partition=form.partition,
    )


def _parse_json(line: bytes, form: LineFormat) -> OutgoingRecord:
    try:
        found = _DECODER.decode(line)
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
        value=_bytes(found.value),
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
        """What is there, at most `size` bytes; empty at the end."""
        ...


def read_lines(source: ByteSource) -> Iterator[list[bytes]]:
    """Lines without their ends, as many at once as one read brings: a terminal's one by one."""
    rest: list[bytes] = []
    rest_size = 0
    while data := source.read1(CLI_READ_BYTES):
        head, newline, tail = data.rpartition(b"\n")
        rest_size += len(data)
        if not newline:
            rest.append(data)
            if rest_size > CLI_LINE_BYTES_MAX:
                raise CommandError(f"a line is longer than {CLI_LINE_BYTES_MAX} bytes")
            continue
        yield b"".join((*rest, head)).split(b"\n")
        rest, rest_size = ([tail], len(tail)) if tail else ([], 0)
    if rest:
        yield [b"".join(rest)]


def parse_header(text: str) -> tuple[str, bytes | None]:
    """`NAME=VALUE`, or `NAME` alone for a header without a value. Raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"expected NAME=VALUE, got {text!r}")
    return name, value.encode("utf-8", "surrogateescape") if equals else None
