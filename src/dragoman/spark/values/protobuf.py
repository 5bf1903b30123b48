"""Decodes Protobuf messages to Arrow: Google's library parses them, and each field becomes a
column.

Types and nulls are those of spark-protobuf. A field is null if it has presence and is not set or,
unless `emit_defaults`, if it has no presence (proto3) and has its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as t

from dragoman.errors import ConfigError
from dragoman.limits import SPARK_TYPE_DEPTH_MAX
from dragoman.spark.values.decoded import Decode, converted, scattered

#: Name of a field's C++ type → its type in numpy and in Spark.
_NUMBERS: dict[str, tuple[str, t.DataType]] = {
    "CPPTYPE_INT32": ("i4", t.IntegerType()),
    "CPPTYPE_INT64": ("i8", t.LongType()),
    "CPPTYPE_UINT32": ("u4", t.IntegerType()),
    "CPPTYPE_UINT64": ("u8", t.LongType()),
    "CPPTYPE_FLOAT": ("f4", t.FloatType()),
    "CPPTYPE_DOUBLE": ("f8", t.DoubleType()),
    "CPPTYPE_BOOL": ("?", t.BooleanType()),
}
_TIMES: dict[str, t.DataType] = {
    "google.protobuf.Timestamp": t.TimestampType(),
    "google.protobuf.Duration": t.DayTimeIntervalType(),
}
_SECONDS_MAX = (2**63 - 1) // 10**6 - 1
_BITS = {1: np.uint8, 4: np.uint32, 8: np.uint64}


class ProtobufFormat(msgspec.Struct, frozen=True):
    #: A `FileDescriptorSet` with the files that the message needs.
    descriptors: bytes
    #: The full name.
    message: str
    #: Whether a field without presence that has its default yields that value instead of null.
    emit_defaults: bool = False
    #: Whether uint32 and uint64 become wider types instead of negative numbers.
    upcast_unsigned: bool = False

    @staticmethod
    def of(
        descriptors: bytes, message: str, *, emit_defaults: bool, upcast_unsigned: bool
    ) -> ProtobufFormat:
        """`message` may omit its package where it is unambiguous. Raises `ConfigError`."""
        found = _descriptor(descriptors, message)
        return ProtobufFormat(
            _needed(descriptors, found.file.name), found.full_name, emit_defaults, upcast_unsigned
        )

    def spark_type(self) -> t.DataType:
        descriptor = _descriptor(self.descriptors, self.message)
        found = self._struct_type(descriptor, (descriptor.full_name,))
        if found is None:
            raise ConfigError(f"the message {self.message} has no fields")
        return found

    def _struct_type(self, descriptor: Any, within: tuple[str, ...]) -> t.StructType | None:
        if len(within) > SPARK_TYPE_DEPTH_MAX:
            raise ConfigError(f"{within[0]} is more than {SPARK_TYPE_DEPTH_MAX} messages deep")
        fields = []
        for field in descriptor.fields:
            kind = self._field_type(field, within)
            # Spark has no empty struct: a field whose message has no fields is left out.
            if kind is not None:
                fields.append(t.StructField(field.name, kind, not field.is_required))
        return t.StructType(fields) if fields else None

    def _field_type(self, field: Any, within: tuple[str, ...]) -> t.DataType | None:
        if _is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            of_key, of_value = self._value_type(key, within), self._value_type(value, within)
            if of_key is None or of_value is None:
                return None
            return t.MapType(of_key, of_value, valueContainsNull=False)
        kind = self._value_type(field, within)
        return kind and t.ArrayType(kind, containsNull=False) if field.is_repeated else kind

    def _value_type(self, field: Any, within: tuple[str, ...]) -> t.DataType | None:
        if field.message_type is not None:
            name = field.message_type.full_name
            if name in within:
                raise ConfigError(
                    f"{name} contains itself at {field.full_name}; a table cannot hold that"
                )
            return _TIMES.get(name) or self._struct_type(field.message_type, (*within, name))
        if self.upcast_unsigned and field.type == field.TYPE_UINT32:
            return t.LongType()
        if self.upcast_unsigned and field.type == field.TYPE_UINT64:
            return t.DecimalType(20, 0)
        if field.cpp_type == field.CPPTYPE_STRING:
            return t.BinaryType() if field.type == field.TYPE_BYTES else t.StringType()
        return _NUMBERS[_cpp_type(field)][1] if field.enum_type is None else t.StringType()

    def decoder(self, kind: pa.DataType) -> Decode:
        from google.protobuf.message_factory import GetMessageClass

        descriptor = _descriptor(self.descriptors, self.message)
        parse = GetMessageClass(descriptor).FromString
        return lambda values: converted(
            values.to_pylist(), parse, lambda found: self._structs(found, descriptor, kind)
        )

    # ---- columns

    def _structs(self, messages: Sequence[Any], descriptor: Any, kind: pa.DataType) -> pa.Array:
        arrays = [
            self._column(messages, descriptor.fields_by_name[each.name], each.type) for each in kind
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(kind))

    def _column(self, messages: Sequence[Any], field: Any, kind: pa.DataType) -> pa.Array:
        found = list(map(attrgetter(field.name), messages))
        if _is_map(field):
            keys = [list(each) for each in found]
            of_key, of_value = (
                field.message_type.fields_by_name[name] for name in ("key", "value")
            )
            values = [
                each[key] for each, its_keys in zip(found, keys, strict=True) for key in its_keys
            ]
            return pa.MapArray.from_arrays(
                _offsets(keys),
                self._values(list(chain.from_iterable(keys)), of_key, kind.key_type),
                self._values(values, of_value, kind.item_type),
                type=kind,
            )
        if field.is_repeated:
            lists = [each[:] for each in found]
            items = self._values(list(chain.from_iterable(lists)), field, kind.value_type)
            return pa.ListArray.from_arrays(_offsets(lists), items, type=kind)
        if field.has_presence and not field.has_default_value:
            is_set = list(map(methodcaller("HasField", field.name), messages))
            places = np.flatnonzero(np.array(is_set, np.bool_))
            given = [found[place] for place in places] if len(places) < len(found) else found
            return scattered(self._values(given, field, kind), places, len(found))
        hide_default = not field.has_presence and not self.emit_defaults
        return self._values(found, field, kind, hide_default=hide_default)

    def _values(
        self, found: list[Any], field: Any, kind: pa.DataType, *, hide_default: bool = False
    ) -> pa.Array:
        if field.message_type is not None:
            if field.message_type.full_name in _TIMES:
                return pa.array(_micros(found), pa.int64()).cast(kind)
            return self._structs(found, field.message_type, kind)
        if field.enum_type is not None:
            symbols = _Symbols(field.enum_type)
            return pa.array(
                [symbols[each] for each in found],
                kind,
                mask=_is_zero(found) if hide_default else None,
            )
        if field.cpp_type == field.CPPTYPE_STRING:
            return pa.array(found, kind, mask=_is_zero(found) if hide_default else None)
        numbers = np.array(found, _NUMBERS[_cpp_type(field)][0])
        # Compared as bits, since a negative zero is not the default.
        is_null = numbers.view(_BITS[numbers.itemsize]) == 0 if hide_default else None
        if pa.types.is_decimal(kind) or numbers.dtype.kind != "u":
            return pa.array(numbers, mask=is_null).cast(kind)
        if numbers.itemsize == 4 and pa.types.is_int64(kind):
            return pa.array(numbers.astype(np.int64), mask=is_null)
        return pa.array(numbers.view(f"i{numbers.itemsize}"), mask=is_null)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _cpp_type(field: Any) -> str:
    return next(name for name in _NUMBERS if getattr(field, name) == field.cpp_type)


def _offsets(lists: Sequence[Sequence[Any]]) -> pa.Array:
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int32, len(lists)), out=offsets[1:])
    return pa.array(offsets)


def _is_zero(found: list[Any]) -> NDArray[np.bool_]:
    return np.fromiter((not each for each in found), np.bool_, len(found))


class _Symbols(dict[int, str]):
    """Names of an enum by number."""

    def __init__(self, enum: Any) -> None:
        super().__init__((each.number, each.name) for each in reversed(enum.values))
        self._enum = enum.name

    def __missing__(self, number: int) -> str:
        # Java's name for a number that only newer schemas define.
        return f"UNKNOWN_ENUM_VALUE_{self._enum}_{number}"


def _micros(times: list[Any]) -> NDArray[np.int64]:
    """Timestamps or durations in microseconds. Raises `OverflowError` beyond Spark's range."""
    seconds = np.fromiter(map(attrgetter("seconds"), times), np.int64, len(times))
    nanos = np.fromiter(map(attrgetter("nanos"), times), np.int64, len(times))
    if ((seconds > _SECONDS_MAX) | (seconds < -_SECONDS_MAX)).any():
        raise OverflowError("a time is out of range")
    # Both fields have the sign of the duration; fractions of a microsecond are dropped.
    return seconds * 10**6 + (nanos / 1000).astype(np.int64)


# ---- descriptors


@lru_cache(maxsize=16)
def _descriptor(descriptors: bytes, message: str) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    files = _files(descriptors)
    pool = DescriptorPool()
    for name, file in files.items():
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise ConfigError(
                f"descriptorFile: {name} lacks a file that it imports (`protoc` needs "
                f"--include_imports) or is malformed: {error}"
            ) from None
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        pass
    found = [
        each for name in files for each in pool.FindFileByName(name).message_types_by_name.values()
    ]
    same = [each for each in found if each.name == message]
    if len(same) != 1:
        listed = ", ".join(sorted(each.full_name for each in same or found)[:20])
        raise ConfigError(
            f"messageName: {message!r} is not exactly one message of {listed or 'none'}"
        )
    return same[0]


def _files(descriptors: bytes) -> dict[str, Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        return {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}
    except DecodeError as error:
        raise ConfigError(
            f"descriptorFile: expected the output of `protoc --descriptor_set_out`: {error}"
        ) from None


def _needed(descriptors: bytes, name: str) -> bytes:
    """The descriptors of a file and of its imports, in their given order, without comments."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = _files(descriptors)
    wanted, waiting = set(), [name]
    while waiting:
        if (each := waiting.pop()) not in wanted:
            wanted.add(each)
            waiting += files[each].dependency
    kept = FileDescriptorSet(file=[file for name, file in files.items() if name in wanted])
    for file in kept.file:
        file.ClearField("source_code_info")
    return bytes(kept.SerializeToString(deterministic=True))
