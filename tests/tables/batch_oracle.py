"""What decoders of whole batches must give, by the log's own record-by-record decoder."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import pyarrow as pa

from dragoman.errors import DecodeError
from dragoman.log import batch as b
from dragoman.log.batch import BatchHeader, Record
from dragoman.spark.batches import BatchDecoder, compiled
from dragoman.spark.batches.layout import TIME_MS_MAX

EVERYTHING = (
    *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    "headers",
)
#: With the compiled library, where there is one, and without.
WAYS = [True, False] if compiled.load() is not None else [False]
FOREVER = 2**63 - 1


def decode(
    chunks: Sequence[bytes | bytearray],
    *,
    use_compiled: bool,
    columns: Sequence[str] = EVERYTHING,
    start: int = 0,
    end: int = FOREVER,
    aborted: Sequence[tuple[int, int]] = (),
    committed_only: bool = True,
) -> list[tuple[object, ...]]:
    """Rows of all columns; times as integers, since Arrow knows more of them than Python."""
    decoder = BatchDecoder(columns, include_headers=True, use_compiled=use_compiled)
    decoded = decoder.decode(
        chunks,
        topic="orders",
        partition=7,
        start=start,
        end=end,
        aborted=aborted,
        committed_only=committed_only,
    )
    table = pa.Table.from_batches(list(decoded), decoder.schema)
    table.validate(full=True)
    lists = [
        column.cast(pa.int64()).to_pylist() if name == "timestamp" else column.to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return list(zip(*lists, strict=True))


def row(record: Record, header: BatchHeader) -> tuple[object, ...]:
    """A record as `decode` returns it."""
    headers = [{"key": name, "value": content} for name, content in record.headers]
    is_append_time = int(bool(header.attributes & b.LOG_APPEND_TIME))
    micros = record.timestamp * 1000
    return (
        *(record.key, record.value, "orders", 7, record.offset, micros, is_append_time),
        headers or None,
    )


def reference(
    chunks: Sequence[bytes | bytearray], start: int = 0, end: int = FOREVER
) -> list[tuple[object, ...]]:
    """Rows of `EVERYTHING`. Raises `DecodeError`."""
    rows = []
    with _strict_varints():
        for chunk in chunks:
            for header, data in b.batches(memoryview(chunk)):
                if header.is_control:
                    continue
                for record in b.records(data, header):
                    _require_range(record, header)
                    if start <= record.offset < end:
                        rows.append(row(record, header))
    return rows


def _require_range(record: Record, header: BatchHeader) -> None:
    """What Arrow or the format itself has no room for."""
    if not -(2**31) <= record.offset - header.base_offset < 2**31 or record.offset > FOREVER:
        raise DecodeError("offset is out of range")
    if abs(record.timestamp) > TIME_MS_MAX:
        raise DecodeError("time is out of range")


@contextmanager
def _strict_varints() -> Iterator[None]:
    """Python's integers have no end; those of the format have."""
    read = b.read_varint

    def strict(data: bytes, position: int) -> tuple[int, int]:
        value, end = read(data, position)
        if not -(2**63) <= value < 2**63:
            raise DecodeError("varint is out of range")
        return value, end

    with mock.patch.object(b, "read_varint", strict):
        yield


def random_records(rng: random.Random, count: int, *, bytes_max: int = 80) -> list[Record]:
    def some(nullable: bool = True) -> bytes | None:
        if nullable and rng.random() < 0.2:
            return None
        return rng.randbytes(rng.choice((0, 1, 12, 63, 64, rng.randint(0, bytes_max))))

    return [
        Record(
            key=some(),
            value=some(),
            headers=tuple(
                (rng.choice(("", "trace", "späť", "x" * 70)), some())
                for _ in range(rng.choice((0, 0, 0, 1, 2, 5)))
            ),
            timestamp=1_700_000_000_000 + rng.choice((0, index, -index, rng.randrange(10**7))),
        )
        for index in range(count)
    ]
