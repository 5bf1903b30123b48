"""The file that keeps a partition's producer state, and when it may be believed.

    sequence u64, CRC-32C of it u32, then a snapshot (`producers/snapshot.py`, with its own checksum)

The snapshot is true for the log's end when it was taken. A later truncation below that end makes it
false; the truncation is in the journal with a higher sequence, which is how recovery can tell.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from dragoman.errors import CorruptionError
from dragoman.log.producers import ProducerStates, load_snapshot, take_snapshot

NAME = "producers.snapshot"
_HEAD = struct.Struct("<QI")


class ProducerFile(NamedTuple):
    states: ProducerStates
    #: The log's end for which the states are true.
    offset: int
    #: The last journal group when they were taken.
    sequence: int


def encode_producers(states: ProducerStates, offset: int, sequence: int) -> bytes:
    head = struct.pack("<Q", sequence)
    return head + crc32c(head).to_bytes(4, "little") + take_snapshot(states, offset)


def decode_producers(data: bytes, path: str) -> ProducerFile:
    """Raises `CorruptionError`, or `FormatError` for a version from the future."""
    if len(data) < _HEAD.size:
        raise CorruptionError(path, len(data), "file ends inside its header")
    sequence, crc = _HEAD.unpack_from(data)
    if crc32c(data[:8]) != crc:
        raise CorruptionError(path, 0, "header fails its checksum")
    states, offset = load_snapshot(memoryview(data)[_HEAD.size :], path)
    return ProducerFile(states, offset, sequence)
