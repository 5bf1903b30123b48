"""Encodes Arrow rows as record batches: splits, packs, compresses and checksums them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dragoman.errors import EncodeError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import MAGIC, BatchHeader, assemble_batch
from dragoman.log.compression import Codec
from dragoman.spark.batches import compiled, numpy_records
from dragoman.spark.batches.layout import ARROW_BYTES_MAX, Int64s, Pack, Rows
from dragoman.spark.batches.numpy_records import content_sizes
from dragoman.spark.batches.varints import varint_sizes
from dragoman.types import Buffer

_SEQUENCES = 1 << 31
_BINARY_TYPES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null())


def encode_batches(
    table: pa.RecordBatch,
    *,
    codec: Codec,
    now_ms: int,
    batch_bytes_max: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    use_compiled: bool | None = None,
) -> list[tuple[int, bytearray]]:
    """Batches of all rows in order, each with its record count, identical to those of
    `build_batch`.

    Columns are `value` and optionally `key`, `headers` and `timestamp`; a row without a time gets
    `now_ms`. No batch is larger than `batch_bytes_max`, unless one record alone is. Sequence
    numbers continue from batch to batch. Raises `EncodeError` for what a batch cannot hold.
    """
    if not table.num_rows:
        return []
    rows = _rows(table, now_ms)
    bounds = _cut(rows, batch_bytes_max - BATCH_HEADER_BYTES)
    latest = np.maximum.reduceat(rows.times_ms, bounds[:-1]).tolist()
    earliest = rows.times_ms[bounds[:-1]].tolist()
    pieces = []
    for index, body in enumerate(_packer(use_compiled)(rows, bounds)):
        first, end = int(bounds[index]), int(bounds[index + 1])
        header = BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=0,
            magic=MAGIC,
            crc=0,
            attributes=codec,
            last_offset_delta=end - first - 1,
            base_timestamp=earliest[index],
            max_timestamp=latest[index],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=(base_sequence + first) % _SEQUENCES if base_sequence >= 0 else -1,
            record_count=end - first,
        )
        pieces.append((end - first, _assemble(body, header, batch_bytes_max)))
    return pieces


def _packer(use_compiled: bool | None) -> Pack:
    library = compiled.load() if use_compiled is not False else None
    return numpy_records.pack if library is None else compiled.CompiledRecords(library).pack


def _assemble(body: Buffer, header: BatchHeader, bytes_max: int) -> bytearray:
    """The batch; uncompressed if compression makes incompressible bytes exceed the limit."""
    batch = assemble_batch(body, header)
    if len(batch) > bytes_max and header.attributes:
        batch = assemble_batch(body, header._replace(attributes=Codec.NONE))
    return batch


def _cut(rows: Rows, room: int) -> Int64s:
    """Rows at which batches begin, and the number of rows.

    The size of a record's deltas depends on where its batch begins, so the maximum over these rows
    is used.
    """
    spread = int(rows.times_ms.max()) - int(rows.times_ms.min())
    deltas = varint_sizes(np.array([min(spread, 2**63 - 1), len(rows.times_ms)]))
    sizes = 1 + int(deltas.sum()) + content_sizes(rows)
    ends = np.cumsum(sizes + varint_sizes(sizes))
    if ends[-1] > ARROW_BYTES_MAX:
        raise EncodeError(
            f"{ends[-1]} bytes of records at once are too many: at most {ARROW_BYTES_MAX}"
        )
    bounds = [0]
    while bounds[-1] < len(ends):
        begin = bounds[-1]
        used = int(ends[begin - 1]) if begin else 0
        bounds.append(max(begin + 1, int(np.searchsorted(ends, used + room, side="right"))))
    return np.array(bounds, np.int64)


# ---- columns


def _rows(table: pa.RecordBatch, now_ms: int) -> Rows:
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    if "value" not in columns:
        raise EncodeError(f"the column value is missing; the columns are {', '.join(columns)}")
    key, headers = columns.get("key"), columns.get("headers")
    return Rows(
        key=None if key is None else _binary("key", key),
        value=_binary("value", columns["value"]),
        headers=None if headers is None else _wire_headers(headers),
        times_ms=_times_ms(columns.get("timestamp"), table.num_rows, now_ms),
    )


def _binary(name: str, column: pa.Array) -> pa.BinaryArray:
    if column.type not in _BINARY_TYPES:
        raise EncodeError(f"{name} is {column.type}, not binary or string")
    return column.cast(pa.binary())


def _times_ms(column: pa.Array | None, count: int, now_ms: int) -> Int64s:
    if column is None:
        return np.full(count, now_ms, np.int64)
    if not pa.types.is_timestamp(column.type):
        raise EncodeError(f"timestamp is {column.type}")
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    times = micros.fill_null(now_ms * 1000).to_numpy(zero_copy_only=False) // 1000
    return np.ascontiguousarray(times, np.int64)


def _wire_headers(headers: pa.Array) -> pa.BinaryArray:
    """The headers of each row in wire format, preceded by their count."""
    if not pa.types.is_list(headers.type) or not pa.types.is_struct(headers.type.value_type):
        raise EncodeError(f"headers is {headers.type}, not an array of key and value")
    entries = headers.flatten()
    fields = dict(zip((each.name for each in entries.type), entries.flatten(), strict=True))
    if fields.keys() != {"key", "value"}:
        raise EncodeError(f"headers have {', '.join(fields)}, not key and value")
    names, values = _binary("key", fields["key"]), _binary("value", fields["value"])
    if names.null_count:
        raise EncodeError("a header has no name")
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numpy_records.join_headers(counts, names, values)
