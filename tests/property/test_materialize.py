"""Goal: a materialized table is what the source was, whatever order changes come in.

Method: random histories with deletes, truncations and columns that updates leave out; shuffled,
some records twice, cut into micro-batches. After each of these the table, which is in memory, is
compared with what a plain loop makes of the changes that have come by then, in their right order.
"""

from __future__ import annotations

from datetime import datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables.changelogs import (
    ENVELOPES,
    Event,
    MemoryMaterializer,
    current,
    history,
    ranges,
    records,
    shuffled,
)

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("envelope", ENVELOPES)
@given(seed=SEEDS, count=st.integers(0, 60))
def test_table_of_current_rows_does_not_depend_on_the_order(
    envelope: str, seed: int, count: int
) -> None:
    random = Random(seed)
    job = MemoryMaterializer(envelope=envelope)
    seen: list[Event] = []
    for number, batch in enumerate(shuffled(random, history(random, count))):
        job.apply(records(batch, envelope), number, "writer")
        seen += batch
        found = {
            row["_key"]: {name: row.get(name) for name in ("id", "a", "doc")} for row in job.rows()
        }
        assert found == current(seen)


@given(seed=SEEDS, count=st.integers(0, 60))
def test_history_does_not_depend_on_the_order(seed: int, count: int) -> None:
    random = Random(seed)
    job = MemoryMaterializer(history=True, envelope="pgcdc")
    seen: list[Event] = []
    for number, batch in enumerate(shuffled(random, history(random, count))):
        job.apply(records(batch), number, "writer")
        seen += batch
        found = [_range(row) for row in job.rows()]
        assert len(found) == len(set(found))
        assert set(found) == ranges(seen)
        now = {row["_key"] for row in job.rows() if row["_is_current"]}
        assert now == set(current(seen))


def _range(row: dict[str, Any]) -> tuple[Any, ...]:
    doc, since, until = row.get("doc"), _us(row["_valid_from"]), _us(row["_valid_to"])
    return row["_key"], row["a"], doc, since, until


def _us(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1_000_000)


@given(seed=SEEDS, count=st.integers(1, 40))
def test_what_came_already_is_not_written_again(seed: int, count: int) -> None:
    random = Random(seed)
    events = history(random, count)
    job = MemoryMaterializer(envelope="pgcdc")
    job.apply(records(events), 0, "writer")
    assert job.table is not None
    before, puts = job.table.rows, len(job.table.puts)
    for number, batch in enumerate(shuffled(random, events), 1):
        job.apply(records(batch), number, "writer")
    assert job.table.rows == before
    assert len(job.table.puts) == puts
