"""Filters that Spark hands over, as what they mean for topics, partitions and offsets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from dragoman.client.kafka import TopicPartition
from dragoman.spark.offsets import Log, Offsets

_OFFSET_END = 1 << 63


class Pushed:
    """All filters together. Every record has a topic, partition, offset and time."""

    def __init__(self) -> None:
        self._tests: list[Filter] = []
        self._first = 0
        self._end = _OFFSET_END
        self._since_ms: int | None = None

    def take(self, each: Filter) -> bool:
        """Take a filter in; whether Spark need not apply it any more."""
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
                # Records may be out of order, so this only tells where none can be yet.
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
                # Only how far they lie apart; Spark picks.
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
        """Starts and ends that leave out what no filter lets through."""
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
            raise AssertionError(f"{each} was not taken")
