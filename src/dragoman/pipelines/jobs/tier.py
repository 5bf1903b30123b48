"""Copies the stable part of a topic's log to a Parquet twin, range by range and never twice.

Executors write files, and the driver adds them to the manifest once a wave of them is on disk. A
killed job leaves files that no reader sees; the next run deletes them and resumes where the
manifest ends. `tiered` reads the twin up to that point and the log from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Literal

import msgspec

from dragoman.limits import TIER_FILE_RECORDS
from dragoman.pipelines.jobs.tier_manifest import (
    Manifest,
    TierError,
    TierRange,
    Twin,
    Wanted,
    wanted_ranges,
)
from dragoman.pipelines.state import Progress, Report
from dragoman.plural import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dragoman.pipelines.jobs.tier_files import TierTask
    from dragoman.spark.logs import AnyLog
    from dragoman.spark.options import SourceOptions
    from dragoman.spark.storage import StoredLog


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str
    #: The folder of all twins, visible to driver and executors.
    root: str
    bootstrap: str = ""
    #: The data directory of a broker, instead of the broker or in addition to it.
    path: str = ""
    #: How far to copy. stable: rolled segments, where the directory is visible, which makes few
    #: large files; latest: all committed records.
    until: Literal["stable", "latest"] = "stable"
    #: For records that the log deleted before they were copied: fail, or record the gap.
    on_loss: Literal["fail", "record"] = "fail"
    #: Maximum number of offsets in one file.
    file_records: int = TIER_FILE_RECORDS
    #: Further options of the source.
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.file_records < 1:
            raise ValueError("file_records: expected a positive number")


def run(spark: SparkSession, options: Options, report: Report) -> None:
    """Copy what the twin lacks. Raises `ConfigError`, `TierError`, `DataLossError`."""
    from dragoman.spark.logs import open_logs

    source = source_options(options.topic, options.bootstrap, options.path, options.source)
    twin = Twin(options.root, options.topic)
    log, stored = open_logs(source)
    with closing(log), twin.held():
        manifest, wanted = _missing(log, stored, twin, options)
        swept = twin.sweep(manifest)
        lost = [
            TierRange(partition=each.partition, start=each.lost_from, end=each.start, lost=True)
            for each in wanted
            if each.lost_from is not None
        ]
        if lost:
            manifest = manifest.with_ranges(lost)
            twin.save(manifest)
        left = sum(each.end - each.start for each in wanted)
        rows = batches = 0
        note = f"deleted {plural(swept, 'file')} of a killed run" if swept else ""
        report(_progress(rows, batches, left, note))
        for wave in _waves(spark, wanted, source, manifest.topic_id, stored, twin, options):
            manifest = manifest.with_ranges(wave)
            twin.save(manifest)
            batches += 1
            rows += sum(each.rows for each in wave)
            left -= sum(each.end - each.start for each in wave)
            report(_progress(rows, batches, left))


def source_options(topic: str, bootstrap: str, path: str, given: dict[str, str]) -> SourceOptions:
    """Options of the source for all columns of one topic. Raises `ConfigError`."""
    from dragoman.spark.options import parse
    from dragoman.spark.tables import DEFAULT_BOOTSTRAP

    named = {"subscribe": topic, "includeHeaders": "true", **given}
    if path:
        named["path"] = path
    if bootstrap or not path:
        named["kafka.bootstrap.servers"] = bootstrap or DEFAULT_BOOTSTRAP
    return parse(named, "batch")


def _progress(rows: int, batches: int, left: int, note: str = "") -> Progress:
    return Progress(part="tier", rows=rows, batches=batches, lag_records=left, note=note)


def _missing(
    log: AnyLog, stored: StoredLog | None, twin: Twin, options: Options
) -> tuple[Manifest, list[Wanted]]:
    from dragoman.spark import planner
    from dragoman.spark.options import Topics

    topics = planner.chosen_topics(log, Topics(names=(options.topic,)))
    topic = topics[options.topic]
    manifest = twin.manifest(topic.topic_id)
    partitions = planner.partitions_of(topics)
    ends = log.latest(partitions)
    if stored is not None and options.until == "stable":
        for where in partitions:
            held = stored.partition(where, topic.topic_id)
            stable = 0 if held is None else held.end(committed_only=True)
            ends[where] = min(ends[where], stable)
    earliest = log.earliest(partitions)
    return manifest, wanted_ranges(
        manifest,
        {where.partition: offset for where, offset in earliest.items()},
        {where.partition: max(end, 0) for where, end in ends.items()},
        is_loss_allowed=options.on_loss == "record",
    )


def _waves(
    spark: SparkSession,
    wanted: Sequence[Wanted],
    source: SourceOptions,
    topic_id: str,
    stored: StoredLog | None,
    twin: Twin,
    options: Options,
) -> Iterator[list[TierRange]]:
    """Copied ranges, some at a time; within a partition in order."""
    from dragoman.client.kafka import TopicPartition
    from dragoman.pipelines.jobs.tier_files import TierTask, copy_range
    from dragoman.spark import planner
    from dragoman.spark.planner import OffsetRange

    ranges = [
        OffsetRange(TopicPartition(options.topic, each.partition), topic_id, start, end)
        for each in wanted
        for start, end in _cut(each.start, each.end, options.file_records)
    ]
    ranges.sort(key=lambda each: (each.start, each.where))
    at_once = 2 * spark.sparkContext.defaultParallelism
    for first in range(0, len(ranges), at_once):
        planned, lease = planner.plan(ranges[first : first + at_once], source, stored)
        tasks: list[TierTask] = [TierTask(each, source, str(twin.directory)) for each in planned]
        try:
            yield spark.sparkContext.parallelize(tasks, len(tasks)).map(copy_range).collect()
        finally:
            if lease is not None:
                lease.release()


def _cut(start: int, end: int, most: int) -> list[tuple[int, int]]:
    return [(first, min(first + most, end)) for first in range(start, end, most)]


#: The columns of the source, including headers.
_COLUMNS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip
#: Maximum number of tasks of a check.
_CHECKS_AT_ONCE = 1000


def tiered(
    spark: SparkSession,
    topic: str,
    *,
    root: str,
    bootstrap: str = "",
    path: str = "",
    tail: bool = True,
    **options: str,
) -> DataFrame:
    """All records of a topic that exist in its log or were copied, each once.

    This call fixes the offsets at which history ends and the tail begins; the tail ends where the
    log ends when a query runs. Without `tail` no broker is contacted. Raises `TierError` when the
    log has lost records that the twin does not have.
    """
    twin = Twin(root, topic)
    if not tail:
        return history(spark, twin, twin.manifest())
    manifest, starts = _meeting(twin, bootstrap, path, options)
    from dragoman.spark.tables import frame

    given = {
        "includeHeaders": "true",
        "startingOffsets": msgspec.json.encode({topic: starts}).decode(),
        **options,
    }
    rest = frame(spark, topic, bootstrap, path, given, stream=False).select(*_COLUMNS)
    return history(spark, twin, manifest).unionAll(rest)


def _meeting(
    twin: Twin, bootstrap: str, path: str, options: dict[str, str]
) -> tuple[Manifest, dict[str, int]]:
    """The manifest, and for each partition the offset at which the log takes over."""
    from dragoman.spark import planner
    from dragoman.spark.logs import open_logs
    from dragoman.spark.options import Topics

    log, _ = open_logs(source_options(twin.topic, bootstrap, path, options))
    with closing(log):
        topics = planner.chosen_topics(log, Topics(names=(twin.topic,)))
        # The log is queried before the twin, because records that are deleted in between were
        # copied before.
        earliest = log.earliest(planner.partitions_of(topics))
        manifest = twin.manifest(topics[twin.topic].topic_id)
    starts = {}
    for where, first in sorted(earliest.items()):
        reached = manifest.ends.get(where.partition, first)
        if reached < first:
            raise TierError(
                f"{where}: offsets {reached} to {first - 1} are neither in {twin.directory} nor in "
                "the log: they were deleted before the tier job copied them"
            )
        starts[str(where.partition)] = reached
    return manifest, starts


def history(spark: SparkSession, twin: Twin, manifest: Manifest) -> DataFrame:
    """The files that the manifest names, as a DataFrame with the columns of the source."""
    from pyspark.sql.functions import lit
    from pyspark.sql.types import IntegerType, StructField, StructType

    from dragoman.spark.schema import COLUMNS

    kinds = {field.name: field for field in COLUMNS.fields}
    held = [kinds[name] for name in _COLUMNS if name not in ("topic", "partition")]
    schema = StructType([*held, StructField("partition", IntegerType())])
    files = [str(twin.directory / each.path) for each in manifest.files]
    if not files:
        found = spark.createDataFrame([], schema)
    else:
        base = str(twin.directory)
        found = spark.read.option("basePath", base).schema(schema).parquet(*files)
    return found.withColumn("topic", lit(manifest.topic)).select(*_COLUMNS)


# ---- verification


def problems(spark: SparkSession, topic: str, *, root: str) -> list[str]:
    """The problems of a twin's files, whose content is compared with the hashes in the manifest.

    Empty for an intact twin. Ranges are checked whenever a manifest is read.
    """
    from dragoman.pipelines.jobs.tier_files import problem_in

    twin = Twin(root, topic)
    directory = str(twin.directory)
    files = twin.manifest().files
    if not files:
        return []
    checked = spark.sparkContext.parallelize(files, min(len(files), _CHECKS_AT_ONCE))
    found = checked.map(lambda each: problem_in(directory, each)).collect()
    return [each for each in found if each]
