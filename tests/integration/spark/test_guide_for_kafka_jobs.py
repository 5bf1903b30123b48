"""Goal: the programs of the guide for jobs of Spark's Kafka source run as they are shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dragoman.client.kafka import BlockingKafkaClient, NewRecord
from dragoman.testing import EphemeralBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs/guides/from-spark-kafka.md"
BATCH, STREAM = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_batch_and_stream_read_the_topic(
    spark: SparkSession,
    node: EphemeralBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.produce_records(
            "orders", [NewRecord(value=b"3 apples"), NewRecord(value=b"4 pears")]
        )
    monkeypatch.setattr("dragoman.spark.session", lambda _name: spark)
    names: dict[str, object] = {}
    for program in (BATCH, STREAM):
        assert "127.0.0.1:9092" in program
        placed = program.replace("127.0.0.1:9092", node.bootstrap_servers)
        # Spark resolves relative paths by the folder in which it was started.
        placed = re.sub(r'"(orders-\w+)"', rf'"{tmp_path}/\1"', placed)
        exec(placed, names)
    assert "3 apples" in capsys.readouterr().out
    assert spark.read.parquet(f"{tmp_path}/orders-parquet").count() == 2
