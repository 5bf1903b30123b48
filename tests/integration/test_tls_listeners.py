"""Goal: what the settings of a listener make of its connections: their callers, their ciphers, the
protocols that other clients are told of.
"""

from __future__ import annotations

import socket
import ssl
import struct
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from dragoman.protocols.session import _Session
from dragoman.security.access import Caller
from dragoman.testing import EphemeralBroker

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@contextmanager
def connected(
    broker: EphemeralBroker, listener: str, context: ssl.SSLContext | None = None
) -> Iterator[socket.socket]:
    """A client whose first request is answered."""
    host, _, port = broker.address(listener).rpartition(":")
    with socket.create_connection((host, int(port)), 30) as plain:
        client = plain
        if context is not None:
            client = context.wrap_socket(plain, server_hostname="localhost")
        client.sendall(_API_VERSIONS)
        assert client.recv(1 << 16)
        yield client
        client.close()


def caller_on(broker: EphemeralBroker, listener: str) -> Caller:
    node = broker._node
    assert node is not None
    (channel,) = node.listeners.channels[listener].open
    session = channel._session
    assert isinstance(session, _Session)
    return session.caller


def trusting(broker: EphemeralBroker, user: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=broker.ca_file)
    if user:
        context.load_cert_chain(*broker.client_certificate(user))
    return context


@pytest.mark.parametrize(
    ("rules", "name"),
    [("DEFAULT", "CN=alice"), ("RULE:^CN=(.*)$/$1/U", "ALICE"), ("RULE:^O=(.*)$/$1/", "ANONYMOUS")],
)
def test_certificate_names_the_caller_by_the_rules(rules: str, name: str) -> None:
    settings = {
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": rules,
        "listener.any.tls": "optional",
    }
    with (
        EphemeralBroker(tls=True, settings=settings, listeners=("kafka",)) as broker,
        connected(broker, "kafka", trusting(broker, "alice")),
    ):
        assert caller_on(broker, "kafka").name == name
        assert caller_on(broker, "kafka").host == "127.0.0.1"


def test_network_names_the_caller_of_one_listener() -> None:
    settings = {
        "principals": "10.0.0.0/8=elsewhere",
        "listener.kafka-batch.principals": "10.0.0.0/8=elsewhere,127.0.0.0/8=batch",
    }
    with (
        EphemeralBroker(settings=settings, listeners=("kafka", "kafka-batch")) as broker,
        connected(broker, "kafka"),
        connected(broker, "kafka-batch"),
    ):
        assert caller_on(broker, "kafka").name == "ANONYMOUS"
        assert caller_on(broker, "kafka-batch").name == "batch"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listener.kafka-batch.authentication", "required"),
        ("listener.kafka-batch.principals", "127.0.0.0/8=batch"),
        ("listener.kafka-batch.tls", "required"),
    ],
)
def test_settings_that_change_end_the_connections_of_their_listener(key: str, value: str) -> None:
    with (
        EphemeralBroker(tls="optional", listeners=("kafka", "kafka-batch")) as broker,
        connected(broker, "kafka") as other,
        connected(broker, "kafka-batch") as client,
    ):
        alter(broker, key, value)
        # Without a further request.
        assert client.recv(1) == b""
        other.sendall(_API_VERSIONS)
        assert other.recv(1 << 16)


def test_rules_that_change_end_the_connections_that_they_name_differently() -> None:
    settings = {"ssl.client.auth": "requested"}
    with (
        EphemeralBroker(tls="optional", settings=settings, listeners=("kafka",)) as broker,
        connected(broker, "kafka", trusting(broker)) as unnamed,
        connected(broker, "kafka", trusting(broker, "alice")) as named,
    ):
        alter(broker, "ssl.principal.mapping.rules", "RULE:^CN=(.*)$/$1/")
        assert named.recv(1) == b""
        unnamed.sendall(_API_VERSIONS)
        assert unnamed.recv(1 << 16)


def alter(broker: EphemeralBroker, key: str, value: str) -> None:
    change = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    node = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (altered,) = admin.incremental_alter_configs([node]).values()
    altered.result(30)


def test_http_is_served_with_and_without_tls_on_one_listener() -> None:
    with EphemeralBroker(tls="optional", listeners=("http",)) as broker:
        context = trusting(broker)
        origin = {"origin": f"https://{broker.address('http')}"}
        for scheme in ("http", "https", "http", "https"):
            url = f"{scheme}://{broker.address('http')}/api/v1/cluster"
            request = urllib.request.Request(url, headers=origin)
            with urllib.request.urlopen(request, context=context, timeout=60) as response:
                assert response.status == 200


def test_handshakes_and_the_end_of_certificates_are_in_the_metrics() -> None:
    with EphemeralBroker(tls="optional", listeners=("http", "kafka")) as broker:
        with connected(broker, "kafka", trusting(broker)):
            pass
        with socket.create_connection(("127.0.0.1", int(broker.address("kafka")[10:])), 60) as bad:
            bad.sendall(b"\x16\x03\x01\x00\x00")
            assert bad.recv(1) == b""
        with urllib.request.urlopen(f"http://{broker.address('http')}/metrics", timeout=60) as page:
            shown = page.read().decode()
    assert 'dragoman_tls_handshakes_ended_total{result="completed"} 1' in shown
    assert 'dragoman_tls_handshakes_ended_total{result="failed"} 1' in shown
    assert 'dragoman_tls_certificate_expiry_seconds{listener="kafka"} 1' in shown


def test_node_that_stops_ends_handshakes_in_progress() -> None:
    for stop in (EphemeralBroker.stop, EphemeralBroker.kill):
        broker = EphemeralBroker(tls=True, listeners=("kafka",)).start()
        host, _, port = broker.address("kafka").rpartition(":")
        with socket.create_connection((host, int(port)), 60) as silent:
            silent.sendall(b"\x16\x03")
            with connected(broker, "kafka", trusting(broker)):
                stop(broker)
            assert silent.recv(1) == b""


def test_cipher_suites_are_those_of_the_settings() -> None:
    settings = {"ssl.cipher.suites": "ECDHE-ECDSA-AES128-GCM-SHA256"}
    with EphemeralBroker(tls=True, settings=settings, listeners=("kafka",)) as broker:
        context = trusting(broker)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with connected(broker, "kafka", context) as client:
            assert isinstance(client, ssl.SSLSocket)
            assert (client.cipher() or ("",))[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_kafka_clients_read_the_protocol_of_each_listener() -> None:
    settings = {
        # A login that is required anywhere has rules enforced.
        "super.users": "User:ops",
        "listener.kafka.principals": "127.0.0.0/8=ops",
        "listener.kafka-tls.tls": "required",
        "listener.kafka-login.authentication": "required",
        "listener.kafka-both.tls": "required",
        "listener.kafka-both.authentication": "required",
    }
    names = ("kafka", "kafka-tls", "kafka-login", "kafka-both")
    with EphemeralBroker(tls="optional", settings=settings, listeners=names) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        node = ConfigResource(ConfigResource.Type.BROKER, "1")
        (shown,) = admin.describe_configs([node]).values()
        protocols = shown.result(30)["listener.security.protocol.map"].value
        assert protocols == (
            "kafka:PLAINTEXT,kafka-both:SASL_SSL,kafka-login:SASL_PLAINTEXT,kafka-tls:SSL"
        )
