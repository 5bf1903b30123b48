"""Points in time in requests: milliseconds since 1970, or RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from dragoman.api.declaration import ApiError

_TIME_MS_MAX: Final = (1 << 63) - 1
_UNITS_MS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_PART: Final = re.compile("([0-9]{1,9})([wdhms])")


def moment_ms_of(name: str, given: int | str, now_ms: int) -> int:
    """The same, `now`, or how long ago: `-15m`, `-1d12h`. Raises `ApiError`."""
    if given == "now":
        return now_ms
    text = str(given)
    parts = _PART.findall(text)
    if parts and text == "-" + "".join(number + unit for number, unit in parts):
        return now_ms - sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
    return time_ms_of(name, given)


def time_ms_of(name: str, given: int | str) -> int:
    """Milliseconds since 1970. Raises `ApiError`."""
    text = str(given)
    if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _TIME_MS_MAX:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        found = int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        found = -1
    if found < 0:
        raise ApiError(
            400,
            "invalid_request",
            f"{name}: expected milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z, "
            f"got {text[:100]!r}",
        )
    return found
