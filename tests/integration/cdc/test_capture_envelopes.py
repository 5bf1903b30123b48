"""Goal: from the topics of a capture alone, in every envelope, each table can be made again, with
what a source does to its tables in between: columns that come and go, keys that change, large
values that stay, truncation, tables with whole replica identity and with a key of one's own.

Method: three captures of one real database, each with its envelope and with tables that have rows
before; a reader that applies records by key and position, in any order of partitions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from captures.process import WAIT_S, CaptureProcess
from demo.postgres import LocalPostgres
from dragoman.captures.definition import Definition, EnvelopeName
from dragoman.testing import EphemeralBroker

ENVELOPES: tuple[EnvelopeName, ...] = ("pgcdc", "debezium", "flat")
TABLES = ("docs", "pairs", "wholes", "uniques")
_BEFORE = """
CREATE TABLE docs (id int PRIMARY KEY, status text, doc text);
ALTER TABLE docs ALTER doc SET STORAGE EXTERNAL;
CREATE TABLE pairs (a text, b int, price numeric, PRIMARY KEY (a, b));
CREATE TABLE wholes (id int PRIMARY KEY, doc text, gone int);
ALTER TABLE wholes ALTER doc SET STORAGE EXTERNAL;
ALTER TABLE wholes REPLICA IDENTITY FULL;
CREATE TABLE uniques (code text NOT NULL UNIQUE, n int);
ALTER TABLE uniques REPLICA IDENTITY FULL;
INSERT INTO docs SELECT n, 'old', repeat(chr(96 + n), 5000) FROM generate_series(1, 5) n;
INSERT INTO pairs SELECT 'x"' || n, n, n + 0.50 FROM generate_series(1, 5) n;
INSERT INTO wholes SELECT n, repeat(chr(96 + n), 5000), n FROM generate_series(1, 5) n;
INSERT INTO uniques SELECT 'c' || n, n FROM generate_series(1, 5) n
"""
_CHANGES = (
    "UPDATE docs SET status = 'new' WHERE id < 4",
    "UPDATE docs SET id = 11, doc = 'short' WHERE id = 1",
    "DELETE FROM docs WHERE id = 2",
    "INSERT INTO docs VALUES (2, 'again', null)",
    "ALTER TABLE docs ADD COLUMN total numeric(10, 2)",
    "UPDATE docs SET total = 1.10 WHERE id <> 5",
    "UPDATE docs SET total = 2 WHERE id = 5",
    "ALTER TABLE docs RENAME status TO state",
    "UPDATE docs SET state = state || '!'",
    "UPDATE pairs SET b = b + 100 WHERE b % 2 = 0",
    "UPDATE pairs SET price = 'NaN' WHERE b = 1",
    "DELETE FROM pairs WHERE b = 3",
    "UPDATE wholes SET gone = -1 WHERE id < 3",
    "ALTER TABLE wholes DROP COLUMN gone",
    "UPDATE wholes SET id = id + 10",
    "DELETE FROM wholes WHERE id = 15",
    "UPDATE uniques SET n = n * 2 WHERE code <> 'c1'",
    "UPDATE uniques SET code = 'moved' WHERE code = 'c2'",
    "DELETE FROM uniques WHERE code = 'c3'",
    "TRUNCATE pairs",
    "INSERT INTO pairs VALUES ('after', 1, 1.000), ('after', 2, null)",
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[LocalPostgres]:
    with LocalPostgres(16) as server:
        yield server


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("kafka",)) as running:
        yield running


class Reader:
    """Rows by topic and key; of late records the position decides, so partitions may come in any
    order."""

    def __init__(self, envelope: EnvelopeName) -> None:
        self._envelope = envelope
        self.rows: dict[str, dict[bytes, dict[str, Any]]] = {}

    def take(self, message: Message) -> None:
        told = {name: text.decode() for name, text in message.headers() or ()}
        place = (told["pgcdc-lsn"], int(told["pgcdc-seq"]))
        rows = self.rows.setdefault(str(message.topic()), {})
        key, content = message.key(), message.value()
        if content is None:
            assert key not in rows
            return
        operation, shown, missing = self._shown(json.loads(content))
        assert operation == told["pgcdc-operation"]
        if operation == "TRUNCATE":
            for each in [k for k, row in rows.items() if row["_place"] < place]:
                if rows[each]["_partition"] == message.partition():
                    del rows[each]
        elif operation == "DELETE":
            assert rows.pop(key)["_place"] < place
        else:
            before = rows.get(key, {})
            # What a snapshot reads is not what has changed since.
            assert before.get("_place", ("", 0)) < place
            kept = {name: before[name] for name in missing}
            rows[key] = {**shown, **kept, "_place": place, "_partition": message.partition()}

    def _shown(self, event: dict[str, Any]) -> tuple[str, dict[str, Any], list[str]]:
        match self._envelope:
            case "pgcdc":
                return event["op"], event["row"], event.get("_unchanged_toast_columns", [])
            case "flat":
                row = {name: each for name, each in event.items() if not name.startswith("__")}
                return event["__op"], row, event.get("__unchanged", [])
            case "debezium":
                names = {"c": "INSERT", "u": "UPDATE", "d": "DELETE", "t": "TRUNCATE"}
                operation = (names | {"r": "SNAPSHOT"})[event["op"]]
                row = event["after"] or {}
                missing = [k for k, v in row.items() if v == "__debezium_unavailable_value"]
                return operation, {k: v for k, v in row.items() if k not in missing}, missing

    def table(self, topic: str) -> list[dict[str, Any]]:
        return [
            {name: each for name, each in row.items() if not name.startswith("_")}
            for row in self.rows.get(topic, {}).values()
        ]


def read(broker: EphemeralBroker, envelope: EnvelopeName) -> Reader:
    """All committed records of the capture's tables, up to the last row that was inserted."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    topics = [f"{envelope}.{table}" for table in (*TABLES, "ends")]
    consumer.assign([TopicPartition(each, number, 0) for each in topics for number in range(3)])
    reader = Reader(envelope)
    deadline = time.monotonic() + WAIT_S
    waiting: list[Message] = []
    try:
        while not any(each.topic() == f"{envelope}.ends" for each in waiting):
            assert time.monotonic() < deadline, f"{len(waiting)} records, and not the last"
            waiting += [each for each in consumer.consume(1000, 0.1) if each.error() is None]
        # The last one is there: the others are all to be had at once.
        while more := consumer.consume(1000, 1.0):
            waiting += more
    finally:
        consumer.close()
    for message in waiting:
        reader.take(message)
    return reader


def stored(dsn: str, table: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"SELECT to_jsonb(t) FROM {table} t".encode()).fetchall()
    return [row for (row,) in found]


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """PostgreSQL's own JSON has numbers for `numeric`, which events have as strings."""
    numeric = ("price", "total")
    return sorted(
        (
            {k: v if k not in numeric or v is None else float(v) for k, v in row.items()}
            for row in rows
        ),
        key=lambda row: json.dumps(row, sort_keys=True),
    )


def test_tables_follow_from_topics(
    postgres: LocalPostgres, broker: EphemeralBroker, tmp_path: Path
) -> None:
    dsn = postgres.dsn()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_BEFORE)
        connection.execute("CREATE TABLE ends (id int PRIMARY KEY)")
        captures = [
            CaptureProcess(
                Definition(
                    name=envelope,
                    dsn=dsn,
                    tables=("public.*",),
                    envelope=envelope,
                    topics={"*": envelope + ".{table}"},
                    keys={"uniques": ("code",)},
                    partitions=3,
                    snapshot_rows=2,
                ),
                broker.bootstrap_servers,
                tmp_path / envelope,
            )
            for envelope in ENVELOPES
        ]
        for capture in captures:
            capture.start()
        try:
            for capture in captures:
                capture.until_state("streaming")
            for statement in _CHANGES:
                connection.execute(statement.encode())
            connection.execute("INSERT INTO ends VALUES (1)")
            for envelope in ENVELOPES:
                reader = read(broker, envelope)
                for table in TABLES:
                    found = comparable(reader.table(f"{envelope}.{table}"))
                    assert found == comparable(stored(dsn, table)), (envelope, table)
        finally:
            for capture in captures:
                capture.kill()
