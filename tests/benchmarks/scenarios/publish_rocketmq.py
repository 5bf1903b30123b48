"""Messages over RocketMQ: one at a time, pipelined, in batches; and how fast they are pulled.

Every message is made durable before it is answered. Peers and the bare disk take turns with the
broker; pulls, which no disk bounds, are compared with a copy of their bytes in memory.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from functools import partial

from harness.bounds import DsyncFile, memory_copy
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, memory_metrics, settle_disk
from harness.sampling import Contender, Sample, Stopwatch, interleaved
from harness.wire import Address, Pipeline, connect

from dragoman.protocols.rocketmq.codec import Command, Connection, encode
from dragoman.protocols.rocketmq.constants import Request, Serialization
from dragoman.protocols.rocketmq.messages import BatchedMessage, encode_batch

_SECONDS_MAX = 5.0
TOPIC = "published"
_QUEUES = 4
_IN_FLIGHT = 256
_CONNECTIONS = {1: 1, _IN_FLIGHT: 4, 4: 4}
BATCH = 100
_PULLED_AT_ONCE = 32
#: As the official clients send them.
_PROPERTIES = "UNIQ_KEY\x01C0A8010A109214DAD5DC075BCD150007\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def run(context: Context) -> None:
    for value_bytes in (100, 1024):
        _contest(context, value_bytes, 1, context.scaled(3_000, 400))
        _contest(context, value_bytes, _IN_FLIGHT, context.scaled(40_000, 8_000))
    _batches(context, context.scaled(1_000, 200))
    _pulls(context, context.scaled(100_000, 20_000))


def _contest(context: Context, value_bytes: int, in_flight: int, count: int) -> None:
    settle_disk()
    with ExitStack() as stack:
        broker = stack.enter_context(context.broker(listener="rocketmq-broker"))
        disk = DsyncFile(context.directory("dsync"))
        stack.callback(disk.close)
        contenders: dict[str, Contender] = {}
        for kind in Serialization:
            frame = send_frame(bytes(value_bytes), kind)
            contenders[f"{kind.name.lower()} headers"] = _sender(
                stack, broker, frame, in_flight, count, value_bytes
            )
        for program in context.peers:
            peer = stack.enter_context(context.peer(program, value_bytes))
            contenders[peer.name] = partial(peer.produce, in_flight, count, _SECONDS_MAX)
        writes = count if in_flight == 1 else count // 20
        contenders["dsync write"] = lambda: disk.write(value_bytes, writes, _SECONDS_MAX)
        samples = interleaved(contenders, context.rounds)
        case = f"{value_bytes} B, {in_flight} in flight"
        context.add_contest(case, samples, memory_metrics(broker))


def _batches(context: Context, count: int) -> None:
    settle_disk()
    value_bytes = 100
    with ExitStack() as stack:
        broker = stack.enter_context(context.broker(listener="rocketmq-broker"))
        disk = DsyncFile(context.directory("dsync"))
        stack.callback(disk.close)
        frame = send_frame(batch_body(value_bytes), Serialization.JSON, is_batch=True)
        send = _sender(stack, broker, frame, 4, count, value_bytes, in_each=BATCH)
        whole = len(frame)
        samples = interleaved(
            {
                "batches": send,
                "dsync write": lambda: disk.write(whole, count, _SECONDS_MAX),
            },
            context.rounds,
        )
        context.add_contest(
            f"{value_bytes} B in batches of {BATCH}", samples, memory_metrics(broker)
        )


def _pulls(context: Context, count: int) -> None:
    """One consumer that has a pull under way for each queue."""
    for value_bytes in (100, 1024):
        settle_disk()
        with ExitStack() as stack:
            settings = {"log.retention.ms": "-1"}
            broker = stack.enter_context(
                context.broker(listener="rocketmq-broker", settings=settings)
            )
            fill(broker.address, count, value_bytes)
            samples = interleaved(
                {
                    "pulls": partial(_pull_all, broker, count, value_bytes),
                    "memory copy": partial(memory_copy, value_bytes * _PULLED_AT_ONCE, count),
                },
                context.rounds,
            )
            context.add_contest(f"{value_bytes} B pulled", samples, memory_metrics(broker))


def _pull_all(broker: BrokerProcess, count: int, value_bytes: int) -> Sample:
    watch = Stopwatch(broker.cpu_seconds)
    return watch.sample(pull_all(broker.address, count), count * value_bytes)


def batch_body(value_bytes: int) -> bytes:
    each = BatchedMessage(0, bytes(value_bytes), _PROPERTIES.encode())
    return encode_batch([each] * BATCH)


def fill(address: Address, count: int, value_bytes: int) -> None:
    """Put that many messages into the queues, to be pulled."""
    body = batch_body(value_bytes)
    with connect(address) as connection:
        for number in range(count // BATCH):
            queue = number % _QUEUES
            ask(connection, send_frame(body, Serialization.JSON, queue, is_batch=True))


def pull_all(address: Address, count: int) -> int:
    """Pull all queues from their start, one request under way for each; returns `count`."""
    with connect(address) as connection:
        client = Connection()
        share = count // _QUEUES
        offsets = dict.fromkeys(range(_QUEUES), 0)
        connection.sendall(b"".join(_pull_frame(queue, 0) for queue in offsets))
        while offsets:
            for reply in client.receive_data(connection.recv(1 << 20)):
                if reply.code:
                    raise BenchmarkError(f"a pull was answered {reply.code}: {reply.remark}")
                queue, offset = reply.opaque, int(reply.fields["nextBeginOffset"])
                if offset >= share:
                    del offsets[queue]
                else:
                    connection.sendall(_pull_frame(queue, offset))
        return count


def _sender(
    stack: ExitStack,
    broker: BrokerProcess,
    frame: bytes,
    in_flight: int,
    count: int,
    value_bytes: int,
    *,
    in_each: int = 1,
) -> Contender:
    with connect(broker.address) as connection:
        ask(connection, frame)
    pipeline = Pipeline(broker.address, [frame], None)
    pipeline.open(_CONNECTIONS[in_flight], in_flight)
    stack.callback(pipeline.close)

    def send() -> Sample:
        watch = Stopwatch(broker.cpu_seconds)
        done, latencies = pipeline.run(count, _SECONDS_MAX)
        sample = watch.sample(done * in_each, done * in_each * value_bytes, latencies)
        if (answered := answers(pipeline.take_replies())) != done:
            raise BenchmarkError(f"{answered} replies to {done} sends")
        return sample

    return send


def answers(replies: bytes) -> int:
    """How many replies there are, none of them a refusal."""
    found = Connection().receive_data(replies)
    for each in found:
        if each.code:
            raise BenchmarkError(f"{each.code}: {each.remark}")
    return len(found)


def send_frame(
    body: bytes,
    kind: Serialization,
    queue: int = 0,
    *,
    is_batch: bool = False,
    delay_level: int = 0,
) -> bytes:
    delay = f"DELAY\x01{delay_level}\x02" if delay_level else ""
    fields = {
        "a": "pg",
        "b": TOPIC,
        "c": "TBW102",
        "d": str(_QUEUES),
        "e": str(queue),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "" if is_batch else _PROPERTIES + delay,
        "j": "0",
        "k": "false",
        "m": "true" if is_batch else "false",
    }
    code = Request.SEND_BATCH_MESSAGE if is_batch else Request.SEND_MESSAGE_V2
    return encode(
        Command(code=code, opaque=1, language="JAVA", fields=fields, body=body, serialization=kind)
    )


def _pull_frame(queue: int, offset: int) -> bytes:
    fields = {
        "consumerGroup": "bench",
        "topic": TOPIC,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": str(_PULLED_AT_ONCE),
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    command = Command(code=Request.PULL_MESSAGE, opaque=queue, language="JAVA", fields=fields)
    return encode(command)


def ask(connection: socket.socket, frame: bytes) -> None:
    """For setting things up."""
    client = Connection()
    connection.sendall(frame)
    replies: list[Command] = []
    while not replies:
        replies = client.receive_data(connection.recv(1 << 16))
    if replies[0].code:
        raise BenchmarkError(f"{replies[0].code}: {replies[0].remark}")
