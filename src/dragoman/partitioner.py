"""The partition of a key, as all clients of Kafka choose it.

The hash is murmur2, as in the Java client, librdkafka's `murmur2_random` and kafka-python: records
with one key go to one partition, whichever client writes them.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    size = len(data)
    words = size >> 2
    state = _SEED ^ size
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = (word * _MULTIPLIER) & _MASK
        mixed = ((mixed ^ (mixed >> 24)) * _MULTIPLIER) & _MASK
        state = ((state * _MULTIPLIER) & _MASK) ^ mixed
    rest = data[words * 4 :]
    if rest:
        state = ((state ^ int.from_bytes(rest, "little")) * _MULTIPLIER) & _MASK
    state = ((state ^ (state >> 13)) * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    if partition_count == 1:
        return 0
    # Java's "to positive" drops the sign bit instead of taking the absolute value.
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
