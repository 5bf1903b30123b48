"""Whether values are what the schema says: of its types, and null only where it allows that."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dragoman.errors import ConfigError


def check_fits(found: DataType, wanted: DataType, where: str = "value") -> None:
    """A schema from the user may leave fields out, and differ in what may be null; no more.

    Raises `ConfigError`.
    """
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        known = {field.name: field.dataType for field in found.fields}
        for field in wanted.fields:
            if field.name not in known:
                listed = ", ".join(known)
                raise ConfigError(f"{where} has no field {field.name!r}; there are {listed}")
            check_fits(known[field.name], field.dataType, f"{where}.{field.name}")
    elif isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        check_fits(found.elementType, wanted.elementType, where)
    elif isinstance(found, MapType) and isinstance(wanted, MapType):
        check_fits(found.keyType, wanted.keyType, where)
        check_fits(found.valueType, wanted.valueType, where)
    elif found != wanted:
        is_type, says = found.simpleString(), wanted.simpleString()
        raise ConfigError(f"{where} is {is_type}, the schema says {says}")


def forbidden_nulls(array: pa.Array, field: pa.Field) -> dict[int, str]:
    """What is null though its field is NOT NULL, by row. Spark would read it as some value."""
    if not _first_null(array, field):
        return {}
    rows = ((row, _first_null(array.slice(row, 1), field)) for row in range(len(array)))
    return {row: f"{name} is null, the schema says NOT NULL" for row, name in rows if name}


def _first_null(array: pa.Array, field: pa.Field) -> str:
    """The name of a field that is null and must not be; empty when there is none."""
    if array.null_count and not field.nullable:
        return str(field.name)
    # What is within a null is not there.
    kind, valid = array.type, array.drop_null() if array.null_count else array
    if pa.types.is_struct(kind):
        within = [(valid.field(index), each) for index, each in enumerate(kind)]
    elif pa.types.is_list(kind):
        within = [(valid.flatten(), kind.value_field)]
    elif pa.types.is_map(kind):
        entries = (
            slice(valid.offsets[0].as_py(), valid.offsets[-1].as_py()) if len(valid) else slice(0)
        )
        within = [(valid.keys[entries], kind.key_field), (valid.items[entries], kind.item_field)]
    else:
        return ""
    names = (_first_null(inner, each) for inner, each in within)
    return next((f"{field.name}.{name}" for name in names if name), "")
