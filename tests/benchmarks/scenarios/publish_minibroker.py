"""PUB over minibroker's wire: one record at a time, and many in flight, all durable.

One at a time, every record waits for a synchronous write of its own: the disk is the bound. In
flight, those that wait share one. Peers and the bare disk take turns with the broker.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from harness.bounds import DsyncFile
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.sampling import Contender, Sample, Stopwatch, interleaved
from harness.wire import Pipeline

from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker.messages import Publish

_SIZES = (100, 1024)
#: Connections that share the requests in flight.
_CONNECTIONS = {1: 1, 256: 4}
_SECONDS_MAX = 8.0
OK_BYTES = len(codec.published_frame(0, 0))
_OK_START = codec.published_frame(0, 0)[:5]


def run(context: Context) -> None:
    for size in _SIZES:
        _publish(context, size, 1, context.scaled(3_000, 400))
    for size in _SIZES:
        _publish(context, size, 256, context.scaled(200_000, 20_000))


def _publish(context: Context, size: int, in_flight: int, count: int) -> None:
    settle_disk()
    with ExitStack() as stack:
        broker = stack.enter_context(context.broker(listener="minibroker"))
        disk = DsyncFile(context.directory("dsync"))
        stack.callback(disk.close)
        contenders: dict[str, Contender] = {
            "dragoman": _contender(stack, broker, size, in_flight, count)
        }
        for program in context.peers:
            peer = stack.enter_context(context.peer(program, size))
            contenders[peer.name] = partial(peer.produce, in_flight, count, _SECONDS_MAX)
        writes = count if in_flight == 1 else count // 50
        contenders["dsync write"] = lambda: disk.write(size, writes, _SECONDS_MAX)
        samples = interleaved(contenders, context.rounds)
        context.add_contest(f"{size} B, {in_flight} in flight", samples, memory_metrics(broker))


def _contender(
    stack: ExitStack, broker: BrokerProcess, size: int, in_flight: int, count: int
) -> Contender:
    frame = codec.encode(Publish(topic="published", payload=bytes(size)))
    pipeline = Pipeline(broker.address, [frame], OK_BYTES)
    pipeline.open(_CONNECTIONS[in_flight], in_flight)
    stack.callback(pipeline.close)

    def publish() -> Sample:
        watch = Stopwatch(broker.cpu_seconds)
        done, latencies = pipeline.run(count, _SECONDS_MAX)
        sample = watch.sample(done, done * size, latencies)
        if not are_fine(pipeline.take_replies()):
            raise BenchmarkError("a PUB was refused")
        return sample

    return publish


def are_fine(replies: bytes) -> bool:
    starts = range(0, len(replies), OK_BYTES)
    return all(replies[start : start + 5] == _OK_START for start in starts)
