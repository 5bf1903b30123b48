"""Rows that are written while they are captured, and whether each change is in the topic once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable

import psycopg
from confluent_kafka import Consumer, KafkaError, TopicPartition

WAIT_S = 60
TOPIC = "pgcdc.orders"


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


def empty(dsn: str) -> str:
    """The address, with a table that has no rows."""
    with psycopg.connect(dsn, autocommit=True) as database:
        database.execute("DROP TABLE IF EXISTS orders")
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, n int)")
    return dsn


class Writer(threading.Thread):
    """Inserts a row and changes the one before, a transaction each, until stopped."""

    def __init__(self, dsn: str, rows: int = 0) -> None:
        super().__init__()
        self._dsn = dsn
        self.rows = rows
        self._stopping = threading.Event()

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()

    def again(self) -> Writer:
        """Continues where this one has stopped."""
        return Writer(self._dsn, self.rows)

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as database:
            # At a pace that leaves room for those who read.
            while not self._stopping.wait(0.005):
                with database.transaction():
                    database.execute("INSERT INTO orders VALUES (%s, 0)", (self.rows,))
                    database.execute("UPDATE orders SET n = 1 WHERE id = %s", (self.rows - 1,))
                self.rows += 1


def everything(bootstrap: str) -> list[tuple[str, int]]:
    """Operations with the row's number; those of one partition in its order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "all",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(TOPIC, WAIT_S).topics[TOPIC].partitions
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in partitions])
    found: list[tuple[str, int]] = []
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        if error is None:
            event = json.loads(message.value())
            found.append((event["op"], event["row"]["id"]))
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return found


def checked(events: list[tuple[str, int]], rows: int) -> None:
    inserted = Counter(("INSERT", row) for row in range(rows))
    updated = Counter(("UPDATE", row) for row in range(rows - 1))
    assert Counter(events) == inserted + updated
    places = {event: index for index, event in enumerate(events)}
    for row in range(rows - 1):
        assert places["INSERT", row] < places["UPDATE", row]
