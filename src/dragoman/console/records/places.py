"""From which offset to which offset a search goes, by partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from dragoman.api.places import Place, place_of
from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    Isolation,
    KafkaClient,
    TopicPartition,
)
from dragoman.console.errors import ConsoleError
from dragoman.console.records.values import Asked, Continue
from dragoman.plural import plural


class PlaceError(ConsoleError):
    code = "invalid_request"


class Range(NamedTuple):
    starts: dict[int, int]
    ends: dict[int, int]


async def partitions_of(client: KafkaClient, topic: str, wanted: Collection[int]) -> list[int]:
    """The partitions of a topic that are wanted, all for none. Raises `PlaceError`."""
    known = (await client.topic(topic)).partitions
    unknown = sorted(set(wanted) - known.keys())
    if unknown:
        raise PlaceError(
            f"topic {topic!r} has {plural(len(known), 'partition')}, and no {unknown[0]}"
        )
    return sorted(set(wanted) or known)


async def range_of(client: KafkaClient, asked: Asked, now_ms: int) -> Range:
    """Raises `PlaceError`, and what the client raises."""
    partitions = await partitions_of(client, asked.topic, asked.partitions)
    if asked.resume is not None:
        return _continued(asked.resume, partitions)
    start = _place("from", asked.start, now_ms)
    until = _place("until", asked.until or "latest", now_ms)
    wanted = [TopicPartition(asked.topic, each) for each in partitions]
    first = await _offsets(client, wanted, EARLIEST)
    end = await _offsets(client, wanted, LATEST)
    starts = await _resolved(client, start, first, end)
    return Range(starts, await _resolved(client, until, first, end))


def _place(name: str, text: str, now_ms: int) -> Place:
    try:
        return place_of(text, now_ms)
    except ValueError as error:
        raise PlaceError(f"{name}: {error}") from None


async def _offsets(
    client: KafkaClient, wanted: list[TopicPartition], time_ms: int
) -> dict[TopicPartition, int]:
    # The end of the committed records, behind which open transactions may be.
    found = await client.list_offsets(
        dict.fromkeys(wanted, time_ms), isolation=Isolation.READ_COMMITTED
    )
    return {where: each.offset for where, each in found.items()}


async def _resolved(
    client: KafkaClient,
    place: Place,
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> dict[int, int]:
    at_time: Mapping[TopicPartition, int] = {}
    if place.kind == "time":
        found = await _offsets(client, list(first), place.number)
        at_time = {where: offset for where, offset in found.items() if offset != NO_OFFSET}
    resolved = {}
    for where in first:
        offset = place.offset(first[where], end[where], at_time=at_time.get(where))
        assert offset is not None, "only groups shift offsets"
        resolved[where.partition] = offset
    return resolved


def _continued(given: Continue, partitions: list[int]) -> Range:
    try:
        starts = {int(each): offset for each, offset in given.positions.items()}
        ends = {int(each): offset for each, offset in given.ends.items()}
    except ValueError:
        raise PlaceError("continue: partitions are numbers") from None
    if starts.keys() != ends.keys() or not starts.keys() <= set(partitions):
        raise PlaceError("continue: this is no place where a search of this topic has ended")
    return Range(starts, ends)


def resumed_at(positions: Mapping[int, int], ends: Mapping[int, int]) -> Continue:
    """What a request to continue sends back."""
    return Continue(
        positions={str(each): offset for each, offset in positions.items()},
        ends={str(each): offset for each, offset in ends.items()},
    )
