"""The source `dragoman` without Spark: its readers are called as Spark would call them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.spark.batch import BatchReader, PushdownReader
from dragoman.spark.options import parse
from dragoman.spark.schema import columns_wanted
from dragoman.spark.stream import StreamReader

#: Small segments, so that a few hundred records make several; their times are long ago.
SMALL_SEGMENTS = {"segment.bytes": "4096", "retention.ms": "-1"}


class Broker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


def make_topic(broker: Broker, name: str = "orders", partitions: int = 1, **config: str) -> None:
    named = {key.replace("_", "."): value for key, value in config.items()}
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        client.create_topic(
            NewTopic(name=name, partitions=partitions, config=SMALL_SEGMENTS | named)
        )


def write(
    broker: Broker,
    numbers: Iterable[int],
    name: str = "orders",
    partitions: int = 1,
    per_batch: int = 20,
) -> None:
    """A record for each number, which is its key, value and timestamp."""
    every = list(numbers)
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        for start in range(0, len(every), per_batch):
            client.produce_records(
                name,
                [
                    NewRecord(
                        key=b"%d" % number,
                        value=b"%d" % number,
                        partition=number % partitions,
                        timestamp=1_700_000_000_000 + number,
                    )
                    for number in every[start : start + per_batch]
                ],
            )


def options_for(broker: Broker | None = None, **given: str) -> dict[str, str]:
    named = {"subscribe": "orders"} if not {"assign", "subscribePattern"} & given.keys() else {}
    if broker is not None:
        named["kafka.bootstrap.servers"] = broker.bootstrap_servers
    return named | {key.replace("_", "."): value for key, value in given.items()}


def batch_reader(
    options: dict[str, str], columns: Sequence[str] = (), filters: Sequence[Filter] = ()
) -> BatchReader:
    parsed = parse(options, "batch")
    schema = columns_wanted(columns, include_headers=parsed.include_headers)
    if not filters:
        return BatchReader(parsed, schema)
    reader = PushdownReader(parsed, schema)
    list(reader.pushFilters(list(filters)))
    return reader


def read_partitions(reader: Any, partitions: Sequence[InputPartition]) -> list[dict[str, Any]]:
    """Rows, read by copies as executors have them."""
    rows: list[dict[str, Any]] = []
    for partition in partitions:
        copy_of_reader, copy_of_partition = pickle.loads(pickle.dumps((reader, partition)))
        for batch in copy_of_reader.read(copy_of_partition):
            assert isinstance(batch, pa.RecordBatch)
            rows += batch.to_pylist()
    return rows


def read(
    options: dict[str, str], columns: Sequence[str] = (), filters: Sequence[Filter] = ()
) -> list[dict[str, Any]]:
    reader = batch_reader(options, columns, filters)
    return read_partitions(reader, reader.partitions())


def numbers_in(rows: Iterable[dict[str, Any]]) -> list[int]:
    return [int(row["value"]) for row in rows]


def stream_reader(options: dict[str, str]) -> StreamReader:
    parsed = parse(options, "stream")
    schema: StructType = columns_wanted((), include_headers=parsed.include_headers)
    return StreamReader(parsed, schema)


class Stream:
    """A streaming query's dealings with its source, one micro-batch at a time."""

    def __init__(self, options: dict[str, str], start: dict[str, Any] | None = None) -> None:
        self.reader = stream_reader(options)
        self.at = start or self.reader.initialOffset()

    def step(self) -> list[dict[str, Any]]:
        """The rows of the next micro-batch; none when there is nothing new."""
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        if end == self.at:
            return []
        rows = read_partitions(self.reader, self.reader.partitions(self.at, end))
        self.reader.commit(end)
        self.at = end
        return rows

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()
