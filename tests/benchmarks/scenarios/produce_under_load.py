"""A durable producer, one record at a time, while another client keeps the broker's loop busy.

The other client runs in a process of its own. With two cores, three busy processes share them, so
some of the longest waits here are the scheduler's; `alone` gives the same without the other client.
"""

from __future__ import annotations

from contextlib import ExitStack

from harness import loads
from harness.broker import BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.loads import Load
from harness.sampling import Sample, Stopwatch, interleaved
from harness.wire import (
    Pipeline,
    batch_of,
    check_produce_replies,
    create_topics,
    produce_frame,
    produce_reply_bytes,
)

_VALUE_BYTES = 100
_SECONDS_MAX = 5.0
_OLD_BATCH_RECORDS = 900
_OLD_BATCHES = 200


def run(context: Context) -> None:
    count = context.scaled(2000, 200)
    settle_disk()
    with ExitStack() as stack:
        broker = stack.enter_context(context.broker())
        create_topics(broker.address, ["quiet", "busy", "large", "old"], 1)
        old_batch = _fill(broker)
        quiet = Pipeline(
            broker.address,
            [produce_frame("quiet", [0], batch_of(1, _VALUE_BYTES))],
            produce_reply_bytes("quiet"),
        )
        quiet.open(1, 1)
        stack.callback(quiet.close)

        def produce() -> Sample:
            watch = Stopwatch(broker.cpu_seconds)
            done, latencies = quiet.run(count, _SECONDS_MAX)
            sample = watch.sample(done, done * _VALUE_BYTES, latencies)
            check_produce_replies(quiet.take_replies(), "quiet")
            return sample

        address, old_end = broker.address, _OLD_BATCHES * _OLD_BATCH_RECORDS

        def beside_singles() -> Sample:
            with Load(loads.produce, address, "busy", 64, 2, 1, _VALUE_BYTES):
                return produce()

        def beside_large() -> Sample:
            with Load(loads.produce, address, "large", 2, 1, _OLD_BATCH_RECORDS, 1024):
                return produce()

        def beside_reader() -> Sample:
            arguments = (address, "old", len(old_batch), _OLD_BATCH_RECORDS, old_end)
            with Load(loads.catch_up, *arguments):
                return produce()

        samples = interleaved(
            {
                "alone": produce,
                "beside 64 single records in flight": beside_singles,
                "beside 1 MB batches": beside_large,
                "beside a catch-up reader": beside_reader,
            },
            context.rounds,
        )
        memory = memory_metrics(broker)
    for name, each in samples.items():
        context.add_contest(name, {"dragoman": each}, memory)


def _fill(broker: BrokerProcess) -> bytes:
    batch = batch_of(_OLD_BATCH_RECORDS, 1024)
    pipeline = Pipeline(
        broker.address, [produce_frame("old", [0], batch)], produce_reply_bytes("old")
    )
    pipeline.open(1, 2)
    pipeline.run(_OLD_BATCHES, 60)
    check_produce_replies(pipeline.take_replies(), "old")
    pipeline.close()
    return batch
