"""Converts PostgreSQL's text of a value to JSON without loss: numbers that readers may round become
strings.

A format is chosen once per column. It is a function from PostgreSQL's text to JSON and, where that
is faster, also a Python expression that is compiled into the row's encoder.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import unhexlify
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.postgres.types import Kind

ToJson: TypeAlias = Callable[[bytes], bytes]

_to_json: Final = msgspec.json.Encoder().encode


class Form(msgspec.Struct, frozen=True):
    to_json: ToJson
    #: A Python expression of `{0}`, the text, and the names in `INLINED`; empty: call `to_json`.
    expression: str = ""


# ---- single values


def string(text: bytes) -> bytes:
    try:
        return _to_json(text.decode())
    except UnicodeDecodeError:
        # A database in SQL_ASCII does not check that texts are UTF-8.
        return _to_json(text.decode("utf-8", "backslashreplace"))


def quoted(text: bytes) -> bytes:
    """The JSON of values that need no escapes."""
    return b'"%b"' % text


def unchanged(text: bytes) -> bytes:
    """The JSON of values whose text is already JSON."""
    return text


def _bytea(text: bytes) -> bytes:
    return b'"%b"' % b64encode(bytes_of(text))


def bytes_of(text: bytes) -> bytes:
    """The JSON of `bytea` in hexadecimal format."""
    try:
        if text.startswith(b"\\x"):
            return unhexlify(text[2:])
    except ValueError:
        pass
    raise DecodeError(f"{text[:16]!r} is not a value of bytea with bytea_output = hex")


def _float(text: bytes) -> bytes:
    return b'"%b"' % text if text in NOT_NUMBERS else text


def _timestamp(text: bytes) -> bytes:
    return b'"%b"' % text.replace(b" ", b"T", 1)


def _timestamptz(text: bytes) -> bytes:
    return b'"%b"' % text.replace(b" ", b"T", 1).replace(b"+00", b"Z", 1)


def _timetz(text: bytes) -> bytes:
    return b'"%b:00"' % text if text[-3:-2] in (b"+", b"-") else b'"%b"' % text


BOOLEANS: Final = {b"t": b"true", b"f": b"false"}
NOT_NUMBERS: Final = frozenset((b"NaN", b"Infinity", b"-Infinity"))
#: The names that expressions use.
INLINED: Final = {"BOOLEANS": BOOLEANS, "NOT_NUMBERS": NOT_NUMBERS, "to_json": _to_json}

#: The expression decodes UTF-8 only, and raises for other bytes.
STRING: Final = Form(string, "to_json({0}.decode())")
QUOTED: Final = Form(quoted, "b'\"' + {0} + b'\"'")
AS_IT_IS: Final = Form(unchanged, "{0}")
_FLOAT: Final = Form(_float, "({0} if {0} not in NOT_NUMBERS else b'\"' + {0} + b'\"')")
_TIMESTAMPTZ: Final = Form(
    _timestamptz,
    "b'\"' + {0}.replace(b' ', b'T', 1).replace(b'+00', b'Z', 1) + b'\"'",
)

#: By name of the type; values of other types are strings.
_FORMS: Final = {
    "bool": Form(BOOLEANS.__getitem__, "BOOLEANS[{0}]"),
    "int2": AS_IT_IS,
    "int4": AS_IT_IS,
    "int8": AS_IT_IS,
    "oid": AS_IT_IS,
    "json": AS_IT_IS,
    "jsonb": AS_IT_IS,
    "float4": _FLOAT,
    "float8": _FLOAT,
    "numeric": QUOTED,
    "uuid": QUOTED,
    "date": QUOTED,
    "time": QUOTED,
    "bytea": Form(_bytea),
    "timestamp": Form(_timestamp),
    "timestamptz": _TIMESTAMPTZ,
    "timetz": Form(_timetz),
}


def form_of(kind: Kind) -> Form:
    form = _FORMS.get(kind.name, STRING)
    return Form(array(form.to_json, kind.name)) if kind.is_array else form


# ---- arrays

_JSON_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_SIMPLE: Final = re.compile(rb'\{(?:[^{}"\\,]+(?:,[^{}"\\,]+)*)?\}')
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)


def _tokens(delimiter: str) -> re.Pattern[bytes]:
    element = rf'"((?:[^"\\]|\\.)*)"|([^{{}}"\\{delimiter}]+)'
    return re.compile(rf"([{{}}{delimiter}])|{element}".encode(), re.DOTALL)


_COMMA: Final = _tokens(",")
#: Only the text of boxes contains commas.
_SEMICOLON: Final = _tokens(";")


def array(to_json: ToJson, name: str = "") -> ToJson:
    """An array; further dimensions are nested arrays. Lower bounds other than 1 are lost."""
    tokens = _SEMICOLON if name == "box" else _COMMA
    is_simple = _SIMPLE.fullmatch if tokens is _COMMA else _never

    def convert(text: bytes) -> bytes:
        if text[:1] == b"[":
            text = text[text.find(b"=") + 1 :]
        if is_simple(text) is None:
            return _nested(text, tokens, to_json)
        if to_json is unchanged:
            return text.translate(_JSON_BRACKETS).replace(b"NULL", b"null")
        if len(text) == 2:
            return b"[]"
        elements = text[1:-1].split(b",")
        return b"[%b]" % b",".join(
            [b"null" if each == b"NULL" else to_json(each) for each in elements]
        )

    return convert


def _never(_: bytes) -> None:
    return None


def _nested(text: bytes, tokens: re.Pattern[bytes], to_json: ToJson) -> bytes:
    pieces: list[bytes] = []
    position = depth = 0
    # Before the first bracket, and behind one that opens or a comma.
    wants_value = True
    for found in tokens.finditer(text):
        mark, in_quotes, bare = found.groups()
        closes = mark == b"}" and depth and (not wants_value or pieces[-1] == b"[")
        follows = mark not in (b"{", b"}", None) and depth and not wants_value
        opens = wants_value and (mark == b"{" or (mark is None and depth))
        if found.start() != position or not (opens or closes or follows):
            break
        position = found.end()
        if mark is not None:
            depth += (mark == b"{") - (mark == b"}")
            wants_value = mark != b"}"
            pieces.append(mark.translate(_JSON_BRACKETS) if mark in b"{}" else b",")
            continue
        wants_value = False
        if in_quotes is not None:
            pieces.append(to_json(_ESCAPE.sub(rb"\1", in_quotes)))
        else:
            pieces.append(b"null" if bare == b"NULL" else to_json(bare))
    if position != len(text) or depth or not pieces:
        raise DecodeError(f"{text[:40]!r} is not an array of PostgreSQL's")
    return b"".join(pieces)
