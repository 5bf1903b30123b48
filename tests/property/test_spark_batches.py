"""Goal: decoders and encoders of whole batches give what the log's own, record by record, give.

Method: generated histories of batches of every kind, in every cut, against `log/batch.py`.
"""

from __future__ import annotations

import random
import struct
from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.log import batch as b
from dragoman.log.batch import Record
from dragoman.log.compression import Codec
from dragoman.spark.batches import encode_batches
from tables.batch_oracle import EVERYTHING, WAYS, decode, random_records, reference

NOW = 1_700_000_000_000

datas = st.none() | st.binary(max_size=200)
record_lists = st.lists(
    st.builds(
        Record,
        key=datas,
        value=datas,
        headers=st.lists(st.tuples(st.text(max_size=20), datas), max_size=3).map(tuple),
        timestamp=st.integers(-1, 2**52),
    ),
    min_size=1,
    max_size=12,
)
codecs = st.sampled_from(Codec)


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> tuple[bytearray, int]:
    """A batch and the offset after it."""
    records = draw(record_lists)
    gaps = draw(st.lists(st.integers(0, 3), min_size=len(records), max_size=len(records)))
    offsets = [at + gap for at, gap in enumerate(accumulate(gaps))]
    last_offset_delta = offsets[-1] + draw(st.integers(0, 3))
    batch = b.build_batch(
        [
            Record(
                key=record.key,
                value=record.value,
                headers=record.headers,
                timestamp=record.timestamp,
                offset=offset,
            )
            for record, offset in zip(records, offsets, strict=True)
            if draw(st.integers(0, 9)) < 9
        ],
        base_offset=base_offset,
        codec=draw(codecs),
        attributes=draw(st.sampled_from((0, 0, 0, b.TRANSACTIONAL, b.CONTROL))),
        base_timestamp=draw(st.none() | st.integers(-1, 2**52)),
        last_offset_delta=last_offset_delta,
    )
    if draw(st.booleans()):
        b.stamp_append_time(batch, draw(st.integers(0, 2**52)))
    return batch, base_offset + last_offset_delta + 1


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Chunks of whole batches."""
    chunks, next_offset = [], draw(st.sampled_from((0, 0, 5, 2**40)))
    for _ in range(draw(st.integers(0, 3))):
        chunk = b""
        for _ in range(draw(st.integers(0, 5))):
            batch, next_offset = draw(batches(next_offset + draw(st.integers(0, 2))))
            chunk += batch
        chunks.append(chunk)
    return chunks


@pytest.mark.parametrize("use_compiled", WAYS)
@given(histories(), st.integers(0, 60), st.integers(0, 60), st.permutations(EVERYTHING))
def test_rows_are_those_of_the_log(
    use_compiled: bool, chunks: list[bytes], start: int, span: int, columns: list[str]
) -> None:
    first = struct.unpack_from(">q", next(filter(None, chunks), bytes(8)))[0]
    bounds = {"start": first + start - 10, "end": first + start - 10 + span}
    expected = reference(chunks, **bounds)
    assert decode(chunks, use_compiled=use_compiled, **bounds) == expected
    some = columns[: 1 + start % len(columns)]
    picked = [tuple(row[EVERYTHING.index(name)] for name in some) for row in reference(chunks)]
    assert decode(chunks, use_compiled=use_compiled, columns=some) == picked


def arrow_rows(records: list[Record], *, with_headers: bool) -> pa.RecordBatch:
    columns = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "timestamp": pa.array(
            [record.timestamp * 1000 for record in records], pa.timestamp("us", "UTC")
        ),
    }
    if with_headers:
        columns["headers"] = pa.array(
            [[{"key": name, "value": v} for name, v in record.headers] for record in records],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        )
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("use_compiled", WAYS)
@given(record_lists, codecs, st.booleans(), st.integers(0, 5), st.sampled_from((150, 600, 10**6)))
def test_batches_are_those_of_the_log(
    use_compiled: bool,
    records: list[Record],
    codec: Codec,
    with_headers: bool,
    skipped: int,
    bytes_max: int,
) -> None:
    if not with_headers:
        records = [
            Record(key=each.key, value=each.value, timestamp=each.timestamp) for each in records
        ]
    # A slice: columns do not begin where their memory begins.
    table = arrow_rows(records, with_headers=with_headers).slice(skipped)
    records = records[skipped:]
    pieces = encode_batches(
        table,
        codec=codec,
        now_ms=NOW,
        batch_bytes_max=bytes_max,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        use_compiled=use_compiled,
    )
    assert sum(count for count, _ in pieces) == len(records)
    first = 0
    for count, batch in pieces:
        assert len(batch) <= bytes_max or count == 1
        made = {
            kept: b.build_batch(
                records[first : first + count],
                codec=kept,
                producer_id=9,
                producer_epoch=2,
                base_sequence=(2**31 - 2 + first) % 2**31,
            )
            for kept in (codec, Codec.NONE)
        }
        assert batch == made[codec if len(made[codec]) <= bytes_max else Codec.NONE]
        first += count


@pytest.mark.parametrize("use_compiled", WAYS)
@pytest.mark.parametrize("codec", Codec)
def test_many_rows_come_back_and_batches_are_filled(use_compiled: bool, codec: Codec) -> None:
    records = random_records(random.Random(5), 20_000)
    table = arrow_rows(records, with_headers=True)
    pieces = encode_batches(
        table, codec=codec, now_ms=NOW, batch_bytes_max=50_000, use_compiled=use_compiled
    )
    chunks, offset = [], 0
    for count, batch in pieces:
        b.assign(batch, offset, 0)
        offset += count
        chunks.append(batch)
    assert decode(chunks, use_compiled=use_compiled) == reference(chunks)
    if codec is Codec.NONE:
        # Cuts count deltas with the longest that they can be: some bytes per record stay free.
        assert min(len(batch) for _, batch in pieces[:-1]) > 45_000


@pytest.mark.parametrize("use_compiled", WAYS)
def test_units_may_end_anywhere(use_compiled: bool) -> None:
    """More than fits in one unit, and batches of very different sizes."""
    rng = random.Random(6)
    chunks, offset = [], 0
    for count in [1, 3000, 2, 1, 9000, 700, 1, 1, *[100] * 30]:
        records = random_records(rng, count, bytes_max=300)
        chunks.append(b.build_batch(records, base_offset=offset, codec=rng.choice(list(Codec))))
        offset += count
    chunks.append(b.build_batch([Record(value=bytes(33 << 20))], base_offset=offset))
    for bounds in ({}, {"start": 2999, "end": 12_800}):
        assert decode(chunks, use_compiled=use_compiled, **bounds) == reference(chunks, **bounds)
