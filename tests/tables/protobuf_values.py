"""Protobuf descriptors as `protoc` writes them, made without it, and decoding to their own type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
)
from pyspark.sql.pandas.types import to_arrow_type

from dragoman.spark.values.decoded import Decoded
from dragoman.spark.values.protobuf import ProtobufFormat

Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {name.removeprefix("TYPE_").lower(): number for name, number in Field.Type.items()}


class Protocol:
    """One file, `orders.proto` of the package `shop`, and the well-known types."""

    def __init__(self, syntax: str = "proto3") -> None:
        self.descriptors = descriptor_pb2.FileDescriptorSet()
        imported = (timestamp_pb2, duration_pb2)
        for each in imported:
            each.DESCRIPTOR.CopyToProto(self.descriptors.file.add())
        self._file = self.descriptors.file.add(
            name="orders.proto",
            package="shop",
            syntax=syntax,
            dependency=[each.DESCRIPTOR.name for each in imported],
        )

    def unused_name(self) -> str:
        return f"M{len(self._file.message_type)}"

    def enum(self, name: str, *symbols: str) -> None:
        made = self._file.enum_type.add(name=name)
        for number, symbol in enumerate(symbols):
            made.value.add(name=symbol, number=number)

    def message(self, name: str, *fields: str) -> Any:
        """Fields as in `repeated string tags`; numbers count from one."""
        made = self._file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            *words, kind, field_name = text.split()
            field = made.field.add(name=field_name, number=number, label=1)
            self._set_type(made, field, kind)
            for word in words:
                if word in ("repeated", "required"):
                    field.label = {"repeated": 3, "required": 2}[word]
                elif word.startswith("default="):
                    field.default_value = word.removeprefix("default=")
                else:
                    # A oneof; `optional` of proto3 is one with a name of its own.
                    field.proto3_optional = word == "optional"
                    name_of = f"_{field_name}" if word == "optional" else word
                    known = [each.name for each in made.oneof_decl]
                    if name_of not in known:
                        made.oneof_decl.add(name=name_of)
                        known.append(name_of)
                    field.oneof_index = known.index(name_of)
        return made

    def _set_type(self, made: Any, field: Any, kind: str) -> None:
        if kind.startswith("map<"):
            of_key, _, of_value = kind[4:-1].partition(",")
            entry_name = f"{field.name.title()}Entry"
            entry = made.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            for number, (name, each) in enumerate((("key", of_key), ("value", of_value)), 1):
                self._set_type(made, entry.field.add(name=name, number=number, label=1), each)
            field.label, field.type = 3, _TYPES["message"]
            field.type_name = f".shop.{made.name}.{entry_name}"
        elif kind in _TYPES:
            field.type = _TYPES[kind]
        else:
            is_enum = any(each.name == kind for each in self._file.enum_type)
            field.type = _TYPES["enum" if is_enum else "message"]
            field.type_name = f".{kind}" if "." in kind else f".shop.{kind}"

    def new(self, name: str) -> Any:
        """The class of a message."""
        pool = descriptor_pool.DescriptorPool()
        for file in self.descriptors.file:
            pool.AddSerializedFile(file.SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))

    def format(self, name: str, **flags: bool) -> ProtobufFormat:
        given = {"emit_defaults": False, "upcast_unsigned": False} | flags
        return ProtobufFormat.of(self.descriptors.SerializeToString(), name, **given)

    def decode(self, name: str, values: list[bytes], **flags: bool) -> Decoded:
        made = self.format(name, **flags)
        kind = to_arrow_type(made.spark_type(), timezone="UTC")
        decoded = made.decoder(kind)(pa.array(values, pa.binary()))
        decoded.values.validate(full=True)
        assert decoded.values.type == kind
        return decoded

    def rows(self, name: str, *messages: dict[str, Any], **flags: bool) -> list[Any]:
        made = self.new(name)
        values = [made(**each).SerializePartialToString() for each in messages]
        decoded = self.decode(name, values, **flags)
        assert decoded.problems == {}
        return decoded.values.to_pylist()
