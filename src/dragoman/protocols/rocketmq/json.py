"""JSON with the deviations of RocketMQ's Java encoder (spec, section 9).

    {0:"10.0.0.1:10911"}                                  number keys without quotes
    {{"brokerName":"b","queueId":0,"topic":"T"}:{...}}    objects, always queues, as keys
    NaN, Infinity                                         read as null

Input is converted to strict JSON, in which the key of a queue is a string with the queue's JSON; a
null member counts as absent. Tables by queue are written in either format: Java and the official Go
client read objects as keys, the Go administration client reads strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

import msgspec

from dragoman.errors import MALFORMED, DecodeError
from dragoman.limits import ROCKETMQ_JSON_DEPTH_MAX
from dragoman.types import Buffer

Value = TypeVar("Value")
Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_TOKEN: Final = re.compile(
    rb'[ \t\r\n]++|("[^"\\]*+(?:\\.[^"\\]*+)*+")|([{}\[\]:,])|([^ \t\r\n"{}\[\]:,]++)', re.DOTALL
)
_NO_NUMBERS: Final = frozenset((b"NaN", b"Infinity", b"-Infinity"))
#: In compact JSON: a key that contains the JSON of an object.
_OBJECT_KEY: Final = re.compile(rb'(?<=[{,])"\{\\"(?:[^"\\]|\\.)*+"(?=:)')
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.decode


def read(
    data: Buffer, kind: type[Value], adapt: Callable[[str, Json], Json] | None = None
) -> Value:
    """A value of this type. Raises `DecodeError`.

    Numbers and booleans may be strings. If the input does not fit the type, `adapt` may replace the
    value of each member, given its name.
    """
    try:
        return _decode(data, type=kind, strict=False)
    except MALFORMED:
        pass
    try:
        plain = _cleaned(_decode(strict(data)), adapt)
        return msgspec.convert(plain, kind, strict=False)
    except MALFORMED as error:
        raise DecodeError(f"not the JSON of {kind.__name__}: {error}") from None


def _cleaned(value: Json, adapt: Callable[[str, Json], Json] | None) -> Json:
    """The value without members that are null."""
    if isinstance(value, list):
        return [_cleaned(each, adapt) for each in value]
    if isinstance(value, dict):
        return {
            name: adapt(name, _cleaned(each, adapt)) if adapt else _cleaned(each, adapt)
            for name, each in value.items()
            if each is not None
        }
    return value


def strict(data: Buffer) -> bytes:
    """Convert to strict JSON. Raises `DecodeError` for input that is too deep or malformed.

    The result may still be malformed, because only tokens and brackets are checked.
    """
    try:
        return _Strict().written(bytes(data))
    except UnicodeDecodeError as error:
        raise DecodeError(f"JSON with a key that is no text: {error}") from None


class _Strict:
    """One pass over the tokens. Deviations occur only where the stack expects a name."""

    def __init__(self) -> None:
        self._out: list[bytes] = []
        #: For each open bracket, whether it opens an object.
        self._open: list[bool] = []
        self._is_name_due = False
        #: The output position of a key that is an object, and the depth at which it ends.
        self._key_start = -1
        self._key_depth = -1

    def written(self, data: bytes) -> bytes:
        position = 0
        while position < len(data):
            match = _TOKEN.match(data, position)
            if match is None:
                raise DecodeError(f"JSON with text that does not end, at byte {position}")
            position = match.end()
            text, mark, word = match.groups()
            if mark is not None:
                self._take_mark(mark)
            elif text is not None:
                self._out.append(text)
                self._is_name_due = False
            elif word is not None:
                self._take_word(word)
        if self._open:
            raise DecodeError(f"JSON with {len(self._open)} brackets that are not closed")
        return b"".join(self._out)

    def _take_word(self, word: bytes) -> None:
        if self._is_name_due:
            self._out.append(_encode(word.decode()))
            self._is_name_due = False
        else:
            self._out.append(b"null" if word in _NO_NUMBERS else word)

    def _take_mark(self, mark: bytes) -> None:
        if mark in b"{[":
            if len(self._open) >= ROCKETMQ_JSON_DEPTH_MAX:
                raise DecodeError(f"JSON deeper than {ROCKETMQ_JSON_DEPTH_MAX}")
            if self._is_name_due:
                if self._key_start >= 0:
                    raise DecodeError("JSON with an object as a key within such a key")
                self._key_start, self._key_depth = len(self._out), len(self._open)
            self._open.append(mark == b"{")
            self._is_name_due = mark == b"{"
        elif mark in b"}]":
            if not self._open:
                raise DecodeError("JSON with a bracket too many")
            self._open.pop()
            self._is_name_due = False
        elif mark == b",":
            self._is_name_due = bool(self._open) and self._open[-1]
        self._out.append(mark)
        if mark in b"}]" and len(self._open) == self._key_depth:
            key = b"".join(self._out[self._key_start :])
            self._out[self._key_start :] = (_encode(key.decode()),)
            self._key_start = self._key_depth = -1


def write(body: msgspec.Struct, *, object_keys: bool = False) -> bytes:
    """Compact JSON. With `object_keys`, queues as keys are objects, as in Java."""
    written = _encode(body)
    return _OBJECT_KEY.sub(_as_object, written) if object_keys else written


def _as_object(key: re.Match[bytes]) -> bytes:
    return _decode(key[0], type=str).encode()
