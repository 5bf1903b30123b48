"""Rows of COPY in text format. The text of a value is the same as in `pgoutput`."""

from __future__ import annotations

import re
from typing import Final

from dragoman.errors import DecodeError
from dragoman.protocols.postgres.messages import Row

_ESCAPE: Final = re.compile(rb"\\(.?)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def decode_line(line: bytes, count: int) -> Row:
    """The columns of a row; `line` may end with a newline. Raises `DecodeError`."""
    if line.endswith(b"\n"):
        line = line[:-1]
    if not count and not line:
        return []
    texts = line.split(b"\t")
    if len(texts) != count:
        raise DecodeError(f"a row of {len(texts)} columns, expected {count}")
    return [text if b"\\" not in text else _unescaped(text) for text in texts]


def _unescaped(text: bytes) -> bytes | None:
    return None if text == b"\\N" else _ESCAPE.sub(_character, text)


def _character(found: re.Match[bytes]) -> bytes:
    letter = found[1]
    if not letter:
        raise DecodeError("a value ends with a backslash")
    return _ESCAPED.get(letter, letter)
