"""Producing in batches of about 1 MB: a stock client (librdkafka) and a raw sender.

librdkafka shows what users get; the raw sender, whose batches are made beforehand, shows what the
broker could take. Bounds: the same bytes written synchronously to the disk, and copied in memory.
"""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer
from harness.bounds import DsyncFile, memory_copy
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.sampling import Sample, Stopwatch, interleaved
from harness.wire import (
    Pipeline,
    batch_of,
    check_produce_replies,
    create_topics,
    produce_frame,
    produce_reply_bytes,
)

_BATCH_BYTES = 1_000_000
_SIZES = {100: "100 B", 1024: "1 KiB"}
#: Bytes that a record needs in a batch beside its value, and those of a batch beside its records.
_RECORD_OVERHEAD_BYTES = 12
_SECONDS_MAX = 20.0
_IN_FLIGHT = 4


def run(context: Context) -> None:
    for durability in ("os", "fsync"):
        for value_bytes in _SIZES:
            settle_disk()
            _librdkafka(context, durability, value_bytes)
            settle_disk()
            _raw(context, durability, value_bytes)


def _librdkafka(context: Context, durability: str, value_bytes: int) -> None:
    payload = context.scaled(256_000_000, 24_000_000) // (4 if value_bytes < 1000 else 1)
    count = payload // value_bytes
    disk = DsyncFile(context.directory("dsync"))
    with context.broker(durability=durability) as broker:
        create_topics(broker.address, ["batches"], 1)
        producer = _producer(broker)
        samples = interleaved(
            {
                "dragoman": partial(_send_all, broker, producer, value_bytes, count),
                "dsync write": lambda: _rescaled(
                    disk.write(_BATCH_BYTES, payload // _BATCH_BYTES, _SECONDS_MAX), value_bytes
                ),
                "memory copy": lambda: _rescaled(
                    memory_copy(_BATCH_BYTES, payload // _BATCH_BYTES), value_bytes
                ),
            },
            context.rounds,
        )
        memory = memory_metrics(broker)
    disk.close()
    context.add_contest(f"librdkafka {_SIZES[value_bytes]} {durability}", samples, memory)


def _rescaled(sample: Sample, value_bytes: int) -> Sample:
    """The same bytes counted as messages of that size, so that rates compare."""
    return Sample(
        seconds=sample.seconds,
        messages=sample.payload_bytes // value_bytes,
        payload_bytes=sample.payload_bytes,
        client_cpu_s=sample.client_cpu_s,
    )


def _producer(broker: BrokerProcess) -> Producer:
    host, port = broker.address
    return Producer(
        {
            "bootstrap.servers": f"{host}:{port}",
            "acks": "all",
            "linger.ms": 100,
            "batch.size": _BATCH_BYTES,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 64 << 10,
            "message.timeout.ms": 60_000,
            # The broker goes before the client does; its complaints would hide the tables.
            "log_level": 0,
        }
    )


def _send_all(broker: BrokerProcess, producer: Producer, value_bytes: int, count: int) -> Sample:
    value = b"v" * value_bytes
    failures: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    deadline = time.perf_counter() + _SECONDS_MAX
    watch = Stopwatch(broker.cpu_seconds)
    sent = 0
    while sent < count and time.perf_counter() < deadline:
        for _ in range(min(1000, count - sent)):
            # Only the last is asked about: a call back per message would measure Python.
            is_last = sent == count - 1
            while True:
                try:
                    if is_last:
                        producer.produce("batches", value, partition=0, on_delivery=delivered)
                    else:
                        producer.produce("batches", value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
            sent += 1
        producer.poll(0)
    if producer.flush(60) or failures:
        raise BenchmarkError(f"librdkafka could not deliver: {failures[:1] or 'time is over'}")
    return watch.sample(sent, sent * value_bytes)


def _raw(context: Context, durability: str, value_bytes: int) -> None:
    records = _BATCH_BYTES // (value_bytes + _RECORD_OVERHEAD_BYTES)
    batch = batch_of(records, value_bytes)
    payload = records * value_bytes
    batches = context.scaled(500_000_000, 40_000_000) // payload
    disk = DsyncFile(context.directory("dsync"))
    with context.broker(durability=durability) as broker:
        create_topics(broker.address, ["raw"], 1)
        frame = produce_frame("raw", [0], batch)
        pipeline = Pipeline(broker.address, [frame], produce_reply_bytes("raw"))
        pipeline.open(1, _IN_FLIGHT)

        def produce() -> Sample:
            watch = Stopwatch(broker.cpu_seconds)
            done, latencies = pipeline.run(batches, _SECONDS_MAX)
            sample = watch.sample(done * records, done * payload, latencies)
            check_produce_replies(pipeline.take_replies(), "raw")
            return sample

        samples = interleaved(
            {
                "dragoman": produce,
                "dsync write": lambda: _rescaled(
                    disk.write(len(batch), batches, _SECONDS_MAX), value_bytes
                ),
                "memory copy": lambda: _rescaled(memory_copy(len(batch), batches), value_bytes),
            },
            context.rounds,
        )
        memory = memory_metrics(broker)
        pipeline.close()
    disk.close()
    context.add_contest(f"raw {_SIZES[value_bytes]} {durability}", samples, memory)
