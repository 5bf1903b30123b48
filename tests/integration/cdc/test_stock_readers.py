"""Goal: captured changes are read by the stock clients, which share one group, unchanged.

Method: three clients that others wrote join the same group; when each has its partitions, rows
change. Every event comes to one of them, in order for its key.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import aiokafka
import confluent_kafka
import psycopg
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from confluent_kafka.admin import AdminClient

from captures.process import CaptureProcess
from demo.postgres import LocalPostgres
from dragoman.captures.definition import Definition
from dragoman.testing import EphemeralBroker

with warnings.catch_warnings():
    # How it reads files of its own is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor

TOPIC, GROUP = "pgcdc.fruit", "readers"
KEYS, VERSIONS = 60, 3
WAIT_S = 60.0


class Read(NamedTuple):
    key: bytes
    value: bytes


class Member(ABC):
    """Reads on a thread of its own until stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.read: list[Read] = []
        self.assigned: set[int] = set()
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()

    @abstractmethod
    def run(self) -> None: ...

    def end(self) -> None:
        self.is_over.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


class Confluent(Member):
    def run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "range",
            }
        )
        consumer.subscribe([TOPIC])
        while not self.is_over.is_set():
            for each in consumer.consume(500, 0.1):
                if each.error() is None:
                    self.read.append(Read(each.key(), each.value()))
            self.assigned = {each.partition for each in consumer.assignment()}
        consumer.close()


class KafkaPython(Member):
    def run(self) -> None:
        consumer = kafka.KafkaConsumer(
            TOPIC,
            bootstrap_servers=self.bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        while not self.is_over.is_set():
            for records in consumer.poll(timeout_ms=100).values():
                self.read += [Read(each.key, each.value) for each in records]
            self.assigned = {each.partition for each in consumer.assignment()}
        consumer.close()


class Aiokafka(Member):
    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=self.bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            partition_assignment_strategy=[AioRange],
        )
        await consumer.start()
        while not self.is_over.is_set():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                self.read += [Read(each.key, each.value) for each in records]
            self.assigned = {each.partition for each in consumer.assignment()}
        await consumer.stop()


def wait(is_it: Callable[[], bool], members: Iterable[Member]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_it():
        seen = [(type(each).__name__, sorted(each.assigned), len(each.read)) for each in members]
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)


def test_three_stock_clients_share_the_changes_of_a_table(tmp_path: Path) -> None:
    with (
        LocalPostgres() as database,
        EphemeralBroker() as broker,
        psycopg.connect(database.dsn(), autocommit=True) as connection,
    ):
        connection.execute("create table fruit (id int primary key, count int)")
        connection.execute("insert into fruit values (0, 0)")
        definition = Definition(name="fruit", dsn=database.dsn(), tables=("fruit",))
        with CaptureProcess(definition, broker.bootstrap_servers, tmp_path / "spool"):
            # A request for a missing topic creates it, with defaults.
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            wait(lambda: TOPIC in admin.list_topics(timeout=WAIT_S).topics, ())
            members: list[Member] = [
                Confluent(broker.bootstrap_servers),
                KafkaPython(broker.bootstrap_servers),
                Aiokafka(broker.bootstrap_servers),
            ]
            wait(
                lambda: (
                    all(each.assigned for each in members)
                    and sorted(n for each in members for n in each.assigned) == list(range(8))
                ),
                members,
            )
            connection.execute(f"insert into fruit select n, 1 from generate_series(1, {KEYS}) n")
            for _ in range(VERSIONS - 1):
                connection.execute("update fruit set count = count + 1 where id > 0")
            wanted = KEYS * VERSIONS + 1
            wait(lambda: sum(len(each.read) for each in members) >= wanted, members)
            for each in members:
                each.end()
    counts: dict[bytes, list[int]] = {}
    for each in members:
        assert each.read, f"{type(each).__name__} has read nothing"
        for key, value in each.read:
            counts.setdefault(key, []).append(json.loads(value)["row"]["count"])
    assert counts.pop(b"0") == [0]
    expected = {str(n).encode(): list(range(1, VERSIONS + 1)) for n in range(1, KEYS + 1)}
    assert counts == expected
