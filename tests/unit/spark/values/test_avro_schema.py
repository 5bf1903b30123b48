"""Goal: Avro schemas become the types that spark-avro gives, and what no table holds is refused.

Method: a table of schemas and types; fingerprints against those that fastavro computes.
"""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from hypothesis import given

from dragoman.errors import ConfigError
from dragoman.spark.values.avro_schema import parse_avro_schema
from tables.avro_values import Typed, records, types


def _record(*fields: tuple[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": listed, **more}


def _logical(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ({"type": "string", "avro.java.string": "String"}, "string"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        ({"type": "array", "items": "int"}, "array<int>"),
        ({"type": "map", "values": "int"}, "map<string,int>"),
        (_record(("a", "int"), ("b", ["null", "string"])), "struct<a:int,b:string>"),
        (_logical("int", "date"), "date"),
        (_logical("int", "time-millis"), "int"),
        (_logical("long", "timestamp-millis"), "timestamp"),
        (_logical("long", "timestamp-micros"), "timestamp"),
        (_logical("long", "local-timestamp-millis"), "timestamp_ntz"),
        (_logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (_logical("string", "uuid"), "string"),
        (_logical("bytes", "decimal", precision=9, scale=2), "decimal(9,2)"),
        (_logical("bytes", "decimal", precision=2, scale=9), "binary"),
        (_logical("fixed", "decimal", name="F", size=2, precision=4), "decimal(4,0)"),
        (_logical("fixed", "decimal", name="F", size=2, precision=5), "binary"),
        (_logical("long", "of our own"), "bigint"),
        (["null", "int"], "int"),
        (["int"], "int"),
        (["int", "long"], "bigint"),
        (["null", "double", "float"], "double"),
        (["null", "int", "string"], "struct<member0:int,member1:string>"),
    ],
)
def test_types_are_those_of_spark_avro(schema: Any, kind: str) -> None:
    assert parse_avro_schema(json.dumps(schema)).spark_type.simpleString() == kind


def test_what_may_be_null_is_what_has_null_in_its_union() -> None:
    schema = _record(
        ("a", "int"),
        ("b", ["int", "null"]),
        ("c", {"type": "array", "items": ["null", "int"]}),
        ("d", {"type": "map", "values": "int"}),
    )
    found: Any = parse_avro_schema(json.dumps(schema)).spark_type
    assert [field.nullable for field in found.fields] == [False, True, False, False]
    assert found["c"].dataType.containsNull
    assert not found["d"].dataType.valueContainsNull


def test_types_are_known_by_their_names_from_then_on() -> None:
    inner = _record(("x", "int"), name="Inner", namespace="other.place")
    schema = _record(
        ("a", inner), ("b", "other.place.Inner"), ("c", ["null", "E"]), namespace="here"
    )
    with pytest.raises(ConfigError, match=r"the type 'E' at value\.c is not defined"):
        parse_avro_schema(json.dumps(schema))
    schema["fields"][2]["type"] = ["null", {"type": "enum", "name": "E", "symbols": ["A"]}]
    schema["fields"].append({"name": "d", "type": "here.E"})
    found = parse_avro_schema(json.dumps(schema)).spark_type.simpleString()
    assert found == "struct<a:struct<x:int>,b:struct<x:int>,c:string,d:string>"


def _nested(depth: int) -> Any:
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("null", "is null"),
        ({"name": "R"}, "expected a type at value"),
        (7, "expected a type at value"),
        ({"type": "record", "name": "R"}, "value has no 'fields'"),
        (_record(), "R needs fields"),
        (_record(("a", "int"), ("a", "int")), "R needs fields, each with a name of its own"),
        (_record(("a", ["null", "R"])), r"R contains itself at value\.a; a table cannot"),
        (_record(("a", _record(("b", "int")))), r"R is defined twice, again at value\.a"),
        ({"type": "enum", "name": "E", "symbols": []}, "E has no symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "the size of F is -1"),
        ({"type": "array", "items": "null"}, "items of the array at value hold nothing"),
        ({"type": "array", "items": _record(("a", "null"))}, "hold nothing"),
        ([], "is empty or holds a union"),
        (["null", ["int"]], "is empty or holds a union"),
        (_logical("bytes", "decimal", precision=39), "39 digits, Spark at most 38"),
        (_nested(65), "more than 64 types deep"),
    ],
)
def test_what_no_table_can_hold_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_avro_schema(json.dumps(schema))


@pytest.mark.parametrize("text", ["", "{", "record", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the Avro schema is not JSON"):
        parse_avro_schema(text)


@given(records() | types())
def test_fingerprints_are_those_that_fastavro_computes(typed: Typed) -> None:
    schema, _ = typed
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    # Shown as the bytes of single-object encoding.
    expected = fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")
    assert parse_avro_schema(json.dumps(schema)).fingerprint.hex() == expected
