"""Goal: Spark accepts what the source gives it, and hands over what the source needs.

Method: few small queries on the shared session; what the source returns in detail is tested without
Spark, in `test_spark_reads.py` and `test_spark_streams.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from dragoman.cli.main import main
from dragoman.client.kafka import BlockingKafkaClient, NewRecord, ResourceType, TopicPartition
from dragoman.spark import create_views, readable, table
from dragoman.spark.sessions import register_source
from dragoman.spark.sql import TopicViews
from dragoman.testing import EphemeralBroker
from tables.java_options import quick_spark
from tables.source_readers import make_topic, options_for, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(300)


def _frame(spark: SparkSession, broker: EphemeralBroker, **options: str) -> DataFrame:
    return spark.read.format("dragoman").options(**options_for(broker, **options)).load()


# ---- batches


def test_columns_rows_and_filters_of_a_batch(spark: SparkSession, node: EphemeralBroker) -> None:
    make_topic(node, partitions=3)
    write(node, range(900), partitions=3)
    node.restart()
    write(node, range(900, 1000), partitions=3)
    frame = _frame(spark, node, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    total = frame.selectExpr("count(*)", "sum(int(string(value)))", "count(distinct key)").first()
    assert total == (1000, sum(range(1000)), 1000)
    narrow = spark.read.format("dragoman").schema("offset bigint, value binary")
    two = narrow.options(**options_for(node)).load()
    assert two.where("offset >= 330 and offset < 333").count() == 9
    picked = frame.where("partition in (1, 2) and offset between 10 and 19 and topic = 'orders'")
    assert picked.count() == 20
    recent = frame.where("timestamp >= timestamp_millis(1700000000990)")
    assert recent.count() == 10


def test_filters_are_taken_over_when_the_session_hands_them_over(
    spark: SparkSession, node: EphemeralBroker
) -> None:
    make_topic(node)
    write(node, range(50))
    narrowed = _frame(spark, node).where("offset >= 40")
    left_alone = _frame(spark, node, pushdown="false").where("offset >= 40")
    assert _filters_left(narrowed) == 0
    assert _filters_left(left_alone) == 1
    assert narrowed.count() == left_alone.count() == 10
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert _frame(spark, node).where("offset >= 40").count() == 10
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def _filters_left(frame: DataFrame) -> int:
    """Conditions that Spark applies itself, of those that Python may take over."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return plan.count("Filter (")


def test_source_is_not_registered_over_the_one_that_spark_found(spark: SparkSession) -> None:
    # Spark warns of a registration that replaces one.
    registered: list[object] = []
    own = spark.newSession()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(own.dataSource), "register", lambda _, source: registered.append(source))
        register_source(own)
        assert registered == []
        patch.setattr("dragoman.spark.sessions._has_source", lambda _: False)
        register_source(own)
    assert len(registered) == 1


def test_empty_topic_is_an_empty_table(spark: SparkSession, node: EphemeralBroker) -> None:
    make_topic(node)
    assert _frame(spark, node).collect() == []


def test_mistakes_come_back_as_one_line(spark: SparkSession, node: EphemeralBroker) -> None:
    with pytest.raises(PySparkException) as unknown:
        _frame(spark, node, startingOffset="earliest")
    assert readable(unknown.value) == ("unknown option 'startingoffset'; is startingOffsets meant?")
    with pytest.raises(PySparkException) as missing:
        _frame(spark, node, subscribe="nowhere").collect()
    assert readable(missing.value) == "there is no topic 'nowhere'"
    assert "at org.apache" not in str(missing.value)


# ---- streams


def _run(frame: DataFrame, directory: Path, **options: str) -> StreamingQuery:
    query = (
        frame.selectExpr("partition", "offset", "cast(value as string) value")
        .writeStream.format("parquet")
        .option("path", str(directory / "table"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return query


def test_stream_goes_on_at_its_checkpoint_and_refuses_another_topic(
    spark: SparkSession, node: EphemeralBroker, tmp_path: Path
) -> None:
    make_topic(node, partitions=2)
    write(node, range(300), partitions=2)
    node.restart()
    given = options_for(node, startingOffsets="earliest", maxOffsetsPerTrigger="120")
    frame = spark.readStream.format("dragoman").options(**given).load()
    first = _run(frame, tmp_path)
    assert sum(each.numInputRows for each in first.recentProgress) == 300
    assert max(each.numInputRows for each in first.recentProgress) <= 120
    latest: Any = first.lastProgress.sources[0].latestOffset
    assert json.loads(latest)["orders"] == {"0": 150, "1": 150}
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.create_partitions("orders", 3)
    write(node, range(300, 400), partitions=3)
    _run(frame, tmp_path)
    values = [row.value for row in spark.read.parquet(str(tmp_path / "table")).collect()]
    assert sorted(map(int, values)) == list(range(400))
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        old = client.topic("orders").topic_id.hex()
        client.delete_topic("orders")
        make_topic(node)
        new = client.cluster(["orders"]).topics["orders"].topic_id.hex()
    with pytest.raises(PySparkException) as refused:
        _run(frame, tmp_path)
    message = readable(refused.value)
    assert message.startswith("topic 'orders' was deleted and created again")
    assert old in message
    assert new in message


# ---- tables, SQL, types


def _write_json(node: EphemeralBroker) -> None:
    values = [b'{"n": 1, "s": "a"}', b"oops", b'{"n": 3}', b'{"n": "x"}']
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.produce_records("orders", [NewRecord(value=each, partition=0) for each in values])
        client.produce_records("orders", [NewRecord(key=b"k", value=None, partition=0)])


def test_json_that_does_not_fit_fails_or_becomes_a_dead_letter(
    spark: SparkSession, node: EphemeralBroker
) -> None:
    make_topic(node)
    _write_json(node)
    given = {"decode": "json", "valueSchema": "n int, s string"}
    with pytest.raises(PySparkException) as failed:
        _frame(spark, node, **given).collect()
    assert readable(failed.value).startswith("orders-0: the value at offset 1 does not decode")
    letters = {"onDecodeError": "deadletter", "deadLetterTopic": "bad"}
    rows = _frame(spark, node, **given, **letters).select("offset", "value.n", "value.s").collect()
    assert [tuple(row) for row in rows] == [(0, 1, "a"), (2, 3, None), (4, None, None)]
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        where = TopicPartition("bad", 0)
        ends = client.list_offsets({where: -1})
        reader = client.reader({where: 0}, until={where: ends[where].offset})
        dead = list(reader)
    assert [record.value for record in dead] == [b"oops", b'{"n": "x"}']
    assert dict(dead[1].headers)["dragoman.offset"] == b"3"
    assert dict(dead[1].headers)["dragoman.topic"] == b"orders"


def test_views_have_the_names_of_topics(spark: SparkSession, node: EphemeralBroker) -> None:
    for name in ("orders", "orders-eu.1"):
        make_topic(node, name)
        write(node, range(10), name)
    names = create_views(bootstrap=node.bootstrap_servers, spark=spark)
    assert names == ["orders", "orders-eu.1"]
    found = spark.sql("select count(*) from orders o join `orders-eu.1` e on o.key = e.key").first()
    assert found is not None
    assert found[0] == 10
    assert table("orders", bootstrap=node.bootstrap_servers, columns="offset").count() == 10


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("csv", "key,n\n0,1\n1,1\n"),
        ("json", '{"key":"0","n":1}\n{"key":"1","n":1}\n'),
        ("table", "KEY  N\n───────\n0    1\n1    1\n"),
    ],
)
def test_sql_from_the_shell(
    spark: SparkSession,
    node: EphemeralBroker,
    capsys: pytest.CaptureFixture[str],
    output: str,
    shown: str,
) -> None:
    make_topic(node)
    write(node, range(2))
    query = "select key, count(*) n from Orders group by key order by key"
    arguments = ["sql", query, "--bootstrap", node.bootstrap_servers, "--output", output]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    # What stands between the columns is the table's business.
    assert printed.out.replace(" ", "") == shown.replace(" ", "")
    assert "2 rows in" in printed.err


def test_sql_writes_parquet_and_tells_mistakes_in_a_line(
    spark: SparkSession,
    node: EphemeralBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_topic(node)
    write(node, range(5))
    to = str(tmp_path / "out")
    at = ["--bootstrap", node.bootstrap_servers]
    assert main(["sql", "select * from orders", *at, "--output", "parquet", "--to", to]) == 0
    assert spark.read.parquet(to).count() == 5
    capsys.readouterr()
    assert main(["sql", "select nothing from orders", *at]) == 1
    before, complaint = capsys.readouterr().err.splitlines()
    assert before == "starting Spark …"
    assert complaint.startswith("dragoman: [UNRESOLVED_COLUMN")
    assert main(["sql", "select 1", "--output", "parquet"]) == 2


SQL = (
    # An alias, a name in WITH, a column, a string and a comment are no topics.
    ("with sold as (table orders) select max(paid.offset) bill, 'dues' from sold paid -- fee", "9"),
    # Tables are found wherever they are read: in WITH, in a join, below IN and as a value.
    (
        "with eu as (table `Orders-EU.1`) select count(*) + (select count(*) from fee) "
        "from eu join orders o using (key) where key in (select key from (table orders) paid)",
        "5",
    ),
    ("explain select * from fee", '"== Physical Plan =='),
)


def test_sql_reads_only_the_topics_that_are_its_tables(
    spark: SparkSession,
    node: EphemeralBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, count in (("orders", 10), ("orders-eu.1", 4), ("fee", 1)):
        make_topic(node, name)
        write(node, range(count), name)
    for name in ("sold", "paid", "bill", "dues"):
        make_topic(node, name)
    views: list[str] = []
    made = TopicViews._make
    monkeypatch.setattr(
        TopicViews, "_make", lambda self, topic: (views.append(topic), made(self, topic))
    )
    for query, expected in SQL:
        assert main(["sql", query, "-b", node.bootstrap_servers, "--output", "csv"]) == 0, query
        assert capsys.readouterr().out.splitlines()[1].split(",")[0] == expected, query
    assert sorted(views) == ["fee", "fee", "orders", "orders", "orders-eu.1"]


def test_sql_pins_no_schema_in_a_topic_that_an_alias_is_named_like(
    spark: SparkSession, node: EphemeralBroker
) -> None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        for name in ("orders", "paid"):
            make_topic(node, name)
            client.produce_records(name, [NewRecord(value=b'{"amount": 5}')])
    query = "select paid.value.amount from orders paid"
    assert main(["sql", query, "-b", node.bootstrap_servers, "--decode", "json"]) == 0
    assert _pinned(node, "orders") == "amount:bigint"
    assert not _pinned(node, "paid")


def _pinned(node: EphemeralBroker, topic: str) -> str | None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        entries = client.describe_configs(ResourceType.TOPIC, topic)
        return next((each.value for each in entries if each.name == "dragoman.value.schema"), None)


@pytest.mark.parametrize(
    ("query", "decode", "complaint"),
    [
        ("select * from ordes", "string", "there is no topic 'ordes'; is `orders` meant?"),
        ("select * from orders-eu", "string", "must be back quoted as: `orders-eu`"),
        ("select * from `orders` o join eu.`x` e", "string", "there is no topic 'eu.x'"),
        ("select * from eu.orders", "string", "write `eu.orders` in backquotes for the topic"),
        ("select * from orders", "avro", "none is pinned in topic 'orders'"),
        ("select * from Twice", "string", "topics 'Twice' and 'twice' differ only in case"),
    ],
)
def test_sql_names_the_topic_that_is_wrong(
    spark: SparkSession,
    node: EphemeralBroker,
    capsys: pytest.CaptureFixture[str],
    query: str,
    decode: str,
    complaint: str,
) -> None:
    for name in ("orders", "eu.orders", "twice", "Twice"):
        make_topic(node, name)
    assert main(["sql", query, "-b", node.bootstrap_servers, "--decode", decode]) in (1, 2)
    *_, told = capsys.readouterr().err.splitlines()
    assert complaint in told


# ---- a machine without Java

_ALONE = """
import sys
from pyspark.sql import SparkSession
from dragoman.spark.runtimes import use_java
print("cache" in use_java())
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("dragoman").option("path", sys.argv[1]).option("subscribe", "orders")
print(frame.load().count())
"""


def test_without_java_on_the_machine_and_without_registration(
    node: EphemeralBroker, tmp_path: Path
) -> None:
    """Java is the one from PyPI, and Spark finds the source by its module's name."""
    make_topic(node)
    write(node, range(100))
    directory = node.data_directory
    node.stop()
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sh", "bash", "dirname", "uname", "env", "cat", "rm", "tr", "ps", "sed", "grep"):
        for folder in ("/bin", "/usr/bin"):
            if os.path.exists(f"{folder}/{name}") and not (commands / name).exists():
                (commands / name).symlink_to(f"{folder}/{name}")
    ran = subprocess.run(
        [sys.executable, "-c", _ALONE, directory],
        env={
            "PATH": str(commands),
            "HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **quick_spark(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.stdout.split() == ["True", "100"], ran.stderr
