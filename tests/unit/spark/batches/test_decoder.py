"""Goal: exactly the rows, columns and types that Spark asks for; damage is named with its place.

Method: small histories written by hand. That rows are those of the log in every shape is in
`tests/property`, that nothing malformed gets through in `tests/fuzz`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from dragoman.errors import DecodeError
from dragoman.log import batch as b
from dragoman.log.batch import Marker, Record
from dragoman.log.compression import Codec
from dragoman.spark.batches import BatchDecoder
from tables.batch_oracle import EVERYTHING, WAYS, decode

both_ways = pytest.mark.parametrize("use_compiled", WAYS)
VALUE = ("value",)


def batch(
    offset: int, *values: bytes, producer: int = -1, attributes: int = 0, codec: Codec = Codec.NONE
) -> bytearray:
    return b.build_batch(
        [Record(value=value, timestamp=1) for value in values],
        base_offset=offset,
        producer_id=producer,
        attributes=attributes | (b.TRANSACTIONAL if producer >= 0 else 0),
        codec=codec,
    )


def marker(offset: int, producer: int, *, is_commit: bool) -> bytearray:
    made = b.build_marker(Marker(is_commit, 0), producer_id=producer, producer_epoch=0, timestamp=1)
    b.assign(made, offset, 0)
    return made


# ---- columns


def test_schema_is_sparks_own_conversion() -> None:
    kinds = (
        *(t.BinaryType(), t.BinaryType(), t.StringType(), t.IntegerType(), t.LongType()),
        *(t.TimestampType(), t.IntegerType()),
        t.ArrayType(
            t.StructType(
                [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]
            )
        ),
    )
    spark_schema = t.StructType(
        [t.StructField(*each) for each in zip(EVERYTHING, kinds, strict=True)]
    )
    ours = BatchDecoder(EVERYTHING, include_headers=True).schema
    assert ours.equals(to_arrow_schema(spark_schema, timezone="UTC"), check_metadata=True)


def test_headers_must_be_asked_for() -> None:
    with pytest.raises(ValueError, match="no column headers"):
        BatchDecoder(["value", "headers"], include_headers=False)
    with pytest.raises(ValueError, match="no column size"):
        BatchDecoder(["size"], include_headers=True)


@both_ways
def test_columns_come_in_the_order_asked_for(use_compiled: bool) -> None:
    chunk = batch(5, b"a")
    columns = ("timestampType", "offset", "value", "key", "timestamp")
    assert decode([chunk], use_compiled=use_compiled, columns=columns) == [(0, 5, b"a", None, 1000)]


@both_ways
def test_columns_that_no_record_has_are_there_for_every_row(use_compiled: bool) -> None:
    columns = ("topic", "partition")
    rows = decode([batch(5, b"a", b"b", b"c")], use_compiled=use_compiled, columns=columns, start=6)
    assert rows == [("orders", 7)] * 2


@both_ways
def test_nothing_in_range_is_no_arrow_batch(use_compiled: bool) -> None:
    decoder = BatchDecoder(VALUE, include_headers=False, use_compiled=use_compiled)
    for chunks in ([], [b""], [bytes(batch(5, b"a"))]):
        found = decoder.decode(chunks, topic="t", partition=0, start=6, end=9)
        assert list(found) == []


@both_ways
def test_readers_of_one_decoder_do_not_disturb_each_other(use_compiled: bool) -> None:
    decoder = BatchDecoder(("value",), include_headers=False, use_compiled=use_compiled)
    large = bytes(range(256)) * (130 << 10)
    chunks = [batch(0, large, b"a"), batch(2, large, b"b")]

    def read() -> Iterator[pa.RecordBatch]:
        return decoder.decode(chunks, topic="t", partition=0, start=0, end=9)

    for first, second in zip(read(), read(), strict=True):
        assert first == second
        assert first.column(0)[0].as_py() == large


# ---- transactions


@both_ways
def test_records_of_aborted_transactions_and_markers_are_left_out(use_compiled: bool) -> None:
    chunk = b"".join(
        (
            *(batch(0, b"a1", producer=1), batch(1, b"plain"), batch(2, b"b1", producer=2)),
            *(batch(3, b"a2", producer=1), marker(4, 1, is_commit=False)),
            *(marker(5, 2, is_commit=True), batch(6, b"a3", producer=1)),
            *(
                marker(7, 1, is_commit=True),
                batch(8, b"a4", producer=1),
                batch(9, b"b2", producer=2),
            ),
            *(marker(10, 2, is_commit=False), marker(11, 1, is_commit=False)),
        )
    )
    aborted = [(1, 0), (1, 8), (2, 9)]
    options = {"use_compiled": use_compiled, "columns": VALUE, "aborted": aborted}
    assert decode([chunk], **options) == [(b"plain",), (b"b1",), (b"a3",)]
    # Also when the transaction began in an earlier chunk, or before what is read.
    assert decode([chunk], start=3, **options) == [(b"a3",)]
    cut = chunk.index(batch(3, b"a2", producer=1))
    assert decode([chunk[:cut], chunk[cut:]], **options) == [(b"plain",), (b"b1",), (b"a3",)]
    assert len(decode([chunk], committed_only=False, **options)) == 7


@both_ways
def test_idempotent_producers_without_transactions_are_never_aborted(use_compiled: bool) -> None:
    chunk = b.build_batch([Record(value=b"a")], producer_id=1)
    assert decode([chunk], use_compiled=use_compiled, columns=VALUE, aborted=[(1, 0)]) == [(b"a",)]


# ---- damage


@both_ways
@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_byte_under_the_checksum_is_noticed(use_compiled: bool, codec: Codec) -> None:
    first = bytes(batch(0, b"before"))
    sound = bytes(batch(1, b"one", b"two", codec=codec))
    place = f"orders-7, chunk 1 at byte {len(first)}"
    for at in range(16, len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 0x10
        with pytest.raises(DecodeError, match=place):
            decode([b"", first + damaged], use_compiled=use_compiled, columns=VALUE)


@both_ways
def test_rows_before_the_damage_are_returned_when_they_fill_a_unit(use_compiled: bool) -> None:
    decoder = BatchDecoder(("offset",), include_headers=False, use_compiled=use_compiled)
    chunks = [batch(0, bytes(40 << 20)), batch(1, b"small"), b"rest"]
    found = decoder.decode(chunks, topic="t", partition=0, start=0, end=9)
    assert next(found).num_rows == 1
    with pytest.raises(DecodeError, match="t-0, chunk 2 at byte 0: batch header needs 61 bytes"):
        next(found)


@both_ways
def test_offsets_that_do_not_grow_are_refused(use_compiled: bool) -> None:
    with pytest.raises(DecodeError, match="chunk 1 at byte 0: offset 6 follows 6"):
        decode([batch(5, b"a", b"b"), batch(6, b"c")], use_compiled=use_compiled)


@both_ways
def test_a_malformed_batch_among_good_ones_is_named(use_compiled: bool) -> None:
    body = b.record_bytes(Record(value=b"x"), 0, 0)
    header = b.read_header(batch(1, b"x"))
    bad = b.assemble_batch(body[:-1] + b"\x09", header)
    place = "chunk 1 at byte 0: records are malformed"
    with pytest.raises(DecodeError, match=place):
        decode([batch(0, b"a"), bad, batch(2, b"b")], use_compiled=use_compiled)
    many = b.assemble_batch(body, header._replace(record_count=2**31 - 1))
    with pytest.raises(DecodeError, match="2147483647 records in 8 bytes"):
        decode([many], use_compiled=use_compiled)


@both_ways
def test_a_header_whose_name_is_not_text_is_named_when_headers_are_wanted(
    use_compiled: bool,
) -> None:
    good = b.build_batch([Record(headers=(("name", b"x"),))], base_offset=1)
    body = b.record_bytes(Record(headers=(("name", b"x"),)), 0, 0).replace(b"name", b"n\xffme")
    bad = b.assemble_batch(body, b.read_header(good))
    chunks = [batch(0, b"a"), bad]
    with pytest.raises(DecodeError, match=r"chunk 1 at byte 0: .*UTF8"):
        decode(chunks, use_compiled=use_compiled)
    assert len(decode(chunks, use_compiled=use_compiled, columns=VALUE)) == 2


@both_ways
def test_a_bad_marker_of_an_aborted_transaction_is_named(use_compiled: bool) -> None:
    bad = batch(1, b"", producer=1, attributes=b.CONTROL)
    with pytest.raises(DecodeError, match="at byte 0: control record is too short"):
        decode([batch(0, b"a", producer=1), bad], use_compiled=use_compiled, aborted=[(1, 0)])
