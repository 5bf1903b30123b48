"""The file that keeps a partition's producer state, and when it may be believed.

    CRC-32C u32 over everything after itself, sequence u64, then a `producers/snapshot.py` snapshot

The CRC is seeded with the partition's id (not at all below `TAGGED_FILES_LEVEL`): the state of
another partition is not believed.

The snapshot is true for the log's end when it was taken. A later truncation below that end makes it
false; the truncation is in the journal with a higher sequence, which is how recovery can tell.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError
from dragoman.log.producers import ProducerStates, load_snapshot, take_snapshot

NAME = "producers.snapshot"
_HEAD = struct.Struct("<IQ")


class ProducerFile(NamedTuple):
    states: ProducerStates
    #: The log's end for which the states are true.
    offset: int
    #: The last journal group when they were taken.
    sequence: int


def encode_producers(
    states: ProducerStates, offset: int, sequence: int, partition_id: int
) -> bytes:
    body = struct.pack("<Q", sequence) + take_snapshot(states, offset)
    return crc32c(body, partition_id).to_bytes(4, "little") + body


def decode_producers(data: bytes, path: str, partition_id: int) -> ProducerFile:
    """Raises `CorruptionError`, or `FormatError` for a version from the future."""
    if len(data) < _HEAD.size:
        raise CorruptionError(path, len(data), "file ends inside its header")
    crc, sequence = _HEAD.unpack_from(data)
    view = memoryview(data)
    if crc not in (crc32c(view[4:], partition_id), crc32c(view[4:])):
        raise CorruptionError(path, 0, "file fails its checksum")
    states, offset = load_snapshot(view[_HEAD.size :], path)
    return ProducerFile(states, offset, sequence)
