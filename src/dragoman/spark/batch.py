"""The batch side of the source, and filters pushed down to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from dragoman.client.kafka import TopicPartition
from dragoman.errors import ConfigError
from dragoman.spark import planner
from dragoman.spark.failures import plainly
from dragoman.spark.logs import AnyLog, open_logs
from dragoman.spark.offsets import Log, Offsets, ending_offsets, starting_offsets
from dragoman.spark.options import LATEST, SourceOptions
from dragoman.spark.planner import OffsetRange, RangePartition
from dragoman.spark.typed_reader import TypedReader

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        _refuse_late_start(options)
        self._options = options
        self._reader = TypedReader(options, schema)
        self._pushed = Pushed()

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        log, stored = open_logs(self._options)
        with closing(log):
            planned, _ = planner.plan(self._ranges(log), self._options, stored)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For an empty list of partitions Spark creates one partition that is None.
        if not isinstance(partition, RangePartition):
            return iter(())
        return self._reader.read(partition)

    def _ranges(self, log: AnyLog) -> list[OffsetRange]:
        options = self._options
        topics = planner.chosen_topics(log, options.topics)
        every = planner.partitions_of(topics)
        # The options must cover all partitions, even those that filters exclude.
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
    """Applies filters on topic, partition, offset and time in the source."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        for each in filters:
            if not self._pushed.take(each):
                yield each


def _refuse_late_start(options: SourceOptions) -> None:
    """Raises `ConfigError` for a batch that starts at the end of a partition: it would be empty."""
    starting = options.starting
    if starting.timestamp is not None or starting.timestamps is not None:
        return
    if starting.offsets == LATEST:
        raise ConfigError("startingOffsets: a batch that starts at latest would be empty")
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
            raise ConfigError(f"{where}: the start {start} is past the end {ends[where]}")


def _refuse_ends_past(ends: Offsets, latest: Offsets, options: SourceOptions) -> None:
    for where, end in ends.items():
        if end > latest[where] and options.fail_on_data_loss:
            raise ConfigError(
                f"endingOffsets: {where} is requested up to {end}, the log ends at {latest[where]}"
            )


_OFFSET_END = 1 << 63


class Pushed:
    """The conjunction of all filters that the source applies, in part or as a whole.

    Every record has a topic, partition, offset and time, so a test for null is always true.
    """

    def __init__(self) -> None:
        self._tests: list[Filter] = []
        self._first = 0
        self._end = _OFFSET_END
        self._since_ms: int | None = None

    def take(self, each: Filter) -> bool:
        """Add a filter. True if the source applies all of it, so that Spark need not."""
        column = ".".join(getattr(each, "attribute", ()))
        match each:
            case IsNotNull():
                return column in ("topic", "partition", "offset", "timestamp")
            case (
                EqualTo()
                | In()
                | GreaterThan()
                | GreaterThanOrEqual()
                | LessThan()
                | (LessThanOrEqual())
                | StringStartsWith()
            ) if column in ("topic", "partition"):
                self._tests.append(each)
                return True
            case _ if column == "offset":
                return self._take_offset(each)
            case (
                GreaterThan(value=datetime() as since)
                | GreaterThanOrEqual(value=datetime() as since)
            ) if column == "timestamp":
                # Records may be out of order, so this only yields an offset before which none
                # match.
                since_ms = int(since.timestamp() * 1000)
                self._since_ms = max(since_ms, self._since_ms or since_ms)
                return False
            case _:
                return False

    def _take_offset(self, each: Filter) -> bool:
        match each:
            case EqualTo(value=int() as value):
                first, end = value, value + 1
            case GreaterThan(value=int() as value):
                first, end = value + 1, _OFFSET_END
            case GreaterThanOrEqual(value=int() as value):
                first, end = value, _OFFSET_END
            case LessThan(value=int() as value):
                first, end = 0, value
            case LessThanOrEqual(value=int() as value):
                first, end = 0, value + 1
            case In(value=values) if values:
                # The source applies only the range of the values; Spark filters within it.
                self._narrow(min(values), max(values) + 1)
                return False
            case _:
                return False
        self._narrow(first, end)
        return True

    def _narrow(self, first: int, end: int) -> None:
        self._first, self._end = max(self._first, first), min(self._end, end)

    def admits(self, where: TopicPartition) -> bool:
        return all(_passes(each, where) for each in self._tests)

    def narrowed(self, log: Log, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """Starts and ends without the offsets that the filters exclude."""
        starts = {where: max(start, self._first) for where, start in starts.items()}
        ends = {where: min(end, self._end) for where, end in ends.items()}
        if self._since_ms is not None:
            found = log.at_times(dict.fromkeys(starts, self._since_ms))
            starts = {
                where: max(start, found.get(where, ends[where])) for where, start in starts.items()
            }
        return starts, ends


def _passes(each: Any, where: TopicPartition) -> bool:
    value: Any = where.topic if each.attribute == ("topic",) else where.partition
    match each:
        case EqualTo():
            return bool(value == each.value)
        case In():
            return value in each.value
        case GreaterThan():
            return bool(value > each.value)
        case GreaterThanOrEqual():
            return bool(value >= each.value)
        case LessThan():
            return bool(value < each.value)
        case LessThanOrEqual():
            return bool(value <= each.value)
        case StringStartsWith():
            return str(value).startswith(each.value)
        case _:
            raise AssertionError(f"{each} is not applied by the source")
