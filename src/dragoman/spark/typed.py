"""Values with types: `decode=string|json` turns the column `value` into text or a struct.

The type of JSON values is the option `valueSchema`, or the schema that a user gave to Spark, or the
one pinned in the topic's configuration, or it is inferred from the topic's first records and pinned
there, so that every later reader sees the same columns.

A value that does not fit fails the read, or goes to a dead-letter topic with its key, its headers
and where it came from. A task that Spark runs again writes its dead letters again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.types import StructType

from dragoman.client.kafka import ClientError, NewRecord, ResourceType
from dragoman.errors import ConfigError, DecodeError
from dragoman.spark import planner
from dragoman.spark.broker import BrokerLog, open_client
from dragoman.spark.failures import iterated_plainly
from dragoman.spark.logs import open_logs
from dragoman.spark.options import SourceOptions
from dragoman.spark.planner import OffsetRange, RangePartition
from dragoman.spark.reader import read_range
from dragoman.spark.schema import check_columns, columns_wanted

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("dragoman.spark")

#: The topic's configuration under which an inferred schema is kept.
SCHEMA_KEY = "dragoman.value.schema"
_SAMPLE_RECORDS = 1000
_ORIGIN = ("key", "value", "topic", "partition", "offset", "headers")


# ---- which type


def source_schema(options: SourceOptions) -> str:
    """The columns as DDL, which Spark parses."""
    fields = []
    for field in columns_wanted(options.columns, include_headers=options.include_headers):
        kind = field.dataType.simpleString()
        if field.name == "value" and options.decode:
            kind = "string" if options.decode == "string" else f"struct<{_json_fields(options)}>"
        fields.append(f"{field.name} {kind}")
    return ", ".join(fields)


def _json_fields(options: SourceOptions) -> str:
    if options.value_schema:
        return options.value_schema
    logs = open_logs(options)
    with closing(logs[0]) as log_:
        topics = planner.chosen_topics(log_, options.topics)
        if len(topics) != 1:
            raise ConfigError(f"decode=json of {len(topics)} topics needs the option valueSchema")
        (topic,) = topics.values()
        client = log_.client if isinstance(log_, BrokerLog) else None
        if client is not None:
            for entry in client.describe_configs(ResourceType.TOPIC, topic.name):
                if entry.name == SCHEMA_KEY and entry.value:
                    return entry.value
        partitions = planner.partitions_of({topic.name: topic})
        first, last = log_.earliest(partitions), log_.latest(partitions)
        sample = {where: min(last[where], first[where] + _SAMPLE_RECORDS) for where in partitions}
        ranges = planner.ranges_between({topic.name: topic}, first, sample)
        fields = _inferred(ranges, options, logs)
        if client is not None:
            try:
                client.alter_configs(ResourceType.TOPIC, topic.name, {SCHEMA_KEY: fields})
            except ClientError as error:
                log.warning("the inferred schema of %s is not pinned: %s", topic.name, error)
        return fields


def _inferred(ranges: list[OffsetRange], options: SourceOptions, logs: Any) -> str:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_type

    found: list[bytes] = []
    planned, lease = planner.plan(ranges, options, logs[1])
    for each in planned:
        for batch in read_range(each, options, ["value"]):
            found += [value for value in batch.column(0).to_pylist() if value is not None]
    if lease is not None:
        lease.release()
    try:
        kind = pa.array([msgspec.json.decode(value) for value in found]).type
    except (msgspec.DecodeError, pa.ArrowException, TypeError) as error:
        raise ConfigError(f"no schema fits the first records: {error}; give valueSchema") from None
    if not pa.types.is_struct(kind) or not kind.num_fields:
        raise ConfigError("no schema was found: there are no JSON objects yet; give valueSchema")
    spark_kind = from_arrow_type(kind)
    return spark_kind.simpleString().removeprefix("struct<").removesuffix(">")


# ---- reading


class TypedReading:
    """Reads planned ranges into batches of exactly the schema that Spark was told."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_columns(schema, is_value_typed=bool(options.decode))
        self._options = options
        self._schema = schema

    @iterated_plainly
    def read(self, planned: RangePartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        # Spark compares types and nullability with those of the schema that it was given.
        expected = to_arrow_schema(self._schema, timezone="UTC")
        names = self._schema.fieldNames()
        if not self._options.decode or "value" not in names:
            for batch in read_range(planned, self._options, names):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=expected)
            return
        letters = DeadLetters(self._options)
        with closing(letters):
            columns = list(dict.fromkeys([*names, *_ORIGIN]))
            for batch in read_range(planned, self._options, columns):
                kind = expected.field("value").type
                values, kept = _decoded(batch, kind, self._options.decode, letters)
                arrays = [
                    values if name == "value" else batch.column(name).filter(kept) for name in names
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=expected)


def _decoded(
    batch: pa.RecordBatch, kind: pa.DataType, decode: str, letters: DeadLetters
) -> tuple[pa.Array, pa.Array]:
    """Typed values of the records that have one, and which records those are."""
    import pyarrow as pa

    convert = _as_text if decode == "string" else _as_json
    values = batch.column("value")
    try:
        return convert(values, kind), pa.array([True] * len(values), pa.bool_())
    except (pa.ArrowException, msgspec.DecodeError, ValueError, TypeError):
        # One by one, to see which.
        kept = [True] * len(values)
        for row in range(len(values)):
            try:
                convert(values[row : row + 1], kind)
            except (pa.ArrowException, msgspec.DecodeError, ValueError, TypeError) as error:
                kept[row] = False
                letters.take(batch, row, f"{type(error).__name__}: {error}")
        letters.send()
        mask = pa.array(kept, pa.bool_())
        return convert(values.filter(mask), kind), mask


def _as_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(kind)


def _as_json(values: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    decode = msgspec.json.decode
    found = [None if value is None else decode(value) for value in values.to_pylist()]
    plain = _as_in_json(kind)
    array = pa.array(found, plain)
    return array if plain == kind else array.cast(kind)


def _as_in_json(kind: pa.DataType) -> pa.DataType:
    """The type with text in place of what JSON has no form for."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(_as_in_json(field.type)) for field in fields])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_in_json(kind.value_type)))
    is_text = pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind)
    return pa.string() if is_text else kind


class DeadLetters:
    """Records that do not decode, on their way out. Raises `DecodeError` when there is none."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._waiting: list[NewRecord] = []
        self._client: Any = None

    def take(self, batch: pa.RecordBatch, row: int, problem: str) -> None:
        record = {name: batch.column(name)[row].as_py() for name in _ORIGIN}
        where = f"{record['topic']}-{record['partition']}"
        text = " ".join(problem.split())
        if not self._options.dead_letter_topic:
            raise DecodeError(
                f"{where}: the value at offset {record['offset']} does not decode as "
                f"{self._options.decode}: {text}"
            )
        self._waiting.append(
            NewRecord(
                key=record["key"],
                value=record["value"],
                headers=(*_headers(record["headers"]), *_origin(record, text)),
            )
        )

    def send(self) -> None:
        if self._waiting:
            if self._client is None:
                self._client = open_client(self._options).open()
            self._client.produce_records(self._options.dead_letter_topic, self._waiting)
            self._waiting = []

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _headers(given: Sequence[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(each["key"], each["value"]) for each in given or ()]


def _origin(record: dict[str, Any], problem: str) -> list[tuple[str, bytes]]:
    return [
        ("dragoman.topic", record["topic"].encode()),
        ("dragoman.partition", str(record["partition"]).encode()),
        ("dragoman.offset", str(record["offset"]).encode()),
        ("dragoman.error", problem.encode()),
    ]
