"""A consumer at the head of a topic: how long from producing to having it, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from harness import loads
from harness.broker import BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.loads import Load
from harness.sampling import Latency, Sample, Stopwatch, interleaved
from harness.wire import (
    FetchReader,
    Pipeline,
    batch_of,
    check_produce_replies,
    connect,
    create_topics,
    produce_frame,
    produce_reply_bytes,
)

from dragoman.limits import TAIL_BYTES_MAX
from scenarios.catch_up_fetch import fill

_VALUE_BYTES = 100
_BATCH_RECORDS, _BATCH_VALUE_BYTES = 15, 1024
_SECONDS_MAX = 10.0


def run(context: Context) -> None:
    for durability in ("fsync", "os"):
        settle_disk()
        with context.broker(durability=durability) as broker:
            create_topics(broker.address, ["one"], 1)
            topics = (f"flow-{number}" for number in range(context.rounds))
            batches = context.scaled(8_000, 1_000)
            samples = interleaved(
                {
                    "latency": _Latency(broker, context.scaled(2000, 200)).run,
                    "flow": partial(_next_flow, broker, batches, topics),
                },
                context.rounds,
            )
            memory = memory_metrics(broker)
        context.add_contest(
            f"one record, produced to consumed, {durability}",
            {"dragoman": samples["latency"]},
            memory,
        )
        context.add_contest(
            f"16 KB batches produced and followed, {durability}",
            {"dragoman": samples["flow"]},
            memory,
        )
    _reads(context)


def _reads(context: Context) -> None:
    """What only just was written, read again and again: what goes out costs this much."""
    batch = batch_of(_BATCH_RECORDS, _BATCH_VALUE_BYTES)
    batches = TAIL_BYTES_MAX * 3 // 4 // len(batch)
    with context.broker(durability="os") as broker:
        create_topics(broker.address, ["tail"], 1)
        fill(broker.address, "tail", batch, batches)
        read = partial(_read_over, broker, batch, batches, context.scaled(40, 5))
        samples = {"dragoman": [read() for _ in range(context.rounds)]}
        context.add_contest("16 KB batches read from the tail", samples, memory_metrics(broker))


def _read_over(broker: BrokerProcess, batch: bytes, batches: int, times: int) -> Sample:
    reader = FetchReader(
        broker.address,
        "tail",
        batch_bytes=len(batch),
        batch_records=_BATCH_RECORDS,
        bytes_max=1 << 20,
    )
    watch = Stopwatch(broker.cpu_seconds)
    for _ in range(times):
        reader.offset = 0
        while reader.offset < batches * _BATCH_RECORDS:
            reader.fetch()
    reader.close()
    records = times * batches * _BATCH_RECORDS
    return watch.sample(records, records * _BATCH_VALUE_BYTES)


class _Latency:
    """Produce one record, wait until the parked consumer has it, then the next."""

    def __init__(self, broker: BrokerProcess, count: int) -> None:
        self._broker = broker
        self._count = count
        self._batch = batch_of(1, _VALUE_BYTES)
        self._offset = 0

    def run(self) -> Sample:
        frame = produce_frame("one", [0], self._batch)
        reply_bytes = produce_reply_bytes("one")
        latencies: list[Latency] = []
        with ExitStack() as stack:
            producer = stack.enter_context(connect(self._broker.address))
            reader = FetchReader(
                self._broker.address,
                "one",
                batch_bytes=len(self._batch),
                batch_records=1,
                bytes_max=1 << 16,
                wait_ms=5000,
                offset=self._offset,
            )
            stack.callback(reader.close)
            watch = Stopwatch(self._broker.cpu_seconds)
            deadline = time.perf_counter() + _SECONDS_MAX
            for _ in range(self._count):
                reader.ask()
                started = time.perf_counter()
                producer.sendall(frame)
                reader.answer()
                ended = time.perf_counter()
                latencies.append(Latency(ended - started))
                reply = producer.recv(reply_bytes)
                check_produce_replies(reply, "one")
                if ended > deadline:
                    break
            self._offset = reader.offset
            done = len(latencies)
            return watch.sample(done, done * _VALUE_BYTES, latencies)


def _next_flow(broker: BrokerProcess, batches: int, topics: Iterator[str]) -> Sample:
    return _flow(broker, batches, next(topics))


def _flow(broker: BrokerProcess, batches: int, topic: str) -> Sample:
    """Produce as fast as the broker takes it while a consumer follows; CPU covers both ways.

    The time ends when the follower has everything.
    """
    batch = batch_of(_BATCH_RECORDS, _BATCH_VALUE_BYTES)
    create_topics(broker.address, [topic], 1)
    pipeline = Pipeline(
        broker.address, [produce_frame(topic, [0], batch)], produce_reply_bytes(topic)
    )
    pipeline.open(1, 16)
    pipeline.run(1, _SECONDS_MAX)
    with Load(loads.follow, broker.address, topic, len(batch), _BATCH_RECORDS) as follower:
        watch = Stopwatch(broker.cpu_seconds)
        done, latencies = pipeline.run(batches, _SECONDS_MAX)
        follower.wait_for((done + 1) * len(batch), _SECONDS_MAX)
        payload = done * _BATCH_RECORDS * _BATCH_VALUE_BYTES
        sample = watch.sample(done * _BATCH_RECORDS, payload, latencies)
    check_produce_replies(pipeline.take_replies(), topic)
    pipeline.close()
    return sample
