"""Goal: a topic's Parquet twin and its log together hold every record once, whatever is killed.

Method: the job is interrupted between its files and its manifest, and run again; retention takes
the log's head; what `tiered` reads is compared with what was produced.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dragoman.client.kafka import BlockingKafkaClient, TopicPartition
from dragoman.pipelines.jobs.tier import Options, problems, run, tiered
from dragoman.pipelines.jobs.tier_manifest import Manifest, TierError, Twin
from dragoman.pipelines.state import Progress
from dragoman.testing import EphemeralBroker
from tables.source_readers import make_topic, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3


class _KilledError(Exception):
    pass


def _found(spark: SparkSession, node: EphemeralBroker, root: Path) -> list[int]:
    table = tiered(spark, "orders", root=str(root), bootstrap=node.bootstrap_servers)
    rows = table.select("partition", "offset", "key", "value", "topic").collect()
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)
    assert all(row["key"] == row["value"] and row["topic"] == "orders" for row in rows)
    assert all(int(row["value"]) % PARTITIONS == row["partition"] for row in rows)
    return sorted(int(row["value"]) for row in rows)


def _delete_before(node: EphemeralBroker, offsets: dict[int, int]) -> None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.delete_records(
            {TopicPartition("orders", at): offset for at, offset in offsets.items()}
        )


def test_history_and_tail_hold_every_record_once(
    spark: SparkSession,
    node: EphemeralBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "tier"
    make_topic(node, partitions=PARTITIONS)
    write(node, range(600), partitions=PARTITIONS)
    options = Options(
        topic="orders",
        root=str(root),
        bootstrap=node.bootstrap_servers,
        until="latest",
        file_records=50,
    )
    twin = Twin(str(root), "orders")
    save = Twin.save

    def killed_at_the_second(self: Twin, manifest: Manifest) -> None:
        if sum(self.manifest().ends.values()):
            raise _KilledError
        save(self, manifest)

    monkeypatch.setattr(Twin, "save", killed_at_the_second)
    with pytest.raises(_KilledError):
        run(spark, options, lambda _: None)
    monkeypatch.undo()
    named = len(twin.manifest().files)
    assert 0 < named < len(list(twin.directory.rglob("*.parquet"))), "files that nobody names"
    assert _found(spark, node, root) == list(range(600))

    notes: list[Progress] = []
    run(spark, options, notes.append)
    assert "deleted" in notes[0].note
    assert notes[-1].lag_records == 0
    assert twin.manifest().ends == dict.fromkeys(range(PARTITIONS), 200)
    assert len(twin.manifest().files) == len(list(twin.directory.rglob("*.parquet")))
    assert problems(spark, "orders", root=str(root)) == []

    write(node, range(600, 660), partitions=PARTITIONS)
    _delete_before(node, {0: 200, 1: 150, 2: 0})
    assert _found(spark, node, root) == list(range(660))
    without = tiered(spark, "orders", root=str(root), tail=False)
    assert sorted(int(row["value"]) for row in without.collect()) == list(range(600))

    _delete_before(node, {0: 210})
    with pytest.raises(TierError, match="offsets 200 to 209 are neither in"):
        _found(spark, node, root)
    with pytest.raises(TierError, match="deleted before they were copied"):
        run(spark, options, lambda _: None)


def test_only_stable_records_in_files_are_copied_by_default(
    spark: SparkSession, node: EphemeralBroker, tmp_path: Path
) -> None:
    make_topic(node, partitions=1)
    write(node, range(300))
    # Stopped, a node has everything in files that stay as they are.
    node.restart()
    write(node, range(300, 360))
    root = tmp_path / "tier"
    options = Options(topic="orders", root=str(root), bootstrap=node.bootstrap_servers)
    run(spark, options, lambda _: None)
    end = Twin(str(root), "orders").manifest().ends.get(0, 0)
    assert 300 <= end < 360
    table = tiered(spark, "orders", root=str(root), bootstrap=node.bootstrap_servers)
    assert sorted(int(row["value"]) for row in table.collect()) == list(range(360))
