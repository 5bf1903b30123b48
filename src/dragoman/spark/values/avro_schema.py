"""Avro schemas: their JSON, their fingerprint, and the Spark type of their values.

Types are those of spark-avro. Schemas that no table can represent are refused: a recursive record,
a record without fields, and an array of items that take no bytes (a few bytes could announce 2^60
of them).
"""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from typing import Any

import msgspec
from pyspark.sql import types as t

from dragoman.errors import ConfigError
from dragoman.limits import SPARK_TYPE_DEPTH_MAX

_PRIMITIVES: dict[str, t.DataType] = {
    "null": t.NullType(),
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
}
_LOGICAL: dict[tuple[str, str], t.DataType] = {
    ("int", "date"): t.DateType(),
    ("long", "timestamp-millis"): t.TimestampType(),
    ("long", "timestamp-micros"): t.TimestampType(),
    ("long", "local-timestamp-millis"): t.TimestampNTZType(),
    ("long", "local-timestamp-micros"): t.TimestampNTZType(),
}
#: Unions that spark-avro reads as one wider number.
_WIDENED = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
_DECIMAL_DIGITS_MAX = 38


class AvroType(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One type of a schema, with references to named types resolved."""

    #: Avro's name of the type: a primitive type, record, enum, fixed, array, map or union.
    kind: str
    #: The full name of a record, enum or fixed.
    name: str = ""
    field_names: tuple[str, ...] = ()
    #: The types of fields, items, values or branches.
    parts: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    #: The bytes of a fixed.
    size: int = 0
    #: A supported logical type, else empty.
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @cached_property
    def branches(self) -> tuple[AvroType, ...]:
        """The branches of a union without null."""
        return tuple(part for part in self.parts if part.kind != "null")

    @cached_property
    def entry(self) -> AvroType:
        """An entry of a map as a record of its key and its value."""
        return AvroType(kind="record", parts=(AvroType(kind="string"), *self.parts))

    @cached_property
    def widened(self) -> str:
        """`long` or `double` for a union of a number and its wider counterpart, else empty."""
        return _WIDENED.get(frozenset(part.kind for part in self.branches), "")

    @property
    def is_nullable(self) -> bool:
        return self.kind == "null" or (
            self.kind == "union" and len(self.branches) < len(self.parts)
        )

    @cached_property
    def spark_type(self) -> t.DataType:
        if self.logical == "decimal":
            return t.DecimalType(self.precision, self.scale)
        if self.kind in _PRIMITIVES:
            return _LOGICAL.get((self.kind, self.logical), _PRIMITIVES[self.kind])
        if self.kind == "record":
            return t.StructType(
                [
                    t.StructField(name, part.spark_type, part.is_nullable)
                    for name, part in zip(self.field_names, self.parts, strict=True)
                ]
            )
        if self.kind == "array":
            return t.ArrayType(self.parts[0].spark_type, self.parts[0].is_nullable)
        if self.kind == "map":
            values = self.parts[0]
            return t.MapType(t.StringType(), values.spark_type, values.is_nullable)
        if self.kind == "union":
            return self._union_type()
        return t.StringType() if self.kind == "enum" else t.BinaryType()

    def _union_type(self) -> t.DataType:
        if len(self.branches) < 2:
            return (self.branches or self.parts)[0].spark_type
        if self.widened:
            return _PRIMITIVES[self.widened]
        return t.StructType(
            [
                t.StructField(f"member{index}", part.spark_type)
                for index, part in enumerate(self.branches)
            ]
        )

    @property
    def is_empty(self) -> bool:
        """Whether a value takes no bytes."""
        if self.kind == "record":
            return all(part.is_empty for part in self.parts)
        return self.kind == "null" or (self.kind == "fixed" and self.size == 0)

    @cached_property
    def fingerprint(self) -> bytes:
        """CRC-64-AVRO of the parsing canonical form, as single-object encoding writes it."""
        return _crc64(_canonical(self, set()).encode()).to_bytes(8, "little")


@lru_cache(maxsize=16)
def parse_avro_schema(text: str) -> AvroType:
    """Raises `ConfigError` that names the problem and its place."""
    try:
        found = _SchemaParser().type_of(json.loads(text), "", "value", 0)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"the Avro schema is not JSON: {error}") from None
    if found.kind == "null":
        raise ConfigError("the Avro schema is null, which has no values")
    return found


class _SchemaParser:
    def __init__(self) -> None:
        #: Types by full name; None while a type is being parsed.
        self._named: dict[str, AvroType | None] = {}

    def type_of(self, given: Any, namespace: str, where: str, depth: int) -> AvroType:
        if depth > SPARK_TYPE_DEPTH_MAX:
            raise ConfigError(f"the Avro schema is more than {SPARK_TYPE_DEPTH_MAX} types deep")
        if isinstance(given, list):
            return self._union(given, namespace, where, depth)
        if isinstance(given, str):
            return self._reference(given, namespace, where)
        if not isinstance(given, dict) or "type" not in given:
            raise ConfigError(f"Avro schema: expected a type at {where}, got {given!r:.80}")
        kind = given["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(given, namespace, where, depth)
        if kind == "array":
            return self._array(given, namespace, where, depth)
        if kind == "map":
            values = self.type_of(_need(given, "values", where), namespace, where, depth + 1)
            return AvroType(kind="map", parts=(values,))
        found = self.type_of(kind, namespace, where, depth + 1)
        return _with_logical(found, given, where)

    def _reference(self, name: str, namespace: str, where: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(kind=name)
        full = _full_name(name, namespace)
        if full not in self._named:
            raise ConfigError(f"Avro schema: the type {name!r} at {where} is not defined")
        found = self._named[full]
        if found is None:
            raise ConfigError(
                f"Avro schema: {full} contains itself at {where}; a table cannot hold that"
            )
        return found

    def _definition(self, given: Any, namespace: str, where: str, depth: int) -> AvroType:
        full = _full_name(str(_need(given, "name", where)), str(given.get("namespace", namespace)))
        if full in self._named or full in _PRIMITIVES:
            raise ConfigError(f"Avro schema: {full} is defined twice, again at {where}")
        self._named[full] = None
        if given["type"] == "enum":
            symbols = _need(given, "symbols", where)
            found = AvroType(kind="enum", name=full, symbols=tuple(map(str, symbols)))
            if not found.symbols:
                raise ConfigError(f"Avro schema: {full} has no symbols")
        elif given["type"] == "fixed":
            size = _need(given, "size", where)
            if not isinstance(size, int) or not 0 <= size < 2**31:
                raise ConfigError(f"Avro schema: the size of {full} is {size!r:.80}")
            found = _with_logical(AvroType(kind="fixed", name=full, size=size), given, where)
        else:
            found = self._record(given, full, where, depth)
        self._named[full] = found
        return found

    def _record(self, given: Any, full: str, where: str, depth: int) -> AvroType:
        inner = full.rpartition(".")[0]
        names, parts = [], []
        for field in _need(given, "fields", where):
            name = str(_need(field, "name", where))
            names.append(name)
            at = f"{where}.{name}"
            parts.append(self.type_of(_need(field, "type", at), inner, at, depth + 1))
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"Avro schema: {full} needs fields, each with a name of its own")
        return AvroType(kind="record", name=full, field_names=tuple(names), parts=tuple(parts))

    def _array(self, given: Any, namespace: str, where: str, depth: int) -> AvroType:
        items = self.type_of(_need(given, "items", where), namespace, where, depth + 1)
        if items.is_empty:
            raise ConfigError(f"Avro schema: the items of the array at {where} hold nothing")
        return AvroType(kind="array", parts=(items,))

    def _union(self, given: list[Any], namespace: str, where: str, depth: int) -> AvroType:
        parts = tuple(self.type_of(each, namespace, where, depth + 1) for each in given)
        if not parts or any(part.kind == "union" for part in parts):
            raise ConfigError(f"Avro schema: the union at {where} is empty or holds a union")
        return AvroType(kind="union", parts=parts)


def _need(given: Any, name: str, where: str) -> Any:
    if not isinstance(given, dict) or name not in given:
        raise ConfigError(f"Avro schema: {where} has no {name!r}: {given!r:.80}")
    return given[name]


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_logical(found: AvroType, given: dict[str, Any], where: str) -> AvroType:
    """The type with its logical type; the specification has readers ignore unknown ones."""
    logical = given.get("logicalType")
    if (found.kind, logical) in _LOGICAL:
        return msgspec.structs.replace(found, logical=logical)
    if logical != "decimal" or found.kind not in ("bytes", "fixed"):
        return found
    precision, scale = given.get("precision"), given.get("scale", 0)
    if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision):
        return found
    # The largest value of a fixed must have that many digits.
    if precision == 0 or (
        found.kind == "fixed" and 10**precision > 2 ** max(8 * found.size - 1, 0)
    ):
        return found
    if precision > _DECIMAL_DIGITS_MAX:
        raise ConfigError(
            f"Avro schema: {where} has {precision} digits, Spark at most {_DECIMAL_DIGITS_MAX}"
        )
    return msgspec.structs.replace(found, logical="decimal", precision=precision, scale=scale)


# ---- fingerprints


def _canonical(given: AvroType, known: set[str]) -> str:
    """The specification's parsing canonical form: a named type in full once, then by name."""
    if given.kind == "union":
        return f"[{','.join(_canonical(part, known) for part in given.parts)}]"
    if given.kind in ("array", "map"):
        label = "items" if given.kind == "array" else "values"
        return f'{{"type":"{given.kind}","{label}":{_canonical(given.parts[0], known)}}}'
    if not given.name:
        return f'"{given.kind}"'
    name = json.dumps(given.name, ensure_ascii=False)
    if given.name in known:
        return name
    known.add(given.name)
    if given.kind == "enum":
        symbols = json.dumps(given.symbols, ensure_ascii=False, separators=(",", ":"))
        rest = f'"symbols":{symbols}'
    elif given.kind == "fixed":
        rest = f'"size":{given.size}'
    else:
        fields = [
            f'{{"name":{json.dumps(field, ensure_ascii=False)},"type":{_canonical(part, known)}}}'
            for field, part in zip(given.field_names, given.parts, strict=True)
        ]
        rest = f'"fields":[{",".join(fields)}]'
    return f'{{"name":{name},"type":"{given.kind}",{rest}}}'


_CRC64_EMPTY = 0xC15D213AA4D7A795


def _crc64(data: bytes) -> int:
    crc = _CRC64_EMPTY
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC64_EMPTY & -(crc & 1))
    return crc
