"""All events of the captured tables, read by a stock consumer while they come."""

from __future__ import annotations

import json
import threading
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

#: Topic → table.
TOPICS = {
    "pgcdc.orders": "public.orders",
    "pgcdc.items": "public.items",
    "pgcdc.stock.levels": "stock.levels",
}


#: Keys that begin so show how far the reader is.
MARK = "mark "


class Event(NamedTuple):
    table: str
    partition: int
    offset: int
    key: bytes
    #: None: a tombstone.
    value: dict[str, Any] | None
    operation: str
    lsn: int
    seq: int
    id: str


class Reader:
    """Reads from the start of every partition, on a thread of its own, until closed."""

    def __init__(self, bootstrap: str, partitions: int = 8) -> None:
        self.events: list[Event] = []
        self.marks: set[str] = set()
        #: How far partitions were read when there was nothing more.
        self.ends: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "torture",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [
                TopicPartition(topic, number, OFFSET_BEGINNING)
                for topic in TOPICS
                for number in range(partitions)
            ]
        )
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closed.is_set():
            for message in self._consumer.consume(10_000, 0.2):
                error = message.error()
                if error is not None:
                    # Positions do not count records that end a transaction; this does.
                    if error.code() == KafkaError._PARTITION_EOF:
                        self.ends[message.topic(), message.partition()] = message.offset()
                    continue
                self.events.append(_event(message))
                if message.key().startswith(MARK.encode()):
                    self.marks.add(message.key().decode())

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()
        self._consumer.close()


def _event(message: Any) -> Event:
    headers = {name: value.decode() for name, value in message.headers() or []}
    value = message.value()
    return Event(
        TOPICS[message.topic()],
        message.partition(),
        message.offset(),
        message.key(),
        None if value is None else json.loads(value, parse_float=str),
        headers["pgcdc-operation"],
        int(headers["pgcdc-lsn"], 16),
        int(headers["pgcdc-seq"]),
        headers["pgcdc-event-id"],
    )
