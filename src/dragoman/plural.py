"""Numbers of things in messages: `1 topic`, `2 topics`, `1,200 topics`."""

from __future__ import annotations


def plural(count: int, one: str, many: str = "") -> str:
    """The number with the noun; `many` where it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
