"""Positions in a partition: the notation of options, and their offsets.

beginning, earliest     the first record
end, latest             the offset after the last record
17                      an offset
+100                    that many records after the first
-100                    that many records before the end
@-15m, @-1d2h30m        the first record at or after a time that long ago (w, d, h, m, s)
@1700000000000          the first record at or after a time, in milliseconds since 1970
2026-11-15T10:00:00Z    the first record at or after a time, in UTC unless it has a zone; also
                        behind @
shift:-5                that many records from the committed offset (only for groups)
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from dragoman.cli.status import USAGE, CommandError

#: A protocol's identifier of a partition.
Where = TypeVar("Where", bound=Hashable)

#: The notation, for help texts.
PLACES: Final = (
    "beginning, end, an offset, +N, -N, @-15m, @MILLISECONDS or a time like 2026-11-15T10:00:00Z"
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_AGO = re.compile(f"-(?=.)({')?('.join(f'[0-9]{{1,9}}{unit}' for unit in _UNITS_MS)})?")
_OFFSET_MAX = (1 << 63) - 1

PlaceKind: TypeAlias = Literal["beginning", "end", "offset", "first", "last", "time", "shift"]
_WORDS: dict[str, PlaceKind] = {
    "beginning": "beginning",
    "earliest": "beginning",
    "end": "end",
    "latest": "end",
}


class Place(msgspec.Struct, frozen=True):
    kind: PlaceKind
    #: The offset, the number of records, or the time in milliseconds.
    number: int = 0


def parse_place(
    option: str,
    text: str,
    *,
    with_shift: bool = False,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Place:
    """Raises a `CommandError` that names the option."""
    if text in _WORDS:
        return Place(_WORDS[text])
    if with_shift and text.startswith("shift:"):
        return Place("shift", _integer(option, text, text.removeprefix("shift:")))
    if text.startswith("@"):
        return Place("time", _time_ms(option, text, text[1:], with_shift, now_ms))
    if _INTEGER.fullmatch(text):
        number = _integer(option, text, text)
        if text.startswith("+"):
            return Place("first", number)
        # Any number with a minus sign, "-0" included, counts records back from the end.
        return Place("last", -number) if text.startswith("-") else Place("offset", number)
    if text.startswith("-"):
        raise _wrong(option, text, with_shift)
    return Place("time", _time_ms(option, text, text, with_shift, now_ms))


def _time_ms(option: str, text: str, when: str, with_shift: bool, now_ms: Callable[[], int]) -> int:
    if ago := _AGO.fullmatch(when):
        parts = [each for each in ago.groups() if each is not None]
        time_ms = now_ms() - sum(int(each[:-1]) * _UNITS_MS[each[-1]] for each in parts)
    elif _INTEGER.fullmatch(when):
        time_ms = _integer(option, text, when)
    else:
        try:
            moment = datetime.fromisoformat(when)
        except ValueError:
            raise _wrong(option, text, with_shift) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        time_ms = int(moment.timestamp() * 1000)
    if time_ms < 0:
        raise _wrong(option, text, with_shift)
    return time_ms


def _integer(option: str, text: str, digits: str) -> int:
    if not _INTEGER.fullmatch(digits) or abs(int(digits)) > _OFFSET_MAX:
        raise CommandError(f"{option}: expected a number in {text!r}", USAGE)
    return int(digits)


def _wrong(option: str, text: str, with_shift: bool) -> CommandError:
    shift = ", shift:N" if with_shift else ""
    return CommandError(
        f"{option}: expected {PLACES}{shift}, got {text!r}",
        USAGE,
    )


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
    place: Place,
    bounds: Bounds[Where],
    *,
    committed: Mapping[Where, int] | None = None,
    at_time: Mapping[Where, int] | None = None,
) -> dict[Where, int]:
    """The offset of the place in every partition, clamped to the partition's bounds.

    A shift leaves out partitions without a committed offset. `at_time` has the offsets for a time,
    which only the broker can look up.
    """
    if place.kind == "time":
        assert at_time is not None
        return bounds.clamp(at_time)
    found = {where: _offset(place, where, bounds, committed or {}) for where in bounds.first}
    return bounds.clamp({where: each for where, each in found.items() if each is not None})


def _offset(
    place: Place, where: Where, bounds: Bounds[Where], committed: Mapping[Where, int]
) -> int | None:
    match place.kind:
        case "beginning":
            return bounds.first[where]
        case "first":
            return bounds.first[where] + place.number
        case "last":
            return bounds.end[where] - place.number
        case "offset":
            return place.number
        case "shift":
            known = committed.get(where)
            return None if known is None else known + place.number
        case _:
            return bounds.end[where]
