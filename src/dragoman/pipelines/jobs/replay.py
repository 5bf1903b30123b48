"""Replays records: sends a range of a topic, or the rows of a table, to a topic.

At its first start the job determines the records to send, splits them into batches, and stores this
plan in the checkpoint, so batch n is always the same. Executors stage a batch and the driver
publishes it under its number (`spark/writer.py`), so a killed job resumes with the batch in
progress and sends nothing twice. Batches are sequential, and within a batch a partition's records
are published in order.
"""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import REPLAY_BATCH_RECORDS
from dragoman.operating_system import platforms
from dragoman.pipelines.jobs.tier_manifest import sync_directory
from dragoman.pipelines.state import Progress, Report
from dragoman.plural import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dragoman.client.kafka import BlockingKafkaClient


_PLAN = "replay.json"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    #: The topic that records are sent to. A missing one is created with the partitions needed.
    to: str
    #: Where records come from: a topic, or a table (Delta, a Parquet file, or a folder of them).
    topic: str = ""
    table: str = ""
    #: A folder for the plan and its progress.
    checkpoint: str = ""
    bootstrap: str = ""
    #: The broker of the topic that is read, where it is in another cluster.
    source_bootstrap: str = ""
    #: The data directory of a broker to read from, instead of the broker or in addition to it.
    path: str = ""
    #: The folder of Parquet twins, for records that the log has deleted.
    tier: str = ""
    #: `earliest`, `latest`, a time such as `2026-11-16T08:00:00Z`, or offsets: `{"0": 23, "1": 7}`.
    starting: str = "earliest"
    ending: str = "latest"
    #: keep: records keep their partitions; key: the hash of the key determines the partition.
    partitions: Literal["keep", "key"] = "keep"
    #: Whether records keep their times.
    keep_times: bool = True
    #: The column that becomes the key of a table's rows; `_key` for materialized tables.
    key: str = ""
    #: Offsets of one partition in one batch.
    batch_records: int = REPLAY_BATCH_RECORDS
    #: Further options of the source and of the sink.
    source: dict[str, str] = {}
    sink: dict[str, str] = {}

    def __post_init__(self) -> None:
        if bool(self.topic) == bool(self.table):
            raise ValueError("give one of topic and table")
        if self.batch_records < 1:
            raise ValueError("batch_records: expected a positive number")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The batches to send, and how many of them are done."""

    #: The writer id under which the batches are published.
    writer_id: str
    options: Options
    batches: Batches
    done: int = 0
    rows: int = 0


def run(spark: SparkSession, options: Options, report: Report) -> None:
    """Send the batches that were not sent. Raises `ConfigError`, `DataLossError`."""
    from dragoman.pipelines.jobs import replay_sources
    from dragoman.spark.options import parse_sink
    from dragoman.spark.tables import DEFAULT_BOOTSTRAP
    from dragoman.spark.writer import Staged, open_client, publish

    bootstrap = options.bootstrap or DEFAULT_BOOTSTRAP
    sink = parse_sink({"kafka.bootstrap.servers": bootstrap, "topic": options.to, **options.sink})
    plan = _planned(options)
    with closing(open_client(sink)) as client:
        _make_target(client, plan, options)
        for number in range(plan.done, plan.batches.count):
            tasks = replay_sources.tasks_of(plan, number, sink)
            with closing(tasks):
                count = len(tasks.each)
                found = spark.sparkContext.parallelize(tasks.each, max(count, 1))
                staged = found.map(replay_sources.stage).collect()
            pieces: list[Staged] = [each.staged for each in staged]
            publish(client, pieces, number, is_single=False)
            rows = plan.rows + sum(each.rows for each in staged)
            plan = msgspec.structs.replace(plan, done=number + 1, rows=rows)
            _save(options, plan)
            report(_progress(plan))
    report(_progress(plan, f"all {plan.rows} records have been sent"))


def _progress(plan: Plan, note: str = "") -> Progress:
    left = plan.batches.left_after(plan.done)
    return Progress(part="replay", batches=plan.done, rows=plan.rows, lag_records=left, note=note)


# ---- the plan


def _planned(options: Options) -> Plan:
    """The plan of the checkpoint, or a new one."""
    from dragoman.pipelines.jobs.replay_sources import batches_of

    if not options.checkpoint:
        raise ConfigError("give checkpoint: a folder for the plan and its progress")
    if "://" in options.checkpoint:
        raise ConfigError(
            f"checkpoint: expected a folder on this machine, got {options.checkpoint}"
        )
    try:
        with open(os.path.join(options.checkpoint, _PLAN), "rb") as file:
            plan = msgspec.json.decode(file.read(), type=Plan)
    except FileNotFoundError:
        plan = Plan(
            writer_id=f"replay-{uuid.uuid4()}", options=options, batches=batches_of(options)
        )
        _save(options, plan)
        return plan
    if _essence(plan.options) != _essence(options):
        raise ConfigError(
            f"{options.checkpoint} belongs to a replay with other options: name another folder"
        )
    # Addresses may change between runs.
    return msgspec.structs.replace(plan, options=options)


def _essence(options: Options) -> Options:
    """The options that must not change between runs."""
    return msgspec.structs.replace(
        options, bootstrap="", source_bootstrap="", checkpoint="", path="", source={}, sink={}
    )


def _save(options: Options, plan: Plan) -> None:
    os.makedirs(options.checkpoint, exist_ok=True)
    path = os.path.join(options.checkpoint, _PLAN)
    with open(f"{path}.new", "wb") as file:
        # Without addresses and further options, which may have secrets and are those of each run.
        file.write(msgspec.json.encode(msgspec.structs.replace(plan, options=_essence(options))))
        file.flush()
        platforms.sync_file(file.fileno())
    os.replace(f"{path}.new", path)
    sync_directory(Path(options.checkpoint))


def _make_target(client: BlockingKafkaClient, plan: Plan, options: Options) -> None:
    """Create a missing target topic. Raises `ConfigError` when it has too few partitions."""
    from dragoman.client.kafka import NewTopic, UnknownTopicError

    needed = plan.batches.partition_count
    try:
        count = len(client.topic(options.to).partitions)
    except UnknownTopicError:
        client.create_topic(NewTopic(name=options.to, partitions=needed))
        count = needed
    if options.topic and options.partitions == "keep" and count < needed:
        raise ConfigError(
            f"topic {options.to!r} has {plural(count, 'partition')}, {options.topic!r} has"
            f" {needed}: set partitions to 'key', or add partitions"
        )


class TopicBatches(msgspec.Struct, frozen=True, kw_only=True, tag="topic"):
    """Ranges of a topic: batch n has the n-th piece of each partition."""

    topic_id: str
    #: Partition → (first offset, end).
    ranges: dict[int, tuple[int, int]]
    records: int
    #: Partition → the offset up to which the Parquet twin is read.
    tiered: dict[int, int] = {}

    @property
    def count(self) -> int:
        longest = max((end - start for start, end in self.ranges.values()), default=0)
        return -(-longest // self.records)

    @property
    def partition_count(self) -> int:
        return max(self.ranges) + 1

    def pieces(self, number: int) -> dict[int, tuple[int, int]]:
        first = number * self.records
        cut = {
            partition: (min(start + first, end), min(start + first + self.records, end))
            for partition, (start, end) in self.ranges.items()
        }
        return {partition: each for partition, each in cut.items() if each[0] < each[1]}

    def left_after(self, done: int) -> int:
        sent = done * self.records
        return sum(max(end - start - sent, 0) for start, end in self.ranges.values())


class TableBatches(msgspec.Struct, frozen=True, kw_only=True, tag="table"):
    """Row groups of the files of a table: batch n is the n-th group."""

    #: (path, index of the row group, rows)
    groups: list[tuple[str, int, int]]
    key: str

    @property
    def count(self) -> int:
        return len(self.groups)

    @property
    def partition_count(self) -> int:
        return 1

    def left_after(self, done: int) -> int:
        return sum(rows for _, _, rows in self.groups[done:])


Batches: TypeAlias = TopicBatches | TableBatches
