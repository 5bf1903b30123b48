"""Goal: Avro values decode exactly, framed or not, and wrong ones are named and cost nothing.

Method: values by hand, among right ones. What comes out of right ones in general is tested with
generated schemas, in `tests/property/test_spark_values.py`.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from dragoman.spark.values.avro import AvroFormat
from dragoman.spark.values.avro_schema import parse_avro_schema
from tables.avro_values import decode, number, sized

PAIR = json.dumps(
    {
        "type": "record",
        "name": "Pair",
        "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}],
    }
)
GOOD = number(7) + sized(b"x")
ROW = {"n": 7, "s": "x"}


def _of(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]})


def _array(items: Any) -> str:
    return _of({"type": "array", "items": items})


_MAP = _of({"type": "map", "values": "int"})
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "problem"),
    [
        (PAIR, GOOD, b"", "cut off"),
        (PAIR, GOOD, number(7), "cut off"),
        (PAIR, GOOD, number(7) + b"\x06ab", "a length goes past the end"),
        (PAIR, GOOD, number(7) + number(-1), "a length goes past the end"),
        (PAIR, GOOD, number(7) + number(2**62) + b"x", "a length goes past the end"),
        (PAIR, GOOD, GOOD + b"\0", "bytes follow the last field"),
        (PAIR, GOOD, number(7) + sized(b"\xff\xfe"), "a string is not UTF-8"),
        (PAIR, GOOD, number(2**31) + sized(b"x"), "an int has more than 32 bits"),
        (PAIR, GOOD, b"\xff" * 11 + sized(b"x"), "a number has more than 64 bits"),
        (_of("boolean"), b"\x01", b"\x02", "a boolean is neither 0 nor 1"),
        (_of("double"), bytes(8), bytes(7), "cut off"),
        (_of(["null", "int"]), number(0), number(2), "a branch is out of range"),
        (_of(["null", "int"]), number(0), number(-1), "a branch is out of range"),
        (
            _of({"type": "enum", "name": "E", "symbols": ["A"]}),
            b"\0",
            number(1),
            "a symbol is out of range",
        ),
        (_of({"type": "fixed", "name": "F", "size": 4}), b"abcd", b"abc", "past the end"),
        (_of(_MILLIS), number(0), number(2**62), "a time is out of range"),
        (_of(_DECIMAL), sized(b"\x01"), sized(b"\x27\x10"), "more than 4 digits"),
        (_of(_DECIMAL), sized(b"\x01"), sized(b"\xd8\xf0"), "more than 4 digits"),
        (_of(_DECIMAL), sized(b"\x01"), sized(b"\x01" + bytes(16)), "more than 4 digits"),
        (_of(_DECIMAL), sized(b"\x01"), sized(b""), "an impossible size"),
        (_of(_DECIMAL), sized(b"\x01"), sized(bytes(33)), "an impossible size"),
        (_array("int"), b"\0", number(2**60) + b"\0", "more items than bytes"),
        (_array("int"), b"\0", number(-(2**63)) + number(1) + b"\0", "more items than bytes"),
        (_array("int"), b"\0", number(2) + b"\x02", "more items than bytes"),
        (_array("int"), b"\0", number(1) + number(2**40) + b"\0", "an int has more than 32"),
        (_array("int"), b"\0", number(3) + b"\x80\x80\x80", "cut off"),
        (_array("double"), b"\0", number(2) + bytes(9), "cut off"),
        (_array("string"), b"\0", number(2**60) + sized(b"x") + b"\0", "more items than bytes"),
        (_array("string"), b"\0", number(1) + sized(b"\xff") + b"\0", "not UTF-8"),
        (_array("string"), b"\0", number(1) + sized(b"x"), "cut off"),
        (_MAP, b"\0", number(1) + b"\x02k", "cut off"),
        (_MAP, b"\0", number(1) + sized(b"\xff") + b"\x02\0", "not UTF-8"),
    ],
)
def test_wrong_values_are_named_and_the_others_read(
    schema: str, good: bytes, bad: bytes, problem: str
) -> None:
    (row,) = decode(schema, [good]).values.to_pylist()
    # Alone, among a few, and among many, which are not read the same way.
    for right, wrong in ((0, 1), (2, 2), (100, 100)):
        decoded = decode(schema, [good] * (right // 2) + [bad] * wrong + [good] * (right // 2))
        assert decoded.values.to_pylist() == [row] * right
        assert set(decoded.problems) == set(range(right // 2, right // 2 + wrong))
        for text in decoded.problems.values():
            assert problem in text


def test_all_of_many_wrong_values_are_found_at_once() -> None:
    decoded = decode(PAIR, [b"\xff" * 12] * 20_000)
    assert len(decoded.problems) == 20_000


def test_decimals_have_any_number_of_leading_bytes() -> None:
    values = [sized(b"\0" * 20 + b"\x05"), sized(b"\xff" * 20 + b"\xfb"), sized(b"\xfb")]
    found = decode(_of(_DECIMAL), values).values.to_pylist()
    assert [str(row["v"]) for row in found] == ["0.05", "-0.05", "-0.05"]


def test_unions_of_numbers_widen() -> None:
    schema = _of(["int", "null", {"type": "long", "logicalType": "timestamp-millis"}])
    values = [number(2) + number(2**40), number(0) + number(3), number(1), number(2) + number(5)]
    found = decode(schema, values).values.to_pylist()
    assert [row["v"] for row in found] == [2**40, 3, None, 5]


def test_long_arrays_keep_their_order() -> None:
    texts = [b"%d" % each for each in range(5000)]
    data = number(len(texts)) + b"".join(map(sized, texts)) + b"\0"
    numbers = _array("long"), number(3000) + b"".join(map(number, range(3000))) + b"\0"
    found = decode(_array("string"), [data, b"\0", data]).values.to_pylist()
    assert [row["v"] for row in found] == [
        [t.decode() for t in texts],
        [],
        [t.decode() for t in texts],
    ]
    assert decode(numbers[0], [numbers[1]]).values.to_pylist() == [{"v": list(range(3000))}]


def test_unrequested_fields_are_skipped() -> None:
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}],
    }
    fields = [
        ("x", {"type": "array", "items": "string"}),
        ("y", ["null", "int", "string"]),
        ("u", ["int", "long"]),
        ("i", inner),
        ("m", {"type": "map", "values": "double"}),
        ("z", "string"),
    ]
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": k} for n, k in fields]}
    value = (
        number(1) + sized(b"item") + b"\0" + number(2) + sized(b"why") + number(1) + number(9)
        + number(1) + number(2) + number(1) + sized(b"k") + struct.pack("<d", 1.5) + b"\0"
        + sized(b"end")
    )  # fmt: skip
    kind = pa.struct([("z", pa.string()), ("i", pa.struct([("b", pa.int32())]))])
    decoded = AvroFormat(json.dumps(schema)).decoder(kind)(pa.array([value] * 3))
    assert decoded.values.type == kind
    assert decoded.values.to_pylist() == [{"z": "end", "i": {"b": 2}}] * 3


# ---- framing

FINGERPRINT = parse_avro_schema(PAIR).fingerprint
SINGLE = b"\xc3\x01" + FINGERPRINT + GOOD
OTHER = b"\xc3\x01" + bytes(8) + GOOD


def test_confluent_framing_is_dropped_when_it_is_said_to_be_there() -> None:
    decoded = decode(
        PAIR, [b"\0\0\0\0\x05" + GOOD, GOOD, b"\0\0", b"\1\0\0\0\5" + GOOD], "confluent"
    )
    assert decoded.values.to_pylist() == [ROW]
    assert set(decoded.problems) == {1, 2, 3}
    assert "zero byte and a schema id" in decoded.problems[1]


def test_single_object_encoding_is_known_by_its_fingerprint() -> None:
    decoded = decode(PAIR, [SINGLE, GOOD, OTHER])
    assert decoded.values.to_pylist() == [ROW, ROW]
    assert (
        f"its schema has the fingerprint {'00' * 8}, the given schema has {FINGERPRINT.hex()}"
        in decoded.problems[2]
    )


def test_single_object_encoding_is_required_when_it_is_asked_for() -> None:
    decoded = decode(PAIR, [SINGLE, GOOD, OTHER, b"\xc3"], "single-object")
    assert decoded.values.to_pylist() == [ROW]
    assert set(decoded.problems) == {1, 2, 3}
    assert "does not begin with the schema's fingerprint" in decoded.problems[1]


def test_plain_values_may_begin_like_single_object_encoding() -> None:
    value = number(-98) + sized(b"y" * 20)
    assert value.startswith(b"\xc3\x01")
    assert decode(PAIR, [value]).values.to_pylist() == [{"n": -98, "s": "y" * 20}]
