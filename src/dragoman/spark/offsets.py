"""Offsets of many partitions: their JSON, and the starts and ends of reads.

A checkpoint has the Kafka source's layout, `{"orders": {"0": 123}}`, and one more entry, under a
name that no topic can have, with the ids of the topics. A topic that was deleted and created again
has another id, and the offsets of an old checkpoint are meaningless for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from dragoman.client.kafka import TopicPartition
from dragoman.errors import ConfigError
from dragoman.spark.options import EARLIEST, LATEST, Bound

Offsets: TypeAlias = dict[TopicPartition, int]
#: Not a legal topic name in Kafka's protocol.
_IDS = "$topicIds"


class Topic(msgspec.Struct, frozen=True):
    name: str
    #: 32 hex digits; empty when the broker does not support topic ids.
    topic_id: str
    partitions: tuple[int, ...]


class Log(Protocol):
    """Topics and their offsets, according to a cluster or a data directory."""

    def topics(self, names: Sequence[str] = ()) -> dict[str, Topic]:
        """The named topics that exist; without names, all topics that are not internal."""
        ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets: ...

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The current end for readers: last stable offset or high watermark, by isolation level."""
        ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset at or after a time in ms; a partition without one is left out."""
        ...


class Position(msgspec.Struct, frozen=True):
    """How far a stream has read, and in which topics."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for where in sorted(self.offsets):
            document.setdefault(where.topic, {})[str(where.partition)] = self.offsets[where]
        document[_IDS] = dict(sorted(self.topic_ids.items()))
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Position:
        offsets = {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in document.items()
            if topic != _IDS
            for partition, offset in partitions.items()
        }
        return cls(offsets, dict(document.get(_IDS, {})))


def starting_offsets(
    log: Log, partitions: list[TopicPartition], bound: Bound, *, is_late_start_allowed: bool
) -> Offsets:
    """The starting offset of each partition. Raises `ConfigError` if the options give none."""
    found = _by_time(log, partitions, bound, "starting")
    if found is None:
        return _by_number(log, partitions, bound.offsets, "starting")
    missing = [where for where in partitions if where not in found]
    if missing and not is_late_start_allowed:
        raise ConfigError(
            f"{', '.join(map(str, missing))}: no record is at or after the starting time; "
            "startingOffsetsByTimestampStrategy=latest starts such partitions at their end"
        )
    return found | (log.latest(missing) if missing else {})


def ending_offsets(log: Log, partitions: list[TopicPartition], bound: Bound) -> Offsets:
    """Where a batch ends in each partition; by default at the current end. Raises `ConfigError`."""
    found = _by_time(log, partitions, bound, "ending")
    if found is None:
        found = _by_number(log, partitions, bound.offsets, "ending")
    return log.latest(partitions) | found


def _by_time(
    log: Log, partitions: list[TopicPartition], bound: Bound, which: str
) -> Offsets | None:
    if bound.timestamp is not None:
        return log.at_times(dict.fromkeys(partitions, bound.timestamp))
    if bound.timestamps is None:
        return None
    return log.at_times(_complete(partitions, bound.timestamps, f"{which}OffsetsByTimestamp"))


def _by_number(
    log: Log, partitions: list[TopicPartition], wanted: int | dict[str, dict[int, int]], which: str
) -> Offsets:
    if which == "ending" and wanted == EARLIEST:
        raise ConfigError("endingOffsets: a batch cannot end at earliest")
    if isinstance(wanted, int):
        return log.earliest(partitions) if wanted == EARLIEST else log.latest(partitions)
    given = _complete(partitions, wanted, f"{which}Offsets")
    if which == "ending" and EARLIEST in given.values():
        raise ConfigError("endingOffsets: a batch cannot end at -2 (earliest)")
    early = log.earliest(where for where, offset in given.items() if offset == EARLIEST)
    late = log.latest(where for where, offset in given.items() if offset == LATEST)
    for where, offset in given.items():
        if offset < EARLIEST:
            raise ConfigError(f"{which}Offsets: {offset} for {where} is not an offset")
    return given | early | late


def _complete(
    partitions: list[TopicPartition], given: dict[str, dict[int, int]], option: str
) -> Offsets:
    """The given offsets by partition. As in Spark's Kafka source, every partition must be named."""
    flat = {
        TopicPartition(topic, partition): value
        for topic, parts in given.items()
        for partition, value in parts.items()
    }
    if missing := [str(where) for where in partitions if where not in flat]:
        raise ConfigError(f"{option}: no offset for {', '.join(missing)}; name every partition")
    if unknown := [str(where) for where in flat if where not in partitions]:
        raise ConfigError(f"{option}: {', '.join(unknown)} is not read")
    return flat
