"""The demo's Spark job: readings by window, as a stream, into a table and into a topic, and then a
pipeline that runs until the process is killed.

A program of its own, `python -m demo.spark_job SETTINGS`, so that Java comes and goes with
it. What it has done it says in lines of JSON on stdout; all else, Java's log too, goes to stderr.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from demo.readings import LATE_SECONDS_MAX, Window
from dragoman import spark
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from dragoman.pipelines.state import Status


#: Half the processor time of a job this short goes into compiling it well.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap_servers: str
    http_url: str
    readings_topic: str
    windows_topic: str
    orders_topic: str
    purchases_topic: str
    window_minutes: int
    #: The file of the pipeline.
    pipeline: str
    #: For the table and the queries' checkpoints.
    directory: str


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="Started"):
    version: str


class WritersCounted(msgspec.Struct, frozen=True, kw_only=True, tag="WritersCounted"):
    #: By writer, in order of their first record.
    records: dict[str, int]


class Aggregated(msgspec.Struct, frozen=True, kw_only=True, tag="Aggregated"):
    readings: int


class TableRead(msgspec.Struct, frozen=True, kw_only=True, tag="TableRead"):
    windows: list[Window]


class Purchase(msgspec.Struct, frozen=True):
    id: int
    item: str
    price: str
    state: str


class Materialized(msgspec.Struct, frozen=True, kw_only=True, tag="Materialized"):
    purchases: list[Purchase]


class PipelineRuns(msgspec.Struct, frozen=True, kw_only=True, tag="PipelineRuns"):
    """Each of its parts has processed rows."""

    name: str
    rows: dict[str, int]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="Failed"):
    reason: str


Said: TypeAlias = (
    Started | WritersCounted | Aggregated | TableRead | Materialized | PipelineRuns | Failed
)


def main() -> int:
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    say = _only_speaker()
    try:
        _run(settings, say)
    except Exception as error:
        # Spark has many classes for what may go wrong; people need the line that matters.
        if not isinstance(error, DragomanError | OSError) and not _is_of_spark(error):
            raise
        say(Failed(reason=spark.readable(error)))
        return 1
    return 0


def _run(settings: Settings, say: Callable[[Said], object]) -> None:
    session = _start()
    say(Started(version=session.version))
    say(WritersCounted(records=_count_writers(session, settings)))
    windows = _windows(session, settings)
    # Two queries, each with a checkpoint of its own and exactly once by itself: the table by its
    # list of files, the topic by the broker's memory of batches. The second reads the table: if
    # each aggregated the readings, one that comes late could count in one and not in the other. A
    # single query that writes to both in `foreachBatch` would, after a crash, append a batch of
    # the table again.
    aggregating = _to_table(windows, settings)
    aggregating.awaitTermination()
    table = session.readStream.schema(windows.schema).parquet(table_path(settings.directory))
    _to_topic(table, settings).awaitTermination()
    say(Aggregated(readings=sum(each.numInputRows for each in aggregating.recentProgress)))
    say(TableRead(windows=_read_table(session, windows, settings)))
    say(Materialized(purchases=_materialize(session, settings)))
    _run_pipeline(settings, say)
    session.stop()


def _start() -> SparkSession:
    # The process that started this job chooses the folder and removes it; Java has to be given it.
    scratch = tempfile.gettempdir()
    return spark.session(
        "dragoman demo",
        config={
            "spark.driver.defaultJavaOptions": f"-Djava.io.tmpdir={scratch} {_JAVA_OPTIONS}",
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": scratch,
            "spark.sql.session.timeZone": "UTC",
            # There is one group per window: more partitions would be empty.
            "spark.sql.shuffle.partitions": "1",
        },
    )


def _count_writers(session: SparkSession, settings: Settings) -> dict[str, int]:
    """The first word of a value says who wrote it."""
    orders = spark.table(
        settings.orders_topic, bootstrap=settings.bootstrap_servers, decode="string"
    )
    orders.createOrReplaceTempView("orders")
    rows = session.sql("""
        select substring_index(value, ' ', 1) as writer, count(*) as records
        from orders group by writer order by min(offset)
    """).collect()
    return {row.writer: row.records for row in rows}


def _windows(session: SparkSession, settings: Settings) -> DataFrame:
    readings = spark.table(
        settings.readings_topic, bootstrap=settings.bootstrap_servers, decode="json", stream=True
    )
    timed = readings.selectExpr("to_timestamp(value.at) as at", "value.celsius")
    timed.withWatermark("at", f"{LATE_SECONDS_MAX} seconds").createOrReplaceTempView("readings")
    return session.sql(f"""
        select date_format(window.start, 'yyyy-MM-dd HH:mm') as window,
               count(*) as readings, round(avg(celsius), 2) as mean, max(celsius) as warmest
        from readings group by window(at, '{settings.window_minutes} minutes')
    """)


def _to_table(windows: DataFrame, settings: Settings) -> StreamingQuery:
    return (
        windows.writeStream.format("parquet")
        .option("path", table_path(settings.directory))
        .option("checkpointLocation", os.path.join(settings.directory, "table-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _to_topic(windows: DataFrame, settings: Settings) -> StreamingQuery:
    return (
        windows.selectExpr("window as key", "to_json(struct(readings, mean, warmest)) as value")
        .writeStream.format("dragoman")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("topic", settings.windows_topic)
        .option("checkpointLocation", os.path.join(settings.directory, "topic-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _read_table(session: SparkSession, windows: DataFrame, settings: Settings) -> list[Window]:
    # With the schema, since a table without files has none.
    found = session.read.schema(windows.schema).parquet(table_path(settings.directory))
    found.createOrReplaceTempView("windows")
    rows = session.sql("select * from windows order by window").collect()
    return [Window(**row.asDict()) for row in rows]


def _materialize(session: SparkSession, settings: Settings) -> list[Purchase]:
    """The captured table as it is now, from what has happened to it."""
    from dragoman.pipelines.jobs import materialize
    from dragoman.pipelines.jobs.materialize import read_current

    table = os.path.join(settings.directory, "purchases")
    options = materialize.Options(
        topic=settings.purchases_topic,
        bootstrap=settings.bootstrap_servers,
        table=table,
        schema="id int, item string, price decimal(8, 2), state string",
        trigger="once",
    )
    materialize.run(session, options, lambda _progress: None).awaitTermination()
    read_current(session, table).createOrReplaceTempView("purchases")
    rows = session.sql("select id, item, string(price), state from purchases order by id").collect()
    return [Purchase(*row) for row in rows]


def _run_pipeline(settings: Settings, say: Callable[[Said], object]) -> None:
    """As `dragoman pipeline run FILE --bootstrap … --server …` does, in the session there is."""
    from dragoman.cli.pipeline_status import StatusReports
    from dragoman.pipelines.brokers import with_bootstrap
    from dragoman.pipelines.pipeline_file import load
    from dragoman.pipelines.runner import Run
    from dragoman.pipelines.state import StateFolder

    definition = with_bootstrap(load(settings.pipeline), settings.bootstrap_servers)
    is_said = False
    with StatusReports(settings.http_url) as reports:

        def watch(status: Status) -> None:
            nonlocal is_said
            reports.send(status)
            rows = {each.part: each.rows for each in status.parts}
            if not is_said and status.state == "running" and all(rows.values()):
                is_said = True
                say(PipelineRuns(name=status.name, rows=rows))

        Run(definition, StateFolder(Path(settings.directory), definition.name), watch).run()


def table_path(directory: str) -> str:
    return os.path.join(directory, "windows")


def _only_speaker() -> Callable[[Said], object]:
    """Takes stdout for itself: what Java and others print there goes to stderr from now on."""
    descriptor = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return lambda said: os.write(descriptor, msgspec.json.encode(said) + b"\n")


def _is_of_spark(error: Exception) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


if __name__ == "__main__":
    sys.exit(main())
