"""Profiles a topic: counts, sizes, key skew, times, and fields that appear or vanish.

Executors read the topic once. The only output is the report: `profile.json`, `profile.html` with
plots, and `profile.txt` for a terminal.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dragoman.errors import ConfigError
from dragoman.pipelines.state import Progress, Report
from dragoman.plural import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dragoman.pipelines.jobs.profile_counts import CountTask
    from dragoman.spark.planner import Lease


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str
    #: A folder for the report; `profile-TOPIC` when empty.
    folder: str = ""
    bootstrap: str = ""
    #: The data directory of a broker, instead of the broker or in addition to it.
    path: str = ""
    #: Number of ranges of offsets per partition, between which fields are compared.
    slices: int = 12
    #: Maximum number of values of each slice that are parsed, evenly spread.
    sample: int = 2_000
    #: Further options of the source, such as `startingTimestamp`.
    source: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not 1 <= self.slices <= 1000:
            raise ValueError("slices: expected 1 to 1000")
        if self.sample < 1:
            raise ValueError("sample: expected a positive number")

    @property
    def place(self) -> Path:
        return Path(self.folder or f"profile-{self.topic}")


def run(spark: SparkSession, options: Options, report: Report) -> None:
    """Read the topic and write the report. Raises `ConfigError`, `DataLossError`."""
    from dragoman.pipelines.jobs import profile_report
    from dragoman.pipelines.jobs.profile_counts import count_slice

    tasks, lease = _tasks(options)
    if not tasks:
        raise ConfigError(f"topic {options.topic!r} is empty: there is nothing to profile")
    report(Progress(part="profile", note=f"{len(tasks)} ranges of offsets are counted"))
    try:
        counted = spark.sparkContext.parallelize(tasks, len(tasks)).map(count_slice).collect()
    finally:
        if lease is not None:
            lease.release()
    found = profile_report.profile_of(options.topic, counted)
    place = options.place
    place.mkdir(parents=True, exist_ok=True)
    (place / "profile.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    (place / "profile.html").write_text(profile_report.html(found))
    (place / "profile.txt").write_text(profile_report.text(found))
    note = f"{plural(found.records, 'record')}; see {place / 'profile.html'}"
    report(Progress(part="profile", rows=found.records, batches=1, lag_records=0, note=note))


def _tasks(options: Options) -> tuple[list[CountTask], Lease | None]:
    from dragoman.pipelines.jobs.profile_counts import CountTask
    from dragoman.pipelines.jobs.tier import source_options
    from dragoman.spark import planner
    from dragoman.spark.logs import open_logs
    from dragoman.spark.offsets import ending_offsets, starting_offsets
    from dragoman.spark.planner import OffsetRange

    source = source_options(options.topic, options.bootstrap, options.path, options.source)
    log, stored = open_logs(source)
    with closing(log):
        topics = planner.chosen_topics(log, source.topics)
        wheres = planner.partitions_of(topics)
        starts = starting_offsets(
            log, wheres, source.starting, is_late_start_allowed=source.is_late_start_allowed
        )
        ends = ending_offsets(log, wheres, source.ending)
    pieces: list[tuple[int, OffsetRange]] = []
    for whole in planner.ranges_between(topics, starts, ends):
        borders = [
            whole.start + len(whole) * number // options.slices
            for number in range(options.slices + 1)
        ]
        pieces += [
            (number, OffsetRange(whole.where, whole.topic_id, borders[number], borders[number + 1]))
            for number in range(options.slices)
            if borders[number] < borders[number + 1]
        ]
    # Each slice is one Spark partition.
    source = msgspec.structs.replace(source, max_records=None, min_partitions=None)
    planned, lease = planner.plan([each for _, each in pieces], source, stored)
    tasks = [
        CountTask(each, source, number, -(-len(each.offsets) // options.sample))
        for (number, _), each in zip(pieces, planned, strict=True)
    ]
    return tasks, lease
