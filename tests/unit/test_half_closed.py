"""Goal: a client that closes its half of the connection gets all its replies at once, then the end.

Method: a node over real sockets on both loops; clients of every protocol, on their own listener and
on `any`, send requests and shut down their side, as `printf ... | nc -N` does.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest
import uvloop

from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.framing import Scratch
from dragoman.limits import KAFKA_REQUESTS_PER_TURN_MAX
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
from nodes.thread import Running
from protocols.kafka_socket import KafkaSocket, fetch_request
from worlds.broker import batch_of
from worlds.rocketmq import pull_fields, send_fields

LISTENERS = ("kafka", "cursus", "minibroker", "mlog", "rocketmq-broker", "any", "http")
#: The listener of each protocol.
OWN = {"rocketmq": "rocketmq-broker"}
PROTOCOLS = ("kafka", "cursus", "minibroker", "mlog", "rocketmq")
DOORS = [(each, listener) for each in PROTOCOLS for listener in (OWN.get(each, each), "any")]
TOPIC = "t"


@pytest.fixture(
    scope="module",
    params=[asyncio.new_event_loop, uvloop.new_event_loop],
    ids=["asyncio", "uvloop"],
)
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    listeners = tuple(Listener(name=name, bind=Address("127.0.0.1", 0)) for name in LISTENERS)
    node = Running(
        request.param,
        Settings(listeners=listeners, mlog_stream_wait_ms=600_000, cursus_num_partitions=1),
    )
    with node.connect() as client:
        client.create_topic(TOPIC)
        client.produce(TOPIC, batch_of(b"first"))
    yield node
    node.stop()


def kafka_requests(*requests: tuple[kafka.Message, int]) -> bytes:
    client = ClientConnection("raw", 100 << 20, Scratch())
    return b"".join(kafka_codec.join(client.send(each, version)[1]) for each, version in requests)


def rocketmq_request(code: int, fields: dict[str, object], body: bytes = b"") -> bytes:
    text = {name: str(value) for name, value in fields.items()}
    return rocketmq_codec.encode(rocketmq_codec.Command(code=code, fields=text, body=body))


def cursus_command(text: str) -> bytes:
    return cursus_codec.frame(text.encode())


def mlog_requests(*requests: mlog.Message) -> bytes:
    connection = Connection(Role.CLIENT, encoding=Encoding.JSON)
    return b"".join(map(connection.send, requests))


def writes(protocol: str) -> bytes:
    """Three requests that write a record each."""
    match protocol:
        case "kafka":
            part = kafka.ProduceRequestPartition(0, batch_of(b"v"))
            topic = kafka.ProduceRequestTopic(name=TOPIC, partition_data=[part])
            produce = kafka.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
            return kafka_requests((produce, 9), (produce, 9), (produce, 9))
        case "cursus":
            return 3 * cursus_command(f"PUBLISH topic={TOPIC} acks=1 producerId=p message=v")
        case "minibroker":
            return 3 * minibroker_codec.encode(minibroker.Publish(topic=TOPIC, payload=b"v"))
        case "mlog":
            produce = mlog.Produce(topic=TOPIC, value=b"v", acks=1)
            return mlog_requests(produce, produce, produce)
        case _:
            return 3 * rocketmq_request(10, send_fields(TOPIC), b"v")


def polls(protocol: str) -> bytes:
    """A request that waits for records that never arrive."""
    match protocol:
        case "kafka":
            return kafka_requests((fetch_request(TOPIC, 10_000, max_wait_ms=0), 11))
        case "cursus":
            where = f"topic={TOPIC} partition=0 offset=0 autoOffsetReset=latest"
            return cursus_command(f"CONSUME {where} group=late member=m wait_ms=300000")
        case "minibroker":
            return minibroker_codec.encode(minibroker.SubscribeHead(topic=TOPIC, partition=0))
        case "mlog":
            return mlog_requests(mlog.FetchStream(topic=TOPIC, id="late", offset=100_000))
        case _:
            fields = pull_fields(TOPIC, 0)
            fields |= {"sysFlag": 6, "suspendTimeoutMillis": 600_000}
            return rocketmq_request(11, fields)


def exchange(
    running: Running, listener: str, data: bytes, until: Callable[[], bool] | None = None
) -> bytes:
    """Send, wait until `until` holds on the node, close our half, and read to the end."""
    port = next(each.bound.port for each in running.node.listeners.opened if each.name == listener)
    with socket.create_connection(("127.0.0.1", port), 60) as connected:
        connected.sendall(data)
        if until is not None:
            running.wait_until(until)
        connected.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connected.recv(1 << 16):
            received += piece
    channels = running.node.listeners.channels.get(listener)
    if channels is not None:
        running.wait_until(lambda: not channels.open)
    assert running.look(lambda: running.node.listeners.budget.used) == 0
    return received


def frames(protocol: str, received: bytes) -> list[bytes]:
    found = []
    lead = 2 if protocol == "mlog" else 0
    while received:
        end = lead + 4 + int.from_bytes(received[lead : lead + 4], "big")
        assert end <= len(received), "cut off"
        found.append(received[:end])
        received = received[end:]
    return found


@pytest.mark.parametrize(("protocol", "listener"), DOORS)
def test_requests_that_came_completely_are_answered(
    running: Running, protocol: str, listener: str
) -> None:
    incomplete = writes(protocol)[:7]
    received = exchange(running, listener, writes(protocol) + incomplete)
    assert len(frames(protocol, received)) == 3


@pytest.mark.parametrize(("protocol", "listener"), DOORS)
def test_polls_end_at_once(running: Running, protocol: str, listener: str) -> None:
    """Polls end whether they had begun to wait or not; requests after them are answered, too."""
    data = polls(protocol) + writes(protocol)
    assert len(frames(protocol, exchange(running, listener, data))) >= 4
    channels = running.node.listeners.channels[listener]

    def has_read() -> bool:
        return channels.bytes_in == before + len(data)

    before = running.look(lambda: channels.bytes_in)
    assert len(frames(protocol, exchange(running, listener, data, has_read))) >= 4


def test_kafka_fetch_that_waits_is_answered_at_once(running: Running) -> None:
    with running.connect() as client:
        end = client.produce(TOPIC, batch_of(b"v")).base_offset + 1
    data = kafka_requests((fetch_request(TOPIC, end, max_wait_ms=600_000), 11))
    fetches = running.node.broker.fetches._waiting
    assert len(frames("kafka", exchange(running, "kafka", data, lambda: bool(fetches)))) == 1
    assert len(frames("kafka", exchange(running, "kafka", data))) == 1


@pytest.mark.parametrize("listener", ["kafka", "any"])
def test_requests_beyond_those_of_one_turn_are_answered_too(
    running: Running, listener: str
) -> None:
    """Requests that wait for the next turn of the loop are answered as soon as they begin."""
    count = 10 * KAFKA_REQUESTS_PER_TURN_MAX
    data = kafka_requests(*[(kafka.ApiVersionsRequest(), 0)] * count)
    assert len(frames("kafka", exchange(running, listener, data))) == count


def test_member_of_an_incomplete_group_gets_rebalance_in_progress(running: Running) -> None:
    join = kafka.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=600_000,
        protocol_type="consumer",
        protocols=[kafka.JoinGroupRequestProtocol("range", b"")],
    )
    # The join waits: others may join a new group for a while.
    with running.connect() as client:
        client.ask(kafka.FindCoordinatorRequest(key="g"), 2, kafka.FindCoordinatorResponse)
        channels = running.node.listeners.channels["kafka"]
        before = running.look(lambda: channels.bytes_in)
        client.send(join, 2)
        client.send(kafka.ApiVersionsRequest(), 0)
        size = len(kafka_requests((join, 2), (kafka.ApiVersionsRequest(), 0)))
        running.wait_until(lambda: channels.bytes_in == before + size)
        client.socket.shutdown(socket.SHUT_WR)
        joined = client.receive().message
        assert isinstance(joined, kafka.JoinGroupResponse)
        assert joined.error_code == 27
        assert isinstance(client.receive().message, kafka.ApiVersionsResponse)
        assert client.is_closed_by_peer()


def test_cursus_stream_ends_with_its_last_words(running: Running) -> None:
    where = f"topic={TOPIC} partition=0 offset=0 group=streaming member=m"
    received = exchange(running, "cursus", cursus_command(f"STREAM {where}"))
    assert b"STREAM_CONTROL type=CLOSE reason=stopped" in frames("cursus", received)[-1]


@pytest.mark.parametrize("beginning", [b"", b"\0", b"\0\0\0\x0a\0"])
def test_connection_to_any_that_says_too_little_is_closed(
    running: Running, beginning: bytes
) -> None:
    assert exchange(running, "any", beginning) == b""


@pytest.mark.parametrize("count", [1, 3])
def test_http_requests_are_answered(running: Running, count: int) -> None:
    request = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    received = exchange(running, "http", count * request)
    assert received.count(b"HTTP/1.1 200") == count


def test_client_that_is_gone_without_a_word_leaves_nothing(running: Running) -> None:
    """Its end looks the same at first."""
    with KafkaSocket(running.address) as client:
        client.send(fetch_request(TOPIC, 0, max_wait_ms=600_000, bytes_max=1), 11)
    channels = running.node.listeners.channels["kafka"]
    running.wait_until(lambda: not channels.open)
    assert running.look(lambda: running.node.listeners.budget.used) == 0
