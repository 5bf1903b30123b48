"""Goal: records of every envelope say what they mean, and records that are none are refused.

Method: records by hand.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dragoman.pipelines.jobs.changes import (
    Changes,
    EnvelopeError,
    Order,
    detected_envelope,
    detected_order,
    read_changes,
)
from tables.changelogs import ENVELOPES, RECORDS, Event, record, records

EVENTS = [
    Event(operation="INSERT", lsn=20, key="1", row={"id": 1, "doc": "long"}),
    Event(operation="UPDATE", lsn=21, seq=3, key="1", row={"id": 1}, left_out=("doc",)),
    Event(operation="TRUNCATE", lsn=22),
    Event(operation="DELETE", lsn=23, key="1", row={"id": 1}),
]


def _read(rows: list[dict[str, Any]], envelope: Any = "flat", order: Order = "lsn") -> Changes:
    return read_changes(pa.Table.from_pylist(rows, schema=RECORDS), envelope, order)


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_envelopes_are_detected_and_say_the_same(envelope: Any) -> None:
    given = records(EVENTS, envelope)
    assert detected_envelope(given.column("value").to_pylist()) == envelope
    assert detected_order(given, envelope) == "lsn"
    changes = read_changes(given, envelope, "lsn")
    assert changes.marks.column("_lsn").to_pylist() == [20, 21, 23]
    assert changes.marks.column("_seq").to_pylist() == [0, 3, 0]
    assert changes.marks.column("_deleted").to_pylist() == [False, False, True]
    assert changes.left_out == {1: ("doc",)}
    assert changes.truncations == [((22, 0), 22_000_000)]
    assert [{name: bytes(raw) for name, raw in row.items()} for row in changes.rows] == [
        {"id": b"1", "doc": b'"long"'},
        {"id": b"1"},
        {"id": b"1"},
    ]


def test_plain_json_is_ordered_by_offsets() -> None:
    rows = [record("a", b'{"x": 1}', 7), record("a", None, 9)]
    given = pa.Table.from_pylist(rows, schema=RECORDS)
    assert detected_envelope([b'{"x": 1}']) == "flat"
    assert detected_order(given, "flat") == "offset"
    changes = _read(rows, order="offset")
    assert changes.marks.column("_lsn").to_pylist() == [7, 9]
    assert changes.marks.column("_deleted").to_pylist() == [False, True]


def test_debezium_without_our_headers_has_its_own_position() -> None:
    value = b'{"payload": {"op": "c", "after": {"id": 1}, "source": {"lsn": 77}}, "schema": {}}'
    assert detected_envelope([None, value]) == "debezium"
    changes = _read([record("1", value, 5)], "debezium")
    assert changes.marks.column("_lsn").to_pylist() == [77]
    assert changes.marks.column("_seq").to_pylist() == [5]


def test_tombstone_without_position_takes_that_of_the_record_before() -> None:
    first, delete = (records([EVENTS[0], EVENTS[3]]).to_pylist()[index] for index in (0, 1))
    changes = _read([first, delete, record("1", None, 2)], "pgcdc")
    assert changes.marks.column("_lsn").to_pylist() == [20, 23, 23]
    alone = _read([record("1", None, 2)], "pgcdc")
    assert len(alone) == 0


def test_marks_of_transactions_are_ignored() -> None:
    changes = _read(
        [record("1", b'{"op": "BEGIN", "row": null}', 0, headers=[("pgcdc-lsn", b"1")])], "pgcdc"
    )
    assert len(changes) == 0


def test_key_that_is_no_text_is_its_digits() -> None:
    changes = _read([record(b"\xff\x01", b"{}"), record("é", b"{}")], order="offset")
    assert changes.marks.column("_key").to_pylist() == ["\0ff01", "é"]


@pytest.mark.parametrize(
    ("row", "envelope", "order", "problem"),
    [
        (
            record("1", b"[]", 4),
            "pgcdc",
            "lsn",
            "partition 0, offset 4: not a record of envelope pgcdc",
        ),
        (record("1", b"{", 4), "debezium", "lsn", "not a record of envelope debezium"),
        (record("1", b'{"__lsn": "x"}', 4), "flat", "lsn", "not a record of envelope flat"),
        (record("1", b'{"a": 1}', 4), "flat", "lsn", "no position of its source"),
        (record(None, b'{"a": 1}', 4), "flat", "offset", "the record has no key"),
        (record("1", b"{}", 4, headers=[("pgcdc-lsn", b"zz")]), "flat", "lsn", "pgcdc-lsn"),
        (record("1", b'{"__op": "TRUNCATE"}', 4), "flat", "offset", "TRUNCATE cannot be ordered"),
        (
            record("e1", b'{"__op": "DELETE"}', headers=[("pgcdc-event-id", b"e1")]),
            "flat",
            "offset",
            "give the table a primary key",
        ),
    ],
)
def test_records_that_are_no_changes_are_refused(
    row: dict[str, Any], envelope: str, order: Order, problem: str
) -> None:
    with pytest.raises(EnvelopeError, match=problem):
        _read([row], envelope, order)
