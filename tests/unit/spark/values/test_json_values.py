"""Goal: text and JSON come out as the type asked for; what does not fit is named.

Method: a few values by hand, right and wrong.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from dragoman.errors import ConfigError
from dragoman.spark.values.json import JsonFormat, TextFormat, inferred_type


def test_text_is_utf8() -> None:
    decode = TextFormat().decoder(pa.string())
    assert decode(pa.array([b"a", "é".encode()])).values.to_pylist() == ["a", "é"]
    decoded = decode(pa.array([b"a", b"\xff", b"b", b"\xfe"]))
    assert decoded.values.to_pylist() == ["a", "b"]
    assert set(decoded.problems) == {1, 3}


def test_json_has_text_for_what_it_has_no_form_for() -> None:
    kind = pa.struct(
        [
            ("d", pa.date32()),
            ("m", pa.decimal128(9, 2)),
            ("l", pa.list_(pa.field("element", pa.date32()))),
        ]
    )
    value = b'{"d": "2024-02-29", "m": "1.50", "l": ["2024-01-01"]}'
    (row,) = JsonFormat().decoder(kind)(pa.array([value])).values.to_pylist()
    assert row == {"d": date(2024, 2, 29), "m": Decimal("1.50"), "l": [date(2024, 1, 1)]}


def test_json_that_is_none_or_does_not_fit_is_named() -> None:
    values = [b'{"n": 1}', b"oops", b'{"n": "x"}', b'{"n": 2147483648}', b'{"n": 4}', b"", b"[1]"]
    decoded = JsonFormat().decoder(pa.struct([("n", pa.int32())]))(pa.array(values))
    assert decoded.values.to_pylist() == [{"n": 1}, {"n": 4}]
    assert set(decoded.problems) == {1, 2, 3, 5, 6}


def test_types_are_inferred_from_objects() -> None:
    found = inferred_type([b'{"a": 1}', b'{"b": ["x"], "a": null}'])
    assert found.simpleString() == "struct<a:bigint,b:array<string>>"
    for values in ([], [b"1"], [b"{}"], [b"oops"], [b'{"a": 1}', b'{"a": "x"}']):
        with pytest.raises(ConfigError, match="give valueSchema"):
            inferred_type(values)
