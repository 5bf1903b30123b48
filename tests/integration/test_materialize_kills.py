"""Goal: a materializing process may be killed at any point of a batch; tables come out right.

Method: processes apply the batches of a random history, each killed at a later point than the one
before, until one lives to the end. `tests/spark_torture/materialize_rounds.py` does that to Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tables.changelogs import current, ranges
from tables.micro_batches import batches

SEED = 1
TESTS = Path(__file__).parents[1]


def _rows(path: Path) -> list[dict[str, Any]]:
    held = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return [row for row in held if not row["_deleted"]]


def test_tables_come_out_right_after_kills(tmp_path: Path) -> None:
    inherited = os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        [sys.executable, "-m", "tables.micro_batches", str(tmp_path), str(SEED)],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{inherited}".rstrip(":")},
        check=True,
        stdout=subprocess.PIPE,
    )
    assert int(done.stdout) >= 5
    events = [event for batch in batches(SEED) for event in batch]
    found = {
        row["_key"]: {name: row.get(name) for name in ("id", "a", "doc")}
        for row in _rows(tmp_path / "current")
    }
    assert found == current(events)
    versions = [
        (row["_key"], row["a"], row.get("doc"), _us(row["_valid_from"]), _us(row["_valid_to"]))
        for row in _rows(tmp_path / "history")
    ]
    assert len(versions) == len(set(versions))
    assert set(versions) == ranges(events)


def _us(at: Any) -> int | None:
    return None if at is None else round(at.timestamp() * 1_000_000)
