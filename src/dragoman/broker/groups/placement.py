"""Which partition of the internal topic holds a group, and so which node coordinates it."""

from __future__ import annotations


def java_string_hash(text: str) -> int:
    """`String.hashCode()` of Java: over UTF-16 code units, as a signed 32-bit integer."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(encoded), 2):
        value = (31 * value + (encoded[index] << 8) + encoded[index + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def coordinator_partition(group_id: str, partition_count: int) -> int:
    """As Kafka computes it, with its rule that the one hash without a positive twin counts as 0."""
    assert partition_count > 0
    hashed = java_string_hash(group_id)
    return 0 if hashed == -(1 << 31) else abs(hashed) % partition_count
