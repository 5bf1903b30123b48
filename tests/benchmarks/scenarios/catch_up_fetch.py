"""Reading a long topic from its start into a client that throws the records away.

The data is in the page cache, as it is for a consumer that is minutes behind.
"""

from __future__ import annotations

import time

from harness.bounds import memory_copy
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.sampling import Latency, Sample, Stopwatch, interleaved
from harness.wire import (
    Address,
    FetchReader,
    Pipeline,
    batch_of,
    check_produce_replies,
    create_topics,
    produce_frame,
    produce_reply_bytes,
)

_VALUE_BYTES = 1024
_RECORDS = {"1 MB": 940, "16 KB": 15}
_SECONDS_MAX = 20.0


def run(context: Context) -> None:
    payload = context.scaled(400_000_000, 60_000_000)
    with context.broker(durability="os") as broker:
        for label, records in _RECORDS.items():
            topic = f"old-{records}"
            batch = batch_of(records, _VALUE_BYTES)
            batches = payload // len(batch)
            create_topics(broker.address, [topic], 1)
            fill(broker.address, topic, batch, batches)
            settle_disk()

            def read(
                topic: str = topic,
                batch: bytes = batch,
                records: int = records,
                batches: int = batches,
            ) -> Sample:
                return _read_all(broker, topic, batch, records, batches)

            def copy(
                batch: bytes = batch, records: int = records, batches: int = batches
            ) -> Sample:
                done = memory_copy(len(batch), batches)
                return Sample(
                    seconds=done.seconds,
                    messages=batches * records,
                    payload_bytes=done.payload_bytes,
                )

            samples = interleaved({"dragoman": read, "memory copy": copy}, context.rounds)
            context.add_contest(f"{label} batches", samples, memory_metrics(broker))


def fill(
    address: Address, topic: str, batch: bytes, batches: int, seconds_max: float = 120
) -> None:
    """Write that many batches to partition 0."""
    pipeline = Pipeline(address, [produce_frame(topic, [0], batch)], produce_reply_bytes(topic))
    pipeline.open(1, 4 if len(batch) > 1 << 16 else 32)
    done, _ = pipeline.run(batches, seconds_max)
    check_produce_replies(pipeline.take_replies(), topic)
    pipeline.close()
    if done != batches:
        raise BenchmarkError(f"{done} of {batches} batches within {seconds_max:g} s")


def _read_all(
    broker: BrokerProcess, topic: str, batch: bytes, records: int, batches: int
) -> Sample:
    reader = FetchReader(
        broker.address, topic, batch_bytes=len(batch), batch_records=records, bytes_max=1 << 20
    )
    latencies: list[Latency] = []
    watch = Stopwatch(broker.cpu_seconds)
    deadline = time.perf_counter() + _SECONDS_MAX
    now = time.perf_counter()
    while reader.offset < batches * records and now < deadline:
        started = now
        reader.fetch()
        now = time.perf_counter()
        latencies.append(Latency(now - started))
    reader.close()
    return watch.sample(reader.offset, reader.offset * _VALUE_BYTES, latencies)
