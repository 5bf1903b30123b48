"""Goal: rows that Spark hands over become batches, and what cannot become one is refused clearly.

Method: small tables. Equality with the log's own batches is in `tests/property`.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from dragoman.errors import EncodeError
from dragoman.log import batch as b
from dragoman.log.batch import Record
from dragoman.log.compression import Codec
from dragoman.spark.batches import encode_batches
from tables.batch_oracle import WAYS

both_ways = pytest.mark.parametrize("use_compiled", WAYS)
NOW = 1_700_000_000_000


def encode(table: dict[str, pa.Array], **options: object) -> list[tuple[int, bytearray]]:
    settings = {"codec": Codec.NONE, "now_ms": NOW, "batch_bytes_max": 10**6, **options}
    return encode_batches(pa.RecordBatch.from_pydict(table), **settings)


def records(batch: bytearray) -> list[Record]:
    view = memoryview(batch)
    return b.records(view, b.check_batch(view))


@both_ways
def test_text_without_key_gets_the_time_of_now(use_compiled: bool) -> None:
    ((count, batch),) = encode({"value": pa.array(["a", None])}, use_compiled=use_compiled)
    assert count == 2
    assert records(batch) == [
        Record(value=b"a", timestamp=NOW, offset=0),
        Record(value=None, timestamp=NOW, offset=1),
    ]


@both_ways
def test_a_time_that_is_null_is_now_and_others_are_cut_to_milliseconds(use_compiled: bool) -> None:
    times = pa.array([None, 1_999, -1], pa.timestamp("us", "UTC"))
    table = {"value": pa.array([b"a"] * 3), "timestamp": times}
    ((_, batch),) = encode(table, use_compiled=use_compiled)
    assert [record.timestamp for record in records(batch)] == [NOW, 1, -1]


@both_ways
def test_headers_that_are_null_are_none(use_compiled: bool) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [None, [], [{"key": "a", "value": None}, {"key": "", "value": b"x"}]]
    table = {"value": pa.array([b""] * 3), "headers": pa.array(rows, kind)}
    ((_, batch),) = encode(table, use_compiled=use_compiled)
    assert [record.headers for record in records(batch)] == [(), (), (("a", None), ("", b"x"))]


@both_ways
def test_no_row_is_no_batch(use_compiled: bool) -> None:
    assert encode({"value": pa.array([], pa.binary())}, use_compiled=use_compiled) == []


@both_ways
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_grows_when_it_is_compressed_keeps_to_the_bound(
    use_compiled: bool, codec: Codec
) -> None:
    values = [random.Random(row).randbytes(500) for row in range(100)]
    pieces = encode(
        {"value": pa.array(values)}, codec=codec, batch_bytes_max=570, use_compiled=use_compiled
    )
    assert [len(batch) for _, batch in pieces] == [570] * 100
    assert b"".join(record.value for _, batch in pieces for record in records(batch)) == b"".join(
        values
    )


@both_ways
def test_a_record_over_the_bound_goes_alone(use_compiled: bool) -> None:
    table = {"value": pa.array([b"a", bytes(500), b"b", b"c"])}
    pieces = encode(table, batch_bytes_max=200, use_compiled=use_compiled)
    assert [count for count, _ in pieces] == [1, 1, 2]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"key": pa.array([b"k"])}, "the column value is missing; the columns are key"),
        ({"value": pa.array([1])}, "value is int64, not binary or string"),
        ({"value": pa.array([b""]), "timestamp": pa.array([1])}, "timestamp is int64"),
        ({"value": pa.array([b""]), "headers": pa.array([b""])}, "headers is binary"),
        (
            {"value": pa.array([b""]), "headers": pa.array([[{"name": "a"}]])},
            "headers have name, not key and value",
        ),
        (
            {"value": pa.array([b""]), "headers": pa.array([[{"key": None, "value": b""}]])},
            "a header has no name",
        ),
    ],
)
def test_what_a_batch_cannot_hold_is_refused(table: dict[str, pa.Array], reason: str) -> None:
    with pytest.raises(EncodeError, match=reason):
        encode(table)
