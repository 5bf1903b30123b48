"""Rows of PostgreSQL that become records: how many per second, at what cost, and how late.

A capture is held up while rows are inserted, a hundred to a transaction, and then has them all to
take; the bound is PostgreSQL's own `pg_recvlogical`, which writes the same messages to a file that
keeps nothing. Time runs until a reader of committed records has seen the last row. CPU is that of
the capturing process. Then rows are inserted one by one at a steady pace, and each says itself when
that was, shortly before its commit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg
from confluent_kafka import Consumer, TopicPartition
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, settle_disk
from harness.processes import cpu_seconds, memory_kb
from harness.sampling import Latency, Sample, Stopwatch, interleaved, summary

from dragoman.captures.definition import Definition
from dragoman.client.kafka import FetchFrom, Isolation, KafkaClient
from dragoman.client.kafka import TopicPartition as Where
from dragoman.log.batch import batches

sys.path.append(str(Path(__file__).parents[3] / "examples"))
from captures.process import CaptureProcess
from demo.postgres import LocalPostgres

_TOPIC = "pgcdc.rows"
_PARTITIONS = 8
_PER_TRANSACTION = 100
_SECONDS_MAX = 600.0
_RATE = 1000
_TABLE = """CREATE TABLE rows (id bigint PRIMARY KEY, number int, amount numeric, name text,
 digest text, at timestamptz, is_odd bool, place text, code uuid, sent bigint)"""
_INSERT = """INSERT INTO rows SELECT n, n %% 7, n * 1.5, 'name ' || n, md5(n::text), now(),
 n %% 2 = 1, 'somewhere', gen_random_uuid(), 0 FROM generate_series(%s::bigint, %s::bigint) n"""


class _Row(msgspec.Struct):
    row: dict[str, object]


def run(context: Context) -> None:
    counts = context.scaled((10_000, 100_000, 1_000_000), (2_000, 10_000, 30_000))
    with (
        # It must not give up a capture that is held up for long.
        LocalPostgres(settings={"wal_sender_timeout": "0"}) as postgres,
        context.broker() as broker,
        _capturing(context, postgres, broker) as scene,
    ):
        costs = {count: _contest(context, scene, count) for count in counts}
        few, *_, many = costs
        context.add(f"{many} rows against {few}", {"ratio_cpu": costs[many] / costs[few]})
        _lateness(context, scene, context.scaled(10.0, 2.0))


class _Scene:
    def __init__(
        self,
        postgres: LocalPostgres,
        broker: BrokerProcess,
        capture: CaptureProcess,
        connection: psycopg.Connection,
    ) -> None:
        self.postgres = postgres
        self.bootstrap = f"{broker.address[0]}:{broker.address[1]}"
        self.broker = broker
        self.capture = capture
        self.connection = connection
        self.rows = 0
        self._seen = {Where(_TOPIC, index): 0 for index in range(_PARTITIONS)}

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.capture.pid)

    def insert(self, count: int) -> str:
        """Where the database's log ends then."""
        for first in range(self.rows + 1, self.rows + count + 1, _PER_TRANSACTION):
            last = min(first + _PER_TRANSACTION - 1, self.rows + count)
            self.connection.execute(_INSERT, (first, last))
        self.rows += count
        row = self.connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        return str(row[0])

    def wait_for(self, count: int) -> None:
        """Until a reader of committed records has seen so many more."""
        asyncio.run(self._wait_for(count))

    async def _wait_for(self, count: int) -> None:
        deadline = time.monotonic() + _SECONDS_MAX
        async with KafkaClient(self.bootstrap) as client:
            while count > 0:
                fetched = await client.fetch(
                    {where: FetchFrom(offset) for where, offset in self._seen.items()},
                    isolation=Isolation.READ_COMMITTED,
                )
                for where, each in fetched.items():
                    for header, _ in batches(each.records):
                        self._seen[where] = header.last_offset + 1
                        count -= 0 if header.is_control else header.record_count
                if time.monotonic() > deadline:
                    raise BenchmarkError(f"{count} rows have not arrived")


@contextmanager
def _capturing(
    context: Context, postgres: LocalPostgres, broker: BrokerProcess
) -> Iterator[_Scene]:
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(_TABLE)
        definition = Definition(
            name="bench", dsn=postgres.dsn(), tables=("rows",), snapshot="never"
        )
        bootstrap = f"{broker.address[0]}:{broker.address[1]}"
        with CaptureProcess(definition, bootstrap, context.directory("spool")) as capture:
            capture.until_state("streaming")
            scene = _Scene(postgres, broker, capture, connection)
            connection.execute("SELECT pg_create_logical_replication_slot('bound', 'pgoutput')")
            # Makes the topic.
            scene.insert(1)
            capture.until(lambda it: it.status is not None and it.status.rows == 1)
            scene.wait_for(1)
            yield scene
            if capture.stop():
                raise BenchmarkError("the capture did not end well")


def _contest(context: Context, scene: _Scene, count: int) -> float:
    """CPU of the capturing process for a row, in µs."""
    settle_disk()
    end = ""

    def capture() -> Sample:
        nonlocal end
        os.kill(scene.capture.pid, signal.SIGSTOP)
        end = scene.insert(count)
        watch = Stopwatch(scene.cpu_seconds)
        os.kill(scene.capture.pid, signal.SIGCONT)
        scene.wait_for(count)
        return watch.sample(count, 0)

    def bound() -> Sample:
        watch = Stopwatch()
        _receive(scene.postgres, end)
        return watch.sample(count, 0)

    rounds = context.rounds if count < 1_000_000 else 1
    samples = interleaved({"captured": capture, "pg_recvlogical": bound}, rounds)
    memory = {"resident_peak_mb": memory_kb(scene.capture.pid, "VmHWM") / 1024}
    context.add_contest(f"{count} rows", samples, memory)
    return summary(samples["captured"])["server_cpu_s_per_million"]


def _receive(postgres: LocalPostgres, end: str) -> None:
    """PostgreSQL's own client takes the same messages, and drops them."""
    options = {"proto_version": "4", "publication_names": "dragoman_bench", "messages": "true"}
    done = subprocess.run(
        [
            postgres.program("pg_recvlogical"),
            "--start",
            "--slot=bound",
            "--dbname=postgres",
            f"--endpos={end}",
            "--file=/dev/null",
            "--fsync-interval=0",
            *(f"--option={name}={value}" for name, value in options.items()),
        ],
        env=postgres.environment,
        capture_output=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    if done.returncode:
        raise BenchmarkError(f"pg_recvlogical: {done.stderr.decode()[-500:]}")


def _lateness(context: Context, scene: _Scene, seconds: float) -> None:
    settle_disk()
    count = int(_RATE * seconds)
    latencies: list[Latency] = []
    consumer = _consumer_at_the_end(scene)
    reading = threading.Thread(target=_read, args=(consumer, count, latencies), daemon=True)
    reading.start()
    watch = Stopwatch(scene.cpu_seconds)
    broker_cpu = scene.broker.cpu_seconds()
    started = time.perf_counter()
    insert = "INSERT INTO rows (id, name, sent) VALUES (%s, 'one of many', %s)"
    for index in range(count):
        pause = started + index / _RATE - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        scene.connection.execute(insert, (scene.rows + index + 1, time.time_ns()))
    reading.join(_SECONDS_MAX)
    if len(latencies) < count:
        raise BenchmarkError(f"{len(latencies)} of {count} rows have arrived")
    sample = watch.sample(count, 0, latencies)
    broker_us = (scene.broker.cpu_seconds() - broker_cpu) / count * 1e6
    context.add(
        f"{_RATE} rows/s, each its own transaction",
        summary([sample]) | {"broker_cpu_us_per_row": broker_us},
    )


def _consumer_at_the_end(scene: _Scene) -> Consumer:
    """It sees whatever is committed from here on."""
    consumer = Consumer(
        {
            "bootstrap.servers": scene.bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    wheres = [TopicPartition(_TOPIC, index) for index in range(_PARTITIONS)]
    for where in wheres:
        where.offset = consumer.get_watermark_offsets(where)[1]
    consumer.assign(wheres)
    return consumer


def _read(consumer: Consumer, count: int, latencies: list[Latency]) -> None:
    decode = msgspec.json.Decoder(_Row).decode
    deadline = time.monotonic() + _SECONDS_MAX
    while len(latencies) < count and time.monotonic() < deadline:
        # One at a time: a call for many would wait for them all.
        message = consumer.poll(0.05)
        if message is not None:
            now = time.time_ns()
            sent = decode(message.value() or b"").row["sent"]
            assert isinstance(sent, int)
            latencies.append(Latency((now - sent) / 1e9))
    consumer.close()
