"""Goal: a pipeline's file becomes queries whose sinks take each row once, run after run.

Method: small pipelines that run over what there is and end, in the tests' one session.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import ANY

import msgspec
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from demo.postgres import LocalPostgres
from dragoman.client.kafka import LATEST, BlockingKafkaClient, NewRecord, NewTopic
from dragoman.errors import ConfigError
from dragoman.pipelines.jobs.materialize import read_current
from dragoman.pipelines.pipeline_file import load
from dragoman.pipelines.runner import PipelineError, Run
from dragoman.pipelines.state import StateFolder, Status
from dragoman.testing import EphemeralBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = """
name = "test"
bootstrap = "{bootstrap}"
trigger = "once"

[sources.orders]
type = "topic"
topic = "orders"
decode = "json"
schema = "id bigint, shop string, amount double"
batch_records = 60
"""


class World:
    """A broker with a topic of orders, and pipelines over it."""

    def __init__(self, node: EphemeralBroker, directory: Path) -> None:
        self.bootstrap = node.bootstrap_servers
        self.directory = directory
        self.folder = StateFolder(directory / "state", "test")
        self.sent = 0
        with BlockingKafkaClient(self.bootstrap) as client:
            client.create_topic(NewTopic(name="orders", partitions=2))

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        with BlockingKafkaClient(self.bootstrap) as client:
            client.produce_records("orders", [_order(number) for number in numbers])

    def run(self, text: str, name: str = "pipeline.toml") -> list[Status]:
        path = self.directory / name
        path.write_text(text.replace("{bootstrap}", self.bootstrap))
        seen: list[Status] = []
        Run(load(str(path)), self.folder, seen.append).run()
        return seen

    def read(self, topic: str) -> list[tuple[bytes | None, dict[str, object]]]:
        with BlockingKafkaClient(self.bootstrap) as client:
            starts = dict.fromkeys(client.topic(topic).all_partitions(), 0)
            ends = client.list_offsets(dict.fromkeys(starts, LATEST))
            until = {where: at.offset for where, at in ends.items()}
            found = []
            with client.reader(starts, until=until) as reader:
                while records := reader.next_records():
                    found += [(each.key, json.loads(each.value or b"null")) for each in records]
        return found


def _order(number: int) -> NewRecord:
    shop = "abc"[number % 3]
    value = {"id": number, "shop": shop, "amount": number / 2}
    return NewRecord(key=shop.encode(), value=json.dumps(value).encode())


@pytest.fixture
def world(spark: SparkSession, node: EphemeralBroker, tmp_path: Path) -> World:
    return World(node, tmp_path)


@pytest.fixture(scope="module")
def postgres() -> Iterator[LocalPostgres]:
    with LocalPostgres() as server:
        yield server


def ids(rows: Iterable[dict[str, object]]) -> list[object]:
    return sorted(row["id"] for row in rows)  # type: ignore[type-var]


def test_each_row_reaches_each_kind_of_sink_once_although_a_batch_comes_again(
    world: World, spark: SparkSession, postgres: LocalPostgres
) -> None:
    text = (
        HEAD
        + f"""
[steps.large]
sql = '''
select value.*, timestamp_seconds(value.id) as at, array(timestamp_seconds(0)) as ats
from orders where value.amount >= 10'''

[sinks.topic]
type = "topic"
from = "large"
topic = "large"
partitions = 2
key = ["shop"]

[sinks.files]
type = "parquet"
from = "large"
path = "files"

[sinks.table]
type = "delta"
from = "large"
path = "table"

[sinks.rows]
type = "postgres"
from = "large"
dsn = "{postgres.dsn()}"
table = "orders"
create = true
"""
    )
    with psycopg.connect(postgres.dsn()) as connection:
        connection.execute("alter database postgres set timezone = 'Asia/Tokyo'")
    world.send(60)
    first = world.run(text)
    # As if the driver had died after the sinks' commits and before Spark's.
    for sink in ("topic", "files", "table", "rows"):
        commits = world.folder.path / "checkpoints" / sink / "commits"
        (commits / "0").unlink()
        (commits / ".0.crc").unlink()
    world.send(30)
    world.run(text)

    expected = list(range(20, 90))
    assert ids(value for _, value in world.read("large")) == expected
    assert {key for key, _ in world.read("large")} == {b"a", b"b", b"c"}
    files = spark.read.parquet(str(world.directory / "files"))
    assert ids(row.asDict() for row in files.collect()) == expected
    assert ids(DeltaTable(world.directory / "table").to_pyarrow_table().to_pylist()) == expected
    with psycopg.connect(postgres.dsn()) as connection:
        rows = connection.execute("select id, at, ats from orders order by id").fetchall()
        batches = connection.execute("select sink, batch from dragoman_pipeline_batches")
        # Moments stay what they are, wherever clocks are.
        assert [(key, at.timestamp(), ats[0].timestamp()) for key, at, ats in rows] == [
            (key, key, 0) for key in expected
        ]
        assert batches.fetchall() == [("rows", 1)]
    last = first[-1]
    assert last.state == "done"
    assert [(part.part, part.rows, part.state, part.lag_records) for part in last.parts] == [
        (name, 60, "done", 0) for name in ("topic", "files", "table", "rows")
    ]
    assert world.folder.status() == msgspec.structs.replace(
        last, started_ms=ANY, updated_ms=ANY, parts=ANY
    )

    # With another checkpoint, batches would begin at 0 again and be taken for old ones.
    shutil.rmtree(world.folder.path / "checkpoints" / "table")
    with pytest.raises(PipelineError, match="was filled by this sink with another checkpoint"):
        world.run(text)
    assert DeltaTable(world.directory / "table").version() == 1


def test_rows_that_change_are_put_in_place_of_the_old(
    world: World, postgres: LocalPostgres
) -> None:
    text = (
        HEAD
        + f"""
[steps.sums]
sql = "select value.shop, count(*) as orders, sum(value.amount) as amount from orders group by 1"

[sinks.table]
type = "delta"
from = "sums"
path = "sums"
key = ["shop"]
output = "update"

[sinks.rows]
type = "postgres"
from = "sums"
dsn = "{postgres.dsn()}"
table = "sums"
key = ["shop"]
output = "update"
create = true

[sinks.topic]
type = "topic"
from = "sums"
topic = "sums"
partitions = 1
key = ["shop"]
output = "update"
"""
    )
    world.send(60)
    world.run(text)
    world.send(30)
    seen = world.run(text)

    expected = {
        shop: (30, sum(number / 2 for number in range(90) if "abc"[number % 3] == shop))
        for shop in "abc"
    }
    table = DeltaTable(world.directory / "sums").to_pyarrow_table().to_pylist()
    assert {row["shop"]: (row["orders"], row["amount"]) for row in table} == expected
    with psycopg.connect(postgres.dsn()) as connection:
        rows = connection.execute("select shop, orders, amount from sums").fetchall()
    assert {row[0]: row[1:] for row in rows} == expected
    # A topic keeps what was: three shops in two batches.
    changes = world.read("sums")
    assert len(changes) == 6
    newest = {value["shop"]: (value["orders"], value["amount"]) for _, value in changes}
    assert newest == expected
    assert {part.state_rows for part in seen[-1].parts} == {3}


def test_windows_joins_and_python_in_one_file(world: World) -> None:
    names = pa.table({"shop": ["a", "b"], "name": ["Anna", "Ben"]})
    write_deltalake(world.directory / "names", names, partition_by=["shop"])
    (world.directory / "shapes.py").write_text(
        "def doubled(orders):\n"
        "    return orders.selectExpr('value.shop', 'value.amount * 2 as amount', 'timestamp')\n"
    )
    text = (
        HEAD
        + """watermark = { column = "timestamp", delay = "1h" }

[sources.names]
type = "table"
path = "names"
format = "delta"

[steps.named]
sql = "select name, sum(amount) as amount from windowed join names using (shop) group by name, slot"

[steps.windowed]
sql = "select shop, amount, window(timestamp, '1 day') as slot, timestamp from doubled"

[steps.doubled]
python = "shapes:doubled"

[sinks.table]
type = "delta"
from = "named"
path = "named"
output = "complete"
"""
    )
    world.send(30)
    world.run(text)

    rows = DeltaTable(world.directory / "named").to_pyarrow_table().to_pylist()
    totals: dict[str, float] = {}
    for row in rows:
        totals[row["name"]] = totals.get(row["name"], 0) + row["amount"]
    assert totals == {"Anna": sum(range(0, 30, 3)), "Ben": sum(range(1, 30, 3))}


def test_a_file_in_python_with_decorators_runs(world: World) -> None:
    world.send(20)
    world.run(
        """
from pyspark.sql.functions import udf
from dragoman.pipelines import pipeline, sink, source, transform

pipeline(name="test", bootstrap="{bootstrap}", trigger="once")

@source(type="topic", topic="orders", decode="json", schema="id bigint, amount double")
def orders(records):
    return records.select("value.*")

@transform
def shouted(orders):
    shout = udf(lambda number: f"{number}!", "string")
    return orders.select("id", shout("id").alias("text"))

@transform
def few(shouted):
    return "select * from shouted where id < 3"

@sink(type="delta", path="few")
def table(few):
    return few.withColumnRenamed("text", "word")
""",
        "pipeline.py",
    )

    rows = DeltaTable(world.directory / "few").to_pyarrow_table().to_pylist()
    assert sorted(row["word"] for row in rows) == ["0!", "1!", "2!"]


def _change(number: int, operation: str, row: dict[str, object]) -> NewRecord:
    """As a capture writes it; a tombstone without an operation."""
    value = json.dumps({"op": operation, "table": "items", "row": row, "old": None}).encode()
    headers = {"pgcdc-operation": operation, "pgcdc-lsn": f"{number:016X}", "pgcdc-seq": "0"}
    return NewRecord(
        key=str(row["id"]).encode(),
        value=value if operation else None,
        headers=tuple((name, text.encode()) for name, text in headers.items()),
    )


def test_captured_changes_keep_a_table_in_postgres_until_stopped(
    world: World, postgres: LocalPostgres
) -> None:
    with BlockingKafkaClient(world.bootstrap) as client:
        client.create_topic(NewTopic(name="pgcdc.items", partitions=2))
        changes = [
            _change(1, "SNAPSHOT", {"id": 1, "name": "one", "price": "1.50"}),
            _change(2, "INSERT", {"id": 2, "name": "two", "price": "2.00"}),
            _change(3, "INSERT", {"id": 3, "name": "three", "price": None}),
            _change(4, "UPDATE", {"id": 1, "name": "uno", "price": "1.75"}),
            _change(5, "DELETE", {"id": 2, "name": "two", "price": "2.00"}),
            _change(5, "", {"id": 2}),
        ]
        client.produce_records("pgcdc.items", changes)
    path = world.directory / "pipeline.toml"
    path.write_text(
        f"""
name = "test"
bootstrap = "{world.bootstrap}"
trigger = "continuous"

[sources.items]
type = "cdc"
topic = "pgcdc.items"
schema = "id int, name string, price decimal(10, 2)"

[steps.changes]
sql = "select id, name, price, _offset, _operation = 'DELETE' as gone from items"

[sinks.rows]
type = "postgres"
from = "changes"
dsn = "{postgres.dsn()}"
table = "items"
key = ["id"]
latest_by = "_offset"
deleted = "gone"
create = true
"""
    )

    def watch(status: Status) -> None:
        if any(part.rows >= 5 for part in status.parts):
            run.stop()

    run = Run(load(str(path)), world.folder, watch)
    run.run()

    status = world.folder.status()
    assert status is not None
    assert (status.state, status.parts[0].state) == ("stopped", "stopped")
    with psycopg.connect(postgres.dsn()) as connection:
        rows = connection.execute("select * from items order by id").fetchall()
    assert rows == [(1, "uno", Decimal("1.75")), (3, "three", None)]


def test_jobs_of_a_file_run_beside_each_other(world: World, spark: SparkSession) -> None:
    with BlockingKafkaClient(world.bootstrap) as client:
        client.create_topic(NewTopic(name="pgcdc.items", partitions=2))
        changes = [
            _change(1, "INSERT", {"id": 1, "name": "one", "price": "1.50"}),
            _change(2, "INSERT", {"id": 2, "name": "two", "price": "2.00"}),
            _change(3, "DELETE", {"id": 2, "name": "two", "price": "2.00"}),
        ]
        client.produce_records("pgcdc.items", changes)
    seen = world.run(
        """
name = "test"
bootstrap = "{bootstrap}"
trigger = "once"

[jobs.items]
type = "materialize"
topic = "pgcdc.items"
table = "items"

[jobs.counted]
type = "profile"
topic = "pgcdc.items"
folder = "counted"
"""
    )

    rows = read_current(spark, str(world.directory / "items")).collect()
    assert [(row["id"], row["name"]) for row in rows] == [(1, "one")]
    assert "pgcdc.items" in (world.directory / "counted" / "profile.txt").read_text()
    assert seen[-1].state == "done"
    states = {part.part: (part.state, part.lag_records) for part in seen[-1].parts}
    assert states["items"] == ("done", 0)
    assert states["counted"][0] == "done"
    assert (world.folder.path / "checkpoints" / "items").is_dir()


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("select nothing from orders", "steps.bad: [UNRESOLVED_COLUMN"),
        ("select * fom orders", "steps.bad: [PARSE_SYNTAX_ERROR]"),
        ("select * from order_s", "steps.bad: [TABLE_OR_VIEW_NOT_FOUND]"),
        (
            "select * from orders order by offset",
            "sinks.out: Sorting is not supported on streaming",
        ),
    ],
)
def test_wrong_query_is_reported_before_anything_runs(
    world: World, step: str, problem: str
) -> None:
    text = f'{HEAD}\n[steps.bad]\nsql = "{step}"\n[sinks.out]\ntype = "delta"\nfrom = "bad"\n'

    with pytest.raises(ConfigError) as refused:
        world.run(text + 'path = "out"\n')

    assert problem in str(refused.value)
    assert str(refused.value).startswith(str(world.directory / "pipeline.toml"))
    assert "\n" not in str(refused.value)
    assert not (world.directory / "out").exists()
    status = world.folder.status()
    assert status is not None
    assert status.state == "failed"


def test_missing_topic_error_names_a_remedy(world: World) -> None:
    sink = '\n[sinks.out]\ntype = "delta"\nfrom = "orders"\npath = "out"\n'
    with pytest.raises(ConfigError, match=r"no topic 'order' at .*; is 'orders' meant\?"):
        world.run(HEAD.replace('topic = "orders"', 'topic = "order"') + sink)
    sink = '\n[sinks.out]\ntype = "topic"\nfrom = "orders"\ntopic = "elsewhere"\n'
    with pytest.raises(ConfigError, match="or set partitions = N here to create it"):
        world.run(HEAD + sink)


def test_a_failure_while_running_is_one_line_and_stops_the_rest(world: World) -> None:
    text = (
        HEAD
        + """
[steps.checked]
sql = "select assert_true(value.id < 5, 'too large: ' || value.id) as fine from orders"

[sinks.out]
type = "parquet"
from = "checked"
path = "out"
"""
    )
    world.send(10)
    with pytest.raises(PipelineError) as failed:
        world.run(text)

    assert "sinks.out: " in str(failed.value)
    assert "too large: " in str(failed.value)
    assert "\n" not in str(failed.value)
    status = world.folder.status()
    assert status is not None
    assert (status.state, status.parts[0].state) == ("failed", "failed")
