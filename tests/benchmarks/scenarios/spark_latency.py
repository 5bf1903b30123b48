"""From a record's production to its arrival in the topic that a streaming query writes.

The query copies one topic to another, trigger after trigger. Beside it stands what a trigger of
Spark's own rate source takes that writes nowhere, with the same checkpoint files: the floor. A
record waits for the trigger that is running, then for its own.
"""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context
from harness.sampling import Latency, percentile
from harness.spark import end_job, started_job
from harness.wire import create_topics

_PAUSE_S = 0.02
_TIME = struct.Struct(">d")
_SECONDS_MAX = 180.0


def run(context: Context) -> None:
    directory = context.directory("checkpoints")
    directory.mkdir()
    seconds = context.scaled(60.0, 10.0)
    with context.broker(durability="fsync") as broker:
        create_topics(broker.address, ["in", "out"], 1)
        given = {
            "servers": broker.bootstrap_servers,
            "input": "in",
            "output": "out",
            "checkpoint": str(directory / "stream"),
            "stop": str(directory / "stop"),
        }
        with started_job("stream", given) as process:
            waits = list(_waits(broker, seconds))
            found = end_job(process, directory / "stop")
    latencies = [Latency(wait) for wait in waits]
    metrics = {
        "p50_ms": percentile(latencies, 0.5) * 1e3,
        "p99_ms": percentile(latencies, 0.99) * 1e3,
        "max_ms": percentile(latencies, 1.0) * 1e3,
        "records": float(len(latencies)),
    }
    context.add("topic to topic, produced to visible", metrics | found["topic to topic"])
    given = {"checkpoint": str(directory / "rate"), "stop": str(directory / "stop rate")}
    with started_job("rate", given) as process:
        time.sleep(context.scaled(45.0, 25.0))
        floor = end_job(process, Path(given["stop"]))
    context.add("rate source to nowhere, a trigger", floor["rate to nowhere"])
    shutil.rmtree(directory, ignore_errors=True)


def _waits(broker: BrokerProcess, seconds: float) -> Iterator[float]:
    """Seconds that records took, one every few milliseconds, once the query is warm."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "watch",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition("out", 0, 0)])
    try:
        _warm_up(producer, consumer)
        end = time.perf_counter() + seconds
        due = 0.0
        while (now := time.perf_counter()) < end:
            if now >= due:
                producer.produce("in", _TIME.pack(now))
                due = now + _PAUSE_S
            producer.poll(0)
            message = consumer.poll(0.001)
            if message is not None and message.error() is None:
                (sent,) = _TIME.unpack(message.value())
                yield time.perf_counter() - sent
    finally:
        consumer.close()


def _warm_up(producer: Producer, consumer: Consumer) -> None:
    """Until a number of records has come through, the last of them alone."""
    deadline = time.perf_counter() + _SECONDS_MAX
    for _ in range(10):
        producer.produce("in", _TIME.pack(0))
        producer.flush(30)
        while (message := consumer.poll(1)) is None or message.error() is not None:
            if time.perf_counter() > deadline:
                raise BenchmarkError("nothing came through the query")
