"""A decoder for each form, and one that finds out the form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.console.records.decoding.forms import (
    Choice,
    Decoded,
    Decoder,
    Form,
    SchemaError,
    UndecodableError,
)
from dragoman.errors import MALFORMED
from dragoman.limits import CONSOLE_DECODED_BYTES_MAX

#: Where a value of Confluent's serializers begins: a zero byte and the number of a schema.
REGISTRY_BYTES: Final = 5
_JSON_BEGINS: Final = frozenset(b'{["-0123456789tfn \t\r\n')
#: Arrays and objects: a single byte is a number in MessagePack, so that guessing is for these only.
_MSGPACK_BEGINS: Final = frozenset((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_json: Final = msgspec.json.Decoder().decode
_msgpack: Final = msgspec.msgpack.Decoder().decode


def utf8(raw: bytes) -> Decoded:
    try:
        return Decoded("utf-8", raw.decode())
    except UnicodeDecodeError as error:
        raise UndecodableError(f"not UTF-8 at byte {error.start}") from None


def bounded(decoder: Decoder) -> Decoder:
    """The decoder, for what is not too large for it."""

    def decode(raw: bytes) -> Decoded:
        if len(raw) > CONSOLE_DECODED_BYTES_MAX:
            raise UndecodableError(f"larger than {CONSOLE_DECODED_BYTES_MAX >> 20} MiB")
        return decoder(raw)

    return decode


def json(raw: bytes) -> Decoded:
    try:
        return Decoded("json", _json(raw))
    except MALFORMED as error:
        found = schema_id_of(raw)
        if found is None:
            raise UndecodableError(f"not JSON: {error}") from None
    try:
        return Decoded("json", _json(raw[REGISTRY_BYTES:]), found)
    except MALFORMED as error:
        raise UndecodableError(f"not JSON: {error}") from None


def msgpack(raw: bytes) -> Decoded:
    try:
        return Decoded("msgpack", _msgpack(raw))
    except (*MALFORMED, ValueError, OverflowError) as error:
        raise UndecodableError(f"not MessagePack: {error}") from None


def hexadecimal(_: bytes) -> Decoded:
    return Decoded("hex", None)


def schema_id_of(raw: bytes) -> int | None:
    """The number of a schema before a value of Confluent's serializers."""
    if len(raw) < REGISTRY_BYTES or raw[0]:
        return None
    return int.from_bytes(raw[1:REGISTRY_BYTES])


def detecting(by_schema: Decoder | None) -> Decoder:
    """A decoder that never fails: by the topic's schema if it has one, then JSON, text, MessagePack
    and at last hexadecimal digits.
    """

    def decode(raw: bytes) -> Decoded:
        is_small = len(raw) <= CONSOLE_DECODED_BYTES_MAX
        if by_schema is not None and is_small:
            try:
                return by_schema(raw)
            except UndecodableError:
                pass
        first = raw[0] if raw else 0
        if first in _JSON_BEGINS and is_small:
            try:
                return Decoded("json", _json(raw))
            except MALFORMED:
                pass
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            pass
        else:
            if _UNPRINTABLE.search(text) is None:
                return Decoded("utf-8", text)
        return _binary(raw, first) if is_small else Decoded("hex", None)

    return decode


def _binary(raw: bytes, first: int) -> Decoded:
    if first in _MSGPACK_BEGINS:
        try:
            return msgpack(raw)
        except UndecodableError:
            pass
    found = schema_id_of(raw)
    if found is None:
        return Decoded("hex", None)
    if raw[REGISTRY_BYTES : REGISTRY_BYTES + 1] in (b"{", b"["):
        try:
            return Decoded("json", _json(raw[REGISTRY_BYTES:]), found)
        except MALFORMED:
            pass
    return Decoded("hex", None, found)


_PLAIN: Final[dict[str, Decoder]] = {
    "utf-8": utf8,
    "json": bounded(json),
    "msgpack": bounded(msgpack),
    "hex": hexadecimal,
}


class Schemas(msgspec.Struct, frozen=True, kw_only=True):
    """The decoder by a topic's schema; without one, why there is none."""

    form: Form | None = None
    decoder: Decoder | None = None
    reason: str = ""
    #: Whether none is pinned, which needs no note.
    is_absent: bool = False


def key_decoder(choice: Choice) -> Decoder:
    """Raises `SchemaError`."""
    if choice == "auto":
        return detecting(None)
    if choice not in _PLAIN:
        raise SchemaError(f"keys cannot be decoded as {choice}: a topic's schema is for its values")
    return _PLAIN[choice]


def value_decoder(choice: Choice, schemas: Callable[[], Schemas]) -> Decoder:
    """Raises `SchemaError`."""
    if choice in _PLAIN:
        return _PLAIN[choice]
    found = schemas()
    if choice == "auto":
        return detecting(found.decoder)
    if found.decoder is None or found.form != choice:
        reason = found.reason or "the topic's schema is of another form"
        raise SchemaError(f"values cannot be decoded as {choice}: {reason}")
    return bounded(found.decoder)


def registry_note(decoded: Decoded) -> str:
    """What to say about a value that only a schema registry could explain."""
    if decoded.form != "hex" or decoded.schema_id is None:
        return ""
    return (
        f"begins like a value of a schema registry, with schema {decoded.schema_id}; "
        "there is no registry: pin the schema in the topic's dragoman.value.schema"
    )
