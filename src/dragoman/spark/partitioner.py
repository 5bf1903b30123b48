"""Assigns each row of an Arrow batch to a partition, without a loop over rows.

A row that names its partition goes there. A row with a key goes to the partition of its murmur2
hash, as with Kafka's clients. All other rows go to one sticky partition, which changes when a batch
is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dragoman.client.kafka import TopicPartition
from dragoman.errors import EncodeError
from dragoman.plural import plural
from dragoman.world import Random

Int64s: TypeAlias = npt.NDArray[np.int64]
Uint32s: TypeAlias = npt.NDArray[np.uint32]

_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)
#: Columns that become part of a record.
RECORD = ("key", "value", "headers")


class Router:
    def __init__(
        self,
        topic: str,
        partition_count: Callable[[str], int],
        random: Random,
        columns: Sequence[str] = RECORD,
    ) -> None:
        """`topic` applies to all rows; if it is empty, the column `topic` names the topic of each
        row.
        """
        self._topic = topic
        self._columns = columns
        self._partition_count = partition_count
        self._random = random
        #: By topic, the current partition of rows with neither partition nor key.
        self._sticky: dict[str, int] = {}

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Rows by partition, in their order, with the columns of records. Raises `EncodeError`."""
        for topic, part in self._by_topic(rows):
            numbers = self._partitions(topic, part)
            names = [name for name in self._columns if name in part.schema.names]
            for number, some in _grouped(numbers, part.select(names)):
                yield TopicPartition(topic, number), some

    def next_partition(self, where: TopicPartition) -> None:
        """Called when a batch for this partition is full: rows without partition and key use the
        next one.
        """
        if self._sticky.get(where.topic) == where.partition:
            following = where.partition + 1
            self._sticky[where.topic] = following % self._partition_count(where.topic)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic:
            yield self._topic, rows
            return
        encoded = rows.column("topic").dictionary_encode()
        if encoded.null_count:
            raise EncodeError("a row has no topic: fill the column topic, or set the option topic")
        names: list[str] = encoded.dictionary.to_pylist()
        for number, some in _grouped(encoded.indices.to_numpy(), rows):
            yield names[number], some

    def _partitions(self, topic: str, rows: pa.RecordBatch) -> Int64s:
        count = self._partition_count(topic)
        numbers = np.full(rows.num_rows, -1, np.int64)
        if "partition" in rows.schema.names:
            numbers = _given(topic, rows.column("partition"), count)
        free = numbers < 0
        if not free.any():
            return numbers
        if "key" in rows.schema.names and count > 1:
            keys = rows.column("key")
            keyed = free & _is_valid(keys)
            hashes = murmur2_of(keys).astype(np.int64)
            # Java's "to positive" drops the sign bit instead of taking the absolute value.
            numbers[keyed] = (hashes[keyed] & 0x7FFFFFFF) % count
            free &= ~keyed
        if free.any():
            numbers[free] = self._sticky.setdefault(topic, self._random.randrange(count))
        return numbers


def _given(topic: str, column: pa.Array, count: int) -> Int64s:
    """The partitions that rows name; -1 for rows without one."""
    numbers: Int64s = column.cast(pa.int64()).fill_null(-1).to_numpy().copy()
    wrong = numbers[_is_valid(column) & ((numbers < 0) | (numbers >= count))]
    if len(wrong):
        raise EncodeError(
            f"topic {topic!r} has {plural(count, 'partition')}, a row names partition {wrong[0]}"
        )
    return numbers


def _is_valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _grouped(
    numbers: npt.NDArray[Any], rows: pa.RecordBatch
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows grouped by number, in increasing order, and in their original order within a group."""
    if not len(numbers):
        return
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    rows = rows.take(pa.array(order))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
    ends = np.append(starts[1:], len(ordered))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(ordered[start]), rows.slice(start, end - start)


# ---- murmur2, all keys at once


def murmur2_of(keys: pa.Array) -> Uint32s:
    """The hash of every key; arbitrary for null.

    Words of four bytes are read from all keys in lockstep, longest keys first, so that the keys
    that still have a word are always a prefix.
    """
    starts, sizes, data = _layout(keys)
    words = sizes >> 2
    order = np.argsort(-words, kind="stable")
    starts, sizes, words = starts[order], sizes[order], words[order]
    state = _SEED ^ sizes.astype(np.uint32)
    rising = words[::-1]
    # A word may begin at any byte.
    at_byte = np.ndarray((max(0, len(data) - 3),), "<u4", data, strides=(1,))
    for step in range(int(words[0]) if len(words) else 0):
        count = len(words) - int(np.searchsorted(rising, step, "right"))
        mixed = at_byte[starts[:count] + 4 * step] * _MULTIPLIER
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _MULTIPLIER
        state[:count] = (state[:count] * _MULTIPLIER) ^ mixed
    state = _with_rest(state, starts + 4 * words, sizes & 3, data)
    state = (state ^ (state >> np.uint32(13))) * _MULTIPLIER
    state ^= state >> np.uint32(15)
    hashes = np.empty_like(state)
    hashes[order] = state
    return hashes


def _with_rest(
    state: Uint32s, positions: Int64s, counts: Int64s, data: npt.NDArray[np.uint8]
) -> Uint32s:
    """Mix in the last one to three bytes of the keys that have them."""
    has_rest = counts > 0
    rest = np.zeros_like(state)
    for byte in range(3):
        has_byte = counts > byte
        found = data[positions[has_byte] + byte].astype(np.uint32)
        rest[has_byte] |= found << np.uint32(8 * byte)
    state[has_rest] = (state[has_rest] ^ rest[has_rest]) * _MULTIPLIER
    return state


def _layout(keys: pa.Array) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8]]:
    """The start and size of each key, and the bytes of all keys."""
    if keys.type not in (pa.binary(), pa.string()):
        keys = keys.cast(pa.binary())
    _, offsets_buffer, data_buffer = keys.buffers()
    if data_buffer is None or not len(keys):
        nothing = np.zeros(len(keys), np.int64)
        return nothing, nothing, np.zeros(0, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts = offsets[:-1].astype(np.int64)
    return starts, np.diff(offsets).astype(np.int64), np.frombuffer(data_buffer, np.uint8)
