"""Lists that come a page at a time."""

from __future__ import annotations

from collections.abc import Iterable


def page_of(names: Iterable[str], after: str, limit: int) -> tuple[list[str], str | None]:
    """The names of one page in order, and the `after` of the next page; None on the last page."""
    found = sorted(name for name in names if name > after)
    return found[:limit], found[limit - 1] if len(found) > limit else None
