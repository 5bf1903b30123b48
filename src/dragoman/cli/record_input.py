"""Lines of text to records: what `dragoman produce` reads.

Plain lines are values, or keys and values with a separator between them. JSON lines are objects:

    {"key": "k", "value": "v", "headers": {"name": "text"}, "partition": 0, "timestamp": 1700000000}

The timestamp is in milliseconds. Every field may be missing or null. Bytes that are not UTF-8 are
written as {"base64": "…"}. Headers may also be a list of pairs, which keeps names that occur twice.
The lines that `dragoman consume --json` prints are read back; their `topic` and `offset` mean
nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from dragoman.cli.status import CommandError
from dragoman.client.kafka import NewRecord
from dragoman.limits import CLI_LINE_BYTES_MAX, CLI_READ_BYTES

_INT32_MAX = (1 << 31) - 1


class LineFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a line becomes a record, and what all records have in common."""

    is_json: bool = False
    key_separator: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    empty_is_null: bool = False


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


def parse_line(line: bytes, form: LineFormat) -> NewRecord:
    """Raises `ValueError` that says what is wrong with the line."""
    return _parse_json(line, form) if form.is_json else _parse_plain(line, form)


def _parse_plain(line: bytes, form: LineFormat) -> NewRecord:
    key, value = form.key, line
    if form.key_separator is not None:
        key, found, value = line.partition(form.key_separator)
        if not found:
            raise ValueError(f"no key separator {form.key_separator.decode()!r}")
    return NewRecord(
        key=None if form.empty_is_null and not key else key,
        value=None if form.empty_is_null and not value else value,
        headers=form.headers,
        partition=form.partition,
    )


def _parse_json(line: bytes, form: LineFormat) -> NewRecord:
    try:
        found = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a record in JSON: {error}") from None
    if found.partition is not None and not 0 <= found.partition <= _INT32_MAX:
        raise ValueError(f"partition {found.partition} does not exist")
    if found.timestamp is not None and not -1 <= found.timestamp < 1 << 63:
        raise ValueError(f"timestamp {found.timestamp} is out of range")
    pairs = found.headers.items() if isinstance(found.headers, dict) else found.headers or ()
    own = tuple((name, _bytes(content)) for name, content in pairs)
    key = _bytes(found.key)
    return NewRecord(
        key=form.key if key is None else key,
        value=_bytes(found.value),
        headers=form.headers + own,
        partition=found.partition if form.partition is None else form.partition,
        timestamp=found.timestamp,
    )


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
