"""Goal: values as Debezium's defaults have them.

Method: literal pairs from Debezium's documentation of types; PostgreSQL itself is asked in
`tests/integration/test_pgoutput_server.py`.
"""

from __future__ import annotations

import json

import pytest

from dragoman.cdc.events.envelopes import debezium_form
from dragoman.errors import DecodeError
from dragoman.protocols.postgres.messages import Column
from dragoman.protocols.postgres.types import Kind


def shown(name: str, text: str, modifier: int = -1, *, is_array: bool = False) -> object:
    form = debezium_form(Kind(name, is_array), Column("c", 0, modifier))
    return json.loads(form.to_json(text.encode()))


@pytest.mark.parametrize(
    ("name", "modifier", "text", "expected"),
    [
        ("date", -1, "1970-01-01", 0),
        ("date", -1, "2024-02-29", 19782),
        ("date", -1, "1969-12-31", -1),
        ("date", -1, "0001-12-31 BC", -719163),
        ("date", -1, "infinity", 2147483647),
        ("time", -1, "01:02:03.45", 3_723_450_000),
        ("time", 3, "01:02:03.45", 3_723_450),
        ("time", 0, "24:00:00", 86_400_000),
        ("timestamp", -1, "1970-01-01 00:00:01", 1_000_000),
        ("timestamp", 3, "1969-12-31 23:59:59.999", -1),
        ("timestamp", 6, "2024-01-01 00:00:00.000001", 1_704_067_200_000_001),
        ("timestamp", -1, "-infinity", -9223372036832400000),
        ("timestamptz", -1, "2024-01-01 10:20:30.5+00", "2024-01-01T10:20:30.5Z"),
        ("timetz", -1, "07:15:00+00", "07:15:00Z"),
        ("timetz", -1, "01:30:00.54+05:30", "20:00:00.54Z"),
        ("interval", -1, "1 day", 86_400_000_000),
        ("interval", -1, "-1 days +02:03:04.5", -79_015_500_000),
        ("interval", -1, "-00:00:01", -1_000_000),
        ("interval", -1, "1 year", 31_557_600_000_000),
        ("interval", -1, "00:00:00", 0),
        ("numeric", -1, "1.50", "1.50"),
        ("int4", -1, "7", 7),
        ("json", -1, '{"a": 1}', '{"a": 1}'),
        ("money", -1, "-$1,234.50", "-1234.50"),
        ("bit", 1, "1", True),
        ("bit", 1, "0", False),
        ("bit", 12, "000100000001", "AQE="),
        ("varbit", -1, "", ""),
        ("", -1, "red", "red"),
    ],
)
def test_values(name: str, modifier: int, text: str, expected: object) -> None:
    assert shown(name, text, modifier) == expected


def test_arrays_have_the_same_elements() -> None:
    assert shown("date", "{1970-01-02,NULL}", is_array=True) == [1, None]
    assert shown("jsonb", '{"{\\"a\\": 1}"}', is_array=True) == ['{"a": 1}']
    assert shown("int4", "{{1},{2}}", is_array=True) == [[1], [2]]


@pytest.mark.parametrize(
    ("name", "text"),
    [("date", "soon"), ("time", "noon"), ("timestamp", "2024-01-01"), ("timetz", "1")],
)
def test_other_texts_are_refused(name: str, text: str) -> None:
    with pytest.raises(DecodeError):
        shown(name, text)
