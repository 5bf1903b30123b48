"""Goal: tables and streams are written to topics through Spark, mistakes are reported in one line.

Method: the shared session, a broker in this process. Faults are in test_exactly_once.py, and what
needs no Spark in tests/integration/test_spark_writes.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from dragoman.client.kafka import BlockingKafkaClient, NewTopic, partition_for_key
from dragoman.spark import readable
from dragoman.testing import EphemeralBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.timeout(300)


def read(spark: SparkSession, node: EphemeralBroker, topic: str) -> list[Row]:
    table = (
        spark.read.format("dragoman")
        .option("kafka.bootstrap.servers", node.bootstrap_servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    return sorted(table.collect(), key=lambda row: bytes(row.value))


def write(rows: DataFrame, node: EphemeralBroker, **options: str) -> None:
    writer = rows.write.format("dragoman").mode("append").options(**options)
    writer.option("kafka.bootstrap.servers", node.bootstrap_servers).save()


def test_a_table_becomes_records(spark: SparkSession, node: EphemeralBroker) -> None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.create_topic(NewTopic(name="t", partitions=3))
    rows = spark.sql(
        "select cast(id as string) as value, if(id % 5 = 0, null, concat('k', id)) as key, "
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers, id as ignored "
        "from range(0, 200, 1, 2)"
    )
    write(rows, node, topic="t", **{"kafka.compression.type": "zstd"})
    found = read(spark, node, "t")
    assert sorted(int(row.value) for row in found) == list(range(200))
    for row in found:
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"x")]
        assert row.key is None or row.partition == partition_for_key(bytes(row.key), 3)


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, node: EphemeralBroker, tmp_path: Path
) -> None:
    def run() -> None:
        source = (
            spark.readStream.format("dragoman")
            .option("kafka.bootstrap.servers", node.bootstrap_servers)
            .option("subscribe", "in")
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            source.selectExpr("key", "value", "concat('to-', cast(key as string)) as topic")
            .writeStream.format("dragoman")
            .option("kafka.bootstrap.servers", node.bootstrap_servers)
            .option("txnAppId", "copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for number in range(2):
        values = [(f"{number}{each}", each) for each in "ab"]
        write(spark.createDataFrame(values, "value string, key string"), node, topic="in")
        run()
    assert [bytes(row.value) for row in read(spark, node, "to-a")] == [b"0a", b"1a"]
    assert [bytes(row.value) for row in read(spark, node, "to-b")] == [b"0b", b"1b"]


def test_mistakes_are_reported_in_one_line(spark: SparkSession, node: EphemeralBroker) -> None:
    rows = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(PySparkException) as caught:
        write(rows, node)
    assert readable(caught.value) == "give the option topic, or a column topic"
    with pytest.raises(PySparkException) as caught:
        write(rows.selectExpr("value", "7 as partition"), node, topic="t")
    assert readable(caught.value) == "topic 't' has 1 partition, a row names partition 7"
