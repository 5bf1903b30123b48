"""Goal: a profile counts a whole topic, through Spark.

Method: a topic whose fields change half way; the files of the report.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dragoman.client.kafka import BlockingKafkaClient, NewRecord
from dragoman.errors import ConfigError
from dragoman.pipelines.jobs.profile import Options, run
from dragoman.testing import EphemeralBroker
from tables.source_readers import make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_topic_is_counted(spark: SparkSession, node: EphemeralBroker, tmp_path: Path) -> None:
    make_topic(node, partitions=2)
    options = Options(
        topic="orders",
        bootstrap=node.bootstrap_servers,
        folder=str(tmp_path / "profile"),
        slices=2,
    )
    with pytest.raises(ConfigError, match="is empty"):
        run(spark, options, lambda _: None)
    values = [{"id": at, **({"late": "yes"} if at >= 100 else {})} for at in range(200)]
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.produce_records(
            "orders",
            [
                NewRecord(
                    key=b"hot" if each["id"] % 4 else b"%d" % each["id"],
                    value=json.dumps(each).encode(),
                    partition=each["id"] % 2,
                    timestamp=1_700_000_000_000 + each["id"] * 60_000,
                )
                for each in values
            ],
        )
    notes: list[str] = []
    run(spark, options, lambda each: notes.append(each.note))
    found = json.loads((tmp_path / "profile" / "profile.json").read_bytes())
    assert found["records"] == 200
    assert found["top_keys"][0] == {"key": "hot", "records": 150}
    assert [each["records"] for each in found["partitions"]] == [100, 100]
    assert [sorted(each) for each in found["slices"]] == [["0", "1"]] * 2
    assert {each["path"]: each["changes"] for each in found["fields"]} == {
        "id": [],
        "late": ["appears in slice 2"],
    }
    assert "late" in (tmp_path / "profile" / "profile.txt").read_text()
    assert "<svg" in (tmp_path / "profile" / "profile.html").read_text()
    assert "200 records" in notes[-1]
