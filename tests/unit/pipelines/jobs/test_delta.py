"""Goal: what holds for tables in memory holds for Delta tables.

Method: the same shuffled histories, with few seeds; then what only files have.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from dragoman.errors import ConfigError
from dragoman.pipelines.jobs.delta import KeyedTable
from dragoman.pipelines.jobs.materialize import Options
from dragoman.pipelines.jobs.table_updates import Materializer
from tables.changelogs import RECORDS, Event, current, history, ranges, record, records, shuffled


def _job(path: Path, **options: Any) -> Materializer:
    return Materializer(Options(topic="t", table=str(path), **options))


def _rows(path: Path) -> list[dict[str, Any]]:
    held = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return [row for row in held if not row["_deleted"]]


def _plain(*rows: tuple[str, bytes | None], first: int = 0) -> pa.Table:
    held = [record(key, value, offset) for offset, (key, value) in enumerate(rows, first)]
    return pa.Table.from_pylist(held, schema=RECORDS)


@pytest.mark.parametrize("seed", range(4))
def test_current_rows_are_those_of_the_source(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    events = history(random, 80, keys=8)
    job = _job(
        tmp_path / "table", envelope="pgcdc", tidy_every=3, keep_hours=0, forget_deletes_hours=0
    )
    for number, batch in enumerate(shuffled(random, events)):
        job.apply(records(batch), number, "writer")
    found = {
        row["_key"]: {name: row[name] for name in ("id", "a", "doc")}
        for row in _rows(tmp_path / "table")
    }
    assert found == current(events)


@pytest.mark.parametrize("seed", range(2))
def test_history_is_that_of_the_source(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    events = history(random, 60)
    job = _job(tmp_path / "table", envelope="pgcdc", history=True)
    for number, batch in enumerate(shuffled(random, events)):
        job.apply(records(batch), number, "writer")
    found = {
        (
            row["_key"],
            row["a"],
            row["doc"],
            round(row["_valid_from"].timestamp() * 1e6),
            None if row["_valid_to"] is None else round(row["_valid_to"].timestamp() * 1e6),
        )
        for row in _rows(tmp_path / "table")
    }
    assert found == ranges(events)


def test_columns_are_added_and_widened_in_files(tmp_path: Path) -> None:
    path = tmp_path / "table"
    job = _job(path)
    job.apply(_plain(("1", b'{"Order Id": 1, "select": 1}')), 0, "w")
    job.apply(_plain(("2", b'{"Order Id": 2, "select": 1.5, "new": "x"}'), first=1), 1, "w")
    job.apply(_plain(("3", b'{"Order Id": 3, "select": {"a": 1}}'), first=2), 2, "w")
    found = sorted((row["Order Id"], row["select"], row["new"]) for row in _rows(path))
    assert found == [(1, "1", None), (2, "1.5", "x"), (3, '{"a": 1}', None)]


def test_batch_that_another_writer_made_counts_for_itself(tmp_path: Path) -> None:
    """A new checkpoint begins with batch 0 again, and must not be taken for a repetition."""
    path = tmp_path / "table"
    _job(path).apply(_plain(("1", b'{"x": 1}')), 0, "one")
    _job(path).apply(_plain(("1", b'{"x": 2}'), first=1), 0, "one")
    assert [row["x"] for row in _rows(path)] == [1]
    _job(path).apply(_plain(("1", b'{"x": 3}'), first=2), 0, "two")
    assert [row["x"] for row in _rows(path)] == [3]


def test_two_jobs_at_once_conflict_although_both_only_append(tmp_path: Path) -> None:
    """Else a key would be there twice for good."""
    path = tmp_path / "table"
    _job(path).apply(_plain(("1", b'{"x": 1}')), 0, "one")
    both = [KeyedTable.at(str(path), {}) for _ in range(2)]
    rows = DeltaTable(str(path)).to_pyarrow_table()
    for number, table in enumerate(both):
        assert table is not None
        named = rows.set_column(rows.schema.get_field_index("_key"), "_key", pa.array(["2"]))
        put = partial(table.put, named, identity=("_key",), is_new=True, truncated=None, batch_id=0)
        if number == 0:
            put(writer="two")
            continue
        with pytest.raises(CommitFailedError):
            put(writer="three")
    assert sorted(row["_key"] for row in _rows(path)) == ["1", "2"]


def test_old_markers_of_deletes_are_forgotten_and_truncations_are_not(tmp_path: Path) -> None:
    path = tmp_path / "table"
    events = [
        Event(operation="TRUNCATE", lsn=11),
        Event(operation="INSERT", lsn=12, key="a", row={"id": 1}),
        Event(operation="DELETE", lsn=13, key="a", row={"id": 1}),
    ]
    job = _job(path, tidy_every=1)
    job.apply(records(events), 0, "w")
    held = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert [(row["_key"], row["_lsn"]) for row in held] == [(None, 11)]


def test_table_of_another_owner_is_left_alone(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"x": [1]}))
    with pytest.raises(ConfigError, match="was not created by this job"):
        _job(tmp_path / "table").apply(_plain(("1", b'{"x": 1}')), 0, "w")


def test_keys_may_be_any_text(tmp_path: Path) -> None:
    path = tmp_path / "table"
    keys = ["", "it's", '"', "\0ff", "%_", "🐟", "k" * 5000, "null"]
    for number in range(2):
        first = number * len(keys)
        rows = [(key, b'{"n": %d}' % number) for key in keys]
        _job(path).apply(_plain(*rows, first=first), number, "w")
        for at, (key, value) in enumerate(rows):
            _job(path).apply(_plain((key, value), first=first + at), 10 * number + at + 2, "other")
    assert sorted((row["_key"], row["n"]) for row in _rows(path)) == sorted(
        (key, 1) for key in keys
    )
