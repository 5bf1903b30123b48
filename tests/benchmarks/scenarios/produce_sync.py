"""One record, wait until it is durable, then the next: against redis and the bare disk.

All three make one client wait for one synchronous write at a time, in turns on the same disk.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from harness.bounds import DsyncFile
from harness.context import Context, memory_metrics, settle_disk
from harness.sampling import Contender, Sample, Stopwatch, interleaved
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
_TOPIC = "sync"


def run(context: Context) -> None:
    count = context.scaled(3000, 400)
    rounds = context.scaled(9, 2)
    settle_disk()
    with ExitStack() as stack:
        broker = stack.enter_context(context.broker())
        create_topics(broker.address, [_TOPIC], 1)
        frame = produce_frame(_TOPIC, [0], batch_of(1, _VALUE_BYTES))
        pipeline = Pipeline(broker.address, [frame], produce_reply_bytes(_TOPIC))
        pipeline.open(1, 1)
        stack.callback(pipeline.close)
        disk = DsyncFile(context.directory("dsync"))
        stack.callback(disk.close)

        def produce() -> Sample:
            watch = Stopwatch(broker.cpu_seconds)
            done, latencies = pipeline.run(count, _SECONDS_MAX)
            sample = watch.sample(done, done * _VALUE_BYTES, latencies)
            check_produce_replies(pipeline.take_replies(), _TOPIC)
            return sample

        contenders: dict[str, Contender] = {"dragoman": produce}
        for program in context.peers:
            peer = stack.enter_context(context.peer(program, _VALUE_BYTES))
            contenders[peer.name] = partial(peer.produce, 1, count, _SECONDS_MAX)
        contenders["dsync write"] = lambda: disk.write(_VALUE_BYTES, count, _SECONDS_MAX)
        samples = interleaved(contenders, rounds)
        context.add_contest("one record at a time", samples, memory_metrics(broker))
