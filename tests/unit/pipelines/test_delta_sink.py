"""Goal: a batch is in a Delta table once, also when two drivers of one checkpoint are alive.

Method: a batch whose twin is committed by another driver while it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from dragoman.pipelines.definition import DeltaSink
from dragoman.pipelines.sinks import delta
from dragoman.pipelines.sinks.batches import Writer
from dragoman.pipelines.sinks.delta import DeltaWriter


class Batch:
    def __init__(self, number: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._number = number
        self._meanwhile = meanwhile

    def toArrow(self) -> pa.Table:
        self._meanwhile()
        return pa.table({"id": [self._number]})


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_batch_that_another_driver_has_written_meanwhile_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...]
) -> None:
    monkeypatch.setattr(delta, "query_id", lambda _: "query")
    sink = DeltaSink(source="rows", path=str(tmp_path / "table"), key=key)

    def write(batch: Batch, number: int) -> None:
        DeltaWriter(sink, Writer("pipeline", "sink"))(cast("DataFrame", batch), number)

    for number in range(3):
        write(Batch(number, lambda number=number: write(Batch(number), number)), number)
    table = DeltaTable(tmp_path / "table")
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]
    assert table.version() == 2
