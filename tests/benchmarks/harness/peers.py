"""Other servers on the same disk, driven by clients as thin as ours."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from harness.broker import BenchmarkError
from harness.processes import cpu_seconds
from harness.sampling import Latency, Sample, Stopwatch

_START_SECONDS_MAX = 15.0
_RECEIVE_BYTES = 1 << 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Peer(Protocol):
    name: str

    def produce(self, in_flight: int, count: int, seconds_max: float) -> Sample: ...

    def close(self) -> None: ...


class _Server:
    """A peer's process and one connection to it."""

    def __init__(self, command: list[str], port: int) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self.connection = self._connect(port)
        except BaseException:
            self.close()
            raise

    def _connect(self, port: int) -> socket.socket:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            except OSError:
                time.sleep(0.02)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        raise BenchmarkError(f"{self.process.args!r} does not answer")

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def ask(self, command: bytes, expected: bytes) -> None:
        self.connection.sendall(command)
        reply = b""
        while not reply.endswith(b"\n"):
            reply += self.connection.recv(_RECEIVE_BYTES)
        if expected not in reply:
            raise BenchmarkError(f"{command!r} was answered {reply[:200]!r}")

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
        self.process.terminate()
        self.process.wait()


def _drive(
    server: _Server,
    commands: list[bytes],
    in_flight: int,
    seconds_max: float,
    answers_in: Callable[[bytes], int],
    payload_bytes: int,
) -> Sample:
    """Keep `in_flight` commands unanswered; `answers_in` counts replies in what was received."""
    sent = answered = 0
    pending: list[tuple[float, int]] = []
    latencies: list[Latency] = []
    watch = Stopwatch(server.cpu_seconds)
    deadline = time.perf_counter() + seconds_max
    limit = len(commands)
    while answered < limit:
        room = min(in_flight - (sent - answered), limit - sent)
        if room and time.perf_counter() < deadline:
            pending.append((time.perf_counter(), room))
            server.connection.sendall(b"".join(commands[sent : sent + room]))
            sent += room
        elif sent == answered:
            break
        left = answers_in(server.connection.recv(_RECEIVE_BYTES))
        now = time.perf_counter()
        answered += left
        while left:
            at, together = pending[0]
            done = min(left, together)
            latencies.append(Latency(now - at, done))
            left -= done
            if done == together:
                pending.pop(0)
            else:
                pending[0] = (at, together - done)
    return watch.sample(answered, answered * payload_bytes, latencies)


class Redis:
    """`SET` with an append-only file that is synced before every answer."""

    name = "redis appendfsync always"
    _OK = b"+OK\r\n"

    def __init__(self, directory: Path, value_bytes: int) -> None:
        directory.mkdir(parents=True)
        port = free_port()
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(directory),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "auto-aof-rewrite-percentage": "0",
            "daemonize": "no",
        }
        command = ["redis-server", *(part for k, v in options.items() for part in (f"--{k}", v))]
        self._server = _Server(command, port)
        self._server.ask(b"PING\r\n", b"PONG")
        self._value = b"x" * value_bytes
        self._received = 0

    def produce(self, in_flight: int, count: int, seconds_max: float) -> Sample:
        size = len(self._value)
        commands = [
            b"*3\r\n$3\r\nSET\r\n$12\r\nkey:%08d\r\n$%d\r\n%b\r\n" % (number, size, self._value)
            for number in range(count)
        ]
        return _drive(self._server, commands, in_flight, seconds_max, self._answers, size)

    def _answers(self, data: bytes) -> int:
        if not data or b"-" in data:
            raise BenchmarkError(f"redis refused: {data[:200]!r}")
        self._received += len(data)
        count, self._received = divmod(self._received, len(self._OK))
        return count

    def close(self) -> None:
        self._server.close()


class NatsJetStream:
    """Publishing to a file stream, each message acknowledged. Not synced before the answer."""

    name = "nats jetstream (no sync)"
    _SETUP = (
        b'{"name":"bench","subjects":["bench"],"storage":"file","retention":"limits",'
        b'"max_bytes":4294967296,"discard":"old","num_replicas":1}'
    )

    def __init__(self, directory: Path, value_bytes: int) -> None:
        directory.mkdir(parents=True)
        port = free_port()
        command = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory)]
        self._server = _Server(command, port)
        self._server.ask(b'CONNECT {"verbose":false}\r\nPING\r\n', b"INFO")
        self._value = b"x" * value_bytes
        self._rest = b""
        self._server.connection.sendall(b"SUB acks.* 1\r\n")
        setup = b"PUB $JS.API.STREAM.CREATE.bench acks.setup %d\r\n%b\r\n"
        self._server.connection.sendall(setup % (len(self._SETUP), self._SETUP))
        while not self._answers(self._server.connection.recv(_RECEIVE_BYTES)):
            pass

    def produce(self, in_flight: int, count: int, seconds_max: float) -> Sample:
        size = len(self._value)
        command = b"PUB bench acks.p %d\r\n%b\r\n" % (size, self._value)
        commands = [command] * count
        return _drive(self._server, commands, in_flight, seconds_max, self._answers, size)

    def _answers(self, data: bytes) -> int:
        """Acknowledgements in the stream; each is a MSG line and a line of JSON."""
        if not data or b'"error"' in data or b"-ERR" in data:
            raise BenchmarkError(f"nats refused: {data[:300]!r}")
        whole, separator, self._rest = (self._rest + data).rpartition(b"\r\n")
        return (whole + separator).count(b"}\r\n")

    def close(self) -> None:
        self._server.close()


PEERS: dict[str, type[Redis] | type[NatsJetStream]] = {
    "redis-server": Redis,
    "nats-server": NatsJetStream,
}


def installed_peers() -> tuple[list[str], list[str]]:
    """(there, missing) names of peers' programs."""
    there = [name for name in PEERS if shutil.which(name)]
    return there, [name for name in PEERS if name not in there]
