"""Avro: a schema becomes functions that read single values.

A value that announces more than its bytes can hold is refused before anything is made of it.
Logical types become what people read: dates, times and decimal numbers as text.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeAlias

from dragoman.console.records.decoding.decoders import REGISTRY_BYTES, schema_id_of
from dragoman.console.records.decoding.forms import (
    Decoded,
    Decoder,
    SchemaError,
    UndecodableError,
)
from dragoman.limits import CONSOLE_DECODED_FIELDS_MAX

_DEPTH_MAX: Final = 60
_VARINT_BYTES_MAX: Final = 10
_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
#: Marker and fingerprint of Avro's single-object encoding.
_SINGLE_OBJECT: Final = b"\xc3\x01"
_SINGLE_OBJECT_BYTES: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: Reads a value at a position, `depth` values deep; gives it and the position after it.
Read: TypeAlias = Callable[[bytes, int, int], tuple[Any, int]]


class Names:
    """The named types of a schema, and how much may still be read with it."""

    def __init__(self) -> None:
        self.read: dict[str, Read] = {}
        self._fields_left = 0

    def begin(self) -> None:
        self._fields_left = CONSOLE_DECODED_FIELDS_MAX

    def spend(self, fields: int) -> None:
        """Records whose fields take no bytes may contain each other, and double with each."""
        self._fields_left -= fields
        if self._fields_left < 0:
            raise UndecodableError(f"it has more than {CONSOLE_DECODED_FIELDS_MAX:,} fields")


def avro_decoder(schema: object) -> Decoder:
    """Raises `SchemaError`."""
    names = Names()
    read = _type(schema, "", names, 0)

    def plain(raw: bytes, position: int) -> Any:
        names.begin()
        value, end = _guarded(read, raw, position)
        if end != len(raw):
            raise UndecodableError(f"{len(raw) - end} bytes follow the last field")
        return value

    def decode(raw: bytes) -> Decoded:
        try:
            return Decoded("avro", plain(raw, 0))
        except UndecodableError as error:
            problem = error
        if raw.startswith(_SINGLE_OBJECT) and len(raw) >= _SINGLE_OBJECT_BYTES:
            return Decoded("avro", plain(raw, _SINGLE_OBJECT_BYTES))
        found = schema_id_of(raw)
        if found is None:
            raise problem
        return Decoded("avro", plain(raw, REGISTRY_BYTES), found)

    return decode


def _guarded(read: Read, raw: bytes, position: int) -> tuple[Any, int]:
    try:
        return read(raw, position, 0)
    except (IndexError, struct.error):
        raise UndecodableError("not Avro of the topic's schema: it ends early") from None
    except UnicodeDecodeError:
        raise UndecodableError("not Avro of the topic's schema: a text is not UTF-8") from None


# ---- bytes


def _long(raw: bytes, position: int, _: int = 0) -> tuple[int, int]:
    byte = raw[position]
    position += 1
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), position
    value, shift, first = byte & 0x7F, 7, position
    while byte >= 0x80:
        if position - first >= _VARINT_BYTES_MAX - 1:
            raise UndecodableError("a number has more than 64 bits")
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value >> 1 ^ -(value & 1), position


def _piece(raw: bytes, position: int, _: int = 0) -> tuple[bytes, int]:
    size, position = _long(raw, position)
    end = position + size
    if size < 0 or end > len(raw):
        raise UndecodableError(f"a field announces {size} bytes, {len(raw) - position} are left")
    return raw[position:end], end


def _text(raw: bytes, position: int, _: int) -> tuple[str, int]:
    piece, position = _piece(raw, position)
    return piece.decode(), position


def _null(_raw: bytes, position: int, _: int) -> tuple[None, int]:
    return None, position


def _boolean(raw: bytes, position: int, _: int) -> tuple[bool, int]:
    byte = raw[position]
    if byte > 1:
        raise UndecodableError(f"a boolean is {byte}")
    return bool(byte), position + 1


def _float(raw: bytes, position: int, _: int) -> tuple[float, int]:
    return float(_FLOAT.unpack_from(raw, position)[0]), position + 4


def _double(raw: bytes, position: int, _: int) -> tuple[float, int]:
    return float(_DOUBLE.unpack_from(raw, position)[0]), position + 8


_PRIMITIVES: Final[dict[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _piece,
    "string": _text,
}


# ---- schemas


def _type(given: object, namespace: str, names: Names, depth: int) -> Read:
    if depth > _DEPTH_MAX:
        raise SchemaError(f"the topic's Avro schema is more than {_DEPTH_MAX} types deep")
    if isinstance(given, list):
        return _union([_type(each, namespace, names, depth + 1) for each in given])
    if isinstance(given, str):
        return _named(given, namespace, names)
    if not isinstance(given, dict) or "type" not in given:
        raise SchemaError(f"the topic's Avro schema: {json.dumps(given)[:80]} is no type")
    match given["type"]:
        case "record" | "error":
            return _record(given, namespace, names, depth)
        case "enum":
            return _define(given, namespace, names, _enum(given.get("symbols")))
        case "fixed":
            read = _logical(_fixed(given.get("size")), given)
            return _define(given, namespace, names, read)
        case "array":
            return _array(_type(given.get("items"), namespace, names, depth + 1))
        case "map":
            return _map(_type(given.get("values"), namespace, names, depth + 1))
        case inner:
            return _logical(_type(inner, namespace, names, depth + 1), given)


def _named(name: str, namespace: str, names: Names) -> Read:
    found = _PRIMITIVES.get(name)
    if found is not None:
        return found
    full = _full(name, namespace)
    if full not in names.read:
        raise SchemaError(f"the topic's Avro schema does not define {name[:80]!r}")

    # Looked up when a value is read: a record may contain itself.
    def read(raw: bytes, position: int, depth: int) -> tuple[Any, int]:
        if depth > _DEPTH_MAX:
            raise UndecodableError(f"it is more than {_DEPTH_MAX} values deep")
        return names.read[full](raw, position, depth + 1)

    return read


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _name(given: Mapping[str, Any], namespace: str) -> str:
    return _full(str(given.get("name", "")), str(given.get("namespace", namespace)))


def _define(given: Mapping[str, Any], namespace: str, names: Names, read: Read) -> Read:
    names.read[_name(given, namespace)] = read
    return read


def _record(given: Mapping[str, Any], namespace: str, names: Names, depth: int) -> Read:
    full = _name(given, namespace)
    inner = full.rpartition(".")[0]
    names.read[full] = _null
    fields: list[tuple[str, Read]] = []
    for each in given.get("fields") or ():
        if not isinstance(each, dict) or "name" not in each:
            raise SchemaError(f"the topic's Avro schema: a field of {full} has no name")
        fields.append((str(each["name"]), _type(each.get("type"), inner, names, depth + 1)))

    count = 1 + len(fields)

    def read(raw: bytes, position: int, depth: int) -> tuple[Any, int]:
        names.spend(count)
        found = {}
        for name, field in fields:
            found[name], position = field(raw, position, depth)
        return found, position

    names.read[full] = read
    return read


def _union(branches: list[Read]) -> Read:
    def read(raw: bytes, position: int, depth: int) -> tuple[Any, int]:
        index, position = _long(raw, position)
        if not 0 <= index < len(branches):
            raise UndecodableError(f"a union of {len(branches)} types has no type {index}")
        return branches[index](raw, position, depth)

    return read


def _enum(symbols: object) -> Read:
    if not isinstance(symbols, list) or not symbols:
        raise SchemaError("the topic's Avro schema has an enum without symbols")

    def read(raw: bytes, position: int, _: int) -> tuple[Any, int]:
        index, position = _long(raw, position)
        if not 0 <= index < len(symbols):
            raise UndecodableError(f"an enum of {len(symbols)} symbols has no symbol {index}")
        return symbols[index], position

    return read


def _fixed(size: object) -> Read:
    if not isinstance(size, int) or size < 0:
        raise SchemaError("the topic's Avro schema has a fixed type without a size")

    def read(raw: bytes, position: int, _: int) -> tuple[Any, int]:
        end = position + size
        if end > len(raw):
            raise UndecodableError("it ends early")
        return raw[position:end], end

    return read


def _blocks(raw: bytes, position: int) -> tuple[int, int]:
    """The number of items in the next block; 0 at the end."""
    count, position = _long(raw, position)
    if count < 0:
        count = -count
        _, position = _long(raw, position)
    if count > len(raw):
        raise UndecodableError(f"{count} items are announced in {len(raw)} bytes")
    return count, position


def _array(item: Read) -> Read:
    def read(raw: bytes, position: int, depth: int) -> tuple[Any, int]:
        found = []
        count, position = _blocks(raw, position)
        while count:
            for _ in range(count):
                value, end = item(raw, position, depth)
                if end == position:
                    # A few bytes could announce any number of these.
                    raise UndecodableError("the items of an array take no bytes")
                found.append(value)
                position = end
            count, position = _blocks(raw, position)
        return found, position

    return read


def _map(item: Read) -> Read:
    def read(raw: bytes, position: int, depth: int) -> tuple[Any, int]:
        found = {}
        count, position = _blocks(raw, position)
        while count:
            for _ in range(count):
                name, position = _text(raw, position, depth)
                found[name], position = item(raw, position, depth)
            count, position = _blocks(raw, position)
        return found, position

    return read


# ---- logical types


def _logical(read: Read, given: Mapping[str, Any]) -> Read:
    """Readers ignore logical types that they do not know, says the specification."""
    match given.get("logicalType"):
        case "date":
            return _shown(read, lambda days: (date(1970, 1, 1) + timedelta(days=days)).isoformat())
        case "timestamp-millis":
            return _shown(read, lambda ms: (_EPOCH + timedelta(milliseconds=ms)).isoformat())
        case "timestamp-micros":
            return _shown(read, lambda us: (_EPOCH + timedelta(microseconds=us)).isoformat())
        case "decimal":
            scale = given.get("scale", 0)
            if isinstance(scale, int) and 0 <= scale <= 100:
                return _shown(read, lambda raw: _decimal(raw, scale))
    return read


def _shown(read: Read, show: Callable[[Any], str]) -> Read:
    def shown(raw: bytes, position: int, depth: int) -> tuple[Any, int]:
        value, position = read(raw, position, depth)
        try:
            return show(value), position
        except (OverflowError, ValueError, TypeError):
            return value, position

    return shown


def _decimal(raw: bytes, scale: int) -> str:
    if len(raw) > 100:
        raise ValueError
    number = int.from_bytes(raw, signed=True)
    if not scale:
        return str(number)
    digits = str(abs(number)).zfill(scale + 1)
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
