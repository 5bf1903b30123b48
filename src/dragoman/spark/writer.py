"""The sink `dragoman`, which Spark calls to write a table or a stream to topics.

Tasks stage their rows (`attempt.py`); the driver publishes the rows of the successful attempts with
one request. A streaming query writes every row exactly once despite failures of tasks, driver and
brokers; a batch job that runs twice writes twice. docs/concepts/exactly-once-writes.md has the
protocol.

Columns are those of Spark's Kafka sink: `value`, and optionally `key`, `headers`, `topic` and
`partition`. Other columns are ignored.

Spark starts a new process for every commit of a micro-batch, which imports this module first. So
the module imports neither Arrow nor numpy; only tasks do.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from dragoman.client.kafka import (
    BlockingKafkaClient,
    ClientSettings,
    StagedBatch,
    StagedPiece,
    TopicPartition,
)
from dragoman.errors import ConfigError
from dragoman.spark.failures import plainly
from dragoman.spark.options import SinkOptions, parse_sink

if TYPE_CHECKING:
    import pyarrow as pa


#: The number of a batch job's only batch.
_ONLY_BATCH = 0
_QUERY_ID = "sql.streaming.queryId"
_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
}
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task returns to the driver."""

    staged: Staged


class DragomanWriter(DataSourceArrowWriter):
    """Writes a batch job. Every job has a random writer id, so a repeated job writes again."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_sink(options)
        check_columns(schema, self._options.topic)
        self._writer_id = f"batch-{uuid.uuid4()}"

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _stage(iterator, self._options, self._writer_id, self._writer_id)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _publish(self._options, messages, _ONLY_BATCH, is_single=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the broker deletes staged records by age."""


class DragomanStreamWriter(DataSourceStreamArrowWriter):
    """Writes a streaming query. Spark creates a new one for every call, so it keeps no state."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_sink(options)
        check_columns(schema, self._options.topic)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        if not query_id:
            raise ConfigError(f"Spark did not pass the id of the query ({_QUERY_ID})")
        return _stage(iterator, self._options, self._options.writer_id or query_id, query_id)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _publish(self._options, messages, batchId, is_single=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the broker deletes staged records by age."""


def _stage(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, writer_id: str, query_id: str
) -> StagedMessage:
    # Only tasks need this module, which loads numpy and Arrow.
    from dragoman.spark.attempt import Attempt

    attempt = Attempt(shared_client(options), options, writer_id)
    for batch in batches:
        attempt.add(batch)
    return StagedMessage(Staged(writer_id, query_id, attempt.finish()))


def _publish(
    options: SinkOptions,
    messages: list[WriterCommitMessage | None],
    batch_id: int,
    *,
    is_single: bool,
) -> None:
    staged = [message.staged for message in messages if isinstance(message, StagedMessage)]
    client = open_client(options)
    try:
        publish(client, staged, batch_id, is_single=is_single)
    finally:
        client.close()


def check_columns(schema: StructType, topic: str) -> None:
    """Raises `ConfigError` when rows of this schema cannot become records."""
    fields: dict[str, StructField] = {field.name: field for field in schema.fields}
    if "value" not in fields:
        raise ConfigError(
            f"the column value is missing; the columns are {', '.join(fields) or 'none'}"
        )
    if not topic and "topic" not in fields:
        raise ConfigError("give the option topic, or a column topic")
    for name, kinds in _TYPES.items():
        if name in fields and not isinstance(fields[name].dataType, kinds):
            expected = " or ".join(kind.typeName() for kind in kinds)
            came = fields[name].dataType.simpleString()
            raise ConfigError(f"column {name}: expected {expected}, got {came}")
    if "headers" in fields:
        came = fields["headers"].dataType.simpleString()
        if came != _HEADERS or not isinstance(fields["headers"].dataType, ArrayType):
            raise ConfigError(f"column headers: expected {_HEADERS}, got {came}")


class Staged(msgspec.Struct, frozen=True):
    """The result of a task: the pieces that its attempt staged."""

    writer_id: str
    query_id: str
    pieces: dict[TopicPartition, list[StagedPiece]]


def publish(
    client: BlockingKafkaClient, staged: Iterable[Staged], batch_id: int, *, is_single: bool
) -> bool:
    """Publish the rows of these attempts, in this order. True if they were published before."""
    pieces: dict[TopicPartition, list[StagedPiece]] = {}
    owner: Staged | None = None
    for each in staged:
        owner = each
        for where, found in each.pieces.items():
            pieces.setdefault(where, []).extend(found)
    if owner is None or not pieces:
        return False
    return client.publish_staged(
        StagedBatch(
            writer_id=owner.writer_id,
            query_id=owner.query_id,
            batch_id=batch_id,
            is_single=is_single,
            pieces=pieces,
        )
    )


def open_client(options: SinkOptions) -> BlockingKafkaClient:
    """A client that connects on first use."""
    settings = ClientSettings(
        client_id=options.client_id,
        request_timeout_s=options.request_timeout_s,
        operation_timeout_s=options.delivery_timeout_s,
        tls=options.tls,
        login=options.login,
    )
    return BlockingKafkaClient(options.bootstrap, settings)


class _Shared:
    """The connection of this worker process, which runs many tasks sequentially."""

    client: BlockingKafkaClient | None = None
    options: SinkOptions | None = None


def shared_client(options: SinkOptions) -> BlockingKafkaClient:
    """The worker's connection to the brokers, kept for its next task."""
    if _Shared.client is None or _Shared.options != options:
        if _Shared.client is not None:
            _Shared.client.close()
        _Shared.client, _Shared.options = open_client(options), options
    return _Shared.client
