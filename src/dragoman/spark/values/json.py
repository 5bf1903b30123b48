"""Text and JSON values to Arrow, and the inferred type of JSON without a schema."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.types import DataType, StringType, StructType

from dragoman.errors import ConfigError
from dragoman.spark.values.decoded import Decode, Decoded, converted


class TextFormat(msgspec.Struct, frozen=True):
    def spark_type(self) -> DataType:
        return StringType()

    def decoder(self, kind: pa.DataType) -> Decode:
        def decode(values: pa.BinaryArray) -> Decoded:
            try:
                return Decoded(values.cast(kind), {})
            except pa.ArrowInvalid:
                found = values.to_pylist()
                return converted(found, bytes.decode, lambda texts: pa.array(texts, kind))

        return decode


class JsonFormat(msgspec.Struct, frozen=True):
    def spark_type(self) -> DataType | None:
        """None: JSON is decoded to any requested type."""
        return None

    def decoder(self, kind: pa.DataType) -> Decode:
        plain = _as_in_json(kind)

        def build(found: list[object]) -> pa.Array:
            array = pa.array(found, plain)
            return array if plain == kind else array.cast(kind)

        return lambda values: converted(values.to_pylist(), msgspec.json.decode, build)


def _as_in_json(kind: pa.DataType) -> pa.DataType:
    """The type with strings in place of types that JSON does not have."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_in_json(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_in_json(kind.value_type)))
    is_text = pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind)
    return pa.string() if is_text else kind


def inferred_type(values: Sequence[bytes]) -> StructType:
    """Raises `ConfigError` when no type fits all of them."""
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        kind = pa.array([msgspec.json.decode(value) for value in values]).type
    except (msgspec.DecodeError, pa.ArrowException, TypeError) as error:
        raise ConfigError(f"no schema fits the first records: {error}; give valueSchema") from None
    if not pa.types.is_struct(kind) or not kind.num_fields:
        raise ConfigError("no schema can be inferred without JSON objects; give valueSchema")
    found = from_arrow_type(kind)
    assert isinstance(found, StructType)
    return found
