"""Reading topics as they are now: the batch side of the source, with and without pushed filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from dragoman.errors import ConfigError
from dragoman.spark import planner
from dragoman.spark.failures import plainly
from dragoman.spark.filters import Pushed
from dragoman.spark.logs import AnyLog, open_logs
from dragoman.spark.offsets import Offsets, ending_offsets, starting_offsets
from dragoman.spark.options import LATEST, SourceOptions
from dragoman.spark.planner import OffsetRange, RangePartition
from dragoman.spark.typed import TypedReading

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        _refuse_late_start(options)
        self._options = options
        self._reading = TypedReading(options, schema)
        self._pushed = Pushed()

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        log, stored = open_logs(self._options)
        with closing(log):
            planned, _ = planner.plan(self._ranges(log), self._options, stored)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one partition with None in it when there are none.
        if not isinstance(partition, RangePartition):
            return iter(())
        return self._reading.read(partition)

    def _ranges(self, log: AnyLog) -> list[OffsetRange]:
        options = self._options
        topics = planner.chosen_topics(log, options.topics)
        every = planner.partitions_of(topics)
        # Options speak of all partitions, whatever filters leave of them.
        starts = starting_offsets(
            log, every, options.starting, is_late_start_allowed=options.is_late_start_allowed
        )
        ends = ending_offsets(log, every, options.ending)
        _refuse_starts_past(starts, ends)
        partitions = [where for where in every if self._pushed.admits(where)]
        starts = {where: starts[where] for where in partitions}
        ends = {where: ends[where] for where in partitions}
        earliest, latest = log.earliest(partitions), log.latest(partitions)
        starts = planner.without_lost(
            starts, earliest, latest, fail_on_data_loss=options.fail_on_data_loss
        )
        _refuse_ends_past(ends, latest, options)
        ends = {where: min(end, latest[where]) for where, end in ends.items()}
        starts, ends = self._pushed.narrowed(log, starts, ends)
        return planner.ranges_between(topics, starts, ends)


class PushdownReader(BatchReader):
    """Takes filters on topic, partition, offset and time over from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        for each in filters:
            if not self._pushed.take(each):
                yield each


def _refuse_late_start(options: SourceOptions) -> None:
    """A batch has no record of a partition that it begins at the end of."""
    starting = options.starting
    if starting.timestamp is not None or starting.timestamps is not None:
        return
    if starting.offsets == LATEST:
        raise ConfigError("startingOffsets: a batch that begins at latest would be empty")
    given = starting.offsets if isinstance(starting.offsets, dict) else {}
    for topic, parts in given.items():
        for partition, offset in parts.items():
            if offset == LATEST:
                raise ConfigError(
                    f"startingOffsets: {topic}-{partition} at -1 (latest) would be empty in a batch"
                )


def _refuse_starts_past(starts: Offsets, ends: Offsets) -> None:
    for where, start in starts.items():
        if start > ends[where]:
            raise ConfigError(
                f"{where}: the start {start} is past the end {ends[where]} of what is read"
            )


def _refuse_ends_past(ends: Offsets, latest: Offsets, options: SourceOptions) -> None:
    for where, end in ends.items():
        if end > latest[where] and options.fail_on_data_loss:
            raise ConfigError(
                f"endingOffsets: {where} is asked for up to {end}, the log ends at {latest[where]}"
            )
