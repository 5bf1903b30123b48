"""Steps with Spark: readings by window, in a table on disk and in a topic.

Both are compared with each other and with what comes out without Spark (`readings.py`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from demo.capture import PURCHASES_TOPIC
from demo.kafka import messages
from demo.protocols import ORDERS_TOPIC
from demo.readings import TOPIC, Window, closed_windows, window_minutes
from demo.spark_job import Aggregated, PipelineRuns, Settings, Started, TableRead
from demo.story import DemoError, Stage, Step

WINDOWS_TOPIC = "windows"
_PIPELINE = Path(__file__).with_name("pipeline.toml")
#: Means are rounded, here and there, after sums in another order.
_MEAN_DIFFERENCE_MAX = 0.011


def _start(stage: Stage) -> str:
    begun = time.monotonic()
    stage.screen.note("Java comes up, this takes a while")
    # Paths in the file are relative to its folder, where the tables will be.
    folder = os.path.join(stage.spark.directory, "shop")
    os.makedirs(folder)
    stage.spark.start(
        Settings(
            bootstrap_servers=stage.broker.bootstrap_servers,
            http_url=stage.broker.http_url,
            readings_topic=TOPIC,
            windows_topic=WINDOWS_TOPIC,
            orders_topic=ORDERS_TOPIC,
            purchases_topic=PURCHASES_TOPIC,
            window_minutes=window_minutes(stage.record_count),
            pipeline=shutil.copy(_PIPELINE, folder),
            directory=stage.spark.directory,
        )
    )
    started = stage.spark.hear(Started)
    took = time.monotonic() - begun
    return f"Spark {started.version}, ready after {took:.1f} s"


def _aggregate(stage: Stage) -> str:
    begun = time.monotonic()
    stage.screen.note("topic to table, table to topic")
    readings = stage.spark.hear(Aggregated).readings
    if readings != stage.record_count:
        raise DemoError(f"the query read {readings} of {stage.record_count} readings")
    minutes = window_minutes(stage.record_count)
    took = time.monotonic() - begun
    return f"{readings:,} readings, {minutes}-minute windows, {took:.1f} s"


def _show_table(stage: Stage) -> str:
    windows = stage.spark.hear(TableRead).windows
    columns = Window.__struct_fields__
    stage.screen.table(
        "table windows, Parquet files, with Spark SQL",
        columns,
        [[str(getattr(each, column)) for column in columns] for each in windows],
    )
    stage.screen.say("")
    check_windows(windows, stage.record_count)
    return f"{len(windows)} windows, all right; the last one is open"


def _show_topic(stage: Stage) -> str:
    found: list[Window] = []
    rows = []
    # A topic that nothing was written to does not exist.
    expected = closed_windows(stage.record_count)
    for message in messages(stage, WINDOWS_TOPIC, partitions=1) if expected else ():
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        found.append(Window(window=key.decode(), **msgspec.json.decode(value)))
        rows.append((str(message.offset()), key.decode(), value.decode()))
    stage.screen.table("topic windows, with confluent-kafka", ("offset", "key", "value"), rows)
    stage.screen.say("")
    check_windows(sorted(found, key=lambda each: each.window), stage.record_count)
    return f"{len(found)} records, each once, the same windows"


def _run_pipeline(stage: Stage) -> str:
    stage.screen.note("its first batches")
    pipeline = stage.spark.hear(PipelineRuns)
    rows = ", ".join(f"{count:,} rows for {part}" for part, count in pipeline.rows.items())
    return f"{pipeline.name}: {rows}, and so on"


def check_windows(found: Sequence[Window], record_count: int) -> None:
    """Each closed window once, with the right figures. Raises `DemoError`."""
    expected = closed_windows(record_count)
    names = [each.window for each in found]
    if names != [each.window for each in expected]:
        raise DemoError(f"windows {', '.join(names) or 'none'}: {len(expected)} were expected")
    for each, right in zip(found, expected, strict=True):
        is_mean_right = abs(each.mean - right.mean) < _MEAN_DIFFERENCE_MAX
        if not is_mean_right or msgspec.structs.replace(each, mean=right.mean) != right:
            raise DemoError(f"{each} was expected to be {right}")


START = Step(title="Start Spark", run=_start)
AGGREGATE = Step(title="Aggregate the topic as a stream", run=_aggregate)
SHOW_TABLE = Step(title="Read the table", run=_show_table)
SHOW_TOPIC = Step(title="Read the topic", run=_show_topic)
RUN_PIPELINE = Step(title="Run a pipeline", run=_run_pipeline)
