"""Places in options, and their offsets in the partitions of a reader.

The notation is `dragoman.api.places`'. Here the machine of the command has the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

import msgspec

from dragoman.api.places import PLACES, Place, PlaceKind, place_of
from dragoman.cli.status import USAGE, CommandError

__all__ = ["PLACES", "Bounds", "Place", "PlaceKind", "parse_place", "resolve"]

#: A protocol's identifier of a partition.
Where = TypeVar("Where", bound=Hashable)


def parse_place(
    option: str, text: str, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> Place:
    """Raises a `CommandError` that names the option."""
    try:
        return place_of(text, now_ms())
    except ValueError as error:
        raise CommandError(f"{option}: {error}", USAGE) from None


class Bounds(msgspec.Struct, Generic[Where], frozen=True):
    """The first offset and the end of each partition."""

    first: dict[Where, int]
    end: dict[Where, int]

    def clamp(self, offsets: Mapping[Where, int]) -> dict[Where, int]:
        """The offsets, clamped to the bounds of their partitions."""
        return {
            where: min(max(offset, self.first[where]), self.end[where])
            for where, offset in offsets.items()
        }


def resolve(
    place: Place, bounds: Bounds[Where], *, at_time: Mapping[Where, int] | None = None
) -> dict[Where, int]:
    """The offset of the place in every partition, clamped to the partition's bounds.

    `at_time` has the offsets for a time, which only the broker can look up.
    """
    found = {}
    for where, first in bounds.first.items():
        looked_up = None if at_time is None else at_time.get(where)
        offset = place.offset(first, bounds.end[where], at_time=looked_up)
        assert offset is not None, "only groups shift offsets"
        found[where] = offset
    return found
