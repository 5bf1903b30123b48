"""Whether an append and a fetch cost the same with few and with many segments or partitions.

Both sides take turns, one request at a time; the ratio of the median times is what counts. Run with
`durability=os`, because a synchronous write would hide the cost of everything else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

from harness.broker import BrokerProcess
from harness.context import Context
from harness.sampling import Latency, Sample, Stopwatch, interleaved, summary
from harness.wire import (
    FetchReader,
    Pipeline,
    batch_of,
    check_produce_replies,
    create_topics,
    produce_frame,
    produce_reply_bytes,
)

from scenarios.catch_up_fetch import fill

_SEGMENT_BYTES = 256 << 10
_BATCH_RECORDS = 15
_BATCHES_PER_SEGMENT = 16
_SECONDS_MAX = 10.0
_FEW, _MANY_SEGMENTS, _MANY_PARTITIONS = 10, 1000, 10_000


def run(context: Context) -> None:
    _segments(context)
    _partitions(context)


def _segments(context: Context) -> None:
    """Two topics in one broker, one with few segments and one with many."""
    batch = batch_of(_BATCH_RECORDS, 1024)
    count = context.scaled(1000, 300)
    config = {"segment.bytes": str(_SEGMENT_BYTES)}
    with context.broker(durability="os") as broker, ExitStack() as stack:
        appends: dict[str, Callable[[], Sample]] = {}
        fetches: dict[str, Callable[[], Sample]] = {}
        for segments in (_FEW, _MANY_SEGMENTS):
            topic = f"segments-{segments:05d}"
            create_topics(broker.address, [topic], 1, config)
            fill(broker.address, topic, batch, segments * _BATCHES_PER_SEGMENT)
            name = str(segments)
            end = segments * _BATCHES_PER_SEGMENT * _BATCH_RECORDS
            appends[name] = _appender(stack, broker, topic, [0], count)
            fetches[name] = _fetcher(stack, broker, topic, batch, end, count)
        # Fetches first: the appends have another size, and offsets must stay at whole batches.
        fetched = interleaved(fetches, context.rounds)
        appended = interleaved(appends, context.rounds)
    _report(context, "append", f"{_MANY_SEGMENTS} segments", appended)
    _report(context, "fetch", f"{_MANY_SEGMENTS} segments", fetched)


def _partitions(context: Context) -> None:
    """Two brokers, one with few partitions and one with many; the same requests to both."""
    batch = batch_of(_BATCH_RECORDS, 1024)
    count = context.scaled(2000, 300)
    with ExitStack() as stack:
        appends: dict[str, Callable[[], Sample]] = {}
        fetches: dict[str, Callable[[], Sample]] = {}
        for partitions in (_FEW, _MANY_PARTITIONS):
            broker = stack.enter_context(context.broker(durability="os"))
            create_topics(broker.address, ["wide"], partitions)
            create_topics(broker.address, ["read"], 1)
            fill(broker.address, "read", batch, 200)
            name = str(partitions)
            appends[name] = _appender(stack, broker, "wide", range(_FEW), count)
            fetches[name] = _fetcher(stack, broker, "read", batch, 200 * _BATCH_RECORDS, count)
        fetched = interleaved(fetches, context.rounds)
        appended = interleaved(appends, context.rounds)
        # Every append to another of the many: reported, but no promise is made about it.
        spread = _appender(stack, broker, "wide", range(_MANY_PARTITIONS), count)
        context.add(
            f"append, each to another of {_MANY_PARTITIONS} partitions",
            summary([spread() for _ in range(context.rounds)]),
        )
    _report(context, "append", f"{_MANY_PARTITIONS} partitions", appended)
    _report(context, "fetch", f"{_MANY_PARTITIONS} partitions", fetched)


def _appender(
    stack: ExitStack, broker: BrokerProcess, topic: str, partitions: range | list[int], count: int
) -> Callable[[], Sample]:
    batch = batch_of(1, 100)
    frames = [produce_frame(topic, [index], batch) for index in partitions]
    pipeline = Pipeline(broker.address, frames, produce_reply_bytes(topic))
    pipeline.open(1, 1)
    stack.callback(pipeline.close)

    def append() -> Sample:
        watch = Stopwatch(broker.cpu_seconds)
        done, latencies = pipeline.run(count, _SECONDS_MAX)
        sample = watch.sample(done, done * 100, latencies)
        check_produce_replies(pipeline.take_replies(), topic)
        return sample

    return append


def _fetcher(
    stack: ExitStack, broker: BrokerProcess, topic: str, batch: bytes, end: int, count: int
) -> Callable[[], Sample]:
    """One batch at a time from places all over the log, the same places in every run."""
    reader = FetchReader(
        broker.address, topic, batch_bytes=len(batch), batch_records=_BATCH_RECORDS, bytes_max=1
    )
    stack.callback(reader.close)
    choice = random.Random(7)
    batches = end // _BATCH_RECORDS

    def fetch() -> Sample:
        places = [choice.randrange(batches) * _BATCH_RECORDS for _ in range(count)]
        latencies: list[Latency] = []
        watch = Stopwatch(broker.cpu_seconds)
        deadline = time.perf_counter() + _SECONDS_MAX
        for place in places:
            reader.offset = place
            started = time.perf_counter()
            reader.fetch()
            ended = time.perf_counter()
            latencies.append(Latency(ended - started))
            if ended > deadline:
                break
        return watch.sample(len(latencies), len(latencies) * len(batch), latencies)

    return fetch


def _report(context: Context, what: str, more: str, samples: dict[str, list[Sample]]) -> None:
    few, many = (summary(each) for each in samples.values())
    few_rows, many_rows = samples.values()
    cpu = [
        (theirs.server_cpu_s or 0.0)
        / theirs.messages
        / ((ours.server_cpu_s or 1.0) / ours.messages)
        for ours, theirs in zip(few_rows, many_rows, strict=True)
    ]
    context.add(
        f"{what}, {more} against {_FEW}",
        {
            "ratio_p50": many["p50_ms"] / few["p50_ms"],
            "ratio_cpu": median(cpu),
            "few_p50_us": few["p50_ms"] * 1e3,
            "many_p50_us": many["p50_ms"] * 1e3,
            "few_cpu_us": few["server_cpu_s_per_million"],
            "many_cpu_us": many["server_cpu_s_per_million"],
            "few_p99_us": few["p99_ms"] * 1e3,
            "many_p99_us": many["p99_ms"] * 1e3,
        },
    )
