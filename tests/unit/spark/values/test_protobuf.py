"""Goal: Protobuf becomes the types and nulls that spark-protobuf gives; wrong values are named.

Method: descriptors by hand, values from Google's library.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from dragoman.errors import ConfigError
from dragoman.spark.values.protobuf import ProtobufFormat
from tables.protobuf_values import Protocol

_SCALARS = (
    ("int32", "int", -5),
    ("sint32", "int", -5),
    ("sfixed32", "int", -5),
    ("uint32", "int", 5),
    ("fixed32", "int", 5),
    ("int64", "bigint", -(2**40)),
    ("sint64", "bigint", -(2**40)),
    ("sfixed64", "bigint", -(2**40)),
    ("uint64", "bigint", 2**40),
    ("fixed64", "bigint", 2**40),
    ("float", "float", 0.5),
    ("double", "double", 0.25),
    ("bool", "boolean", True),
    ("string", "string", "é"),
    ("bytes", "binary", b"\xff"),
)


@pytest.mark.parametrize(("kind", "spark", "value"), _SCALARS, ids=[each[0] for each in _SCALARS])
def test_scalars_alone_repeated_and_in_maps(kind: str, spark: str, value: Any) -> None:
    protocol = Protocol()
    protocol.message(
        "M", f"{kind} a", f"repeated {kind} b", f"map<string,{kind}> c", f"optional {kind} d"
    )
    found = protocol.format("M").spark_type().simpleString()
    assert found == f"struct<a:{spark},b:array<{spark}>,c:map<string,{spark}>,d:{spark}>"
    zero = type(value)()
    full: dict[str, Any] = {"a": value, "b": [value, zero], "c": {"k": zero}, "d": zero}
    rows = protocol.rows("M", full, {})
    assert rows == [
        {"a": value, "b": [value, zero], "c": [("k", zero)], "d": zero},
        {"a": None, "b": [], "c": [], "d": None},
    ]
    assert protocol.rows("M", {}, emit_defaults=True)[0] == {"a": zero, "b": [], "c": [], "d": None}


def test_a_negative_zero_is_not_the_default() -> None:
    protocol = Protocol()
    protocol.message("M", "double a")
    assert [str(row["a"]) for row in protocol.rows("M", {"a": -0.0}, {"a": 0.0})] == [
        "-0.0",
        "None",
    ]


def test_large_unsigned_numbers_are_negative_or_upcast() -> None:
    protocol = Protocol()
    protocol.message("M", "uint32 a", "uint64 b", "fixed32 c", "repeated uint64 d")
    row = {"a": 2**32 - 1, "b": 2**64 - 1, "c": 2**32 - 1, "d": [2**63]}
    assert protocol.rows("M", row) == [{"a": -1, "b": -1, "c": -1, "d": [-(2**63)]}]
    upcast = {"a": 2**32 - 1, "b": Decimal(2**64 - 1), "c": -1, "d": [Decimal(2**63)]}
    assert protocol.rows("M", row, upcast_unsigned=True) == [upcast]
    found = protocol.format("M", upcast_unsigned=True).spark_type().simpleString()
    assert found == "struct<a:bigint,b:decimal(20,0),c:int,d:array<decimal(20,0)>>"


def test_enums_are_their_names() -> None:
    protocol = Protocol()
    protocol.enum("Kind", "NONE", "NEW")
    protocol.message("M", "Kind a", "repeated Kind b")
    rows = protocol.rows("M", {"a": 1, "b": [0, 1, 7]}, {"a": 0})
    assert rows == [
        {"a": "NEW", "b": ["NONE", "NEW", "UNKNOWN_ENUM_VALUE_Kind_7"]},
        {"a": None, "b": []},
    ]


def test_messages_are_structs_and_a_oneof_is_columns_of_which_one_is_set() -> None:
    protocol = Protocol()
    protocol.message("Item", "string name", "int32 count")
    protocol.message(
        "Order", "Item first", "repeated Item items", "map<int32,Item> by_id",
        "choice string left", "choice Item right",
    )  # fmt: skip
    apple = {"name": "apple", "count": 2}
    rows = protocol.rows(
        "Order",
        {"first": apple, "items": [apple, {}], "by_id": {4: apple}},
        {"left": ""},
        {"right": {}},
    )
    empty = {"name": None, "count": None}
    nothing: dict[str, Any] = {"first": None, "items": [], "by_id": [], "left": None, "right": None}
    assert rows == [
        nothing | {"first": apple, "items": [apple, empty], "by_id": [(4, apple)]},
        nothing | {"left": ""},
        nothing | {"right": empty},
    ]


def test_times_and_durations() -> None:
    protocol = Protocol()
    protocol.message("M", "google.protobuf.Timestamp at", "google.protobuf.Duration took")
    found = protocol.format("M").spark_type().simpleString()
    assert found == "struct<at:timestamp,took:interval day to second>"
    made = protocol.new("M")
    message = made()
    message.at.seconds, message.at.nanos = -1, 999_999_999
    message.took.seconds, message.took.nanos = -1, -1_500
    decoded = protocol.decode("M", [message.SerializeToString(), b""])
    assert decoded.values.to_pylist() == [
        {
            "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            "took": timedelta(seconds=-1, microseconds=-1),
        },
        {"at": None, "took": None},
    ]
    message.at.seconds = 2**62
    late = protocol.decode("M", [b"", message.SerializeToString()])
    assert late.problems == {1: "OverflowError: a time is out of range"}


def test_fields_of_proto2_have_presence_and_defaults() -> None:
    protocol = Protocol("proto2")
    protocol.enum("Kind", "NONE", "NEW")
    protocol.message("M", "required int32 a", "int32 b", "default=7 int32 c", "Kind d", "string e")
    found: Any = protocol.format("M").spark_type()
    assert [field.nullable for field in found.fields] == [False, True, True, True, True]
    rows = protocol.rows("M", {"a": 0, "b": 0, "c": 0, "d": 1}, {"a": 1})
    assert rows == [
        {"a": 0, "b": 0, "c": 0, "d": "NEW", "e": None},
        {"a": 1, "b": None, "c": 7, "d": None, "e": None},
    ]
    # Text of proto2 is not looked at when it is parsed.
    assert set(protocol.decode("M", [b"\x08\x01", b"\x08\x01\x2a\x01\xff"]).problems) == {1}


@pytest.mark.parametrize(
    "value",
    [
        b"\x0a\x05ab",  # cut off
        b"\x0a\xff\xff\xff\xff\x0f",  # a length of four gigabytes
        b"\x0a\x01\xff",  # not UTF-8
        b"\x08",  # a field without a value
        b"\x00\x01",  # no such field number
        b"\x80" * 11,  # a number of more than 64 bits
        b"\x7b" * 200,  # groups in groups
    ],
)
def test_wrong_values_are_named_and_the_others_read(value: bytes) -> None:
    protocol = Protocol()
    protocol.message("M", "string s")
    good = protocol.new("M")(s="x").SerializeToString()
    decoded = protocol.decode("M", [good, value, good, value, good])
    assert set(decoded.problems) == {1, 3}
    assert decoded.values.to_pylist() == [{"s": "x"}] * 3


def test_what_no_table_can_hold_is_refused() -> None:
    protocol = Protocol()
    protocol.message("Tree", "string name", "repeated Node nodes")
    protocol.message("Node", "Tree below")
    protocol.message("Empty")
    protocol.message("Partly", "Empty nothing", "int32 n", "repeated Empty none")
    with pytest.raises(ConfigError, match=r"shop\.Tree contains itself at shop\.Node\.below"):
        protocol.format("Tree").spark_type()
    with pytest.raises(ConfigError, match=r"the message shop\.Empty has no fields"):
        protocol.format("Empty").spark_type()
    assert protocol.format("Partly").spark_type().simpleString() == "struct<n:int>"
    for depth in range(70):
        protocol.message(f"D{depth}", f"D{depth + 1} d" if depth < 69 else "int32 n")
    with pytest.raises(ConfigError, match="more than 64 messages deep"):
        protocol.format("D0").spark_type()


def test_messages_are_found_by_either_name_and_mistakes_named() -> None:
    protocol = Protocol()
    protocol.message("M", "string s", "google.protobuf.Timestamp at")
    assert protocol.format("M").message == protocol.format("shop.M").message == "shop.M"
    with pytest.raises(
        ConfigError, match=r"messageName: 'N' is not exactly one message of .*shop\.M"
    ):
        protocol.format("N")
    alone = protocol.descriptors.file.pop().SerializeToString()
    broken = type(protocol.descriptors)()
    broken.file.add().ParseFromString(alone)
    flags = {"emit_defaults": False, "upcast_unsigned": False}
    with pytest.raises(ConfigError, match=r"orders\.proto lacks a file that it imports"):
        ProtobufFormat.of(broken.SerializeToString(), "M", **flags)
    with pytest.raises(ConfigError, match="expected the output of `protoc --descriptor_set_out`"):
        ProtobufFormat.of(b"\xff\xff", "M", **flags)


def test_only_what_a_message_needs_is_carried_along() -> None:
    protocol = Protocol()
    protocol.message("M", "string s")
    other = protocol.descriptors.file.add(name="other.proto", package="other")
    other.message_type.add(name="Unused")
    carried = protocol.format("M").descriptors
    assert b"orders.proto" in carried
    assert b"timestamp.proto" in carried
    assert b"Unused" not in carried
