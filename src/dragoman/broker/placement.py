"""Which partition of an internal topic coordinates a group or a transactional id."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: In place of a node's number where there is no node.
NOBODY: Final = -1


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 units, signed 32 bit."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=16384)
def coordinator_partition(name: str, count: int) -> int:
    """The partition, of `count`, that coordinates `name`, as Kafka chooses it.

    Java has no absolute value for the lowest integer; Kafka's takes 0 for it.
    """
    value = java_string_hash(name)
    return 0 if value == -(1 << 31) else abs(value) % count


def only_partition(_name: str) -> int:
    """Where everything is kept in one place."""
    return 0
