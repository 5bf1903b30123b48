"""Goal: a stream keeps a table equal to what its changelog says, and Spark reads it back.

Method: shuffled histories are produced to a topic and materialized through Spark, in two runs with
one checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.pipelines import read_current, read_history
from dragoman.pipelines.jobs.materialize import Options, run
from dragoman.testing import EphemeralBroker
from tables.changelogs import Event, current, history, pgcdc, shuffled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2


@pytest.fixture
def changelog(node: EphemeralBroker) -> str:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.create_topic(NewTopic(name="pgcdc.t", partitions=PARTITIONS))
    return "pgcdc.t"


def _produce(node: EphemeralBroker, topic: str, events: list[Event]) -> None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        for event in events:
            value, headers = pgcdc(event)
            key = None if event.key is None else event.key.encode()
            # A truncation is written to every partition.
            where = range(PARTITIONS) if key is None else [sum(key) % PARTITIONS]
            client.produce_records(
                topic,
                [
                    NewRecord(
                        key=key,
                        value=value,
                        headers=tuple(headers),
                        partition=each,
                        timestamp=event.at_us // 1000,
                    )
                    for each in where
                ],
            )


def test_table_follows_its_topic(
    spark: SparkSession, node: EphemeralBroker, changelog: str, tmp_path: Path
) -> None:
    random = Random(8)
    events = history(random, 90, keys=10)
    tables = {flag: str(tmp_path / f"table-{flag}") for flag in (False, True)}
    parts = shuffled(random, events)
    for part in (parts[:1], parts[1:]):
        _produce(node, changelog, [event for batch in part for event in batch])
        for flag, table in tables.items():
            options = Options(
                topic=changelog,
                table=table,
                bootstrap=node.bootstrap_servers,
                schema="id string, a bigint",
                history=flag,
                batch_records=100,
            )
            assert run(spark, options, lambda _: None).awaitTermination(120)
    expected = current(events)
    for table in tables.values():
        found = read_current(spark, table)
        assert found.columns == ["id", "a", "doc"]
        assert {row["id"]: row.asDict() for row in found.collect()} == expected
    ranges = read_history(spark, tables[True])
    assert ranges.where("_is_current").count() == len(expected)
    assert ranges.where("_valid_to < _valid_from").count() == 0
