"""Single records, many in flight, over few and many partitions; durable, and compared with peers.

One request carries one record for one partition, except where the case says that a request carries
one for each of several partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from harness.bounds import DsyncFile
from harness.broker import BrokerProcess
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
_SECONDS_MAX = 8.0
#: Connections that share the requests in flight: a broker reads only so many ahead of one.
_CONNECTIONS = {32: 1, 256: 4}
_PARTITIONS = (1, 32, 100, 500)
_TOPIC = "flight"


def run(context: Context) -> None:
    for in_flight in _CONNECTIONS:
        _singles(context, in_flight, "fsync")
    _singles(context, 256, "os")
    _many_partitions_per_request(context)


def _singles(context: Context, in_flight: int, durability: str) -> None:
    """All partition counts take turns in one broker, with the peers between them."""
    count = context.scaled(40_000, 3_000)
    batch = batch_of(1, _VALUE_BYTES)
    settle_disk()
    with ExitStack() as stack:
        broker = stack.enter_context(context.broker(durability=durability))
        disk = DsyncFile(context.directory("dsync"))
        stack.callback(disk.close)
        contenders: dict[str, Contender] = {}
        for partitions in _PARTITIONS:
            topic = f"{_TOPIC}-{partitions:03d}"
            create_topics(broker.address, [topic], partitions)
            frames = [produce_frame(topic, [index], batch) for index in range(partitions)]
            pipeline = _open(stack, broker, frames, topic, in_flight)
            contenders[f"{partitions}"] = _contender(broker, pipeline, topic, 1, count)
        for program in context.peers:
            peer = stack.enter_context(context.peer(program, _VALUE_BYTES))
            contenders[peer.name] = partial(peer.produce, in_flight, count, _SECONDS_MAX)
        contenders["dsync write"] = lambda: disk.write(_VALUE_BYTES, count // 20, _SECONDS_MAX)
        samples = interleaved(contenders, context.rounds)
        memory = memory_metrics(broker)
    suffix = "" if durability == "fsync" else f", {durability}"
    bounds = {name: each for name, each in samples.items() if not name.isdecimal()}
    for index, partitions in enumerate(_PARTITIONS):
        name = f"{in_flight} in flight, {partitions} partitions{suffix}"
        shown = bounds if index == 0 else {}
        context.add_contest(name, {"dragoman": samples[f"{partitions}"], **shown}, memory)


def _many_partitions_per_request(context: Context) -> None:
    """Requests with one single-record batch for each of N partitions, a few in flight."""
    batch = batch_of(1, _VALUE_BYTES)
    settle_disk()
    for partitions in (32, 100, 500):
        requests = context.scaled(60_000, 4_000) // partitions
        with ExitStack() as stack:
            broker = stack.enter_context(context.broker())
            create_topics(broker.address, [_TOPIC], partitions)
            frame = produce_frame(_TOPIC, range(partitions), batch)
            pipeline = _open(stack, broker, [frame], _TOPIC, 4, partitions)
            contender = _contender(broker, pipeline, _TOPIC, partitions, requests)
            samples = interleaved({"dragoman": contender}, context.rounds)
            memory = memory_metrics(broker)
        context.add_contest(
            f"4 requests in flight, each for {partitions} partitions", samples, memory
        )


def _open(
    stack: ExitStack,
    broker: BrokerProcess,
    frames: Sequence[bytes],
    topic: str,
    in_flight: int,
    partitions: int = 1,
) -> Pipeline:
    pipeline = Pipeline(broker.address, frames, produce_reply_bytes(topic, partitions))
    pipeline.open(_CONNECTIONS.get(in_flight, 1), in_flight)
    stack.callback(pipeline.close)
    return pipeline


def _contender(
    broker: BrokerProcess, pipeline: Pipeline, topic: str, partitions: int, requests: int
) -> Contender:
    def produce() -> Sample:
        watch = Stopwatch(broker.cpu_seconds)
        done, latencies = pipeline.run(requests, _SECONDS_MAX)
        records = done * partitions
        sample = watch.sample(records, records * _VALUE_BYTES, latencies)
        check_produce_replies(pipeline.take_replies(), topic, partitions)
        return sample

    return produce
