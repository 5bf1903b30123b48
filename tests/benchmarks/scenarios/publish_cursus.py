"""PUBLISH and batches over Cursus's wire: one at a time, and many in flight, all durable.

One at a time, every message waits for a synchronous write of its own: the disk is the bound. In
flight, those that wait share one. The published clients send batches; those of a hundred messages
are counted by message. Peers and the bare disk take turns with the broker.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from harness.bounds import DsyncFile
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.sampling import Contender, Sample, Stopwatch, interleaved
from harness.wire import Address, Pipeline, connect

from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.messages import Batch, Message

_SIZES = (100, 1024)
#: Connections that share the requests in flight.
_CONNECTIONS = {1: 1, 16: 4, 256: 4}
_BATCH_MESSAGES = 100
_SECONDS_MAX = 8.0
_TOPIC = "published"


def run(context: Context) -> None:
    for size in _SIZES:
        _publish(context, size, 1, 1, context.scaled(3_000, 400))
    for size in _SIZES:
        _publish(context, size, 1, 256, context.scaled(200_000, 20_000))
    for size in _SIZES:
        _publish(context, size, _BATCH_MESSAGES, 16, context.scaled(5_000, 500))


def _publish(context: Context, size: int, messages: int, in_flight: int, count: int) -> None:
    settle_disk()
    with ExitStack() as stack:
        broker = stack.enter_context(context.broker(listener="cursus"))
        disk = DsyncFile(context.directory("dsync"))
        stack.callback(disk.close)
        contenders: dict[str, Contender] = {
            "dragoman": _contender(stack, broker, frame_of(size, messages), in_flight, count, size)
        }
        if messages == 1:
            for program in context.peers:
                peer = stack.enter_context(context.peer(program, size))
                contenders[peer.name] = partial(peer.produce, in_flight, count, _SECONDS_MAX)
        writes = count if in_flight == 1 else count // 50
        contenders["dsync write"] = lambda: disk.write(size, writes, _SECONDS_MAX)
        samples = interleaved(contenders, context.rounds)
        what = f"{size} B" if messages == 1 else f"batches of {messages} x {size} B"
        context.add_contest(f"{what}, {in_flight} in flight", samples, memory_metrics(broker))


def frame_of(size: int, messages: int) -> bytes:
    payload = b"x" * size
    if messages == 1:
        text = f"PUBLISH topic={_TOPIC} producerId=bench acks=1 message=".encode()
        return codec.frame(b"\0\0" + text + payload)
    sent = [Message(producer_id="bench", payload=payload) for _ in range(messages)]
    return codec.frame(codec.encode_batch(Batch(topic=_TOPIC, partition=0, messages=sent)))


def create(address: Address) -> None:
    with connect(address) as connection:
        connection.sendall(codec.frame(f"CREATE topic={_TOPIC} partitions=1".encode()))
        if not connection.recv(1000)[4:].startswith(b"OK "):
            raise BenchmarkError("the topic could not be created")


def _contender(
    stack: ExitStack, broker: BrokerProcess, frame: bytes, in_flight: int, count: int, size: int
) -> Contender:
    create(broker.address)
    per_frame = _BATCH_MESSAGES if b"PUBLISH" not in frame else 1
    pipeline = Pipeline(broker.address, [frame], None)
    pipeline.open(_CONNECTIONS[in_flight], in_flight)
    stack.callback(pipeline.close)

    def publish() -> Sample:
        watch = Stopwatch(broker.cpu_seconds)
        done, latencies = pipeline.run(count, _SECONDS_MAX)
        done *= per_frame
        sample = watch.sample(done, done * size, latencies)
        replies = pipeline.take_replies()
        if replies.count(b'{"status":"OK"') * per_frame != done:
            raise BenchmarkError("a message was refused")
        return sample

    return publish
