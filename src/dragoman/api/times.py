"""Points in time in requests: milliseconds since 1970, or RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from dragoman.api.declaration import ApiError

_TIME_MS_MAX: Final = (1 << 63) - 1


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
