"""Offsets of many partitions: their JSON, and where a read begins and ends.

In a checkpoint they have the Kafka source's layout, `{"orders": {"0": 123}}`, and beside the topics
an entry that no topic can be called by: the ids of the topics. A topic that was deleted and made
anew has another id, and its offsets mean nothing to an old checkpoint.
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
    #: 32 hex digits; empty when the broker is too old to give ids.
    topic_id: str
    partitions: tuple[int, ...]


class Log(Protocol):
    """Topics and their offsets, as a broker or a directory knows them."""

    def topics(self, names: Sequence[str] = ()) -> dict[str, Topic]:
        """Those of these names that exist; without names, all but the broker's own."""
        ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets: ...

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where readers end now: last stable offset, or high watermark."""
        ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset at or after a time in ms; partitions without one are left out."""
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
    """Raises `ConfigError` when a partition has no offset by these options."""
    found = _by_time(log, partitions, bound, "starting")
    if found is None:
        return _by_number(log, partitions, bound.offsets, "starting")
    missing = [where for where in partitions if where not in found]
    if missing and not is_late_start_allowed:
        raise ConfigError(
            f"no record of {', '.join(map(str, missing))} is as young as the starting time; "
            "startingOffsetsByTimestampStrategy=latest begins there at the end"
        )
    return found | (log.latest(missing) if missing else {})


def ending_offsets(log: Log, partitions: list[TopicPartition], bound: Bound) -> Offsets:
    """Never past what readers may see now. Raises `ConfigError`."""
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
        raise ConfigError("endingOffsets: earliest is no end")
    if isinstance(wanted, int):
        return log.earliest(partitions) if wanted == EARLIEST else log.latest(partitions)
    given = _complete(partitions, wanted, f"{which}Offsets")
    if which == "ending" and EARLIEST in given.values():
        raise ConfigError("endingOffsets: -2 (earliest) is no end")
    early = log.earliest(where for where, offset in given.items() if offset == EARLIEST)
    late = log.latest(where for where, offset in given.items() if offset == LATEST)
    for where, offset in given.items():
        if offset < EARLIEST:
            raise ConfigError(f"{which}Offsets: {offset} for {where} is no offset")
    return given | early | late


def _complete(
    partitions: list[TopicPartition], given: dict[str, dict[int, int]], option: str
) -> Offsets:
    """What was given for each partition. As in Spark's Kafka source, none may be left out."""
    flat = {
        TopicPartition(topic, partition): value
        for topic, parts in given.items()
        for partition, value in parts.items()
    }
    if missing := [str(where) for where in partitions if where not in flat]:
        raise ConfigError(
            f"{option}: nothing is said about {', '.join(missing)}; name every partition"
        )
    if unknown := [str(where) for where in flat if where not in partitions]:
        raise ConfigError(f"{option}: {', '.join(unknown)} is not among what is read")
    return flat
