"""The result of decoding, and its text for people."""

from __future__ import annotations

import base64
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from dragoman.console.errors import ConsoleError

Form: TypeAlias = Literal["utf-8", "json", "avro", "protobuf", "msgpack", "hex"]
#: What users choose from.
Choice: TypeAlias = Literal["auto", "utf-8", "json", "avro", "protobuf", "msgpack", "hex"]


class UndecodableError(Exception):
    """Bytes that are not of the form; the text says why."""


class SchemaError(ConsoleError):
    """A form that needs what is not there: a schema, or a library."""

    code = "schema"


class Decoded(msgspec.Struct, frozen=True, gc=False):
    form: Form
    #: Text, number, boolean, null, list or dictionary; null for `hex`.
    data: Any
    #: The number that a schema registry has given the schema, for values that begin with it.
    schema_id: int | None = None


class Decoder(Protocol):
    def __call__(self, raw: bytes, /) -> Decoded:
        """Raises `UndecodableError`."""
        ...


def _encodable(value: Any) -> Any:
    if isinstance(value, msgspec.msgpack.Ext):
        return {"ext": value.code, "base64": base64.b64encode(value.data).decode()}
    return str(value)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_encodable)


def text_of(raw: bytes, decoded: Decoded) -> str:
    """The decoded bytes as text: JSON for structures."""
    match decoded.form:
        case "utf-8":
            return str(decoded.data)
        case "json":
            # As it was written: numbers may have more digits than a browser keeps.
            return raw[_json_at(decoded) :].decode()
        case "hex":
            return raw.hex()
    try:
        return _ENCODER.encode(decoded.data).decode()
    except (TypeError, ValueError, RecursionError):
        return _ENCODER.encode(_plain(decoded.data)).decode()


def _json_at(decoded: Decoded) -> int:
    return 0 if decoded.schema_id is None else 5


def _plain(value: Any, depth: int = 0) -> Any:
    """The value with keys that JSON can have."""
    if depth > 60:
        return "…"
    if isinstance(value, dict):
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    return value
