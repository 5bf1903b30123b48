"""Goal: peers without manners cost a node bounded memory, no descriptors, no client its service.

Method: one served process with all listeners, and real sockets that never read, never finish what
they began, send byte by byte, announce giants or talk nonsense, on each protocol's own port and on
`any`. While they are there and when they are gone, clients of every protocol do their work;
resident memory and descriptors are read from `/proc`. Bounds are those of `dragoman.limits`, times
the number of connections.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import socket
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from dragoman.framing import Scratch
from dragoman.limits import (
    CURSUS_CONSUME_BYTES_MAX,
    DETECTION_BYTES_MAX,
    FRAME_GROWTH_BYTES_MAX,
    ROCKETMQ_PULL_BYTES_MAX,
    SEND_BUFFER_BYTES_MAX,
)
from dragoman.log.batch import Record as LogRecord
from dragoman.log.batch import build_batch
from dragoman.protocols.cursus import codec as cursus_codec
from dragoman.protocols.kafka import codec as kafka_codec
from dragoman.protocols.kafka import messages as kafka
from dragoman.protocols.kafka.connection import ClientConnection
from dragoman.protocols.minibroker import codec as minibroker_codec
from dragoman.protocols.minibroker import messages as minibroker
from dragoman.protocols.mlog import messages as mlog
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import Encoding
from dragoman.protocols.rocketmq import codec as rocketmq_codec
from nodes.process import ServedNode, serve
from protocols.clients import PARTITIONS, SPEAKERS, Record
from protocols.kafka_socket import KafkaSocket, fetch_request
from protocols.request_vectors import REQUESTS
from worlds.rocketmq import pull_fields, send_fields

PROTOCOLS = tuple(REQUESTS)
LISTENERS = (*PROTOCOLS, "any")
#: Each protocol by its own port and by `any`.
DOORS = [(protocol, listener) for protocol in PROTOCOLS for listener in (protocol, "any")]
WAIT_S = 60.0
#: Growth that has nothing to do with the number of connections: caches, and what the allocator
#: keeps of what was there for a moment.
SLACK_BYTES = 48 << 20
#: What an open connection costs at most besides the bytes that are on their way.
CONNECTION_BYTES = 32 << 10
#: A topic with more in it than all bounds.
LARGE = "large"
LARGE_BYTES = 200 << 20
#: How long a connection to `any` may be silent about its protocol.
DETECTION_MS = 3000


# ---- the node and what it takes


class Abused:
    def __init__(self, node: ServedNode) -> None:
        self.listeners = node.listeners
        self._process = Path(f"/proc/{node.process.pid}")
        #: Before there was any client.
        self._descriptors = self._open_descriptors()
        self.figures: list[str] = []

    def connect(self, listener: str, *, receive_buffer: int | None = None) -> socket.socket:
        host, _, port = self.listeners[listener].rpartition(":")
        connected = socket.socket()
        connected.settimeout(WAIT_S)
        if receive_buffer is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.connect((host, int(port)))
        return connected

    def check_health(self) -> None:
        """Clients of every protocol, on both ports, write a record and read it."""
        for protocol, listener in DOORS:
            with SPEAKERS[protocol](self.listeners[listener]) as speaker:
                written = speaker.write("health", Record(b"canary"), 0)
                ((place, record),) = speaker.read("health", written.place, 1)
            assert (place, record.value) == (written.place, b"canary")

    @contextmanager
    def hosting(self, peers: int, bytes_each: int) -> Iterator[Guests]:
        """Peers that may cost so much memory each; when they are gone, they have left nothing."""
        with ExitStack() as sockets:
            yield Guests(self, sockets, peers * (bytes_each + CONNECTION_BYTES))
        self.check_health()
        pause = threading.Event()
        while self._open_descriptors() != self._descriptors:
            pause.wait(0.02)

    def resident_bytes(self) -> int:
        (size,) = re.findall(r"VmRSS:\s+(\d+) kB", (self._process / "status").read_text())
        return int(size) << 10

    def _open_descriptors(self) -> int:
        """Files aside: those of the log are kept open as they are used."""
        found = 0
        for each in (self._process / "fd").iterdir():
            with suppress(FileNotFoundError):
                found += not os.readlink(each).startswith("/")
        return found


class Guests:
    """The peers of one test."""

    def __init__(self, node: Abused, sockets: ExitStack, bytes_max: int) -> None:
        self._node = node
        self._sockets = sockets
        self._bytes_max = bytes_max
        # Not since the start: what earlier peers have cost goes back to the system when it likes.
        self._bytes_before = node.resident_bytes()

    def connect(self, listener: str, *, receive_buffer: int | None = None) -> socket.socket:
        connected = self._node.connect(listener, receive_buffer=receive_buffer)
        return self._sockets.enter_context(connected)

    def check(self, what: str) -> None:
        """While they are there, everybody is served, and they cost what they may."""
        self._node.check_health()
        grown = self._node.resident_bytes() - self._bytes_before
        told = f"{what}: {grown / (1 << 20):.1f} MiB, bound {self._bytes_max / (1 << 20):.1f} MiB"
        self._node.figures.append(told)
        assert grown <= self._bytes_max + SLACK_BYTES, told


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Abused]:
    listens = [f"{name}=127.0.0.1:0" for name in LISTENERS if name != "kafka"]
    settings = [f"any.detection.timeout.ms={DETECTION_MS}", "mlog.stream.wait.ms=10"]
    with serve(
        tmp_path_factory.mktemp("abused"),
        *(each for listen in listens for each in ("--listen", listen)),
        *(each for setting in settings for each in ("--set", setting)),
    ) as process:
        abused = Abused(process)
        with KafkaSocket(process.bootstrap_servers) as client:
            client.create_topic("health", PARTITIONS)
            client.create_topic(LARGE)
            batch = build_batch([LogRecord(value=bytes(10_000), timestamp=0)] * 100)
            for _ in range(LARGE_BYTES // len(batch) + 1):
                assert client.produce(LARGE, batch).error_code == 0
        # All that a client can make it load is loaded then.
        abused.check_health()
        yield abused
        assert process.stop() == 0
        wrong = [line for line in process.log if re.search("ERROR|CRITICAL|Traceback", line)]
        assert not wrong, wrong
        print(*abused.figures, sep="\n")


# ---- requests


def cursus_command(text: str) -> bytes:
    return cursus_codec.frame(text.encode())


def kafka_request(request: kafka.Message, version: int) -> bytes:
    return kafka_codec.join(ClientConnection("raw", 100 << 20, Scratch()).send(request, version)[1])


def mlog_request(request: mlog.Message) -> bytes:
    return Connection(Role.CLIENT, encoding=Encoding.JSON).send(request)


def rocketmq_request(code: int, fields: dict[str, object], body: bytes = b"") -> bytes:
    text = {name: str(value) for name, value in fields.items()}
    return rocketmq_codec.encode(rocketmq_codec.Command(code=code, fields=text, body=body))


def publish(protocol: str, size: int) -> bytes:
    """A request that brings a record of that size."""
    value = bytes(size)
    match protocol:
        case "kafka":
            batch = build_batch([LogRecord(value=value, timestamp=0)])
            part = kafka.ProduceRequestPartition(0, batch)
            topic = kafka.ProduceRequestTopic(name="health", partition_data=[part])
            return kafka_request(kafka.ProduceRequest(acks=-1, topic_data=[topic]), 9)
        case "minibroker":
            return minibroker_codec.encode(minibroker.Publish(topic="health", payload=value))
        case "cursus":
            return cursus_command("PUBLISH topic=health producerId=p message=" + "x" * size)
        case "rocketmq":
            return rocketmq_request(10, send_fields("health"), value)
        case _:
            return mlog_request(mlog.Produce(topic="health", value=value, acks=1))


# ---- peers that never read

SLOW_PEERS = 10
FETCH_BYTES = 4 << 20


def all_of_it(protocol: str, number: int) -> tuple[bytes, int]:
    """Requests for all that the topic holds, and the bytes that one answer may have."""
    match protocol:
        case "kafka":
            fetch = kafka_request(fetch_request(LARGE, 0, bytes_max=FETCH_BYTES), 11)
            return fetch * (LARGE_BYTES // FETCH_BYTES), FETCH_BYTES
        case "minibroker":
            subscribe = minibroker.SubscribeOffset(topic=LARGE, partition=0, offset=0)
            return minibroker_codec.encode(subscribe), 0
        case "cursus":
            where = f"topic={LARGE} partition=0 offset=0 group=slow-{number} member=m"
            if number % 2:
                return cursus_command(f"STREAM {where}"), SEND_BUFFER_BYTES_MAX
            consume = cursus_command(f"CONSUME {where} batch=8192")
            return consume * (LARGE_BYTES // CURSUS_CONSUME_BYTES_MAX), CURSUS_CONSUME_BYTES_MAX
        case "rocketmq":
            pull = rocketmq_request(11, pull_fields(LARGE))
            return pull * (LARGE_BYTES // ROCKETMQ_PULL_BYTES_MAX), 2 * ROCKETMQ_PULL_BYTES_MAX
        case _:
            fetch_batch = mlog.FetchBatch(topic=LARGE, id="slow", offset=1, max_count=10_000)
            return mlog_request(fetch_batch) * (LARGE_BYTES >> 19), 1 << 20


def unread_bytes(connected: socket.socket) -> int:
    (size,) = struct.unpack("i", fcntl.ioctl(connected, termios.FIONREAD, bytes(4)))
    return int(size)


@pytest.mark.parametrize(("protocol", "listener"), DOORS)
def test_peers_that_never_read(node: Abused, protocol: str, listener: str) -> None:
    requests, sizes = zip(*(all_of_it(protocol, each) for each in range(SLOW_PEERS)), strict=True)
    # An answer that is sent in part is held whole, and so is what waits behind it.
    with node.hosting(SLOW_PEERS, 2 * (SEND_BUFFER_BYTES_MAX + max(sizes))) as guests:
        peers = [guests.connect(listener, receive_buffer=4096) for _ in requests]
        for peer, request in zip(peers, requests, strict=True):
            peer.sendall(request)
        # Until nothing more comes, although everybody else is served.
        arrived: list[int] = []
        while not arrived or 0 in arrived or arrived != list(map(unread_bytes, peers)):
            arrived = list(map(unread_bytes, peers))
            node.check_health()
        guests.check(f"{SLOW_PEERS} that never read 200 MiB, {protocol} on {listener}")


# ---- peers that stop in the middle

HALF_OPEN_PEERS = 200
HALF_BYTES = 32 << 10


@pytest.mark.parametrize(("protocol", "listener"), DOORS)
def test_half_a_frame_and_then_nothing(node: Abused, protocol: str, listener: str) -> None:
    whole = publish(protocol, 2 * HALF_BYTES)
    vectors = [bytes.fromhex(each) for each in REQUESTS[protocol]]
    with node.hosting(HALF_OPEN_PEERS, len(whole)) as guests:
        for number in range(HALF_OPEN_PEERS):
            peer = guests.connect(listener)
            frame = vectors[number % len(vectors)] if number % 2 else whole
            peer.sendall(frame[: len(frame) // 2])
        guests.check(f"{HALF_OPEN_PEERS} with half a frame, {protocol} on {listener}")


GIANTS = 50


@pytest.mark.parametrize("listener", LISTENERS)
def test_frame_sizes_beyond_every_bound_close_the_connection(node: Abused, listener: str) -> None:
    sizes = ((100 << 20) + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
    lead = b"\x00\x02" if listener == "mlog" else b""
    with node.hosting(len(sizes), FRAME_GROWTH_BYTES_MAX) as guests:
        for size in sizes:
            peer = guests.connect(listener)
            peer.sendall(lead + size.to_bytes(4, "big") + bytes(DETECTION_BYTES_MAX))
            assert is_closed(peer)
        guests.check(f"{len(sizes)} giants, {listener}")


def is_closed(peer: socket.socket) -> bool:
    """Waits for the end of the stream, whatever comes before."""
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(("protocol", "listener"), DOORS)
def test_large_sizes_take_memory_as_bytes_arrive(
    node: Abused, protocol: str, listener: str
) -> None:
    announced = {
        "kafka": 100 << 20,
        "minibroker": 100 << 20,
        "cursus": 60 << 20,
        "mlog": 4 << 20,
        "rocketmq": (16 << 20) - 4,
    }
    start = publish(protocol, 1000)[:200]
    at = 2 if protocol == "mlog" else 0
    giant = start[:at] + announced[protocol].to_bytes(4, "big") + start[at + 4 :]
    with node.hosting(GIANTS, FRAME_GROWTH_BYTES_MAX) as guests:
        for _ in range(GIANTS):
            guests.connect(listener).sendall(giant)
        guests.check(f"{GIANTS} that announce {announced[protocol]}, {protocol} on {listener}")


# ---- peers that are slow to speak

#: Which bytes of an answer tell its kind.
KIND = {
    "kafka": slice(4, 8),
    "minibroker": slice(4, 5),
    "cursus": slice(4, 6),
    "mlog": slice(0, 2),
    "rocketmq": slice(4, 8),
}


@pytest.mark.parametrize(("protocol", "listener"), DOORS)
def test_one_byte_at_a_time(node: Abused, protocol: str, listener: str) -> None:
    vectors = [bytes.fromhex(each) for each in REQUESTS[protocol]]
    with node.hosting(2 * len(vectors), SEND_BUFFER_BYTES_MAX) as guests:
        for vector in vectors:
            at_once, slowly = guests.connect(protocol), guests.connect(listener)
            at_once.sendall(vector)
            expected = at_once.recv(1 << 16)
            for byte in vector:
                slowly.send(bytes([byte]))
            answer = slowly.recv(1 << 16)
            assert answer[KIND[protocol]] == expected[KIND[protocol]] != b""
        guests.check(f"{len(vectors)} requests byte by byte, {protocol} on {listener}")


# ---- peers that talk nonsense

NONSENSE = 100


@pytest.mark.parametrize("listener", LISTENERS)
def test_nonsense(node: Abused, listener: str) -> None:
    rng = random.Random(f"nonsense for {listener}")
    with node.hosting(NONSENSE, FRAME_GROWTH_BYTES_MAX) as guests:
        for _ in range(NONSENSE):
            peer = guests.connect(listener)
            # The node may have closed before all was sent.
            with suppress(OSError):
                # Small numbers first, so that some of it is taken for the size of a frame.
                peer.sendall(bytes(rng.randrange(4)) + rng.randbytes(rng.choice((1, 40, 50_000))))
                peer.shutdown(socket.SHUT_WR)
            assert is_closed(peer)
        guests.check(f"{NONSENSE} that talk nonsense, {listener}")


# ---- peers of `any` whose protocol stays unknown


def test_peer_that_cannot_be_notified_is_disconnected_in_time(node: Abused) -> None:
    beginnings = (b"", b"\x00", b"\x00\x00\x00\x0a\x00")
    with node.hosting(HALF_OPEN_PEERS, DETECTION_BYTES_MAX) as guests:
        peers = [guests.connect("any") for _ in range(HALF_OPEN_PEERS)]
        for number, peer in enumerate(peers):
            peer.sendall(beginnings[number % len(beginnings)])
        guests.check(f"{HALF_OPEN_PEERS} whose protocol is unknown")
        for peer in peers:
            assert peer.recv(1) == b"", "closed by the node"


# ---- peers that take all the memory there is: last, since the allocator keeps some of so much

HOARDERS = 120


@pytest.mark.parametrize("protocol", ["kafka", "cursus"])
def test_peers_that_use_up_the_memory_are_cut_off(node: Abused, protocol: str) -> None:
    """No other client would be served. The others' answers are too small for that."""
    requests, sizes = zip(*(all_of_it(protocol, 0) for _ in range(HOARDERS)), strict=True)
    with node.hosting(HOARDERS, 2 * (SEND_BUFFER_BYTES_MAX + max(sizes))) as guests:
        for request in requests:
            guests.connect(protocol, receive_buffer=4096).sendall(request)
        guests.check(f"{HOARDERS} that never read 200 MiB, {protocol}")


def test_peers_that_use_up_the_memory_with_beginnings_are_cut_off(node: Abused) -> None:
    giant = (100 << 20).to_bytes(4, "big") + publish("minibroker", 1000)[4:200]
    peers = 300
    with node.hosting(peers, FRAME_GROWTH_BYTES_MAX) as guests:
        for _ in range(peers):
            guests.connect("minibroker").sendall(giant)
        guests.check(f"{peers} that announce 100 MiB, minibroker")
