"""Single records over mlog, in JSON and in protobuf: one at a time and pipelined; all durable.

Every record is made durable before it is answered. Offsets have six digits from the start, so that
all replies have one size and the client need not decode them.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from functools import partial

from harness.bounds import DsyncFile
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.sampling import Contender, Sample, Stopwatch, interleaved
from harness.wire import Address, Pipeline, connect

from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import AckMode, Encoding

_SECONDS_MAX = 5.0
_TOPIC = "publish"
FIRST_OFFSET = 100_000
_FILLED_AT_ONCE = 20_000
_IN_FLIGHT = 256
_CONNECTIONS = 4


def run(context: Context) -> None:
    for value_bytes in (100, 1024):
        _contest(context, value_bytes, 1, context.scaled(3000, 400))
        _contest(context, value_bytes, _IN_FLIGHT, context.scaled(40_000, 8_000))


def _contest(context: Context, value_bytes: int, in_flight: int, count: int) -> None:
    settle_disk()
    with ExitStack() as stack:
        broker = stack.enter_context(context.broker(listener="mlog"))
        disk = DsyncFile(context.directory("dsync"))
        stack.callback(disk.close)
        contenders: dict[str, Contender] = {}
        for encoding in Encoding:
            contenders[encoding.value] = _publisher(
                stack, broker, encoding, value_bytes, in_flight, count
            )
        for program in context.peers:
            peer = stack.enter_context(context.peer(program, value_bytes))
            contenders[peer.name] = partial(peer.produce, in_flight, count, _SECONDS_MAX)
        writes = count if in_flight == 1 else count // 20
        contenders["dsync write"] = lambda: disk.write(value_bytes, writes, _SECONDS_MAX)
        samples = interleaved(contenders, context.rounds)
        case = f"{value_bytes} B, {in_flight} in flight"
        context.add_contest(case, samples, memory_metrics(broker))


def create(address: Address, topic: str) -> None:
    """A topic whose offsets have as many digits all the time, so that replies have one size."""
    with connect(address) as connection:
        _ask(connection, m.CreateTopic(topic=topic))
        for _ in range(FIRST_OFFSET // _FILLED_AT_ONCE):
            _ask(connection, m.ProduceBatch(topic=topic, values=[b"."] * _FILLED_AT_ONCE))


def _publisher(
    stack: ExitStack,
    broker: BrokerProcess,
    encoding: Encoding,
    value_bytes: int,
    in_flight: int,
    count: int,
) -> Contender:
    address, topic = broker.address, f"{_TOPIC}-{encoding.value}"
    create(address, topic)
    value = (bytes(range(256)) * (value_bytes // 256 + 1))[:value_bytes]
    produce = m.Produce(topic=topic, value=value, acks=AckMode.ALL)
    frame = Connection(Role.CLIENT, encoding=encoding).send(produce)
    reply = Connection(Role.SERVER, encoding=encoding).send(m.ProduceResp(offset=FIRST_OFFSET))
    pipeline = Pipeline(address, [frame], len(reply))
    pipeline.open(1 if in_flight == 1 else _CONNECTIONS, in_flight)
    stack.callback(pipeline.close)

    def publish() -> Sample:
        watch = Stopwatch(broker.cpu_seconds)
        done, latencies = pipeline.run(count, _SECONDS_MAX)
        sample = watch.sample(done, done * value_bytes, latencies)
        client = Connection(Role.CLIENT, encoding=encoding)
        replies = client.receive_data(pipeline.take_replies())
        if len(replies) != done or not all(isinstance(each, m.ProduceResp) for each in replies):
            raise BenchmarkError(f"{len(replies)} replies to {done} records, or refusals")
        return sample

    return publish


def _ask(connection: socket.socket, request: m.Message) -> None:
    """For setting things up."""
    client = Connection(Role.CLIENT, encoding=Encoding.JSON)
    connection.sendall(client.send(request))
    replies: list[m.Message] = []
    while not replies:
        replies = client.receive_data(connection.recv(1 << 16))
    if isinstance(replies[0], m.RPCError):
        raise BenchmarkError(replies[0].message)
