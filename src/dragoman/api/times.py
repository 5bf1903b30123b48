"""Places and points in time in requests; `places.py` has their notation."""

from __future__ import annotations

from dragoman.api.declaration import ApiError
from dragoman.api.places import Place, place_of, time_of


def time_ms_of(name: str, given: int | str, now_ms: int) -> int:
    """Milliseconds since 1970. Raises `ApiError`."""
    try:
        return time_of(str(given), now_ms)
    except ValueError as error:
        raise ApiError(400, "invalid_request", f"{name}: {error}") from None


def place_in(name: str, given: int | str, now_ms: int, *, with_shift: bool = False) -> Place:
    """Raises `ApiError`."""
    try:
        return place_of(str(given), now_ms, with_shift=with_shift)
    except ValueError as error:
        raise ApiError(400, "invalid_request", f"{name}: {error}") from None
