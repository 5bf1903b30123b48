"""What one version of the software answers: run in a process of its own, with that source.

    PYTHONPATH=SRC_DIR python driver.py record DIRECTORY OUT
    PYTHONPATH=SRC_DIR python driver.py write DIRECTORY OUT
    PYTHONPATH=SRC_DIR python driver.py read DIRECTORY OUT

It has to run against versions whose modules have other names, so it knows nothing of the tests and
as little as possible of the package: the simulated node and the ephemeral broker of
`dragoman.testing`, settings, and the command line. Chance is seeded and the wall clock stands
still.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import random
import re
import socket
import struct
import sys
import time
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

WALL_S = 1_704_067_200
SEED = 1
#: Virtual seconds that are waited for the first byte of a reply, those without a byte after which
#: it counts as whole, and the most that is waited for all of it.
FIRST_S, QUIET_S, WAIT_MAX_S = 6.0, 1.5, 40.0
REQUESTS = Path(__file__).with_name("requests.json")
Recording = dict[str, Any]


def stand_still() -> None:
    """Before anything of the package is imported."""
    time.time = lambda: float(WALL_S)
    time.time_ns = lambda: WALL_S * 1_000_000_000
    random.SystemRandom = _Seeded  # type: ignore[misc,assignment]
    source = random.Random(SEED)
    os.urandom = source.randbytes
    os.environ.update(COLUMNS="100", TERM="dumb", NO_COLOR="1", TZ="UTC")
    time.tzset()


class _Seeded(random.Random):
    def __init__(self) -> None:
        super().__init__(SEED)


# ---- the wires, in a simulated world


class Client(asyncio.Protocol):
    def __init__(self, world: Any) -> None:
        self.world = world
        self.data = bytearray()
        self.is_closed = False
        self.last = world.now

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.last = self.world.now

    def eof_received(self) -> None:
        self.is_closed = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True

    def is_done(self) -> bool:
        quiet = QUIET_S if self.data else FIRST_S
        return self.is_closed or self.world.now >= self.last + quiet

    def take(self) -> dict[str, Any]:
        taken: dict[str, Any] = {"reply": bytes(self.data).hex()}
        if self.is_closed:
            taken["closed"] = True
        self.data.clear()
        return taken


class Simulated:
    """A node with all its listeners, and clients beside it."""

    def __init__(self) -> None:
        from dragoman.config.listeners import LISTENER_NAMES, Address, Listener
        from dragoman.config.settings import Settings
        from dragoman.testing.sim.loop import SimWorld
        from dragoman.testing.sim.network import NetworkFaults
        from dragoman.testing.sim.node import SimNode

        try:
            from dragoman.testing.sim.scheduler import SimClock
        except ImportError:
            # Where earlier versions have it.
            from dragoman.testing.sim.clock import SimClock

        SimClock.wall_ms = lambda self: WALL_S * 1000  # type: ignore[method-assign]
        self.ports = {row.name: row.port for row in LISTENER_NAMES if row.name != "console"}
        listeners = tuple(
            Listener(name=name, bind=Address("node", port))
            for name, port in self.ports.items()
            if name != "peer"
        )
        self.world = SimWorld(SEED)
        self.world.network.faults = NetworkFaults(delay_min_s=0, delay_max_s=0, split_rate=0)
        self.node = SimNode(
            self.world, "node", Settings(node_id=1, listeners=listeners, durability="os")
        )
        self.node.start()
        self.loop = self.world.loop("client")

    def connect(self, listener: str) -> Client:
        async def connected() -> Client:
            _, protocol = await self.loop.create_connection(
                lambda: Client(self.world), "node", self.ports[listener]
            )
            return protocol

        return self.world.run(connected(), self.loop, 10)

    def ask(self, client: Client, data: bytes) -> dict[str, Any]:
        """What comes back, until nothing does."""

        async def write() -> None:
            client.transport.write(data)

        client.last = self.world.now
        if not client.is_closed:
            self.world.run(write(), self.loop, 10)
        end = self.world.now + WAIT_MAX_S
        while not client.is_done() and self.world.now < end:
            self.world.run_until(client.is_done, QUIET_S / 4)
        return client.take()

    def close(self, client: Client) -> None:
        async def close() -> None:
            client.transport.close()

        self.world.run(close(), self.loop, 10)
        self.world.run_until(lambda: False, 0.5)

    def once(self, listener: str, data: bytes) -> dict[str, Any]:
        client = self.connect(listener)
        try:
            return self.ask(client, data)
        finally:
            self.close(client)


def record_wires(requests: dict[str, list[list[str]]], recording: Recording) -> None:
    for listener, frames in requests.items():
        apart = Simulated()
        for name, data in frames:
            recording[f"{listener} {name}"] = apart.once(listener, bytes.fromhex(data))
        if listener == "any":
            continue
        # On one connection, too: replies in order, and what one request leaves for the next.
        together = Simulated()
        client = together.connect(listener)
        for name, data in frames:
            if client.is_closed:
                client = together.connect(listener)
            found = together.ask(client, bytes.fromhex(data))
            recording[f"{listener} {name}, connection kept"] = found


def record_conversations(conversations: list[Any], recording: Recording) -> None:
    for title, conversation in conversations:
        world = Simulated()
        client = world.connect(conversation["listener"])
        placeholder = conversation["placeholder"].encode()
        given = placeholder
        for name, data in conversation["frames"]:
            found = world.ask(client, bytes.fromhex(data).replace(placeholder, given))
            recording[f"{title}: {name}"] = found
            if told := re.findall(conversation["pattern"].encode(), bytes.fromhex(found["reply"])):
                given = told[-1]


# ---- HTTP

_CREATE = b'{"name":"%s","partitions":2,"config":{"retention.ms":"100000"}}'


def _http(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
    return f"{head}content-type: application/json\r\nconnection: close\r\n\r\n".encode() + body


def record_http(requests: dict[str, list[list[str]]], recording: Recording) -> None:
    from dragoman.testing import EphemeralBroker

    with EphemeralBroker() as broker:
        ports = {broker.address(name).rpartition(":")[2]: name for name in ("kafka", "http")}

        def ask(method: str, path: str, body: bytes = b"") -> bytes:
            with _connected(broker.address("http")) as connection:
                connection.sendall(_http(method, path, body))
                reply = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            name = f"http {method} {path} {body.decode()}".rstrip()
            recording[name] = _without_ports(reply.decode("latin-1"), ports)
            return reply.partition(b"\r\n\r\n")[2]

        for topic in (b"orders", b"payments", b"orders"):
            ask("POST", "/api/v1/topics", _CREATE % topic)
        wanted = ("ProduceRequest v9 filled", "OffsetCommitRequest v2 filled")
        frames = (bytes.fromhex(data) for name, data in requests["kafka"] if name in wanted)
        _kafka(broker.address("kafka"), frames)
        document = json.loads(ask("GET", "/openapi.json"))
        for path, operations in document["paths"].items():
            for name in ("orders", "group", "missing", "not a name") if "{" in path else ("",):
                filled = re.sub(r"\{\w+\}", name.replace(" ", "%20"), path)
                for method in sorted(operations):
                    if method != "delete" or name != "orders":
                        ask(method.upper(), filled, b"{}" if method == "post" else b"")
        for path in (*_OTHER_PATHS, "/api/v1/topics?limit=1", "/api/v1/topics?limit=x"):
            ask("GET", path)
        ask("DELETE", "/api/v1/topics/orders")


_OTHER_PATHS = ("/", "/livez", "/readyz", "/metrics")


def _without_ports(text: str, ports: dict[str, str]) -> str:
    """The system chooses them."""
    for port, name in ports.items():
        text = re.sub(rf"\b{port}\b", f"PORT-{name}", text)
    return text


# ---- the command line


def _run(arguments: list[str], stdin: str = "") -> dict[str, Any]:
    from dragoman.cli.main import main

    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    errors = io.StringIO()
    given, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                status: object = main(arguments)
            except SystemExit as error:
                status = error.code
            except Exception as error:  # noqa: BLE001 - a command that fails is a difference
                status = f"{type(error).__name__}: {error}"
        out.flush()
    finally:
        sys.stdin = given
    text = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    return {"status": status, "stdout": text, "stderr": errors.getvalue()}


_COMMAND = re.compile(r"^│ ([a-z][a-z0-9-]*)(?: \([\w-]+\))? +\S", re.MULTILINE)


def record_help(recording: Recording) -> None:
    todo: list[list[str]] = [[], ["serve"]]
    while todo:
        command = todo.pop(0)
        found = _run([*command, "--help"])
        recording[f"help {' '.join(command)}".rstrip()] = found
        _, _, listed = found["stdout"].partition("Commands ─")
        for name in _COMMAND.findall(listed.partition("╰")[0]):
            if [*command, name] not in todo and [*command, name] != command:
                todo.append([*command, name])


#: With the server's address in place of HTTP, and the listeners' in place of their names.
_COMMANDS = """
topic create orders --partitions 2 --output json --server HTTP
topic create bad/name --output json --server HTTP
produce orders --bootstrap KAFKA --partition 0
produce orders --bootstrap KAFKA --json
topic list --output json --server HTTP
topic list --server HTTP
topic describe orders --output json --server HTTP
topic describe orders --server HTTP
topic describe missing --output json --server HTTP
consume orders --bootstrap KAFKA --json --group readers
consume orders --bootstrap KAFKA --partition 0
group list --output json --server HTTP
group list --server HTTP
group describe readers --output json --server HTTP
group describe readers --server HTTP
group describe missing --output json --server HTTP
group reset readers --topic orders --to beginning --dry-run --output json --server HTTP
group reset readers --topic orders --to beginning --yes --output json --server HTTP
cluster status --output json --server HTTP
cluster status --server HTTP
cluster mlog-events --server HTTP
cluster elect --topic orders --server HTTP
cluster reassign --topic orders --nodes 1 --output json --server HTTP
cdc list --output json --server HTTP
cdc status --output json --server HTTP
cdc status missing --output json --server HTTP
pipeline list --output json --server HTTP --state DIRECTORY/pipelines
pipeline status missing --output json --state DIRECTORY/pipelines
config show --output json
config show --origin
config schema
rocketmq update-topic --topic T --namesrv ROCKETMQ
rocketmq topic-list --namesrv ROCKETMQ --output json
rocketmq topic-route --topic T --namesrv ROCKETMQ --output json
rocketmq topic-status --topic T --namesrv ROCKETMQ --output json
rocketmq cluster-list --namesrv ROCKETMQ --output json
rocketmq broker-status --namesrv ROCKETMQ --output json
rocketmq send-message --topic T --body hello --keys k --namesrv ROCKETMQ --output json
rocketmq query-msg-by-key --topic T --key k --namesrv ROCKETMQ --output json
rocketmq query-msg-by-offset -t T -b node-1 -i 0 -o 0 --namesrv ROCKETMQ --output json
rocketmq update-sub-group --group g --namesrv ROCKETMQ
rocketmq consumer-progress --namesrv ROCKETMQ --output json
rocketmq consumer-connection --group g --namesrv ROCKETMQ --output json
rocketmq producer-connection --group p --topic T --namesrv ROCKETMQ --output json
rocketmq dlq-list --group g --namesrv ROCKETMQ --output json
rocketmq delete-sub-group --group g --namesrv ROCKETMQ
rocketmq delete-topic --topic T --namesrv ROCKETMQ
topic delete orders --output json --server HTTP
topic delete missing --output json --server HTTP
"""
_OFFLINE = """
log inspect DIRECTORY --output json
log inspect DIRECTORY
log verify DIRECTORY --output json
log repair DIRECTORY --output json
log adopt DIRECTORY
"""
_INPUT = '{"key":"a","value":"one"}\n{"key":"b","value":"two"}\n'


def record_commands(directory: str, recording: Recording) -> None:
    from dragoman.cli import topic
    from dragoman.testing import EphemeralBroker

    listeners = ("kafka", "http", "rocketmq", "rocketmq-broker")
    data = f"{directory}/data"
    with EphemeralBroker(storage="directory", directory=data, listeners=listeners) as broker:
        places = {
            "HTTP": broker.http_url,
            "KAFKA": broker.address("kafka"),
            "ROCKETMQ": broker.address("rocketmq"),
            "DIRECTORY": directory,
        }
        ports = {broker.address(each).rpartition(":")[2]: each for each in listeners}
        for line in _COMMANDS.strip().splitlines():
            arguments = _filled(line, places)
            if line.startswith("topic delete") and "yes" in signature(topic.delete).parameters:
                arguments.append("--yes")
            recording[f"command {line}"] = _shown(arguments, places, ports)
    for line in _OFFLINE.strip().splitlines():
        filled = _filled(line, {"DIRECTORY": data})
        recording[f"command {line}"] = _shown(filled, {"DIRECTORY": directory}, ports)


def _filled(line: str, places: dict[str, str]) -> list[str]:
    for word, place in places.items():
        line = line.replace(word, place)
    return line.split()


def _shown(arguments: list[str], places: dict[str, str], ports: dict[str, str]) -> dict[str, Any]:
    """With the words again in place of addresses, which the system chose."""
    found = _run(arguments, _INPUT)
    for stream in ("stdout", "stderr"):
        for word, place in places.items():
            found[stream] = found[stream].replace(place, word)
        found[stream] = _without_ports(found[stream], ports)
    return found


# ---- a data directory


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 30)


def _kafka(address: str, frames: Iterator[bytes]) -> list[str]:
    found: list[str] = []
    with _connected(address) as connection:
        for frame in frames:
            connection.sendall(frame)
            size = struct.unpack(">I", _exactly(connection, 4))[0]
            found.append(_exactly(connection, size).hex())
    return found


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


#: What is in every directory that is written: replies to these are what is compared.
_WRITTEN = (
    "CreateTopicsRequest v7",
    "ProduceRequest v9",
    "OffsetCommitRequest v2",
    "InitProducerIdRequest v4",
    "AlterClientQuotasRequest v1",
)
_READ = (
    "MetadataRequest v12",
    "FetchRequest v12",
    "ListOffsetsRequest v7",
    "OffsetFetchRequest v7",
    "DescribeGroupsRequest v5",
    "ListGroupsRequest v4",
    "DescribeConfigsRequest v4",
    "DescribeClientQuotasRequest v1",
    "ListTransactionsRequest v0",
    "DescribeProducersRequest v0",
)


_ASKS = re.compile(r"\b(Fetch|OffsetFetch|Describe|List|ConsumerGroupDescribe)")


def _requests(names: tuple[str, ...]) -> Iterator[bytes]:
    known = json.loads(REQUESTS.read_text())["kafka"]
    by_name = {name: bytes.fromhex(data) for name, data in known}
    return (by_name[f"{name} filled"] for name in names)


def write_directory(directory: str) -> None:
    from dragoman.testing import EphemeralBroker

    with EphemeralBroker(storage="directory", directory=directory) as broker:
        address = broker.address("kafka")
        # First: the producer of a transaction is the first that there is.
        spoken = dict(json.loads(REQUESTS.read_text())["conversations"])
        for title in ("transaction, committed", "classic group", "consumer group"):
            _converse(address, spoken[title])
        _kafka(address, _requests(_WRITTEN * 3))


def _converse(address: str, conversation: dict[str, Any]) -> None:
    placeholder = given = conversation["placeholder"].encode()
    for _, data in conversation["frames"]:
        frame = bytes.fromhex(data).replace(placeholder, given)
        reply = bytes.fromhex(_kafka(address, iter([frame]))[0])
        if told := re.findall(conversation["pattern"].encode(), reply):
            given = told[-1]


def read_directory(directory: str) -> Recording:
    from dragoman.testing import EphemeralBroker

    with EphemeralBroker(storage="directory", directory=directory) as broker:
        address = broker.address("kafka")
        port = struct.pack(">I", int(address.rpartition(":")[2])).hex()
        recording: Recording = dict(zip(_READ, _kafka(address, _requests(_READ)), strict=True))
        for title, conversation in json.loads(REQUESTS.read_text())["conversations"]:
            for name, data in conversation["frames"]:
                # The questions; what changes something is left out.
                if conversation["listener"] == "kafka" and _ASKS.search(name):
                    (found,) = _kafka(address, iter([bytes.fromhex(data)]))
                    recording[f"{title}: {name}"] = found
        recording = {name: data.replace(port, "PORT") for name, data in recording.items()}
        # It takes records and offsets on top of what was there, as well.
        more = _kafka(address, _requests(_WRITTEN[1:4]))
        recording |= {f"{name} again": data for name, data in zip(_WRITTEN[1:4], more, strict=True)}
    verified = _run(["log", "verify", directory, "--output", "json"])
    recording["log verify"] = {**verified, "stdout": verified["stdout"].replace(directory, "DIR")}
    return recording


# ---- the whole


def main() -> None:
    stand_still()
    match sys.argv[1:]:
        case ["record", directory, out]:
            requests = json.loads(REQUESTS.read_text())
            conversations = requests.pop("conversations")
            requests["rocketmq-broker"] = requests["rocketmq"]
            recording: Recording = {}
            record_conversations(conversations, recording)
            record_wires(requests, recording)
            record_http(requests, recording)
            record_help(recording)
            record_commands(directory, recording)
        case ["write", directory, out]:
            write_directory(directory)
            recording = {}
        case ["read", directory, out]:
            recording = read_directory(directory)
        case _:
            raise SystemExit(__doc__)
    Path(out).write_text(json.dumps(recording, indent=1, sort_keys=True, ensure_ascii=False))


if __name__ == "__main__":
    main()
