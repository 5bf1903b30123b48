"""Goal: a node over real sockets serves, bounds, starts and stops as it should, on both loops.

Method: the node runs on asyncio's loop or on uvloop in a thread of its own; blocking sockets on the
other side do what no polite client does. Nothing here waits for time to pass.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop

from dragoman import outcome
from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import NodeRegistered
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.data_directory import open_data_directory
from dragoman.errors import ConfigError, FormatError
from dragoman.limits import (
    FRAME_GROWTH_BYTES_MIN,
    READ_AHEAD_REQUESTS_MAX,
    SEND_BUFFER_BYTES_MAX,
)
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.session import KafkaSession
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.codec import Command, Connection, encode
from dragoman.server import Node
from dragoman.testing.memory import MemoryDisk
from dragoman.types import Buffer
from dragoman.world import Disk
from nodes.ports import free_row
from nodes.thread import Running
from protocols.kafka_socket import KafkaSocket, fetch_request
from worlds.broker import batch_of, values_in

Result = TypeVar("Result")


def settings(
    *, host: str = "127.0.0.1", advertised: Address | None = None, **more: object
) -> Settings:
    kafka = Listener(name="kafka", bind=Address(host, 0), advertised=advertised)
    return Settings(listeners=(kafka,), **more)  # type: ignore[arg-type]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def make_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    made: Callable[[], asyncio.AbstractEventLoop] = request.param
    return made


@pytest.fixture
def start(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(configured: Settings | None = None, disk: Disk | None = None) -> Running:
        running = Running(make_loop, configured or settings(), disk)
        started.append(running)
        return running

    yield begin
    for running in started:
        running.stop()


@pytest.fixture
def running(start: Callable[..., Running]) -> Running:
    return start()


# ---- addresses


def test_bound_address_is_advertised_by_default(running: Running) -> None:
    with running.connect() as client:
        (broker,) = client.metadata().brokers
        assert f"{broker.host}:{broker.port}" == running.address
    assert running.node.listeners.describe() == [
        f"kafka on {running.address}, advertised as {running.address}"
    ]


def test_explicit_address_is_advertised(start: Callable[..., Running]) -> None:
    running = start(settings(advertised=Address("broker.example", 7)))
    with running.connect() as client:
        (broker,) = client.metadata().brokers
        assert (broker.host, broker.port) == ("broker.example", 7)


@pytest.mark.parametrize("local", ["127.0.0.1", "127.0.0.2"])
def test_wildcard_advertises_the_address_each_client_came_in_on(
    start: Callable[..., Running], local: str
) -> None:
    running = start(settings(host="0.0.0.0"))
    port = running.node.listeners.opened[0].bound.port
    with KafkaSocket(f"{local}:{port}") as client:
        (broker,) = client.metadata().brokers
        assert (broker.host, broker.port) == (local, port)
    assert "the address each client came in on" in running.node.listeners.describe()[0]


# ---- odd peers


def test_conversation(running: Running) -> None:
    with running.connect() as client:
        client.create_topic("t")
        assert client.produce("t", batch_of(b"a", b"b")).base_offset == 0
        assert values_in(client.fetch("t", 0).records) == [b"a", b"b"]


def test_one_byte_at_a_time(running: Running) -> None:
    with running.connect() as client:
        for byte in struct.pack(">ihhih", 10, 18, 0, 5, -1):
            client.socket.send(bytes([byte]))
        head = client.socket.recv(8, socket.MSG_WAITALL)
        assert struct.unpack(">ii", head)[1] == 5


@pytest.mark.parametrize("size", [0, -1, (100 << 20) + 1])
def test_bad_size_closes(running: Running, size: int) -> None:
    with running.connect() as client:
        client.socket.sendall(struct.pack(">i", size))
        assert client.is_closed_by_peer()


def test_peer_that_ends_its_half_is_answered_at_once_and_leaves_nothing(running: Running) -> None:
    with running.connect() as client:
        client.create_topic("t")
        client.send(fetch_request("t", 0, max_wait_ms=600_000), 11)
        client.send(m.ApiVersionsRequest(), 0)
        running.wait_until(lambda: len(running.node.broker.fetches) > 0)
        client.socket.shutdown(socket.SHUT_WR)
        assert [client.receive().api_key for _ in range(2)] == [1, 18]
        assert client.is_closed_by_peer()
    running.wait_until(lambda: not running.node.listeners.channels["kafka"].open)
    assert running.look(
        lambda: (len(running.node.broker.fetches), running.node.listeners.budget.used)
    ) == (
        0,
        0,
    )


def test_disconnect_during_a_parked_fetch_cancels_it(running: Running) -> None:
    with running.connect() as client:
        client.create_topic("t")
        client.send(fetch_request("t", 0, max_wait_ms=600_000), 11)
        running.wait_until(lambda: len(running.node.broker.fetches) > 0)
    running.wait_until(lambda: not len(running.node.broker.fetches))
    with running.connect() as client:
        assert client.produce("t", batch_of(b"v")).error_code == 0


def test_reset_by_the_peer_leaves_nothing(running: Running) -> None:
    with running.connect() as client:
        client.create_topic("t")
        for index in range(20):
            client.send(fetch_request("t", 0, max_wait_ms=600_000 + index), 11)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    running.wait_until(lambda: not running.node.listeners.channels["kafka"].open)
    assert running.look(lambda: running.node.listeners.budget.used) == 0


def test_replies_keep_their_order_behind_a_parked_fetch(running: Running) -> None:
    with running.connect() as client, running.connect() as other:
        client.create_topic("t")
        client.send(fetch_request("t", 0, max_wait_ms=600_000), 11)
        client.send(m.ApiVersionsRequest(), 0)
        client.send(m.MetadataRequest(topics=[]), 1)
        running.wait_until(lambda: len(running.node.broker.fetches) > 0)
        other.produce("t", batch_of(b"v"))
        assert [client.receive().api_key for _ in range(3)] == [1, 18, 3]


def fill(client: KafkaSocket, topic: str, megabytes: int) -> None:
    client.create_topic(topic)
    for _ in range(megabytes):
        assert client.produce(topic, batch_of(b"x" * 1_000_000)).error_code == 0


def test_reader_that_does_not_read_costs_one_reply_and_the_others_are_served(
    running: Running,
) -> None:
    with running.connect() as writer, running.connect(receive_buffer=4096) as stuck:
        fill(writer, "t", 12)
        for _ in range(8):
            stuck.send(fetch_request("t", 0, bytes_max=3 << 20), 11)
        channels = running.node.listeners.channels["kafka"]
        running.wait_until(lambda: any(not each.is_writable for each in channels.open))
        assert writer.produce("t", batch_of(b"served")).error_code == 0
        used = running.look(lambda: running.node.listeners.budget.used)
        assert SEND_BUFFER_BYTES_MAX < used < (6 << 20)
        # What was asked for still comes, in order, once the peer reads.
        for _ in range(8):
            reply = stuck.receive()
            assert isinstance(reply.message, m.FetchResponse)
            records = reply.message.responses[0].partitions[0].records
            assert len(values_in(records)) == 3
    running.wait_until(lambda: not channels.open)
    assert running.look(lambda: running.node.listeners.budget.used) == 0


def answered(running: Running) -> int:
    requests = running.node.listeners.services["kafka", "kafka"].requests
    return sum(each.count for each in requests.counters())


def unanswered(running: Running) -> int:
    """Requests of all connections that have begun."""
    sessions = [each._session for each in running.node.listeners.channels["kafka"].open]
    return sum(each.unanswered for each in sessions if isinstance(each, KafkaSession))


def test_pipelining_is_bounded_by_not_reading(running: Running) -> None:
    with running.connect() as client, running.connect() as other:
        client.create_topic("t")
        client.send(fetch_request("t", 0, max_wait_ms=600_000), 11)
        running.wait_until(lambda: len(running.node.broker.fetches) > 0)
        asked = 500
        for _ in range(asked):
            client.send(m.MetadataRequest(topics=[]), 1)
        # A question on another connection is answered after what can be read has been read.
        for _ in range(5):
            other.metadata()
        # All replies wait behind that of the fetch.
        worked_on = running.look(lambda: unanswered(running)) - 1
        # One read may bring as many requests as the receive buffer holds.
        frame_bytes = 4 + 2 + 2 + 4 + 2 + 3 + 4
        assert worked_on <= READ_AHEAD_REQUESTS_MAX + 65_536 // frame_bytes
        other.produce("t", batch_of(b"v"))
        for _ in range(asked + 1):
            client.receive()


def test_over_its_budget_the_node_stops_reading_and_recovers(running: Running) -> None:
    budget = running.node.listeners.budget
    with running.connect() as client:
        running.look(lambda: budget.take(running.node.settings.memory_budget_bytes))
        # Read before anything was known of the budget, hence answered; and then no more.
        client.metadata()
        client.send(m.MetadataRequest(topics=[]), 9)
        with running.connect() as other:
            other.metadata()
        before = running.look(lambda: answered(running))
        running.look(lambda: budget.give_back(running.node.settings.memory_budget_bytes))
        client.receive()
        assert running.look(lambda: answered(running)) == before + 1


def test_announced_frames_take_next_to_nothing(running: Running) -> None:
    announced = (100 << 20).to_bytes(4, "big") + b"\0"
    with ExitStack() as sockets:
        for _ in range(100):
            sockets.enter_context(running.connect()).socket.sendall(announced)
        channels = running.node.listeners.channels["kafka"]
        running.wait_until(lambda: channels.bytes_in == 100 * len(announced))
        assert (
            running.look(lambda: running.node.listeners.budget.used) <= 100 * FRAME_GROWTH_BYTES_MIN
        )
        assert running.look(lambda: {each._receiving > 0 for each in channels.open}) == {True}


@pytest.mark.parametrize(
    ("caps", "most"),
    [
        ({"max_connections": 3}, 3),
        ({"max_connections_per_ip": 2}, 2),
        ({"max_connections_per_ip": 2, "max_connections_per_ip_overrides": ("127.0.0.1:4",)}, 4),
    ],
)
@pytest.mark.parametrize(
    "name", ["kafka", "cursus", "minibroker", "mlog", "any", "rocketmq", "rocketmq-broker"]
)
def test_connections_past_a_cap_are_closed_at_once(
    start: Callable[..., Running], name: str, caps: dict[str, object], most: int
) -> None:
    running = start(listening(name, **caps))
    with ExitStack() as sockets:
        clients = [sockets.enter_context(running.connect()) for _ in range(most + 1)]
        assert clients.pop().is_closed_by_peer()
        assert running.look(lambda: len(running.node.listeners.channels[name].open)) == most
        assert running.look(lambda: running.node.listeners.channels[name].refused) == 1
        clients.pop().socket.close()
        running.wait_until(lambda: len(running.node.listeners.channels[name].open) < most)
        sockets.enter_context(running.connect())
        running.wait_until(lambda: len(running.node.listeners.channels[name].open) == most)


def test_caps_can_be_changed_while_the_node_runs(running: Running) -> None:
    broker = running.node.broker
    with running.connect() as first, running.connect() as second:
        first.metadata()
        second.metadata()
        change = m.IncrementalAlterConfigsRequestConfig(name="max.connections.per.ip", value="2")
        resource = m.IncrementalAlterConfigsRequestResource(
            resource_type=4, resource_name="", configs=[change]
        )
        request = m.IncrementalAlterConfigsRequest(resources=[resource])
        altered = first.ask(request, 1, m.IncrementalAlterConfigsResponse)
        assert altered.responses[0].error_code == 0, altered
        running.wait_until(lambda: broker.settings.max_connections_per_ip == 2)
        with running.connect() as third:
            assert third.is_closed_by_peer()


# ---- idle connections


@pytest.mark.parametrize(("idle_ms", "is_kept"), [(-1, True), (3_600_000, True), (0, False)])
def test_idle_connections(start: Callable[..., Running], idle_ms: int, is_kept: bool) -> None:
    running = start(settings(connections_max_idle_ms=idle_ms))
    with running.connect() as client:
        if is_kept:
            client.metadata()
        else:
            running.wait_until(lambda: bool(running.node.listeners.channels["kafka"].open))
            running.look(lambda: silent_for_a_second(running.node, "kafka"))
        running.look(running.node.listeners.sweep)
        if is_kept:
            client.metadata()
        else:
            assert client.is_closed_by_peer()


def silent_for_a_second(node: Node, listener: str) -> None:
    """uvloop's clock counts milliseconds: all of this test may happen in one."""
    for channel in node.listeners.channels[listener].open:
        channel.last_active -= 1


def listening(name: str, **more: object) -> Settings:
    listener = Listener(name=name, bind=Address("127.0.0.1", 0))
    return Settings(listeners=(listener,), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("idle_ms", "is_kept"), [(-1, True), (3_600_000, True), (0, False)])
def test_idle_connections_of_mlog_have_their_own_time(
    start: Callable[..., Running], idle_ms: int, is_kept: bool
) -> None:
    running = start(listening("mlog", mlog_connections_max_idle_ms=idle_ms))
    address = running.node.listeners.opened[0].bound
    list_topics = bytes.fromhex("0019000000027b7d")
    with socket.create_connection((address.host, address.port), 30) as client:
        client.sendall(list_topics)
        assert client.recv(1000)
        running.look(lambda: silent_for_a_second(running.node, "mlog"))
        running.look(running.node.listeners.sweep)
        if is_kept:
            client.sendall(list_topics)
        assert bool(client.recv(1000)) is is_kept


# ---- any


def test_connection_to_any_that_says_nothing_is_closed(start: Callable[..., Running]) -> None:
    running = start(listening("any", any_detection_timeout_ms=1))
    address = running.node.listeners.opened[0].bound
    with socket.create_connection((address.host, address.port), 30) as client:
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        # Kafka's ApiVersions, mlog's ListTopics twice, minibroker's QUIT, the LIST of Cursus.
        ("0000000a0012000000000001ffff", b"\x00\x00\x00\x01\x00\x00"),
        ("0019000000027b7d", b'\x00\x1a\x00\x00\x00\x0d{"Topics":[]}'),
        ("001900000000", b"\x00\x1a\x00\x00\x00\x00"),
        ("0000000105", b"\x00\x00\x00\x01\x10"),
        ("000000044c495354", b"OK count="),
        # RocketMQ's request for the cluster.
        (encode(Command(code=106)).hex(), b'"brokerName":"dragoman-1"'),
    ],
)
def test_any_serves_every_protocol(
    start: Callable[..., Running], first: str, answer: bytes
) -> None:
    running = start(listening("any"))
    address = running.node.listeners.opened[0].bound
    with socket.create_connection((address.host, address.port), 30) as client:
        client.sendall(bytes.fromhex(first))
        assert answer in client.recv(1 << 16)


# ---- RocketMQ


@pytest.mark.parametrize(
    ("topic", "hidden"),
    [
        ("orders", ()),
        ("a/b", ("kafka", "cursus", "rocketmq")),
        ("%RETRY%g", ("kafka", "cursus")),
        ("a=b", ("kafka", "rocketmq")),
        ("orders@2", ("kafka", "cursus", "mlog", "rocketmq")),
    ],
)
def test_node_knows_which_clients_cannot_name_a_topic(
    start: Callable[..., Running], topic: str, hidden: tuple[str, ...]
) -> None:
    assert start(listening("any")).node.listeners.hidden_from(topic) == hidden


def test_only_protocols_that_are_served_count(start: Callable[..., Running]) -> None:
    assert start(listening("minibroker")).node.listeners.hidden_from("a/b") == ()
    assert start(rocketmq("rocketmq-broker")).node.listeners.hidden_from("a/b") == ("rocketmq",)


def test_topic_that_a_client_makes_and_others_cannot_name_is_logged(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever protocol made it: those have no answer in which to say it."""
    topics = running.node.broker.topics

    async def create() -> None:
        for name in ("ab", "a/b"):
            created = running.loop.create_future()
            outcome.start(topics.create(NewTopic(name=name))).then(created.set_result)
            assert await created is None

    with caplog.at_level(logging.INFO, "dragoman.server"):
        running.call(create)
    assert caplog.messages == ["topic 'a/b' is hidden from clients of kafka"]


def rocketmq(*names: str, host: str = "127.0.0.1", ports: dict[str, int] | None = None) -> Settings:
    return Settings(
        listeners=tuple(
            Listener(name=name, bind=Address(host, (ports or {}).get(name, 0))) for name in names
        )
    )


def port_of(running: Running, name: str) -> int:
    return next(each.bound.port for each in running.node.listeners.opened if each.name == name)


def advertised_by(host: str, port: int) -> set[str]:
    """The broker addresses that a client on this port gets."""
    with socket.create_connection((host, port), 30) as client:
        client.sendall(encode(Command(code=106)))
        connection, found = Connection(), []
        while not found:
            found = connection.receive_data(client.recv(1 << 16))
    info = bodies.decode(found[0].body, bodies.ClusterInfo)
    return {
        each for broker in info.broker_addr_table.values() for each in broker.broker_addrs.values()
    }


def test_name_server_tells_where_the_broker_is(start: Callable[..., Running]) -> None:
    running = start(rocketmq("rocketmq", "rocketmq-broker", "any"))
    broker = port_of(running, "rocketmq-broker")
    for name in ("rocketmq", "rocketmq-broker"):
        assert advertised_by("127.0.0.1", port_of(running, name)) == {f"127.0.0.1:{broker}"}
    through_any = port_of(running, "any")
    assert advertised_by("127.0.0.1", through_any) == {f"127.0.0.1:{through_any}"}


def test_name_server_alone_is_the_broker_too(start: Callable[..., Running]) -> None:
    running = start(rocketmq("rocketmq"))
    port = port_of(running, "rocketmq")
    assert advertised_by("127.0.0.1", port) == {f"127.0.0.1:{port}"}


def test_name_server_on_all_addresses_tells_the_one_it_was_reached_at(
    start: Callable[..., Running],
) -> None:
    running = start(rocketmq("rocketmq", "rocketmq-broker", host="0.0.0.0"))
    broker = port_of(running, "rocketmq-broker")
    assert advertised_by("127.0.0.1", port_of(running, "rocketmq")) == {f"127.0.0.1:{broker}"}


def two_free_ports() -> tuple[int, int]:
    """Two ports, the second two above the first."""
    first = free_row(3)
    return first, first + 2


def test_old_clients_are_served_two_ports_below(start: Callable[..., Running]) -> None:
    vip, port = two_free_ports()
    running = start(rocketmq("rocketmq-broker", ports={"rocketmq-broker": port}))
    assert port_of(running, "rocketmq-vip") == vip
    assert advertised_by("127.0.0.1", vip) == {f"127.0.0.1:{port}"}
    running.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", vip), 30)


def test_port_that_the_system_chose_has_none_below_it(start: Callable[..., Running]) -> None:
    running = start(rocketmq("rocketmq-broker"))
    assert [each.name for each in running.node.listeners.opened] == ["rocketmq-broker"]


def test_taken_port_of_old_clients_is_a_warning(
    start: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    vip, port = two_free_ports()
    with socket.create_server(("127.0.0.1", vip)):
        running = start(rocketmq("rocketmq-broker", ports={"rocketmq-broker": port}))
    assert [each.name for each in running.node.listeners.opened] == ["rocketmq-broker"]
    assert f"cannot bind 127.0.0.1:{vip}" in caplog.text
    assert "RocketMQ clients of before 4.5.1" in caplog.text


def test_port_of_old_clients_is_not_taken_from_a_listener_that_asked_for_it(
    start: Callable[..., Running],
) -> None:
    vip, port = two_free_ports()
    ports = {"rocketmq-broker": port, "any": vip}
    running = start(rocketmq("rocketmq-broker", "any", ports=ports))
    assert [each.name for each in running.node.listeners.opened] == ["rocketmq-broker", "any"]
    assert advertised_by("127.0.0.1", vip) == {f"127.0.0.1:{vip}"}


# ---- start and stop


def test_data_survives_a_clean_stop(start: Callable[..., Running]) -> None:
    first = start()
    with first.connect() as client:
        client.create_topic("t")
        client.produce("t", batch_of(b"v"))
    first.stop()
    second = start(disk=first.disk)
    assert second.node.store.was_clean
    with second.connect() as client:
        assert values_in(client.fetch("t", 0).records) == [b"v"]


def test_stop_answers_parked_fetches_and_closes(start: Callable[..., Running]) -> None:
    running = start()
    with running.connect() as client:
        client.create_topic("t")
        client.send(fetch_request("t", 0, max_wait_ms=600_000), 11)
        running.wait_until(lambda: len(running.node.broker.fetches) > 0)
        running.stop()
        assert client.receive().api_key == 1
        assert client.is_closed_by_peer()


def test_stop_lets_a_slow_reader_finish(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long five megabytes take through a buffer of four kilobytes is the machine's affair.
    monkeypatch.setattr("dragoman.listeners.CONNECTION_CLOSE_GRACE_S", 60)
    running = start()
    with running.connect() as writer, running.connect(receive_buffer=4096) as slow:
        fill(writer, "t", 6)
        slow.send(fetch_request("t", 0, bytes_max=5 << 20), 11)
        channels = running.node.listeners.channels["kafka"]
        running.wait_until(lambda: any(not each.is_writable for each in channels.open))
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        reply = slow.receive()
        assert isinstance(reply.message, m.FetchResponse)
        assert len(values_in(reply.message.responses[0].partitions[0].records)) >= 4
        stopping.join()


def test_stop_does_not_wait_for_ever(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.listeners.CONNECTION_CLOSE_GRACE_S", 0)
    running = start()
    with running.connect() as writer, running.connect(receive_buffer=4096) as stuck:
        fill(writer, "t", 12)
        stuck.send(fetch_request("t", 0, bytes_max=50 << 20), 11)
        channels = running.node.listeners.channels["kafka"]
        running.wait_until(lambda: any(not each.is_writable for each in channels.open))
        running.stop()
    assert not channels.open
    assert running.node.listeners.budget.used == 0
    assert start(disk=running.disk).node.store.was_clean


def test_taken_port_leaves_a_clean_directory(start: Callable[..., Running]) -> None:
    disk = MemoryDisk()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = Listener(name="http", bind=Address("127.0.0.1", 0))
        kafka = Listener(name="kafka", bind=Address("127.0.0.1", taken.getsockname()[1]))
        with pytest.raises(ConfigError, match="listener kafka: cannot bind"):
            start(Settings(listeners=(free, kafka)), disk)
    assert start(disk=disk).node.store.was_clean


def test_all_addresses_that_are_taken_are_named_with_what_to_type(
    start: Callable[..., Running],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        names = ("kafka", "cursus", "http")
        ports = (address, Address("127.0.0.1", 0), Address("localhost", address.port))
        listeners = tuple(
            Listener(name=name, bind=bind) for name, bind in zip(names, ports, strict=True)
        )
        with pytest.raises(ConfigError) as refusal:
            start(Settings(listeners=listeners))
    assert str(refusal.value) == (
        f"listener kafka: cannot bind 127.0.0.1:{address.port}: address already in use; "
        f"listener http: cannot bind localhost:{address.port}: address already in use; "
        "type `--listen kafka=off --listen http=off` to start without them, or "
        "`--listen kafka=HOST:PORT` for another address, which opens only listeners that are given "
        "one"
    )


def test_no_listener_is_left_out_when_every_address_is_taken(start: Callable[..., Running]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        kafka = Listener(name="kafka", bind=Address("127.0.0.1", taken.getsockname()[1]))
        with pytest.raises(ConfigError, match="in use; type `--listen kafka=HOST:PORT`"):
            start(Settings(listeners=(kafka,)))


def test_start_that_fails_before_recovery_loses_nothing(start: Callable[..., Running]) -> None:
    """The journal holds acknowledged records until they are replayed: it must not be forgotten."""
    first = start()
    with first.connect() as client:
        client.create_topic("t")
        client.produce("t", batch_of(b"acknowledged"))
    first.is_stopped = True
    first.look(first.node.store.abandon)
    first.look(lambda: [each.close() for each in first.node.listeners.opened])
    first._end()
    with pytest.raises(ConfigError, match="belongs to node 1"):
        start(settings(node_id=2), first.disk)
    second = start(disk=first.disk)
    with second.connect() as client:
        assert values_in(client.fetch("t", 0).records) == [b"acknowledged"]


def test_metadata_of_a_newer_release_is_refused_and_the_directory_released(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    first.stop()

    def newer(_: bytes) -> NodeRegistered:
        raise FormatError("a newer release?")

    with monkeypatch.context() as patched:
        patched.setattr("dragoman.cluster.codec.decode_event", newer)
        with pytest.raises(FormatError):
            start(disk=first.disk)
    start(disk=first.disk)


def test_failed_sync_sets_the_node_failed(start: Callable[..., Running]) -> None:
    disk = FailingDisk()
    running = start(disk=disk)
    with running.connect() as client:
        client.create_topic("t")
        disk.is_failing = True
        # Time-out: the records may be there, or may not.
        assert client.produce("t", batch_of(b"v")).error_code == 7
    running.wait_until(running.node.failed.is_set)
    assert running.node.failure is not None
    assert running.node.failure.errno == errno.EIO


class FailingDisk(MemoryDisk):
    """Fails every durable write after the test's command."""

    is_failing = False

    def open(self, path: str, mode: str):  # type: ignore[no-untyped-def,override]
        file = super().open(path, mode)  # type: ignore[arg-type]
        write = file.write_durable

        class Failing:
            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

            def write_durable(_, buffers: list[Buffer], position: int) -> None:
                if self.is_failing:
                    raise OSError(errno.EIO, "broken", path)
                write(buffers, position)

        return Failing()


def test_data_directory_under_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="Not a directory"):
        open_data_directory(str(file / "data"))
    assert open_data_directory(str(tmp_path / "a" / "b")).root == str(tmp_path / "a" / "b")
