"""Goal: a replay's batches hold every offset once, and are decided when it first starts.

Method: ranges of different lengths, cut; plans that are looked up with changed options.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from msgspec import structs

from dragoman.errors import ConfigError
from dragoman.pipelines.jobs.replay import Options, TableBatches, TopicBatches, _planned
from dragoman.pipelines.jobs.replay_sources import _files_of
from dragoman.pipelines.jobs.tier_manifest import Twin


@pytest.mark.parametrize("records", [1, 3, 10, 100])
def test_pieces_cover_ranges_without_gap_or_overlap(records: int) -> None:
    ranges = {0: (5, 25), 1: (0, 0), 2: (7, 17), 3: (100, 101)}
    batches = TopicBatches(topic_id="", ranges=ranges, records=records)
    seen: dict[int, list[int]] = {}
    for number in range(batches.count):
        pieces = batches.pieces(number)
        assert pieces, "a batch has something in it"
        assert batches.left_after(number) > batches.left_after(number + 1)
        for partition, (start, end) in pieces.items():
            assert end - start <= records
            seen.setdefault(partition, []).extend(range(start, end))
    assert seen == {
        partition: list(range(*each)) for partition, each in ranges.items() if each[0] < each[1]
    }
    assert batches.pieces(batches.count) == {}
    assert batches.left_after(batches.count) == 0


def test_nothing_makes_no_batch() -> None:
    assert TopicBatches(topic_id="", ranges={0: (4, 4)}, records=5).count == 0
    assert TableBatches(groups=[], key="").count == 0


def test_rows_that_are_left_are_counted() -> None:
    batches = TableBatches(groups=[("a", 0, 5), ("a", 1, 3)], key="")
    assert [batches.left_after(done) for done in range(3)] == [8, 3, 0]


def table_of(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [number]}), folder / name)
    return folder


def test_brokers_may_move_and_nothing_else(tmp_path: Path) -> None:
    table = table_of(tmp_path / "table", "a.parquet")
    options = Options(
        to="again", table=str(table), checkpoint=str(tmp_path / "plan"), bootstrap="old:1"
    )
    first = _planned(options)
    moved = _planned(structs.replace(options, bootstrap="new:1"))
    assert (moved.writer_id, moved.batches) == (first.writer_id, first.batches)
    assert moved.options.bootstrap == "new:1"
    with pytest.raises(ConfigError, match="belongs to a replay with other options"):
        _planned(structs.replace(options, to="elsewhere"))


def test_folders_that_are_no_folders_here_are_refused() -> None:
    with pytest.raises(ConfigError, match="a folder on this machine, got hdfs://"):
        _planned(Options(to="again", table="t", checkpoint="hdfs:///plans"))
    with pytest.raises(ConfigError, match="mounted here"):
        Twin("s3://bucket/twins", "orders")


def test_files_of_batches_that_did_not_end_are_left_out(tmp_path: Path) -> None:
    table = table_of(tmp_path, "a.parquet", "b b.parquet", "dead.parquet", "c.parquet")
    log = table / "_spark_metadata"
    log.mkdir()

    def line(name: str) -> str:
        return json.dumps({"path": f"file://{table}/{name}", "size": 1})

    (log / "0").write_text("v1\n" + line("gone.parquet"))
    (log / "1.compact").write_text("v1\n" + line("a.parquet"))
    (log / "2").write_text("v1\n" + line("b%20b.parquet") + "\n" + line("c.parquet"))
    (log / ".2.crc").write_text("")
    found, _ = _files_of(str(table))
    assert [Path(each).name for each in found] == ["a.parquet", "b b.parquet", "c.parquet"]


def test_columns_that_are_folders_are_refused(tmp_path: Path) -> None:
    write_deltalake(
        str(tmp_path / "delta"), pa.table({"id": [1], "day": ["mon"]}), partition_by=["day"]
    )
    table_of(tmp_path / "files", "day=mon/a.parquet")
    for name in ("delta", "files"):
        with pytest.raises(ConfigError, match="has day only as names of folders"):
            _files_of(str(tmp_path / name))
