"""Goal: only nodes of a cluster connect to its nodes, and a cluster learns to insist on that while
it serves.

Method: nodes as processes, with certificates and secrets of the test; strangers with their own
sockets, certificates and recordings.
"""

from __future__ import annotations

import signal
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as cka

from chaos.checker import judge, read_all
from chaos.clients import KAFKA_TOPIC, PARTITIONS, KafkaWriter
from dragoman.certificates import Authority, Pair
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from dragoman.limits import PEER_STRANGERS_MAX
from dragoman.net.peer_frames import Kind, frame
from dragoman.net.peer_handshake import Challenge, Proof, proof_of
from dragoman.net.peer_security import LISTENER
from nodes.cluster import ServedCluster
from nodes.peer_caller import PeerCaller, context, hello
from nodes.process import WAIT_S

NODES = (1, 2, 3)
REQUIRED = {"tls": "required", "authentication": "required"}


class Material:
    """An authority, pairs of certificate and key, and secrets, as files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir()
        self.authority = Authority.create("nodes")
        self.ca = self.write("ca.pem", self.authority.pair.certificate)
        self.secret = self.write_secret("s" * 40)

    def write(self, name: str, data: bytes) -> Path:
        path = self._root / name
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path

    def write_secret(self, *secrets: str, name: str = "secret") -> Path:
        return self.write(name, "\n".join(secrets).encode())

    def pair(self, name: str, pair: Pair) -> Path:
        return self.write(f"{name}.pem", pair.certificate + pair.key)

    def of_node(self, node: int, *names: str, authority: Authority | None = None) -> Path:
        signed = (authority or self.authority).server(
            ["127.0.0.1", *(names or (f"dragoman://node/{node}",))]
        )
        return self.pair(f"node-{node}", signed)

    def settings(self, node: int, kind: str, demands: dict[str, str]) -> list[str]:
        names = () if kind == "certificates" else (f"any-{node}.example",)
        certificate = self.of_node(node, *names)
        wanted = {
            **{f"listener.{LISTENER}.{key}": value for key, value in demands.items()},
            f"listener.{LISTENER}.ssl.certificate.file": str(certificate),
            f"listener.{LISTENER}.ssl.ca.file": str(self.ca),
        }
        if kind == "certificates":
            wanted[f"listener.{LISTENER}.ssl.client.auth"] = "required"
        else:
            wanted["peer.secret.file"] = str(self.secret)
        return [each for key, value in wanted.items() for each in ("--set", f"{key}={value}")]


@pytest.fixture
def material(tmp_path: Path) -> Material:
    return Material(tmp_path / "material")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path, len(NODES)) as made:
        yield made


def start(
    cluster: ServedCluster,
    material: Material,
    kind: str,
    demands: dict[str, str],
    nodes: Sequence[int] = NODES,
) -> None:
    for node in nodes:
        cluster.begin(node, *material.settings(node, kind, demands))
    for node in nodes:
        cluster.nodes[node].ready()


def create_topic(cluster: ServedCluster) -> None:
    with BlockingKafkaClient(cluster.bootstrap()) as client:
        client.create_topic(
            NewTopic(name=KAFKA_TOPIC, partitions=PARTITIONS, replication_factor=len(NODES))
        )


def refused(
    cluster: ServedCluster, tls: ssl.SSLContext | None, *, node: int = 2, cluster_id: str = ""
) -> str:
    """Why node 1 does not take a caller for this node; empty when it closes without a word."""
    with PeerCaller(cluster.address(1, LISTENER), tls) as caller:
        with suppress(OSError):
            caller.send(Kind.HELLO, hello(node, cluster_id))
            # A request to the service of remote procedure calls, in case it is taken.
            caller.send(Kind.REQUEST, b"\x80", number=1)
        answer = caller.answer()
        assert answer is None or answer[0] is Kind.REFUSAL
        assert caller.answer() is None
    return "" if answer is None else answer[1].decode()


# ---- three nodes that recognise each other


@pytest.mark.parametrize("kind", ["certificates", "secret"])
def test_nodes_recognise_each_other_and_nobody_else(
    cluster: ServedCluster, material: Material, kind: str
) -> None:
    start(cluster, material, kind, REQUIRED)
    status = cluster.wait_in_sync()
    create_topic(cluster)
    cluster.wait_in_sync()
    client = material.pair("alice", material.authority.client("alice"))
    foreign = material.of_node(2, authority=Authority.create("foreign"))
    other = material.of_node(3, "dragoman://node/3")
    cluster_id = status.cluster_id

    assert refused(cluster, None) == ""
    for certificate in (None, client, foreign, other):
        why = refused(cluster, context(certificate), cluster_id=cluster_id)
        if kind == "certificates" and certificate in (None, foreign):
            # TLS itself demands a certificate of the authority.
            assert why == ""
        else:
            assert "node 2 has not shown who it is" in why
    named = material.of_node(2)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        why = refused(cluster, context(named, version), cluster_id="another")
        assert "node 2 belongs to cluster another" in why
    assert "a peer has the id of this node" in refused(cluster, context(named), node=1)
    assert cluster.wait_in_sync().cluster_id == cluster_id


def test_recorded_proof_is_worthless_later(cluster: ServedCluster, material: Material) -> None:
    """The test knows the secret, is node 2 once, and sends all of it again without the secret."""
    start(cluster, material, "secret", REQUIRED)
    cluster.wait_in_sync()
    address, tls = cluster.address(1, LISTENER), context()
    nonce, greeting = b"n" * 32, hello(2)
    with PeerCaller(address, tls) as first:
        first.send(Kind.HELLO, greeting, nonce)
        kind, challenge = first.answer() or (None, b"")
        assert kind is Kind.CHALLENGE
        assert msgspec.msgpack.decode(challenge, type=Challenge).node_id == 1
        mac = proof_of(b"s" * 40, b"caller", greeting + nonce, challenge, first.binding)
        proof = msgspec.msgpack.encode(Proof(mac=mac))
        first.send(Kind.PROOF, proof)
        kind, welcome = first.answer() or (None, b"")
        assert kind is Kind.WELCOME
        expected = proof_of(b"s" * 40, b"called", greeting + nonce, challenge, first.binding)
        assert msgspec.msgpack.decode(welcome, type=Proof).mac == expected
    with PeerCaller(address, tls) as again:
        again.send(Kind.HELLO, greeting, nonce)
        kind, fresh = again.answer() or (None, b"")
        assert kind is Kind.CHALLENGE
        assert fresh != challenge
        again.send(Kind.PROOF, proof)
        kind, why = again.answer() or (None, b"")
        assert (kind, why) == (Kind.REFUSAL, b"node 2 has not proven to know the secret")
        assert again.answer() is None
    cluster.wait_in_sync()


@pytest.mark.parametrize("size", [0, 1, 40])
def test_handshakes_that_stall_keep_no_node_out(
    cluster: ServedCluster, material: Material, size: int
) -> None:
    """More of them than strangers are allowed, each in the middle of a frame."""
    start(cluster, material, "secret", REQUIRED)
    cluster.wait_in_sync()
    tls = context()
    greeting = b"".join(frame(Kind.HELLO, 0, 0, hello(2), [b"n" * 32]))
    with ExitStack() as stack:
        for _ in range(PEER_STRANGERS_MAX + 10):
            caller = stack.enter_context(PeerCaller(cluster.address(1, LISTENER), tls))
            caller.socket.sendall(greeting[:size])
        assert cluster.nodes[3].stop() == 0
        start(cluster, material, "secret", REQUIRED, nodes=[3])
        cluster.wait_in_sync()
    cluster.wait_in_sync()


def test_authority_is_replaced_while_the_cluster_serves(
    cluster: ServedCluster, material: Material
) -> None:
    """Both, then new certificates, then the new one alone; each step on running nodes."""
    start(cluster, material, "certificates", REQUIRED)
    cluster.wait_in_sync()
    before = material.authority
    material.authority = after = Authority.create("new nodes")
    old_pair = material.pair("old-2", before.server(["x", "dragoman://node/2"]))
    material.write("ca.pem", before.pair.certificate + after.pair.certificate)
    reload(cluster)
    for node in NODES:
        material.of_node(node)
        reload(cluster)
        # A connection of each node is made with the new certificates.
        cluster.nodes[node].kill()
        start(cluster, material, "certificates", REQUIRED, nodes=[node])
        cluster.wait_in_sync(node)
    assert "belongs to cluster" in refused(cluster, context(old_pair), cluster_id="another")
    material.write("ca.pem", after.pair.certificate)
    reload(cluster)
    eventually(
        lambda: refused(cluster, context(old_pair), cluster_id="another") == "",
        "a certificate of the removed authority is accepted",
    )
    cluster.nodes[3].kill()
    start(cluster, material, "certificates", REQUIRED, nodes=[3])
    cluster.wait_in_sync()


def reload(cluster: ServedCluster) -> None:
    for node in cluster.nodes.values():
        node.signal(signal.SIGHUP)


# ---- a cluster that learns it while it serves


class Settings:
    """Changes settings of all nodes at run time."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = cka.AdminClient({"bootstrap.servers": bootstrap})

    def set(self, node: int, key: str, value: str) -> None:
        entry = cka.ConfigEntry(
            f"listener.{LISTENER}.{key}",
            value,
            incremental_operation=cka.AlterConfigOpType.SET,
        )
        resource = cka.ConfigResource(
            cka.ResourceType.BROKER, str(node), incremental_configs=[entry]
        )
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)


def grown(writer: KafkaWriter, count: int = 20) -> None:
    """Wait until so many more records are acknowledged."""
    wanted = len(writer.acknowledged) + count
    eventually(lambda: len(writer.acknowledged) >= wanted, f"{writer.name} is not answered")


def eventually(holds: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    pytest.fail(what)


@pytest.mark.parametrize("kind", ["certificates", "secret"])
def test_open_cluster_learns_to_insist_under_a_producer(
    cluster: ServedCluster, material: Material, kind: str
) -> None:
    cluster.start(*NODES)
    create_topic(cluster)
    writer = KafkaWriter("w", cluster.bootstrap(), 0)
    writer.start()
    grown(writer)
    # With the certificates, one by one; each side of a connection may be open still.
    for node in NODES:
        assert cluster.nodes[node].stop() == 0
        optional = {"tls": "optional", "authentication": "optional"}
        start(cluster, material, kind, optional, nodes=[node])
        cluster.wait_in_sync(node)
        grown(writer)
    # Insisting needs no restart.
    settings = Settings(cluster.bootstrap())
    for key in ("tls", "authentication"):
        for node in NODES:
            settings.set(node, key, "required")
            grown(writer)
            cluster.wait_in_sync(node)
    # Whether in words or by TLS itself.
    for stranger in (None, context()):
        refused(cluster, stranger)
    writer.stop()
    writer.join()
    log = read_all(cluster.bootstrap(), {KAFKA_TOPIC: PARTITIONS})
    assert judge(log, [writer], []) == []


def test_node_that_was_told_to_insist_while_it_ran_can_start_again(
    cluster: ServedCluster, material: Material
) -> None:
    """What connections between nodes need is in its log, and it hears of nothing else before."""
    start(cluster, material, "certificates", {})
    cluster.wait_in_sync()
    settings = Settings(cluster.bootstrap())
    for key, value in (("tls", "optional"), ("tls", "required"), ("authentication", "required")):
        for node in NODES:
            try:
                settings.set(node, key, value)
            except KafkaException:
                # Its answer was on a connection that has been closed because of the change.
                cluster.wait_in_sync(node)
                settings.set(node, key, value)
            cluster.wait_in_sync(node)
    assert cluster.nodes[3].stop() == 0
    start(cluster, material, "certificates", {}, nodes=[3])
    cluster.wait_in_sync(3)
    refused(cluster, context())
