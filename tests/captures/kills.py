"""Kills while rows change: of the capturing process, of PostgreSQL, of the broker.

A writer changes rows in transactions of all kinds and knows what each key has gone through: every
change counts its key's version up by one. Afterwards the records of each key, in their partition's
order, must be exactly these versions: a lost one leaves a gap, one written twice repeats, one out
of order steps back. Kills come by progress, as the log's end shows it, not by time.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Literal

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

from captures.process import WAIT_S, CaptureProcess
from demo.postgres import LocalPostgres
from dragoman.captures.definition import POSITIONS_TOPIC, Definition
from dragoman.testing import EphemeralBroker

Kind = Literal["capture", "postgres", "broker"]
KEYS = 40
NAME = "kills"
DEFINITION_FIELDS = {
    "tables": ("public.*",),
    "topics": {"*": "kills.{table}"},
    "snapshot": "never",
    "heartbeat_s": 0.2,
}
#: Small, so that transactions of some hundred rows are sent while they are under way.
SERVER = {"logical_decoding_work_mem": "64kB", "wal_level": "logical"}


class Writer:
    """Changes rows until stopped. `history` is what was committed, by key."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._dice = random.Random(seed)
        self.history: dict[int, list[tuple[str, int]]] = defaultdict(list)
        self.bulk: set[tuple[int, int]] = set()
        self._alive: set[int] = set()
        self.committed = 0
        self._number = 0
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None

    def prepare(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE counters (id int PRIMARY KEY, v int, filler text)")
            connection.execute("ALTER TABLE counters REPLICA IDENTITY FULL")
            connection.execute("CREATE TABLE bulk (txn int, n int, PRIMARY KEY (txn, n))")
            connection.execute("CREATE TABLE done (txn int PRIMARY KEY)")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                with suppress(psycopg.OperationalError):
                    self._write()
        except Exception as error:  # noqa: BLE001  # Raised again by `join`.
            self.error = error

    def _write(self) -> None:
        with psycopg.connect(self._dsn, connect_timeout=5) as connection:
            while not self._is_stopping.is_set():
                self._transaction(connection)

    def _transaction(self, connection: psycopg.Connection) -> None:
        self._number += 1
        number = self._number
        changes: list[tuple[int, str, int]] = []
        bulk: set[tuple[int, int]] = set()
        alive = set(self._alive)
        cursor = connection.cursor()
        try:
            for _ in range(self._dice.randrange(1, 8)):
                changes.append(self._change(cursor, alive, changes))
            if self._dice.random() < 0.1:
                bulk = self._bulk(cursor, number)
            cursor.execute("INSERT INTO done VALUES (%s)", (number,))
            if self._dice.random() < 0.1:
                connection.rollback()
                return
            connection.commit()
        except psycopg.OperationalError:
            if not self._is_committed(number):
                return
            self._take(changes, bulk, alive)
            raise
        self._take(changes, bulk, alive)

    def _change(
        self, cursor: psycopg.Cursor, alive: set[int], earlier: list[tuple[int, str, int]]
    ) -> tuple[int, str, int]:
        key = self._dice.randrange(KEYS)
        versions = [version for other, _, version in earlier if other == key]
        history = self.history[key]
        version = 1 + (versions[-1] if versions else history[-1][1] if history else 0)
        if key not in alive:
            alive.add(key)
            cursor.execute("INSERT INTO counters VALUES (%s, %s, 'x')", (key, version))
            return key, "INSERT", version
        if self._dice.random() < 0.2:
            # A delete shows the version before it.
            alive.discard(key)
            cursor.execute("DELETE FROM counters WHERE id = %s", (key,))
            return key, "DELETE", version - 1
        cursor.execute("UPDATE counters SET v = %s WHERE id = %s", (version, key))
        return key, "UPDATE", version

    def _bulk(self, cursor: psycopg.Cursor, number: int) -> set[tuple[int, int]]:
        """Large enough to be sent before its end, with a part that is rolled back."""
        insert = "INSERT INTO bulk SELECT %s, n FROM generate_series(%s::int, %s::int) n"
        cursor.execute(insert, (number, 1, 700))
        cursor.execute("SAVEPOINT part")
        cursor.execute(insert, (number, 1001, 1700))
        cursor.execute("ROLLBACK TO part")
        cursor.execute(insert, (number, 2001, 2100))
        return {(number, n) for n in (*range(1, 701), *range(2001, 2101))}

    def _is_committed(self, number: int) -> bool:
        """Asked once the server is there again."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                with psycopg.connect(self._dsn, connect_timeout=5) as connection:
                    found = connection.execute("SELECT 1 FROM done WHERE txn = %s", (number,))
                    return found.fetchone() is not None
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise

    def _take(
        self, changes: list[tuple[int, str, int]], bulk: set[tuple[int, int]], alive: set[int]
    ) -> None:
        for key, operation, version in changes:
            self.history[key].append((operation, version))
        self.bulk |= bulk
        self._alive = alive
        self.committed += 1


class Kills:
    """The whole scene. `round` kills a process; `check` compares."""

    def __init__(self, directory: Path, seed: int, release: int = 18) -> None:
        self._dice = random.Random(seed)
        self.postgres = LocalPostgres(release, SERVER).start()
        self.broker = EphemeralBroker(
            storage="directory", directory=str(directory / "broker"), listeners=("kafka",)
        ).start()
        self.writer = Writer(self.postgres.dsn(), seed)
        self.writer.prepare()
        definition = Definition(name=NAME, dsn=self.postgres.dsn(), **DEFINITION_FIELDS)  # type: ignore[arg-type]
        bootstrap = self.broker.bootstrap_servers
        self.capture = CaptureProcess(definition, bootstrap, directory / "spool").start()
        self.capture.until_state("streaming")
        self.writer.start()

    def close(self) -> None:
        self.capture.kill()
        with suppress(Exception):
            self.writer.stop()
        self.broker.stop()
        self.postgres.remove()

    def round(self, kind: Kind) -> None:
        self._progress(self._dice.randrange(1, 60))
        match kind:
            case "capture":
                self.capture.kill()
                self.capture.start()
            case "postgres":
                self.postgres.kill()
                self.postgres.start()
            case "broker":
                self.broker.kill()
                self.broker.start()

    def _progress(self, records: int) -> None:
        """Wait until so many records more are in the topic of positions."""
        consumer = self._consumer()
        try:
            start = self._end(consumer)
            deadline = time.monotonic() + WAIT_S
            while self._end(consumer) < start + records:
                assert time.monotonic() < deadline, f"nothing moves: {self.capture.status}"
        finally:
            consumer.close()

    def _end(self, consumer: Consumer) -> int:
        ends = 0
        for partition in range(8):
            with suppress(KafkaException):
                where = TopicPartition(POSITIONS_TOPIC, partition)
                ends += consumer.get_watermark_offsets(where, timeout=WAIT_S)[1]
        return ends

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": "none",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

    def check(self) -> None:
        """Everything has arrived, and nothing else has."""
        self.writer.stop()
        assert self.writer.committed > 20
        with psycopg.connect(self.postgres.dsn()) as connection:
            row = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        assert row is not None
        end = int(row[0])
        self.capture.until(lambda it: it.status is not None and _lsn(it.status.lsn) >= end)
        assert self.capture.stop() == 0
        self._check_counters()
        bulk = [(row["txn"], row["n"]) for _, _, row in self._read("kills.bulk") if row is not None]
        assert sorted(bulk) == sorted(self.writer.bulk)
        assert len(self._read("kills.done")) == self.writer.committed

    def _check_counters(self) -> None:
        found: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for key, operation, row in self._read("kills.counters"):
            if row is not None:
                found[int(key)].append((operation, int(str(row["v"]))))
        assert found == {key: each for key, each in self.writer.history.items() if each}

    def _read(self, topic: str) -> list[tuple[bytes, str, dict[str, object] | None]]:
        """Key, operation and row of every record, in the order of each partition."""
        consumer = self._consumer()
        partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        left = set(partitions)
        found = []
        deadline = time.monotonic() + WAIT_S
        while left:
            assert time.monotonic() < deadline, f"{topic}: nothing comes from {left}"
            for message in consumer.consume(10_000, 0.1):
                deadline = time.monotonic() + WAIT_S
                if message.error() is not None:
                    left.discard(message.partition())
                    continue
                value = message.value()
                headers = dict(message.headers() or ())
                row = None if value is None else json.loads(value)["row"]
                found.append((message.key(), headers["pgcdc-operation"].decode(), row))
        consumer.close()
        return found


def _lsn(text: str) -> int:
    high, _, low = (text or "0/0").partition("/")
    return int(high, 16) << 32 | int(low, 16)
