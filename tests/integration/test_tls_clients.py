"""Goal: clients work over TLS as they do without, on listeners of their protocol and on `any`, and
learn why when the certificates do not fit.

Method: confluent-kafka, kafka-python, aiokafka and the five clients of this package, against an
in-process broker on asyncio's loop and a served node on uvloop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import ssl
import struct
import time
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from dragoman.client import cursus, kafka, minibroker, mlog, rocketmq
from dragoman.client_core.tls import TlsSettings
from dragoman.errors import ConfigError
from dragoman.testing import EphemeralBroker, EphemeralCluster
from nodes.process import ServedNode
from protocols.kafka_socket import KafkaSocket
from worlds.tls import TlsFiles, authority

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

WAIT_S = 60.0
COUNT = 300
LARGE = 900_000


class Server:
    """Addresses of listeners, and the files that their clients need."""

    def __init__(self, addresses: dict[str, str], files: TlsFiles) -> None:
        self.addresses = addresses
        self.files = files


LISTENERS = {
    "kafka": {},
    "kafka-tls": {"tls": "required"},
    "kafka-mutual": {"tls": "required", "ssl.client.auth": "required"},
    "kafka-asked": {"tls": "required", "ssl.client.auth": "requested"},
    "any": {"tls": "optional"},
    "http": {},
    "http-tls": {"tls": "required"},
    "cursus-tls": {"tls": "required"},
    "minibroker-tls": {"tls": "required"},
    "mlog-tls": {"tls": "required"},
    "rocketmq-tls": {"tls": "required"},
    "rocketmq-broker-tls": {"tls": "required"},
}
OWN = {
    f"listener.{name}.{key}": value for name, own in LISTENERS.items() for key, value in own.items()
}


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    files = TlsFiles(tmp_path_factory.mktemp("certificates"))
    settings = {**files.settings, **OWN}
    if request.param == "asyncio":
        with EphemeralBroker(listeners=tuple(LISTENERS), settings=settings) as broker:
            yield Server({name: broker.address(name) for name in LISTENERS}, files)
        return
    arguments = [
        *(each for name in LISTENERS for each in ("--listen", f"{name}=127.0.0.1:0")),
        *(each for pair in settings.items() for each in ("--set", "=".join(pair))),
    ]
    node = ServedNode("--data", str(tmp_path_factory.mktemp("data")), *arguments)
    with node.ready():
        yield Server(dict(node.listeners), files)
        assert node.stop() == 0


def ssl_options(files: TlsFiles, pair: tuple[str, str] | None = None) -> dict[str, str]:
    """librdkafka's."""
    found = {"security.protocol": "SSL", "ssl.ca.location": files.ca}
    if pair is not None:
        found |= {"ssl.certificate.location": pair[0], "ssl.key.location": pair[1]}
    return found


def values() -> list[bytes]:
    return [b"%d " % number + b"x" * (number * 37 % 3000) for number in range(COUNT)]


# ---- stock clients


@pytest.mark.parametrize("listener", ["kafka-tls", "any"])
def test_librdkafka_writes_and_reads(server: Server, listener: str) -> None:
    address = server.addresses[listener]
    options = {"bootstrap.servers": address, **ssl_options(server.files)}
    topic = f"librdkafka-{listener}"
    producer = Producer({**options, "enable.idempotence": True, "message.max.bytes": 10**6})
    sent = [*values(), b"L" * LARGE]
    for value in sent:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received: list[bytes] = []
    end = time.monotonic() + WAIT_S
    while len(received) < len(sent) and time.monotonic() < end:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            received.append(message.value() or b"")
    consumer.close()
    assert received == sent


def test_listener_names_itself_in_its_replies(server: Server) -> None:
    for listener in ("kafka-tls", "any"):
        address = server.addresses[listener]
        admin = AdminClient({"bootstrap.servers": address, **ssl_options(server.files)})
        (broker,) = admin.list_topics(timeout=WAIT_S).brokers.values()
        assert f"{broker.host}:{broker.port}" == address
    with KafkaSocket(server.addresses["kafka"]) as plain:
        (found,) = plain.metadata().brokers
        assert f"{found.host}:{found.port}" == server.addresses["kafka"]


@pytest.fixture
def _leaks_of_kafka_python() -> Iterator[None]:
    """kafka-python leaves sockets to the garbage collector, which would warn in a later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.usefixtures("_leaks_of_kafka_python")
@pytest.mark.parametrize("listener", ["kafka-tls", "any"])
def test_kafka_python_writes_and_reads(server: Server, listener: str) -> None:
    options = {
        "bootstrap_servers": server.addresses[listener],
        "security_protocol": "SSL",
        "ssl_cafile": server.files.ca,
    }
    topic = f"kafka-python-{listener}"
    producer = KafkaProducer(**options)
    for value in values():
        producer.send(topic, value)
    producer.flush(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, **options, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1000
    )
    received = [message.value for _, message in zip(range(COUNT), consumer, strict=False)]
    consumer.close()
    assert received == values()


@pytest.mark.parametrize("listener", ["kafka-tls", "any"])
async def test_aiokafka_writes_and_reads(server: Server, listener: str) -> None:
    options = {
        "bootstrap_servers": server.addresses[listener],
        "security_protocol": "SSL",
        "ssl_context": ssl.create_default_context(cafile=server.files.ca),
    }
    topic = f"aiokafka-{listener}"
    producer = AIOKafkaProducer(**options)
    await producer.start()
    for value in values():
        await producer.send(topic, value)
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, **options, auto_offset_reset="earliest")
    await consumer.start()
    async with asyncio.timeout(WAIT_S):
        received = [(await consumer.getone()).value for _ in range(COUNT)]
    await consumer.stop()
    assert received == values()


def outcome(address: str, options: dict[str, str]) -> tuple[bool, str]:
    """Whether librdkafka gets through, and what it says if it does not."""
    said: list[KafkaError] = []
    admin = AdminClient({"bootstrap.servers": address, **options, "error_cb": said.append})
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            admin.list_topics(timeout=0.3)
        except KafkaException:
            admin.poll(0)
        else:
            return True, ""
        if said:
            break
    return False, " ".join(f"{each.name()} {each.str()}" for each in said)


def test_client_certificates_as_librdkafka_sees_them(server: Server) -> None:
    files = server.files
    required, asked = server.addresses["kafka-mutual"], server.addresses["kafka-asked"]
    good = ssl_options(files, files.client("alice"))
    expired = ssl_options(files, files.client("old", days=-1))
    foreign = ssl_options(files, files.client("eve", name="foreign"))
    missing = ssl_options(files)
    assert outcome(required, good)[0]
    assert outcome(asked, good)[0]
    assert outcome(asked, missing)[0]
    for options in (expired, foreign, missing):
        is_through, said = outcome(required, options)
        assert not is_through
        assert "_SSL" in said or "_TRANSPORT" in said or "_ALL_BROKERS_DOWN" in said
    assert not outcome(asked, foreign)[0]


def test_client_without_tls_and_client_of_another_authority_fail(
    server: Server, tmp_path: Path
) -> None:
    address = server.addresses["kafka-tls"]
    assert not outcome(address, {})[0]
    other = tmp_path / "other.pem"
    other.write_bytes(authority("foreign").pair.certificate)
    is_through, said = outcome(address, {"security.protocol": "SSL", "ssl.ca.location": str(other)})
    assert not is_through
    assert "_SSL" in said
    assert "certificate verify failed" in said


@pytest.mark.parametrize("which", ["foreign", "missing"])
async def test_refused_certificate_is_an_error_of_aiokafka(server: Server, which: str) -> None:
    context = ssl.create_default_context(cafile=server.files.ca)
    if which == "foreign":
        context.load_cert_chain(*server.files.client("eve", name="foreign"))
    producer = AIOKafkaProducer(
        bootstrap_servers=server.addresses["kafka-mutual"],
        security_protocol="SSL",
        ssl_context=context,
    )
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    await producer.stop()


# ---- this package's clients


def tls_of(files: TlsFiles) -> TlsSettings:
    return TlsSettings(ca=files.ca)


@pytest.mark.parametrize("listener", ["kafka-tls", "any"])
async def test_own_kafka_client(server: Server, listener: str) -> None:
    settings = kafka.ClientSettings(tls=tls_of(server.files))
    async with kafka.KafkaClient(server.addresses[listener], settings) as client:
        (broker,) = (await client.cluster()).brokers.values()
        assert f"{broker.host}:{broker.port}" == server.addresses[listener]


async def test_own_client_says_why_it_cannot_connect(server: Server, tmp_path: Path) -> None:
    address = server.addresses["kafka-tls"]
    other = tmp_path / "other.pem"
    other.write_bytes(authority("foreign").pair.certificate)
    wrong_name = TlsSettings(ca=server.files.ca, server_name="other.example")
    for tls, reason in (
        (TlsSettings(ca=str(other)), "its certificate is refused: .*issuer"),
        (wrong_name, "its certificate is refused: .*other.example"),
    ):
        settings = kafka.ClientSettings(tls=tls, operation_timeout_s=3)
        with pytest.raises(kafka.UnreachableError, match=reason):
            await kafka.KafkaClient(address, settings).open()
    unchecked = kafka.ClientSettings(tls=TlsSettings(verify=False, server_name="other.example"))
    async with kafka.KafkaClient(address, unchecked) as client:
        assert (await client.cluster()).brokers
    missing = kafka.ClientSettings(tls=TlsSettings(ca=str(tmp_path / "none.pem")))
    with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
        await kafka.KafkaClient(address, missing).open()


@pytest.mark.parametrize("listener", ["minibroker-tls", "any"])
async def test_own_minibroker_client(server: Server, listener: str) -> None:
    settings = minibroker.ClientSettings(tls=tls_of(server.files))
    async with minibroker.MinibrokerClient(server.addresses[listener], settings=settings) as client:
        published = await client.publish(f"minibroker-{listener}", b"value")
        assert published.offset == 0


@pytest.mark.parametrize("listener", ["mlog-tls", "any"])
async def test_own_mlog_client(server: Server, listener: str) -> None:
    settings = mlog.ClientSettings(tls=tls_of(server.files))
    async with mlog.MlogClient(server.addresses[listener], settings=settings) as client:
        await client.create_topic(f"mlog-{listener}")
        assert await client.produce(f"mlog-{listener}", b"value") == 0


@pytest.mark.parametrize("listener", ["cursus-tls", "any"])
async def test_own_cursus_client(server: Server, listener: str) -> None:
    settings = cursus.CursusSettings(tls=tls_of(server.files))
    async with cursus.CursusClient(server.addresses[listener], settings=settings) as client:
        await client.create_topic(f"cursus-{listener}", partitions=1)
        assert f"cursus-{listener}" in await client.topics()


async def test_own_rocketmq_client_finds_the_broker_of_its_listener(server: Server) -> None:
    settings = rocketmq.ClientSettings(tls=tls_of(server.files))
    async with rocketmq.RocketmqClient(
        server.addresses["rocketmq-tls"], settings=settings
    ) as client:
        async with client.producer("p") as producer:
            # There is no broker without TLS that the route could name.
            sent = await producer.send(rocketmq.Message(topic="T", body=b"value"))
        assert sent.queue_offset == 0


# ---- HTTP, and the wire itself


def test_http_over_tls(server: Server) -> None:
    context = ssl.create_default_context(cafile=server.files.ca)
    url = f"https://{server.addresses['http-tls']}/api/v1/topics"
    for _ in range(2):
        with urllib.request.urlopen(url, context=context, timeout=WAIT_S) as response:
            assert json.load(response)["items"] is not None
    with pytest.raises(OSError):
        urllib.request.urlopen(url.replace("https", "http"), timeout=WAIT_S)


def test_large_request_in_small_records_and_many_at_once(server: Server) -> None:
    context = ssl.create_default_context(cafile=server.files.ca)
    host, _, port = server.addresses["kafka-tls"].rpartition(":")
    request = struct.pack(">hhih", 18, 0, 7, -1)
    frame = struct.pack(">i", len(request)) + request
    with (
        socket.create_connection((host, int(port)), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        for byte in frame:
            client.sendall(bytes((byte,)))
        (size,) = struct.unpack(">i", _exactly(client, 4))
        assert _exactly(client, size)[:4] == struct.pack(">i", 7)
        client.sendall(frame * 1000)
        for _ in range(1000):
            (size,) = struct.unpack(">i", _exactly(client, 4))
            assert _exactly(client, size)[:4] == struct.pack(">i", 7)


def _exactly(client: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        assert part
        data += part
    return data


# ---- settings that change, certificates that change


def test_listeners_follow_their_settings_while_the_node_runs(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    with EphemeralBroker(settings=files.settings, listeners=("kafka", "kafka-tls")) as broker:
        admin, other = broker.address("kafka"), broker.address("kafka-tls")
        assert outcome(other, {})[0]
        _alter(admin, {"listener.kafka-tls.tls": "required"})
        assert not outcome(other, {})[0]
        assert outcome(other, ssl_options(files))[0]
        _alter(admin, {"listener.kafka-tls.tls": "required", "ssl.client.auth": "required"})
        assert not outcome(other, ssl_options(files))[0]
        assert outcome(other, ssl_options(files, files.client("alice")))[0]
        _alter(admin, {"listener.kafka-tls.tls": "optional"})
        assert outcome(other, {})[0]


def _alter(address: str, config: dict[str, str]) -> None:
    from confluent_kafka.admin import ConfigResource

    admin = AdminClient({"bootstrap.servers": address})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", set_config=config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        (done,) = admin.alter_configs([resource]).values()
    done.result(WAIT_S)


def test_served_node_reads_its_certificates_again_at_sighup(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    settings = {**files.settings, "tls": "required"}
    arguments = [each for pair in settings.items() for each in ("--set", "=".join(pair))]
    data = str(tmp_path / "data")
    node = ServedNode("--data", data, "--listen", "kafka=127.0.0.1:0", *arguments)
    with node.ready():
        before = _served(node.bootstrap_servers, files)
        Path(files.certificate).write_bytes(authority().server(["localhost"]).certificate)
        node.process.send_signal(signal.SIGHUP)
        # The pair does not match: the node says so, and keeps the one before.
        node.wait_for_log("is not that of the certificate")
        assert _served(node.bootstrap_servers, files) == before
        from dragoman.certificates import write_pair

        write_pair(str(tmp_path), "server", authority().server(["localhost"]))
        node.process.send_signal(signal.SIGHUP)
        node.wait_for_log("new certificates are in use")
        assert _served(node.bootstrap_servers, files) != before
        assert node.stop() == 0


def test_certificates_are_shown_and_read_again_over_http() -> None:
    with EphemeralBroker(tls=True) as broker:
        context = ssl.create_default_context(cafile=broker.ca_file)

        def ask(body: bytes | None = None) -> list[dict[str, object]]:
            suffix = "/commands" if body else ""
            request = urllib.request.Request(
                f"{broker.http_url}/api/v1/security/certificates{suffix}",
                data=body,
                headers={"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, context=context, timeout=WAIT_S) as response:
                return json.load(response)["items"]

        shown = ask()
        assert [each["listener"] for each in shown] == ["kafka", "http"]
        assert {each["subject"] for each in shown} == {"CN=localhost"}
        assert not any(each["problem"] for each in shown)
        certificate = Path(broker.ca_file).parent / "server.pem"
        certificate.write_bytes(b"garbage")
        shown = ask(b'{"command": "reload"}')
        assert all("no certificate in PEM" in str(each["problem"]) for each in shown)
        assert {each["subject"] for each in shown} == {"CN=localhost"}


def _served(address: str, files: TlsFiles) -> bytes:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=files.ca)
    with (
        socket.create_connection((host, int(port)), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        return client.getpeercert(binary_form=True) or b""


def test_nodes_of_a_cluster_advertise_each_listener_as_itself() -> None:
    with EphemeralCluster(3, listeners=("kafka", "kafka-other")) as cluster:
        for name in ("kafka", "kafka-other"):
            with KafkaSocket(cluster.nodes[1].address(name)) as client:
                found: set[str] = set()
                # A busy machine may have let the session of a node end for a moment.
                while len(found) < len(cluster.nodes):
                    brokers = client.metadata().brokers
                    found = {f"{each.host}:{each.port}" for each in brokers}
            assert found == {each.address(name) for each in cluster.nodes.values()}


def test_ephemeral_broker_with_tls() -> None:
    with EphemeralBroker(
        tls=True, settings={"listener.kafka.ssl.client.auth": "required"}
    ) as broker:
        certificate, key = broker.client_certificate("alice")
        options = {
            "security.protocol": "SSL",
            "ssl.ca.location": broker.ca_file,
            "ssl.certificate.location": certificate,
            "ssl.key.location": key,
        }
        assert outcome(broker.bootstrap_servers, options)[0]
        context = ssl.create_default_context(cafile=broker.ca_file)
        with urllib.request.urlopen(f"{broker.http_url}/livez", context=context) as response:
            assert response.status == 200
