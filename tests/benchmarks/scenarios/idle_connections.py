"""Ten thousand connections that do nothing: memory of the broker for each."""

from __future__ import annotations

import resource
import socket
import time

from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context
from harness.wire import connect

from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m

_CONNECTIONS = 10_000
#: Descriptors that either process needs beside the connections.
_SPARE_DESCRIPTORS = 200
_IDLE_SECONDS = 1.0


def run(context: Context) -> None:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < _CONNECTIONS + _SPARE_DESCRIPTORS:
        raise BenchmarkError(f"{allowed} open files are allowed, {_CONNECTIONS} are needed")
    for case, greet in (("just connected", False), ("after ApiVersions", True)):
        with context.broker() as broker:
            _measure(context, broker, case, greet)


def _measure(context: Context, broker: BrokerProcess, case: str, greet: bool) -> None:
    request = codec.join(codec.encode_request(m.ApiVersionsRequest(), 2, 1, "benchmark"))
    _greet(connect(broker.address), request)
    before = broker.resident_kb()
    connections: list[socket.socket] = []
    try:
        started = time.perf_counter()
        for _ in range(_CONNECTIONS):
            connection = connect(broker.address)
            connections.append(connection)
            if greet:
                _greet(connection, request)
        elapsed = time.perf_counter() - started
        # The last of them shows that all before it were accepted.
        _greet(connections[-1], request)
        resident = broker.resident_kb()
        cpu = broker.cpu_seconds()
        time.sleep(_IDLE_SECONDS)
        share = (broker.cpu_seconds() - cpu) / _IDLE_SECONDS
    finally:
        for connection in connections:
            connection.close()
    context.add(
        f"{_CONNECTIONS} {case}",
        {
            "kb_each": (resident - before) / _CONNECTIONS,
            "connections_per_s": _CONNECTIONS / elapsed,
            "cpu_percent": share * 100,
            "resident_mb": resident / 1024,
        },
    )


def _greet(connection: socket.socket, request: bytes) -> None:
    connection.sendall(request)
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        data = connection.recv(1 << 16)
        if not data:
            raise BenchmarkError("the broker closed a connection")
        received += data
