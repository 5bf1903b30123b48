"""Goal: a pipeline's file is taken or refused as a whole, and a refusal names file, key and remedy.

Method: files that are wrong in one way each, without Spark and without a broker.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.pipelines.definition import DeltaSink, TableSource, TopicSource, trigger_options
from dragoman.pipelines.pipeline_file import load, single_job

GOOD = """
name = "orders"
bootstrap = "broker:9092"
trigger = "every 10s"

[spark]
master = "spark://host:7077"
conf = { "spark.executor.memory" = "4g", "spark.executor.cores" = 2 }

[sources.orders]
type = "topic"
topic = "orders"
decode = "json"
schema = "id bigint, amount double, at timestamp"
watermark = { column = "timestamp", delay = "10m" }

[sources.customers]
type = "table"
path = "customers"

[steps.joined]
sql = "select * from priced join customers using (id)"

[steps.priced]
sql = "select value.id, value.amount as joined from orders"

[sinks.out]
type = "delta"
from = "joined"
path = "out"
key = ["id"]
"""
TOPIC = '[sources.orders]\ntype = "topic"\ntopic = "orders"\n'
SINK = '[sinks.out]\ntype = "delta"\nfrom = "orders"\npath = "out"\n'
HEAD = 'name = "orders"\n'


def written(directory: Path, text: str, name: str = "pipeline.toml") -> str:
    (directory / name).write_text(text)
    return str(directory / name)


def test_a_file_becomes_a_definition(tmp_path: Path) -> None:
    found = load(written(tmp_path, GOOD))

    assert found.name == "orders"
    assert found.spark.conf == {"spark.executor.memory": "4g", "spark.executor.cores": 2}
    orders, customers = found.sources["orders"], found.sources["customers"]
    assert isinstance(orders, TopicSource)
    assert isinstance(customers, TableSource)
    # What the file's head says holds for all, and paths begin beside the file.
    assert orders.bootstrap == "broker:9092"
    assert orders.watermark is not None
    assert orders.watermark.interval == "10 minutes"
    assert customers.path == str(tmp_path / "customers")
    assert isinstance(found.sinks["out"], DeltaSink)
    # In an order in which each has what it needs; a column may have a step's name.
    assert list(found.steps) == ["priced", "joined"]


def test_a_folder_stands_for_the_file_in_it(tmp_path: Path) -> None:
    written(tmp_path, GOOD)

    assert load(str(tmp_path)).name == "orders"


def test_paths_with_a_scheme_stay(tmp_path: Path) -> None:
    found = load(written(tmp_path, HEAD + TOPIC + SINK.replace('"out"', '"s3://bucket/out"')))

    assert found.sinks["out"].path == "s3://bucket/out"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = ", "not TOML: "),
        (TOPIC + SINK, "'name' is missing"),
        ('name = "a b"\n' + TOPIC + SINK, "'a b' cannot be a name"),
        ('name = "../up"\n' + TOPIC + SINK, "'../up' cannot be a name"),
        (HEAD + TOPIC, "nothing is written anywhere: add a table [sinks.NAME]"),
        (HEAD + 'triger = "once"\n' + TOPIC + SINK, "unknown key 'triger'; is 'trigger' meant?"),
        (HEAD + 'trigger = "every 0s"\n' + TOPIC + SINK, "or a pace such as 'every 10s', got"),
        (HEAD + "[spark]\nmister = 1\n" + TOPIC + SINK, "spark: unknown key 'mister'; is 'master'"),
        (HEAD + "sources = 3\n" + SINK, "sources: expected `object`, got `int`"),
        (
            HEAD + TOPIC + 'decod = "json"\n' + SINK,
            "sources.orders: unknown key 'decod'; is 'decode' meant?",
        ),
        (
            HEAD + TOPIC + 'decode = "xml"\n' + SINK,
            "sources.orders: decode: invalid enum value 'xml'",
        ),
        (HEAD + TOPIC + 'schema = "a int"\n' + SINK, 'sources.orders: schema is for decode = "jso'),
        (HEAD + TOPIC + "batch_records = 0\n" + SINK, "batch_records: expected a positive number"),
        (HEAD + TOPIC + 'batch_records = "1"\n' + SINK, "batch_records: expected `int`, got `str`"),
        (
            HEAD + TOPIC + "[sources.orders.watermark]\ncolumn='a'\ndelay='soon'\n" + SINK,
            "sources.orders: watermark: delay: expected a time such as '10m', got 'soon'",
        ),
        (
            HEAD + TOPIC + "[sources.orders.watermark]\ncolumm='a'\ndelay='1m'\n" + SINK,
            "sources.orders: watermark: unknown key 'columm'; is 'column' meant?",
        ),
        (HEAD + '[sources.orders]\ntype = "topic"\n' + SINK, "sources.orders: 'topic' is missing"),
        (HEAD + '[sources.orders]\ntopic = "a"\n' + SINK, "sources.orders: 'type' is missing"),
        (
            HEAD + '[sources.orders]\ntype = "topik"\n' + SINK,
            "sources.orders: unknown type 'topik'; is 'topic' meant?",
        ),
        (
            HEAD + '[sources.orders]\ntype = "kafkaesque"\n' + SINK,
            "unknown type 'kafkaesque'; expected topic, cdc, table, python",
        ),
        (
            HEAD + TOPIC.replace("sources.orders", 'sources."my orders"') + SINK,
            "sources.my orders: 'my orders' cannot name a table in SQL",
        ),
        (
            HEAD + TOPIC + '[steps.Orders]\nsql = "select 1"\n' + SINK,
            "steps.Orders: sources.orders has this name already",
        ),
        (HEAD + TOPIC + "[steps.a]\n" + SINK, "steps.a: give one of sql and python"),
        (
            HEAD + TOPIC + '[steps.a]\npython = "no.such.module:it"\n' + SINK,
            "steps.a: no.such.module:it: No module named 'no'",
        ),
        (
            HEAD + TOPIC + '[steps.a]\npython = "os.path:exists"\ninputs = ["order"]\n' + SINK,
            "steps.a: unknown input 'order'; is 'orders' meant?",
        ),
        (
            HEAD
            + TOPIC
            + '[steps.a]\nsql = "select * from c"\n[steps.b]\nsql = "select * from a"\n'
            + '[steps.c]\nsql = "select * from orders join `B` using (key)"\n'
            + SINK,
            "steps.a depends on itself: a → c → b → a",
        ),
        (
            HEAD + TOPIC + SINK.replace('"orders"', '"order"'),
            "sinks.out: unknown from: source or step 'order'; is 'orders' meant?",
        ),
        (HEAD + TOPIC + SINK + 'output = "update"\n', 'sinks.out: output = "update" needs key'),
        (
            HEAD + TOPIC + SINK.replace("delta", "parquet") + 'output = "complete"\n',
            'use type = "delta" for rows that change',
        ),
        (HEAD + TOPIC + SINK + 'trigger = "often"\n', "sinks.out: trigger: expected 'continuous'"),
        (
            HEAD + TOPIC + SINK + '[jobs.a]\ntype = "teir"\n',
            "jobs.a: unknown type 'teir'; is 'tier",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_key_and_a_remedy(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = written(tmp_path, text)

    with pytest.raises(ConfigError) as refused:
        load(path)

    assert str(refused.value).startswith(f"{path}: ")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_missing_file_error_says_how_to_create_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory; `dragoman pipeline init`"):
        load(str(tmp_path / "none.toml"))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a file in TOML \(.toml\) or Python \(.py\)"):
        load(written(tmp_path, GOOD, "pipeline.yaml"))


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than"):
        load(written(tmp_path, "#" * (1 << 21)))


def test_a_job_has_the_options_of_its_module(tmp_path: Path) -> None:
    text = '[jobs.copy]\ntype = "materialize"\ntopic = "t"\ntable = "tables/t"\n'
    found = load(written(tmp_path, 'bootstrap = "b:1"\n' + HEAD + text)).jobs["copy"]

    assert found.type == "materialize"
    assert found.options.bootstrap == "b:1"
    assert found.options.table == str(tmp_path / "tables" / "t")


def test_command_line_job_is_shown_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "topic": "pgcdc.Orders",
        "table": "t",
        "history": "true",
        "batch_records": "5",
        "source": "startingOffsets=latest,readMode=broker",
    }

    found = single_job("materialize", given, "b:1")

    assert (found.name, found.trigger) == ("materialize-pgcdc.orders", "once")
    options = found.jobs["materialize"].options
    assert (options.history, options.batch_records, options.bootstrap) == (True, 5, "b:1")
    assert options.table == str(tmp_path / "t")
    assert options.source == {"startingOffsets": "latest", "readMode": "broker"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"topic": "t"}, "materialize: 'table' is missing"),
        ({"topic": "t", "tabel": "t"}, "materialize: unknown key 'tabel'; is 'table' meant?"),
        ({"topic": "t", "table": "t", "history": "perhaps"}, "materialize: history: "),
        ({"topic": "t", "table": "t", "trigger": "often"}, "materialize: trigger: expected"),
        ({"topic": "t", "table": "t", "name": "No"}, "materialize: 'No' cannot be a name"),
    ],
)
def test_a_wrong_option_of_the_command_line_is_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        single_job("materialize", given, "b:1")

    assert str(refused.value).startswith(problem)


def test_triggers_are_what_spark_calls_them() -> None:
    assert trigger_options("once") == {"availableNow": True}
    assert trigger_options("continuous") == {"processingTime": "0 seconds"}
    assert trigger_options("every 250ms") == {"processingTime": "250 milliseconds"}


def test_tables_of_one_topic_have_checkpoints_of_their_own(tmp_path: Path) -> None:
    places = []
    for table in ("orders", "history"):
        keys = {"topic": "pgcdc.orders", "table": str(tmp_path / table)}
        (job,) = single_job("materialize", keys, "127.0.0.1:9092").jobs.values()
        places.append(job.options.checkpoint)
    assert places == [str(tmp_path / "orders.checkpoint"), str(tmp_path / "history.checkpoint")]
