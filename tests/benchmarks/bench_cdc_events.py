"""Microseconds of CPU per row from pgoutput's bytes to records, for a table of ten columns.

    PYTHONPATH=src:tests python tests/benchmarks/bench_cdc_events.py

Prints the best of many short rounds, in which no other process was in the way. The number in
brackets is the target: to decode a row and encode it in two envelopes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dragoman.captures.definition import Definition, EnvelopeName
from dragoman.cdc.events import Encoder, Transaction, build_event_batch
from dragoman.protocols.postgres import codec
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import MESSAGE_START, Decoder
from protocols.pgoutput import encode

TARGET_US = 10.0
COLUMNS = (
    m.Column("id", 23, -1, True),
    m.Column("name", 25),
    m.Column("created", 1184),
    m.Column("price", 1700),
    m.Column("note", 25),
    m.Column("active", 16),
    m.Column("description", 25),
    m.Column("reference", 2950),
    m.Column("quantity", 23),
    m.Column("ratio", 701),
)
ROW: m.Row = [
    b"123456",
    b"hello world",
    b"2024-01-01 10:20:30.123456+00",
    b"12.50",
    None,
    b"t",
    b"some longer text that is here",
    b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    b"42",
    b"3.25",
]
ROUNDS = 1000


def microseconds(operation: Callable[[], object], number: int = 200) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(number):
            operation()
        best = min(best, time.thread_time() - start)
    return best / number * 1e6


def encoder(envelope: EnvelopeName) -> Encoder:
    made = Encoder(
        Definition(name="shop", dsn="host=db", tables=("*",), envelope=envelope),
        database="d",
        system="1",
    )
    made.partitions["pgcdc.orders"] = 8
    made.relation(m.Relation(0, 1, "public", "orders", m.Identity.DEFAULT, COLUMNS))
    return made


def main() -> None:
    frame = b"w" + bytes(MESSAGE_START - 1) + encode(m.Insert(0, 1, ROW))
    line = b"\t".join(b"\\N" if not isinstance(text, bytes) else text for text in ROW) + b"\n"
    decoder = Decoder(4)
    decoding = microseconds(lambda: decoder.decode(frame, MESSAGE_START))
    print(f"decode a row of pgoutput     {decoding:6.2f}")
    print(f"decode a row of COPY         {microseconds(lambda: codec.decode_line(line, 10)):6.2f}")
    insert = m.Insert(0, 1, ROW)
    costs = {}
    envelopes: tuple[EnvelopeName, ...] = ("pgcdc", "debezium", "flat")
    for envelope in envelopes:
        made = encoder(envelope)
        transaction = Transaction(lsn=1 << 36, xid=571, time_us=1_750_000_000_000_000)
        costs[envelope] = microseconds(lambda: made.change(insert, transaction))  # noqa: B023
        print(f"encode as {envelope:<18} {costs[envelope]:6.2f}")
        (record,) = made.change(insert, transaction)
        records = [record] * 200
        batching = microseconds(lambda: build_event_batch(records), 1) / len(records)  # noqa: B023
        print(f"  in a batch of 200          {batching:6.2f}")
    total = decoding + costs["pgcdc"] + costs["debezium"]
    print(f"decode, pgcdc and debezium   {total:6.2f} [{TARGET_US:g}]")


if __name__ == "__main__":
    main()
