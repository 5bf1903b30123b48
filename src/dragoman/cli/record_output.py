r"""Records to text: what `dragoman consume` prints.

A format string is copied with these replaced:

    %t topic    %p partition    %o offset    %T timestamp in ms    %h headers as name=value,…
    %k key      %s value        %K and %S their sizes in bytes, -1 for null    %% a percent sign
    \n \r \t \0 \\ \xNN

Keys and values are copied byte for byte; null is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from dragoman.cli.record_clients.records import Feature, IncomingRecord
from dragoman.cli.record_input import Binary, JsonRecord

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
#: What a protocol has to tell for these.
_NEEDED: Final[dict[str, Feature]] = {
    "%T": "timestamp",
    "%k": "key",
    "%K": "key",
    "%h": "headers",
}


def needed_features(text: str) -> dict[str, Feature]:
    """What a format shows that not every protocol tells, by the token that asks for it."""
    return {token: _NEEDED[token] for token in _TOKEN.findall(text) if token in _NEEDED}


def compile_format(text: str) -> Write:
    """A function that prints a record. Raises `ValueError` that names what is not understood."""
    parts: list[bytes | Write] = []
    for token in _TOKEN.findall(text):
        if token in _FIELDS:
            parts.append(_FIELDS[token])
        elif token in _ESCAPES:
            parts.append(_ESCAPES[token])
        elif token.startswith("\\x") and len(token) == 4:
            parts.append(bytes.fromhex(token[2:]))
        elif token[0] in "%\\":
            raise ValueError(f"{token!r} means nothing in a format")
        else:
            parts.append(token.encode("utf-8", "surrogateescape"))
    return _joined(parts)


def _joined(parts: Sequence[bytes | Write]) -> Write:
    def write(record: IncomingRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return write


_ENCODER = msgspec.json.Encoder()


def write_json(record: IncomingRecord) -> bytes:
    """One line of JSON that `dragoman produce --json` reads back."""
    return (
        _ENCODER.encode(
            JsonRecord(
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
        )
        + b"\n"
    )


def _text(data: bytes | None) -> str | Binary | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Binary(data)
