"""Topics as Arrow tables, within bounds of records and bytes.

The bound on records is shared by the partitions that a query reads, so that a table has the newest
(or oldest) records of each. What was left out is counted in offsets, since compacted and aborted
records, and the ends of transactions, have offsets too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    BlockingKafkaClient,
    FetchFrom,
    Isolation,
    TopicPartition,
)
from dragoman.console.sql.values import TopicRead
from dragoman.log.batch import LENGTH_PREFIX_BYTES, WALK
from dragoman.spark.batches import BatchDecoder

#: As in the Spark source, and the headers.
COLUMNS = (
    *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    "headers",
)
_TEXT = ("key", "value")
_FETCH_BYTES = 4 << 20
_FETCH_WAIT_MS = 500
#: Answers without records, where records were expected, after which a partition counts as read.
_EMPTY_MAX = 20

Side = Literal["newest", "oldest"]


class _Range(NamedTuple):
    where: TopicPartition
    start: int
    end: int


class TopicTables:
    """Reads tables, all within one bound. `report` gets the state after each answer of a node."""

    def __init__(
        self,
        client: BlockingKafkaClient,
        *,
        records: int,
        bytes_max: int,
        side: Side,
        report: Callable[[tuple[TopicRead, ...]], None],
    ) -> None:
        self._client = client
        self._records = records
        self._bytes_left = bytes_max
        self._side: Side = side
        self._report = report
        self._read: dict[str, TopicRead] = {}

    @property
    def read(self) -> tuple[TopicRead, ...]:
        return tuple(self._read.values())

    def load(self, topics: Sequence[str]) -> dict[str, pa.Table]:
        """The tables of topics that exist."""
        partitions = {
            name: [TopicPartition(name, index) for index in self._client.topic(name).partitions]
            for name in topics
        }
        everything = [each for found in partitions.values() for each in found]
        first = self._client.list_offsets(dict.fromkeys(everything, EARLIEST))
        last = self._client.list_offsets(
            dict.fromkeys(everything, LATEST), isolation=Isolation.READ_COMMITTED
        )
        whole = [
            _Range(where, first[where].offset, last[where].offset)
            for where in everything
            if first[where].offset < last[where].offset
        ]
        shares = shared([each.end - each.start for each in whole], self._records)
        ranges = [_cut(each, share, self._side) for each, share in zip(whole, shares, strict=True)]
        found = {}
        for name in topics:
            offsets = sum(each.end - each.start for each in whole if each.where.topic == name)
            self._note(name, offsets=offsets, is_part=False)
            wanted = [each for each in ranges if each.where.topic == name]
            planned = sum(each.end - each.start for each in wanted)
            batches = [batch for each in wanted for batch in self._batches(each)]
            if planned < offsets:
                self._note(name, is_part=True)
            found[name] = pa.Table.from_batches(batches, schema=SCHEMA)
        return found

    def _note(self, topic: str, **changes: int) -> None:
        old = self._read.get(topic)
        new = TopicRead(topic=topic, records=0, offsets=0, bytes=0, is_part=False)
        values = {each: getattr(old or new, each) for each in TopicRead.__struct_fields__}
        self._read[topic] = TopicRead(**(values | changes))

    def _batches(self, wanted: _Range) -> Iterator[pa.RecordBatch]:
        decoder = BatchDecoder(COLUMNS, include_headers=True)
        name = wanted.where.topic
        position, empty = wanted.start, 0
        while position < wanted.end:
            if self._bytes_left <= 0:
                self._note(name, is_part=True)
                return
            fetched = self._client.fetch(
                {wanted.where: FetchFrom(position, _FETCH_BYTES)},
                max_wait_ms=_FETCH_WAIT_MS,
                max_bytes=_FETCH_BYTES,
            )[wanted.where]
            following = max(position, next_offset(fetched.records))
            if following == position:
                empty += 1
                # Compaction may have removed the last records of the range.
                if fetched.last_stable_offset >= wanted.end or empty >= _EMPTY_MAX:
                    return
                continue
            empty = 0
            aborted = [(each.producer_id, each.first_offset) for each in fetched.aborted]
            for batch in decoder.decode(
                [fetched.records],
                topic=name,
                partition=wanted.where.partition,
                start=position,
                end=wanted.end,
                aborted=aborted,
            ):
                readable = as_text(batch)
                self._bytes_left -= readable.nbytes
                known = self._read[name]
                self._note(
                    name,
                    records=known.records + readable.num_rows,
                    bytes=known.bytes + readable.nbytes,
                )
                yield readable
            position = following
            self._report(self.read)


def shared(sizes: Sequence[int], total: int) -> list[int]:
    """How much of each is taken so that it is `total` in all: equal parts, and all of what is
    smaller than its part.
    """
    found = [0] * len(sizes)
    left, order = total, sorted(range(len(sizes)), key=lambda index: sizes[index])
    for place, index in enumerate(order):
        found[index] = min(sizes[index], left // (len(order) - place))
        left -= found[index]
    return found


def _cut(whole: _Range, count: int, side: Side) -> _Range:
    if side == "newest":
        return whole._replace(start=whole.end - count)
    return whole._replace(end=whole.start + count)


def next_offset(records: memoryview) -> int:
    """The offset after the last whole batch; -1 without one."""
    position, found = 0, -1
    while len(records) - position >= WALK.size:
        base, length, last_delta = WALK.unpack_from(records, position)
        if length < 0:
            break
        found = base + last_delta + 1
        position += LENGTH_PREFIX_BYTES + length
    return found


# ---- keys and values as text


def as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with keys and values as text; bytes that are not UTF-8 become U+FFFD."""
    columns = [
        _text(batch.column(name)) if name in _TEXT else batch.column(name) for name in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _text(column: pa.Array) -> pa.Array:
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowInvalid:
        decoded = [
            None if value is None else value.decode("utf-8", "replace")
            for value in column.to_pylist()
        ]
        return pa.array(decoded, pa.string())


def _schema() -> pa.Schema:
    decoded = BatchDecoder(COLUMNS, include_headers=True).schema
    return pa.schema(
        [pa.field(each.name, pa.string()) if each.name in _TEXT else each for each in decoded]
    )


SCHEMA = _schema()
