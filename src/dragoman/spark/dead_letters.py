"""Dead letters: records that do not decode, on their way to a topic of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dragoman.client.kafka import NewRecord
from dragoman.errors import DecodeError
from dragoman.spark.broker import open_client
from dragoman.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns that a dead letter is made of.
ORIGIN = ("key", "value", "topic", "partition", "offset", "headers")


class DeadLetters:
    """Raises `DecodeError` when there is no topic for them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._waiting: list[NewRecord] = []
        self._client: Any = None

    def take(self, batch: pa.RecordBatch, row: int, problem: str) -> None:
        record = {name: batch.column(name)[row].as_py() for name in ORIGIN}
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
