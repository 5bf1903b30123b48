"""What records cost between the log and Arrow: `python tests/benchmarks/bench_spark_batches.py`.

Prints nanoseconds of processor time per row, on one thread, best of several passes: decoding by
each decoder, codec and choice of columns, and encoding. As bound, pyarrow reads the same rows from
Parquet, which holds what a decoder has to find out. Rows are 12-byte keys and JSON of about 100
bytes, 1,000 to a batch; `--batch 50` makes smaller ones.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from dragoman.log.batch import Record, build_batch
from dragoman.log.compression import Codec
from dragoman.spark.batches import BatchDecoder, compiled, encode_batches

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
TWO = ("value", "offset")
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)


def rows(count: int) -> list[Record]:
    rng = Random(1)
    return [
        Record(
            key=b"key-%08d" % rng.randrange(10**8),
            value=json.dumps(
                {
                    "user": rng.randrange(10**6),
                    "event": rng.choice(("view", "click", "order", "refund")),
                    "amount": round(rng.random() * 1000, 2),
                    "session": f"{rng.getrandbits(64):016x}"[: rng.randint(8, 16)],
                }
            ).encode(),
            timestamp=1_700_000_000_000 + index // 4,
        )
        for index, _ in enumerate(range(count))
    ]


def log_of(records: list[Record], per_batch: int, codec: Codec) -> bytes:
    return b"".join(
        build_batch(records[first : first + per_batch], base_offset=first, codec=codec)
        for first in range(0, len(records), per_batch)
    )


def decode(decoder: BatchDecoder, log: bytes, count: int) -> pa.Table:
    batches = decoder.decode([log], topic="orders", partition=3, start=0, end=count)
    return pa.Table.from_batches(list(batches))


def cost(action: Callable[[], object], count: int, passes: int) -> float:
    """Nanoseconds of processor time per row; the best pass counts."""
    times = []
    for _ in range(passes):
        started = time.process_time_ns()
        action()
        times.append(time.process_time_ns() - started)
    return min(times) / count


def parquet_costs(table: pa.Table, codec: str, passes: int) -> list[float]:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=codec)

    def read(columns: tuple[str, ...]) -> Callable[[], object]:
        return lambda: pq.read_table(
            pa.BufferReader(buffer.getvalue()), columns=list(columns), use_threads=False
        )

    return [cost(read(columns), len(table), passes) for columns in (ALL, TWO)]


def decode_costs(log: bytes, options: argparse.Namespace, *, use_compiled: bool) -> list[float]:
    decoders = [
        BatchDecoder(columns, include_headers=False, use_compiled=use_compiled)
        for columns in (ALL, TWO)
    ]
    return [
        cost(lambda d=each: decode(d, log, options.rows), options.rows, options.passes)
        for each in decoders
    ]


def encode_cost(
    table: pa.RecordBatch, codec: Codec, options: argparse.Namespace, *, use_compiled: bool
) -> float:
    def encode() -> object:
        return encode_batches(
            table, codec=codec, now_ms=0, batch_bytes_max=1 << 20, use_compiled=use_compiled
        )

    return cost(encode, options.rows, options.passes)


def show(name: str, *costs: float) -> None:
    print(f"{name:<24}" + "".join(f"{each:>15.0f}" for each in costs), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--batch", type=int, default=1000, help="records in a batch")
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    records = rows(options.rows)
    plain = log_of(records, options.batch, Codec.NONE)
    table = decode(BatchDecoder(ALL, include_headers=False), plain, options.rows)
    written = table.select(["key", "value", "timestamp"]).combine_chunks().to_batches()[0]
    ways = {"compiled": True, "numpy": False} if compiled.load() else {"numpy": False}
    print(f"{options.rows} rows of {len(plain) / options.rows:.0f} bytes, {options.batch} a batch")
    print(f"{'ns/row':<24}{'all columns':>15}{'value, offset':>15}{'encode':>15}")
    for codec in CODECS:
        log = log_of(records, options.batch, codec)
        for way, use_compiled in ways.items():
            show(
                f"{way} {codec.name.lower()}",
                *decode_costs(log, options, use_compiled=use_compiled),
                encode_cost(written, codec, options, use_compiled=use_compiled),
            )
    for codec_name in ("none", "zstd"):
        show(f"parquet {codec_name}", *parquet_costs(table, codec_name, options.passes))


if __name__ == "__main__":
    main()
