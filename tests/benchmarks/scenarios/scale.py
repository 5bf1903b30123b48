"""Two thousand connections and 500 topics of eight partitions, against one of each.

Both brokers get the same small requests in turn, over one connection each; what counts is the
broker's CPU time for a request, one at a time (a whole turn of its loop for each) and with 32 in
flight. Run with `durability=os`: a synchronous write would hide the cost of everything else.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import NamedTuple

from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, memory_metrics
from harness.sampling import Sample, Stopwatch, interleaved
from harness.wire import Pipeline, ask, batch_of, connect, create_topics

from dragoman.framing import Scratch
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import ClientConnection

_CONNECTIONS, _TOPICS, _PARTITIONS = 2_000, 500, 8
_IN_FLIGHT = 32
_SECONDS_MAX = 5.0
_FETCH_VERSION = 12

#: What a kind of request sends: requests in turn, their version, and how many make a sample.
_Load = Callable[["_Side"], tuple[list[m.Message], int, int]]


class _Side(NamedTuple):
    broker: BrokerProcess
    topics: int
    partitions: int


def run(context: Context) -> None:
    with ExitStack() as stack:
        brokers = [stack.enter_context(context.broker(durability="os")) for _ in range(2)]
        sides = {
            "small": _Side(brokers[0], 1, 1),
            "large": _Side(brokers[1], _TOPICS, _PARTITIONS),
        }
        before = {name: side.broker.resident_kb() for name, side in sides.items()}
        for side in sides.values():
            create_topics(side.broker.address, _names(side.topics), side.partitions)
            _connect_many(stack, side.broker, _CONNECTIONS if side.topics > 1 else 1)
        for name, load in _loads(context).items():
            for in_flight in (1, _IN_FLIGHT):
                turns = {
                    which: partial(_sample, side, load, in_flight) for which, side in sides.items()
                }
                samples = interleaved(turns, context.rounds)
                _report(context, f"{name}, {in_flight} in flight", samples)
        for which, side in sides.items():
            grown = (side.broker.resident_kb() - before[which]) / 1024
            context.add(f"memory, {which}", {"grown_mb": grown, **memory_metrics(side.broker)})


def _loads(context: Context) -> dict[str, _Load]:
    """In this order: nothing may be read before something is written."""
    count = context.scaled(4_000, 400)
    name = _names(1)[0]
    one = m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    everything = m.MetadataRequest(topics=None)
    fetch = _fetch_request([name], 1, session_epoch=-1)
    part = m.ProduceRequestPartition(index=0, records=batch_of(1, 100))
    produce = m.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[m.ProduceRequestTopic(name=name, partition_data=[part])],
    )
    return {
        "metadata of one topic": lambda _: ([one], 9, count),
        "metadata of all topics": lambda _: ([everything], 9, count // 40),
        "empty fetch": lambda _: ([fetch], _FETCH_VERSION, count),
        "incremental fetch of all partitions": partial(_session_load, count=count // 40),
        "small produce": lambda _: ([produce], 7, count),
    }


def _session_load(side: _Side, count: int) -> tuple[list[m.Message], int, int]:
    request = _fetch_request(_names(side.topics), side.partitions, session_epoch=0)
    reply = ask(side.broker.address, request, _FETCH_VERSION)
    assert isinstance(reply, m.FetchResponse)
    if not reply.session_id:
        raise BenchmarkError("the broker keeps no fetch session")
    # One more than asked for: the first shows how long a reply is.
    requests: list[m.Message] = [
        _fetch_request([], 0, session_id=reply.session_id, session_epoch=epoch + 1)
        for epoch in range(count + 1)
    ]
    return requests, _FETCH_VERSION, count


def _names(count: int) -> list[str]:
    return [f"t{number:03d}" for number in range(count)]


def _connect_many(stack: ExitStack, broker: BrokerProcess, count: int) -> None:
    """Connections that have said what clients say first, and stay."""
    for _ in range(count):
        connection = stack.enter_context(connect(broker.address))
        _exchange(connection, m.ApiVersionsRequest(), 2)


def _exchange(connection: socket.socket, request: m.Message, version: int) -> int:
    """Bytes of the reply, which must be without errors."""
    client = ClientConnection("benchmark", 100 << 20, Scratch())
    connection.sendall(codec.join(client.send(request, version)[1]))
    received = 0
    while True:
        data = connection.recv(1 << 20)
        if not data:
            raise BenchmarkError("the broker closed a connection")
        received += len(data)
        for reply in client.receive_data(data):
            _require_success(reply.message)
            return received


def _require_success(reply: m.Message) -> None:
    match reply:
        case m.MetadataResponse():
            errors = [topic.error_code for topic in reply.topics]
        case m.FetchResponse():
            parts = [part.error_code for topic in reply.responses for part in topic.partitions]
            errors = [reply.error_code, *parts]
        case m.ProduceResponse():
            topics = reply.responses
            errors = [part.error_code for topic in topics for part in topic.partition_responses]
        case _:
            errors = []
    if any(errors):
        raise BenchmarkError(f"{type(reply).__name__}: error {max(errors)}")


def _fetch_request(names: Sequence[str], partitions: int, **session: int) -> m.FetchRequest:
    wanted = [
        m.FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    return m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[m.FetchRequestTopic(topic=name, partitions=wanted) for name in names],
        **session,
    )


def _sample(side: _Side, load: _Load, in_flight: int) -> Sample:
    requests, version, count = load(side)
    with connect(side.broker.address) as connection:
        reply_bytes = _exchange(connection, requests[0], version)
    frames = [
        codec.join(codec.encode_request(request, version, 1, "benchmark"))
        for request in requests[1:] or requests
    ]
    pipeline = Pipeline(side.broker.address, frames, reply_bytes)
    pipeline.open(1, in_flight)
    watch = Stopwatch(side.broker.cpu_seconds)
    done, _ = pipeline.run(count, _SECONDS_MAX)
    sample = watch.sample(done, 0)
    pipeline.close()
    return sample


def _report(context: Context, case: str, samples: dict[str, list[Sample]]) -> None:
    small, large = (
        median((each.server_cpu_s or 0.0) / each.messages * 1e6 for each in turns)
        for turns in samples.values()
    )
    metrics = {"small_cpu_us": small, "large_cpu_us": large, "ratio_cpu": large / small}
    context.add(case, metrics)
