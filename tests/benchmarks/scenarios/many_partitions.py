"""Ten thousand partitions, and logs much larger than the journal: memory, stops and starts."""

from __future__ import annotations

import shutil
import time

from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.wire import (
    Pipeline,
    batch_of,
    check_produce_replies,
    create_topics,
    end_offsets,
    produce_frame,
    produce_reply_bytes,
)

from scenarios.catch_up_fetch import fill

_TOPICS = [f"t{number:03d}" for number in range(100)]
_PARTITIONS_EACH = 100
_BATCH_RECORDS = 940
_PARTITIONS = len(_TOPICS) * _PARTITIONS_EACH


def run(context: Context) -> None:
    _partitions(context)
    for durability in ("fsync", "os"):
        _large_log(context, durability)


def _partitions(context: Context) -> None:
    directory = context.directory("partitions")
    broker = BrokerProcess(directory)
    broker.start()
    try:
        before = broker.resident_kb()
        started = time.perf_counter()
        create_topics(broker.address, _TOPICS, _PARTITIONS_EACH)
        created = time.perf_counter() - started
        grown = broker.resident_kb() - before
        metrics = {
            "create_s": created,
            "kb_each": grown / _PARTITIONS,
            **_starts(context, broker, _TOPICS[-1], [0] * _PARTITIONS_EACH),
            **memory_metrics(broker),
        }
        context.add(f"{_PARTITIONS} empty", metrics)
        started = time.perf_counter()
        for topic in _TOPICS:
            _write_to_each(broker, topic)
        written = time.perf_counter() - started
        metrics = {
            "first_records_s": written,
            "kb_each": (broker.resident_kb() - before) / _PARTITIONS,
            **_starts(context, broker, _TOPICS[-1], [1] * _PARTITIONS_EACH),
            **memory_metrics(broker),
        }
        context.add(f"{_PARTITIONS} with data", metrics)
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _write_to_each(broker: BrokerProcess, topic: str) -> None:
    """One record to every partition of a topic, in one request."""
    frame = produce_frame(topic, range(_PARTITIONS_EACH), batch_of(1, 100))
    pipeline = Pipeline(broker.address, [frame], produce_reply_bytes(topic, _PARTITIONS_EACH))
    pipeline.open(1, 1)
    pipeline.run(1, 60)
    check_produce_replies(pipeline.take_replies(), topic, _PARTITIONS_EACH)
    pipeline.close()


def _starts(
    context: Context, broker: BrokerProcess, topic: str, ends: list[int]
) -> dict[str, float]:
    """Killed and started, stopped and started; leaves the broker running.

    A fast start that has lost records would be worth nothing: `topic` must end where it did.
    """
    broker.kill()
    after_kill = broker.start()
    _check_ends(broker, topic, ends, "a kill")
    stop = context.stop(broker)
    after_stop = broker.start()
    _check_ends(broker, topic, ends, "a clean stop")
    return {
        "start_after_kill_s": after_kill,
        "clean_stop_s": stop,
        "start_after_stop_s": after_stop,
    }


def _check_ends(broker: BrokerProcess, topic: str, ends: list[int], after: str) -> None:
    found = end_offsets(broker.address, topic, len(ends))
    if found != ends:
        lost = sum(ends) - sum(found)
        raise BenchmarkError(f"{topic}: {lost} of {sum(ends)} records are missing after {after}")


def _large_log(context: Context, durability: str) -> None:
    """One partition with several gigabytes: does a start depend on the size of the data?"""
    size = context.scaled(4_000_000_000, 300_000_000)
    batch = batch_of(_BATCH_RECORDS, 1024)
    directory = context.directory(f"large-{durability}")
    broker = BrokerProcess(directory, durability=durability)
    try:
        broker.start()
        create_topics(broker.address, ["large"], 1)
        batches = size // len(batch)
        fill(broker.address, "large", batch, batches)
        starts = _starts(context, broker, "large", [batches * _BATCH_RECORDS])
        context.add(
            f"large log {durability}",
            {"log_gb": size / 1e9, **starts, **memory_metrics(broker)},
        )
        context.stop(broker)
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)
        settle_disk()
