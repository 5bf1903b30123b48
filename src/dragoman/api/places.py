"""Places in a partition, and points in time: one notation for the command line and the HTTP API.

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

A point in time alone needs no @: -15m, 1700000000000 and 2026-11-15T10:00:00Z.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import msgspec

#: The notations, for messages.
PLACES: Final = (
    "beginning, end, an offset, +N, -N, @-15m, @MILLISECONDS or a time like 2026-11-15T10:00:00Z"
)
TIMES: Final = "milliseconds since 1970, a time like 2026-11-15T10:00:00Z, or @-15m"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_AGO = re.compile(f"-(?=.)({')?('.join(f'[0-9]{{1,9}}{unit}' for unit in _UNITS_MS)})?")
_INT64_MAX = (1 << 63) - 1

PlaceKind: TypeAlias = Literal["beginning", "end", "offset", "first", "last", "time", "shift"]
_WORDS: Final[dict[str, PlaceKind]] = {
    "beginning": "beginning",
    "earliest": "beginning",
    "end": "end",
    "latest": "end",
}
_SHIFT: Final = "shift:"


class Place(msgspec.Struct, frozen=True):
    kind: PlaceKind
    #: The offset, the number of records, or the time in milliseconds.
    number: int = 0

    def offset(
        self, first: int, end: int, *, committed: int | None = None, at_time: int | None = None
    ) -> int | None:
        """The place in a partition from `first` to `end`, moved to the nearer of the two if it is
        outside. None: there is no committed offset to shift.

        Only a broker can look up `at_time`, the offset of a time; None: all records are older.
        """
        match self.kind:
            case "beginning":
                found = first
            case "first":
                found = first + self.number
            case "last":
                found = end - self.number
            case "offset":
                found = self.number
            case "time":
                found = end if at_time is None else at_time
            case "shift":
                if committed is None:
                    return None
                found = committed + self.number
            case _:
                found = end
        return min(max(found, first), end)


def place_of(text: str, now_ms: int, *, with_shift: bool = False) -> Place:
    """Raises a `ValueError` that says what was expected."""
    if text in _WORDS:
        return Place(_WORDS[text])
    shift = f", {_SHIFT}N" if with_shift else ""
    if with_shift and text.startswith(_SHIFT):
        return Place("shift", _integer(text, text.removeprefix(_SHIFT)))
    if _INTEGER.fullmatch(text):
        number = _integer(text, text)
        if text.startswith("+"):
            return Place("first", number)
        # Any number with a minus sign, "-0" included, counts records back from the end.
        return Place("last", -number) if text.startswith("-") else Place("offset", number)
    found = None if text.startswith("-") else _moment(text.removeprefix("@"), now_ms)
    if found is None:
        raise ValueError(f"expected {PLACES}{shift}, got {text[:100]!r}")
    return Place("time", found)


def time_of(text: str, now_ms: int) -> int:
    """A point in time, in milliseconds since 1970. Raises a `ValueError` that says what was
    expected.
    """
    found = _moment(text.removeprefix("@"), now_ms)
    if found is None:
        raise ValueError(f"expected {TIMES}, got {text[:100]!r}")
    return found


def _moment(text: str, now_ms: int) -> int | None:
    """None for a text that names no time since 1970."""
    if ago := _AGO.fullmatch(text):
        parts = [each for each in ago.groups() if each is not None]
        time_ms = now_ms - sum(int(each[:-1]) * _UNITS_MS[each[-1]] for each in parts)
    elif _INTEGER.fullmatch(text):
        time_ms = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
            time_ms = int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None
    return time_ms if 0 <= time_ms <= _INT64_MAX else None


def _integer(text: str, digits: str) -> int:
    if not _INTEGER.fullmatch(digits) or abs(int(digits)) > _INT64_MAX:
        raise ValueError(f"expected a number in {text[:100]!r}")
    return int(digits)
