"""A topic as its whole history: the Parquet twin up to where it ends, the log from there on."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from dragoman.pipelines.jobs.tier import source_options
from dragoman.pipelines.jobs.tier_manifest import Manifest, TierError, Twin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Those of the source, headers included.
_COLUMNS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip
#: Tasks of a check.
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
    """All records of a topic that there are or that were copied, each once.

    Where history ends and the tail begins is fixed when this is called; the tail's end is what
    there is when a query runs. Without `tail` no broker is asked. Raises `TierError` when the log
    has lost records that the twin does not have.
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
        # First the log, then the twin: what is deleted in between has been copied by then.
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
    """What the manifest names, with the columns of the source."""
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


# ---- whether all is right


def problems(spark: SparkSession, topic: str, *, root: str) -> list[str]:
    """What is wrong with a twin; nothing, when every file holds what was written to it.

    That ranges follow each other is checked whenever a manifest is read.
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
