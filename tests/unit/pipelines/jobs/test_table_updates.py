"""Goal: what a source does to its columns reaches the table, or is refused in a sentence.

Method: micro-batches of plain JSON into a table in memory. That rows are right under disorder is
shown in `tests/property/test_materialize.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from dragoman.errors import ConfigError
from tables.changelogs import RECORDS, Event, MemoryMaterializer, record, records


def _batch(*rows: dict[str, Any] | None, first: int = 0) -> pa.Table:
    """Each row is of key 1, unless it has an `id`."""
    values = [
        record(str((row or {}).get("id", 1)), None if row is None else json.dumps(row).encode(), at)
        for at, row in enumerate(rows, first)
    ]
    return pa.Table.from_pylist(values, schema=RECORDS)


def _columns(job: MemoryMaterializer) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith("_")}
        for row in sorted(job.rows(), key=lambda each: str(each["_key"]))
    ]


def test_new_columns_are_added_and_reported() -> None:
    job = MemoryMaterializer()
    job.apply(_batch({"id": 1, "empty": None}), 0, "w")
    job.apply(_batch({"id": 2, "name": "two", "empty": None}, first=5), 1, "w")
    assert _columns(job) == [{"id": 1, "name": None}, {"id": 2, "name": "two"}]
    assert "column name of type string was added" in job.notes


def test_column_that_is_gone_is_null_from_then_on() -> None:
    job = MemoryMaterializer()
    job.apply(_batch({"id": 1, "b": 5}, {"id": 2, "b": 6}), 0, "w")
    job.apply(_batch({"id": 2}, first=2), 1, "w")
    assert _columns(job) == [{"id": 1, "b": 5}, {"id": 2, "b": None}]


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        (1, 1.5, [1.0, 1.5]),
        (2**60 + 1, 1.5, [str(2**60 + 1), "1.5"]),
        (1.5, 2**60 + 1, ["1.5", str(2**60 + 1)]),
        (1, 2**70, [1, 2**70]),
        (True, "no", ["true", "no"]),
        (1, {"a": [1]}, ["1", '{"a": [1]}']),
    ],
)
def test_type_is_widened_without_loss(before: Any, after: Any, values: list[Any]) -> None:
    job = MemoryMaterializer()
    job.apply(_batch({"id": 1, "x": before}), 0, "w")
    job.apply(_batch({"id": 2, "x": after}, first=1), 1, "w")
    assert [row["x"] for row in _columns(job)] == values
    assert any("column x became" in note for note in job.notes)


def test_declared_types_hold_and_refuse() -> None:
    job = MemoryMaterializer({"id": pa.int64(), "x": pa.decimal128(10, 2)})
    job.apply(_batch({"id": 1, "x": "1.50"}), 0, "w")
    assert str(_columns(job)[0]["x"]) == "1.50"
    with pytest.raises(ConfigError, match="offset 3: column 'x' is declared as decimal128"):
        job.apply(_batch({"id": 1, "x": "1"}, {"id": 1, "x": "1.555"}, first=2), 1, "w")


def test_further_columns_are_left_out_or_refused_when_asked_to() -> None:
    declared = {"id": pa.int64()}
    ignoring = MemoryMaterializer(declared, evolve="ignore")
    ignoring.apply(_batch({"id": 1, "x": 1}), 0, "w")
    assert _columns(ignoring) == [{"id": 1}]
    with pytest.raises(ConfigError, match="new column 'x'"):
        MemoryMaterializer(declared, evolve="fail").apply(_batch({"id": 1, "x": 1}), 0, "w")


@pytest.mark.parametrize(
    ("row", "problem"),
    [({"_lsn": 1}, "has a reserved name"), ({"a": 1, "A": 2}, "differ only in case")],
)
def test_columns_that_a_table_cannot_have_are_refused(row: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        MemoryMaterializer().apply(_batch(row), 0, "w")


def test_table_made_for_something_else_is_refused() -> None:
    job = MemoryMaterializer()
    job.apply(_batch({"id": 1}), 0, "w")
    other = MemoryMaterializer(history=True)
    other.table = job.table
    with pytest.raises(ConfigError, match="was created with history = False, now it is True"):
        other.apply(_batch({"id": 1}, first=1), 1, "w")


def test_batch_that_was_committed_is_skipped() -> None:
    job = MemoryMaterializer()
    job.apply(_batch({"id": 1, "x": 1}), 4, "w")
    job.apply(_batch({"id": 1, "x": 2}, first=1), 4, "w")
    assert _columns(job) == [{"id": 1, "x": 1}]


def test_deletes_and_tombstones_are_honoured() -> None:
    job = MemoryMaterializer()
    job.apply(_batch({"id": 1}, {"id": 2}), 0, "w")
    job.apply(_batch(None, first=2), 1, "w")
    assert _columns(job) == [{"id": 2}]


def test_ranges_never_end_before_they_begin() -> None:
    """Clocks of a source may go back a little between commits."""
    job = MemoryMaterializer(history=True)
    stamps = [50, 40, 45, 60]
    rows = [record("1", b'{"x": %d}' % at, at, at_us=stamp) for at, stamp in enumerate(stamps)]
    job.apply(pa.Table.from_pylist(rows, schema=RECORDS), 0, "w")
    found = sorted((row["x"], row["_valid_from"], row["_valid_to"]) for row in job.rows())
    assert [since.microsecond for _, since, _ in found] == [50, 50, 50, 60]
    assert all(until is None or since <= until for _, since, until in found)


def test_truncation_that_came_first_holds_back_older_rows() -> None:
    job = MemoryMaterializer()
    job.apply(records([Event(operation="TRUNCATE", lsn=50)]), 0, "w")
    older = Event(operation="INSERT", lsn=49, seq=9, key="a", row={"id": 1})
    newer = Event(operation="INSERT", lsn=51, key="b", row={"id": 2})
    job.apply(records([older, newer]), 1, "w")
    assert _columns(job) == [{"id": 2}]


def test_value_that_no_change_contained_is_reported_as_unknown() -> None:
    job = MemoryMaterializer(envelope="pgcdc")
    whole = Event(operation="INSERT", lsn=11, key="a", row={"id": 1, "doc": "long"})
    moved = Event(operation="INSERT", lsn=12, key="b", row={"id": 2}, left_out=("doc",))
    job.apply(records([whole, moved]), 0, "w")
    assert _columns(job) == [{"id": 1, "doc": "long"}, {"id": 2, "doc": None}]
    assert any(note.startswith("1 values are unknown") for note in job.notes)


def test_declared_type_that_is_not_the_tables_is_refused() -> None:
    job = MemoryMaterializer()
    job.apply(_batch({"id": 1}), 0, "w")
    other = MemoryMaterializer({"id": pa.string()})
    other.table = job.table
    with pytest.raises(ConfigError, match="has column 'id' as int64, the schema has string"):
        other.apply(_batch({"id": 1}, first=1), 1, "w")
