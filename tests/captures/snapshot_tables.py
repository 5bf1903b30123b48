"""Tables with rows in them, captured while they change by a process that is killed now and then.

In the end the records, played in the order of each partition, must leave what the tables have: by
key where there is one, else row by row as a multiset, where a row that was sent twice or not at all
shows. No row is sent by a snapshot twice, however often the process died.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

from captures.process import WAIT_S, CaptureProcess
from dragoman.captures.definition import POSITIONS_TOPIC, Definition

NAME = "snap"
TABLES = (
    "CREATE TABLE items (id int PRIMARY KEY, v int, filler text)",
    # Large values are kept apart, and updates that do not touch them do not say them.
    "ALTER TABLE items ALTER filler SET STORAGE EXTERNAL",
    "CREATE TABLE pairs (a text, b int, v int, PRIMARY KEY (b, a)) PARTITION BY HASH (a, b)",
    "CREATE TABLE pairs_0 PARTITION OF pairs FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE pairs_1 PARTITION OF pairs FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "CREATE TABLE bare (n int, v int)",
    "ALTER TABLE bare REPLICA IDENTITY FULL",
    "CREATE TABLE nothing (id int PRIMARY KEY)",
)


def make_tables(dsn: str, rows: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in TABLES:
            connection.execute(statement)
        many = f"generate_series(1, {rows}) i"
        connection.execute(
            "INSERT INTO items SELECT i * 2, 0, repeat('x', CASE i % 25 WHEN 0 THEN 2500 ELSE"
            f" i % 50 END) FROM {many}"
        )
        few = f"generate_series(1, {rows // 4}) i"
        connection.execute(f"INSERT INTO pairs SELECT 'k''\\' || i % 7, i, 0 FROM {few}")
        connection.execute(f"INSERT INTO bare SELECT i, 0 FROM {few}")
        connection.execute("ANALYZE")


class Changes:
    """Of all kinds, all over the tables, until stopped."""

    def __init__(self, dsn: str, rows: int, seed: int) -> None:
        self._dsn = dsn
        self._rows = rows
        self._dice = random.Random(seed)
        self.committed = 0
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Changes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                with suppress(psycopg.OperationalError):  # the database is killed as well
                    self._write()
        except Exception as error:  # noqa: BLE001  # Raised again by `join`.
            self._error = error

    def _write(self) -> None:
        with psycopg.connect(self._dsn, connect_timeout=5) as connection:
            while not self._is_stopping.is_set():
                for _ in range(self._dice.randrange(1, 6)):
                    self._change(connection)
                if self._dice.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                    self.committed += 1

    def _change(self, connection: psycopg.Connection) -> None:
        dice = self._dice
        item, other = (dice.randrange(1, self._rows * 2 + 100) for _ in range(2))
        pair, bare = (dice.randrange(1, self._rows // 4 + 100) for _ in range(2))
        statement, *arguments = dice.choice(
            (
                ("UPDATE items SET v = v + 1 WHERE id = %s", item),
                ("UPDATE items SET v = v + 1 WHERE id BETWEEN %s AND %s", item, item + 20),
                (
                    "INSERT INTO items VALUES (%s, 1, 'new') ON CONFLICT (id) DO UPDATE SET v = 7",
                    item,
                ),
                ("DELETE FROM items WHERE id = %s", item),
                (
                    # A key that changes while a large value does not: see the guide.
                    "UPDATE items SET id = %s WHERE id = %s AND length(filler) < 2000"
                    " AND NOT EXISTS (SELECT FROM items WHERE id = %s)",
                    other,
                    item,
                    other,
                ),
                ("UPDATE pairs SET v = v + 1 WHERE b = %s", pair),
                ("DELETE FROM pairs WHERE b = %s", pair),
                (
                    "INSERT INTO pairs VALUES ('z', %s, 5) ON CONFLICT (b, a)"
                    " DO UPDATE SET v = pairs.v + 1",
                    pair,
                ),
                ("INSERT INTO bare VALUES (%s, 1), (%s, 1)", bare, bare),
                ("UPDATE bare SET v = v + 1 WHERE n = %s", bare),
                ("DELETE FROM bare WHERE n = %s", bare),
            )
        )
        connection.execute(statement.encode(), arguments)


def capture(dsn: str, bootstrap: str, spool: Path, **fields: Any) -> CaptureProcess:
    fields.setdefault("tables", ("public.*",))
    fields.setdefault("snapshot_rows", 50)
    fields.setdefault("heartbeat_s", 0.2)
    return CaptureProcess(Definition(name=NAME, dsn=dsn, **fields), bootstrap, spool)


def rows_read(process: CaptureProcess) -> int:
    return sum(each.rows for each in process.status.tables) if process.status else 0


def wait_for_positions(bootstrap: str, count: int) -> None:
    """So many more: one for each chunk, and for what changes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})

    def end() -> int:
        ends = 0
        for partition in range(8):
            with suppress(KafkaException):  # not there yet
                where = TopicPartition(POSITIONS_TOPIC, partition)
                ends += consumer.get_watermark_offsets(where, timeout=WAIT_S)[1]
        return ends

    deadline = time.monotonic() + WAIT_S
    enough = end() + count
    while end() < enough:
        assert time.monotonic() < deadline, "nothing moves"
    consumer.close()


def is_complete(process: CaptureProcess) -> bool:
    """All tables are read."""
    tables = process.status.tables if process.status else ()
    return bool(tables) and all(each.is_done for each in tables)


def wait_for_end(process: CaptureProcess, dsn: str) -> None:
    """Everything that is committed now is in the log."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
    assert row is not None
    end = int(row[0])

    def is_there(it: CaptureProcess) -> bool:
        high, _, low = ((it.status and it.status.lsn) or "0/0").partition("/")
        return (int(high, 16) << 32 | int(low, 16)) >= end

    process.until(is_there)


# ---- what is in the log


def read_topic(bootstrap: str, topic: str) -> Iterator[tuple[bytes, str, dict[str, Any]]]:
    """Key, operation and value of every record with a value, in the order of each partition."""
    for key, value, headers in read_records(bootstrap, topic):
        if value is not None:
            yield key, headers["pgcdc-operation"].decode(), json.loads(value)


def read_records(
    bootstrap: str, topic: str
) -> Iterator[tuple[bytes, bytes | None, dict[str, bytes]]]:
    """Key, value and headers."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
    left = set(partitions)
    deadline = time.monotonic() + WAIT_S
    while left:
        assert time.monotonic() < deadline
        for message in consumer.consume(10_000, 0.1):
            deadline = time.monotonic() + WAIT_S
            if message.error() is not None:
                left.discard(message.partition())
            else:
                yield message.key(), message.value(), dict(message.headers() or ())
    consumer.close()


def check_keyed(dsn: str, bootstrap: str, table: str, prefix: str = "pgcdc.") -> Counter[str]:
    """How many records of each operation there were."""
    state: dict[bytes, str] = {}
    snapshots: Counter[bytes] = Counter()
    operations: Counter[str] = Counter()
    for key, operation, value in read_topic(bootstrap, prefix + table):
        operations[operation] += 1
        if operation == "SNAPSHOT":
            snapshots[key] += 1
        if operation == "DELETE":
            state.pop(key, None)
        else:
            row = value["row"]
            for column in value.get("_unchanged_toast_columns", ()):
                row[column] = json.loads(state.get(key, "{}")).get(column)
                operations["unchanged"] += 1
            state[key] = json.dumps({name: row[name] for name in sorted(row)})
    assert not snapshots or max(snapshots.values()) == 1
    assert sorted(state.values()) == _rows(dsn, table)
    return operations


def check_bare(dsn: str, bootstrap: str, table: str, prefix: str = "pgcdc.") -> Counter[str]:
    there: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    for _, operation, value in read_topic(bootstrap, prefix + table):
        operations[operation] += 1
        if operation == "UPDATE":
            there[json.dumps(value["old"], sort_keys=True)] -= 1
        there[json.dumps(value["row"], sort_keys=True)] += -1 if operation == "DELETE" else 1
    assert min(there.values(), default=0) >= 0
    assert sorted(there.elements()) == _rows(dsn, table)
    return operations


def _rows(dsn: str, table: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        cursor = connection.execute(f"SELECT * FROM {table}".encode())
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        return sorted(json.dumps(dict(sorted(zip(names, row, strict=True)))) for row in cursor)
