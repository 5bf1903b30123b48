"""The pipeline that follows the captured tables, run and killed as any other, and what it made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from cdc_torture.judge import is_same
from cdc_torture.source import TABLES
from nodes.process import SOURCE

_NAME = "followed"


class Pipeline:
    """One driver that materializes all tables, batch after batch."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._file = folder / "pipeline.toml"
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0
        jobs = [
            f'[jobs."{table}"]\ntype = "materialize"\ntopic = "{topic_of(table)}"\n'
            f'table = "{folder / table}"\ntrigger = "every 1s"\n'
            for table in TABLES
        ]
        head = f'name = "{_NAME}"\nbootstrap = "{bootstrap}"\n[spark]\nmaster = "local[2]"\n'
        self._file.write_text("\n".join([head, *jobs]))

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dragoman.cli.main", "pipeline", "run", str(self._file)),
                *("--state", str(self._folder / "state")),
            ],
            env={**os.environ, "PYTHONPATH": SOURCE},
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "pipeline.log").open("ab"),
            start_new_session=True,
        )

    def kill(self) -> None:
        """The driver, its JVM and its workers."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def kill_and_start(self) -> None:
        self.check()
        self.kill()
        self.kills += 1
        self.start()

    def check(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            said = (self._folder / "pipeline.log").read_text()
            raise AssertionError(f"the pipeline ended: {said[-3000:]}")

    def difference(self, table: str, source: dict[str, dict[str, Any]]) -> str:
        """Nothing, when the table is the source's."""
        self.check()
        key = TABLES[table]
        try:
            rows = DeltaTable(str(self._folder / table)).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return f"{table} is not there"
        kept = [row for row in rows if not row["_deleted"]]
        found = {"/".join(str(row[name]) for name in key): row for row in kept}
        assert len(found) == len(kept), f"{table}: a key has two rows"
        if found.keys() != source.keys():
            return f"{table}: {len(found)} rows, {len(source)} in the source"
        for name, row in source.items():
            for column, value in row.items():
                mine = _as_sent(column, found[name].get(column))
                if not is_same(column, mine, value):
                    return f"{table}, {name}: {column} is {mine!r}, not {value!r}"
        return ""


def topic_of(table: str) -> str:
    return f"pgcdc.{table.removeprefix('public.')}"


def _as_sent(column: str, value: Any) -> Any:
    """Arrays and objects are text in the table."""
    if column in ("tags", "details") and value is not None:
        return json.loads(value)
    return value
