"""Records of events, their partitions, and batches of them.

Headers are in wire form from the start: most of their bytes are the same for all rows of a table or
transaction, and are joined rather than encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from dragoman.log.batch import (
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    assemble_batch,
    varint,
)

_BASIS: Final = 0x811C9DC5
_PRIME: Final = 0x01000193
_LOW_PRIME: Final = 0x193
#: Below it, the low bits of a hash depend on the low bits of the prime only.
_LOW_COUNT_MAX: Final = 1 << 24
_NULL: Final = varint(-1)
_VARINTS: Final = [varint(value) for value in range(2048)]
#: A record without key, value and headers: its own size, attributes, deltas and sizes.
_RECORD_BYTES_MAX: Final = 24


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """Built with positional arguments, since there is one for every row. `timestamp` in ms."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    #: In wire form, after their count.
    headers: bytes
    timestamp: int

    @property
    def size(self) -> int:
        """The most bytes that the record takes in a batch."""
        return _RECORD_BYTES_MAX + len(self.key or b"") + len(self.value or b"") + len(self.headers)


class TopicNeeded(Exception):  # noqa: N818  # A request, not a failure.
    """The number of partitions of `topic` is needed first. A new topic is to get `partitions`."""

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(topic)
        self.topic = topic
        self.partitions = partitions


# ---- partitions


def partitioner(count: int) -> Callable[[bytes], int]:
    """FNV-1a of 32 bits, modulo the number of partitions."""
    if count & (count - 1) or count > _LOW_COUNT_MAX:
        return lambda key: _fnv1a_32(key) % count
    mask = count - 1
    start = _BASIS & mask

    def partition(key: bytes) -> int:
        # The low bits of sums and products depend on low bits only: no large numbers are needed.
        value = start
        for byte in key:
            value = (value ^ byte) * _LOW_PRIME & mask
        return value

    return partition


def _fnv1a_32(key: bytes) -> int:
    value = _BASIS
    for byte in key:
        value = (value ^ byte) * _PRIME & 0xFFFF_FFFF
    return value


# ---- headers


def sized(content: bytes) -> bytes:
    """The content after its size, as in names and values of headers."""
    return varint(len(content)) + content


def headers_bytes(pairs: Iterable[tuple[str, bytes | None]]) -> bytes:
    pieces = []
    for name, content in pairs:
        pieces.append(sized(name.encode()) + (_NULL if content is None else sized(content)))
    return varint(len(pieces)) + b"".join(pieces)


# ---- batches


def build_event_batch(
    records: Sequence[EventRecord],
    *,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = True,
) -> bytearray:
    """One batch of records that are all for the same partition."""
    first = records[0].timestamp
    body, latest = _encoded(records, first)
    return assemble_batch(
        body,
        BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=0,
            magic=MAGIC,
            crc=0,
            attributes=TRANSACTIONAL if is_transactional else 0,
            last_offset_delta=len(records) - 1,
            base_timestamp=first,
            max_timestamp=latest,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(records),
        ),
    )


def _encoded(records: Sequence[EventRecord], first: int) -> tuple[bytes, int]:
    pieces: list[bytes] = []
    varints, count = _VARINTS, len(_VARINTS)
    latest = first
    for index, record in enumerate(records):
        key, value, headers = record.key, record.value, record.headers
        elapsed = record.timestamp - first
        if record.timestamp > latest:
            latest = record.timestamp
        head = b"\0" + (varints[elapsed] if 0 <= elapsed < count else varint(elapsed))
        head += varints[index] if index < count else varint(index)
        if key is None:
            head += _NULL
        else:
            head += (varints[len(key)] if len(key) < count else varint(len(key))) + key
        if value is None:
            head, value = head + _NULL, b""
        else:
            head += varints[len(value)] if len(value) < count else varint(len(value))
        size = len(head) + len(value) + len(headers)
        pieces += (varints[size] if size < count else varint(size), head, value, headers)
    return b"".join(pieces), latest
