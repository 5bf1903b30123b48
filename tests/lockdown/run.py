"""A cluster of open nodes of the release before is locked under load, by what an operator types.

make lockdown BEFORE=SRC_DIR SEED=1

Nodes are upgraded one by one, and recognise each other then; listeners and clients get TLS and
logins while both are optional; rules are tried in `audit`, then enforced, and everything becomes
required. Then certificates, their authority and the cluster's key are replaced. The checker demands
that no acknowledged record is lost or out of order, and that no prepared client sees an error: from
the upgrade on, not even a connection is lost, except those to a node that is restarted. The seed
decides about orders, and whether nodes recognise each other by certificates or by a secret.
"""

from __future__ import annotations

import argparse
import signal
import ssl
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

from chaos.checker import judge, read_all
from chaos.clients import (
    KAFKA_TOPIC,
    PARTITIONS,
    CursusWriter,
    GroupReader,
    KafkaWriter,
    MinibrokerPublishing,
    MlogPublishing,
    Publisher,
    Writer,
    cursus_settings,
)
from chaos.run import TOPICS
from dragoman.certificates import Authority
from dragoman.client.cursus import Login
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from dragoman.client.minibroker import BlockingMinibrokerClient, ClientSettings
from dragoman.errors import DragomanError
from lockdown.certificates import CERTIFIED, Certificates
from lockdown.cluster import NODES, LockedCluster
from lockdown.operator import Operator
from lockdown.strangers import Stranger, refusal_of_node, refusal_of_replay
from nodes.peer_caller import context

_PATIENCE_S = 120.0
_LOOK_S = 0.05
_LEVEL = 5
#: Records that every writer gets acknowledged between two steps.
_PROGRESS = 15
_CLIENT_LISTENERS = ("kafka", "cursus", "minibroker", "mlog")
#: Users with their passwords, and the rules that each needs: operations, resource, prefixed.
_USERS = {
    "shop": ("shop-password", (("write", "topic:chaos"),)),
    "billing": ("billing-password", (("read", "topic:chaos"), ("read", "group:chaos"))),
    "cursus-shop": ("cursus-password", (("write,describe", "topic:chaos-cursus"),)),
    "judge": ("judge-password", (("read", "topic:*"), ("read", "group:chaos-judge"))),
    "admin": ("admin-password", (("all", "cluster"),)),
    "stray": ("stray-password", ()),
}
#: Users without a password: by certificate, and by their network.
_OTHERS = {
    CERTIFIED: (("write,describe", "topic:chaos-minibroker"),),
    "mlog-shop": (("write,describe", "topic:chaos-mlog"),),
}


class Lockdown:
    def __init__(self, root: Path, cluster: LockedCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = Random(seed)
        self.by_secret = seed % 2 == 0
        self.secret = "between-nodes-" + "s" * 32
        self.root = root
        self.operator = Operator(cluster.data(1))
        self.certificates = Certificates(root / "certificates", self.operator)
        kafka, cursus = cluster.bootstrap(), cluster.bootstrap("cursus")
        self.kafka_writers = [KafkaWriter(f"kafka-{n}", kafka, n) for n in range(PARTITIONS)]
        self.cursus_writers = [CursusWriter(f"cursus-{n}", cursus, n) for n in range(PARTITIONS)]
        self.mlog = Publisher("mlog", partial(MlogPublishing, cluster.bootstrap("mlog")))
        self.minibroker = Publisher(
            "minibroker", partial(MinibrokerPublishing, cluster.bootstrap("minibroker"))
        )
        self.writers: list[Writer] = [
            *self.kafka_writers,
            *self.cursus_writers,
            self.mlog,
            self.minibroker,
        ]
        self.readers = [GroupReader(f"reader-{n}", kafka) for n in range(2)]
        self.faults: list[str] = []
        self.refusals: dict[str, str] = {}
        self.durations: dict[str, float] = {}

    # ---- steps

    @contextmanager
    def step(self, name: str, *, is_disturbing: bool = False) -> Iterator[None]:
        """A step, after which every client has gone on; connections are lost in disturbing ones
        only.
        """
        begun, before = time.monotonic(), self._interruptions()
        yield
        self.progress()
        lost = self._interruptions()[len(before) :] if not is_disturbing else []
        lost = [each for each in self._interruptions() if each not in before] if lost else []
        self.faults += [f"{name}: {each}" for each in lost]
        self.durations[name] = time.monotonic() - begun
        print(
            f"{name}: {self.durations[name]:.1f} s, {self.acknowledged():,} acknowledged",
            file=sys.stderr,
            flush=True,
        )

    def _interruptions(self) -> list[str]:
        found = []
        for client in (*self.kafka_writers, *self.readers):
            texts = client.complaints.interruptions
            found += [f"{client.name} ({n}): {text}" for n, text in enumerate(texts)]
        for publisher in (self.mlog, self.minibroker):
            texts = publisher.interruptions
            found += [f"{publisher.name} ({n}): {text}" for n, text in enumerate(texts)]
        return found

    def progress(self) -> None:
        """Wait until every writer has got more acknowledged, and the group has read more."""
        counts = [len(each.acknowledged) for each in self.writers]
        for writer, count in zip(self.writers, counts, strict=True):
            eventually(
                partial(_has_more, writer, count + _PROGRESS),
                lambda writer=writer: f"{writer.name} is not answered: {writer.failure}",
            )
        seen = sum(len(each.seen) for each in self.readers)
        eventually(
            lambda: sum(len(each.seen) for each in self.readers) > seen, "the group does not read"
        )

    def acknowledged(self) -> int:
        return sum(len(each.acknowledged) for each in self.writers)

    def shuffled(self, items: tuple[int, ...] = NODES) -> list[int]:
        return self.random.sample(items, len(items))

    # ---- what the operator does

    def begin(self) -> None:
        with self.step("three open nodes of the release before", is_disturbing=True):
            self.cluster.start(*NODES)
            with BlockingKafkaClient(self.cluster.bootstrap()) as client:
                for name, count in TOPICS.items():
                    topic = NewTopic(name=name, partitions=count, replication_factor=len(NODES))
                    client.create_topic(topic)
            for node in NODES:
                self.cluster.wait(lambda status: status.topics >= len(TOPICS), node)
            for each in (*self.writers, *self.readers):
                each.start()

    def upgrade(self) -> None:
        with self.step("upgrade, with certificates and keys", is_disturbing=True):
            self._make_key()
            for node in self.shuffled():
                settings = {
                    "cluster.key.file": self._key_file(node),
                    **self._certificate(node),
                    "listener.peer.tls": "optional",
                    "listener.peer.authentication": "optional",
                    # Later it would close the connections of these clients, which get a name.
                    "listener.mlog.principals": "127.0.0.0/8=mlog-shop",
                    **self._evidence(),
                }
                given = [f"{key}={value}" for key, value in settings.items()]
                self.cluster.upgrade(node, *(word for each in given for word in ("--set", each)))
            self.cluster.wait(lambda status: status.feature_level == _LEVEL)
            self.balance()

    def _certificate(self, node: int) -> dict[str, object]:
        certificate, key = self.certificates.of_node(node)
        return {
            "ssl.certificate.file": certificate,
            "ssl.key.file": key,
            "ssl.ca.file": self.certificates.trusted,
        }

    def _evidence(self) -> dict[str, object]:
        """The settings by which nodes recognise each other."""
        if not self.by_secret:
            return {"listener.peer.ssl.client.auth": "required"}
        path = self.root / "peer.secret"
        path.touch(mode=0o600)
        path.write_text(self.secret)
        return {"peer.secret.file": path}

    def balance(self) -> None:
        """Leaders move now, and not in a step that is to disturb nobody."""
        self.operator.types("cluster", "elect")
        self.cluster.wait_in_sync()

    def _key_file(self, node: int) -> Path:
        return self.root / f"cluster-{node}.key"

    def _make_key(self) -> None:
        first, *others = map(self._key_file, NODES)
        self.operator.types("security", "key", "new", str(first))
        for each in others:
            each.touch(mode=0o600)
            each.write_bytes(first.read_bytes())

    def make_listeners_optional(self) -> None:
        with self.step("listeners: TLS and logins optional"):
            self.operator.sets(
                "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/",
                "listener.minibroker.ssl.client.auth=requested",
            )
            for name in _CLIENT_LISTENERS:
                self.operator.sets(
                    f"listener.{name}.tls=optional", f"listener.{name}.authentication=optional"
                )

    def make_users(self) -> None:
        with self.step("users and rules"):
            for name, (password, rules) in _USERS.items():
                self.operator.types(
                    "user", "create", name, "--new-password", "stdin", secret=password
                )
                for operations, resource in rules:
                    self.operator.types("acl", "add", name, operations, resource)
            for name, rules in _OTHERS.items():
                for operations, resource in rules:
                    self.operator.types("acl", "add", name, operations, resource)
            words = ("user", "signing-secret", "shop", "--new-secret", "stdin")
            self.operator.types(*words, secret="signing-secret-of-shop")

    def stock(self, name: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """The settings of a prepared stock client."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.trusted),
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": _USERS[name][0],
        }

    def move_clients(self, name: str) -> None:
        """Every client connects anew, with TLS and as its user, one after the other."""
        with self.step(name):
            tls = self.certificates.without_certificate
            login = Login("cursus-shop", _USERS["cursus-shop"][0])
            mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
            moves: list[Callable[[], None]] = [
                partial(writer.move, self.stock("shop", mechanism))
                for writer, mechanism in zip(self.kafka_writers, mechanisms, strict=True)
            ]
            moves += [partial(reader.move, self.stock("billing")) for reader in self.readers]
            for cursus_writer in self.cursus_writers:
                moves.append(partial(cursus_writer.move, cursus_settings(tls, login)))
            mlog = partial(MlogPublishing, self.cluster.bootstrap("mlog"), tls)
            moves.append(partial(self.mlog.move, mlog))
            certified = self.certificates.of_client(CERTIFIED)
            minibroker = self.cluster.bootstrap("minibroker")
            moves.append(
                partial(self.minibroker.move, partial(MinibrokerPublishing, minibroker, certified))
            )
            self.random.shuffle(moves)
            for move in moves:
                move()
                self.progress()

    def audit(self) -> None:
        stray = Stranger(self.cluster.bootstrap(), {})
        with self.step("mode audit"):
            self.operator.types("security", "mode", "audit")
            self.progress()
            self.progress()
            found = [each for each in self.cluster.audited() if each["kind"] == "denial"]
            self.faults += [f"would be refused: {each}" for each in found]
        with self.step("an open client in mode audit"):
            self.expect("open client, audit", stray.write(), "")
            eventually(
                lambda: any(each["result"] == "audited" for each in self.cluster.audited()),
                "the audit log has nothing about an open client",
            )
        with self.step("mode enforce"):
            self.operator.types("security", "mode", "enforce")
            self.expect("open client, enforce", stray.write(), "TOPIC_AUTHORIZATION_FAILED")

    def require(self) -> None:
        with self.step("listeners: TLS and logins required"):
            self.operator.sets("listener.minibroker.ssl.client.auth=required")
            for name in (*_CLIENT_LISTENERS, "http"):
                self.operator.sets(
                    f"listener.{name}.tls=required", f"listener.{name}.authentication=required"
                )
        with self.step("between nodes: TLS and authentication required"):
            for key in ("tls", "authentication"):
                for node in self.shuffled():
                    self.operator.sets(f"listener.peer.{key}=required", node=node)
                    self.cluster.wait_in_sync(node)
                    self.progress()

    def expect(self, what: str, found: str, wanted: str) -> None:
        """Note the answer to a stranger, which has to contain these words."""
        self.refusals[what] = found or "accepted"
        if (wanted not in found) if wanted else found:
            self.faults.append(f"{what}: {found or 'accepted'}, not {wanted or 'accepted'}")

    def refuse_clients(self) -> None:
        with self.step("unprepared clients are refused"):
            kafka, ca = self.cluster.bootstrap(), str(self.certificates.trusted)
            encrypted = {"security.protocol": "SSL", "ssl.ca.location": ca}
            wrong = {**self.stock("shop"), "sasl.password": "guess"}
            self.expect("open client", Stranger(kafka, {}).write(), "_MSG_TIMED_OUT")
            self.expect("TLS, no login", Stranger(kafka, encrypted).write(), "_MSG_TIMED_OUT")
            self.expect("wrong password", Stranger(kafka, wrong).write(), "_AUTHENTICATION")
            no_rule = Stranger(kafka, self.stock("stray")).write()
            self.expect("user without a rule", no_rule, "TOPIC_AUTHORIZATION_FAILED")
            self.expect("minibroker, no certificate", self._minibroker(), "Error")

    def _minibroker(self, tls: object = None) -> str:
        """The error of a minibroker client, which has a few seconds."""
        settings = ClientSettings(
            tls=tls or self.certificates.without_certificate,  # type: ignore[arg-type]
            retry_for_s=3.0,
            repeats_publish=False,
        )
        try:
            with BlockingMinibrokerClient(self.cluster.bootstrap("minibroker"), settings) as client:
                client.publish("chaos-minibroker", b"stranger:0")
        except (DragomanError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def refuse_nodes(self) -> None:
        with self.step("false nodes are refused"):
            address = self.cluster.address(1, "peer")
            cluster_id = self.cluster.status().cluster_id
            foreign = self.certificates.stranger(2, Authority.create("foreign"))
            client = self.certificates.as_one_file(self.certificates.of_client("alice"))
            other = self.certificates.stranger(3, self.certificates.authority)
            ways: dict[str, ssl.SSLContext | None] = {
                "peer without TLS": None,
                "peer with no certificate": context(),
                "peer of a foreign authority": context(foreign),
                "peer with a client's certificate": context(client),
                "peer with another node's certificate": context(other),
            }
            for what, tls in ways.items():
                self.refusals[what] = refusal_of_node(address, tls, 2, cluster_id)
            if self.by_secret:
                replayed = refusal_of_replay(
                    address, context(), 2, cluster_id, self.secret.encode()
                )
            else:
                # What node 2 says first, by one who has no certificate of node 2.
                replayed = refusal_of_node(address, context(client), 2, cluster_id, b"n" * 32)
            self.refusals["replayed bytes"] = replayed
            self.cluster.wait_in_sync()

    # ---- rotation

    def reload(self) -> None:
        for node in NODES:
            self.cluster.nodes[node].signal(signal.SIGHUP)

    def issue(self) -> None:
        """New certificates of nodes, from the authority of the moment."""
        before = [_served(self.cluster.address(node, "kafka")) for node in NODES]
        for node in NODES:
            self.certificates.of_node(node)
        self.reload()
        for node, old in zip(NODES, before, strict=True):
            address = self.cluster.address(node, "kafka")
            eventually(
                lambda address=address, old=old: _served(address) != old,
                f"node {node} keeps its certificate",
            )

    def replace_certificates(self) -> None:
        with self.step("certificates of nodes are replaced"):
            self.issue()
        self.move_clients("clients connect anew")

    def replace_authority(self) -> None:
        old = self.certificates.authority
        new = self.certificates.new_authority()
        former = self.certificates.of_client(CERTIFIED)
        with self.step("both authorities are trusted"):
            self.certificates.trust(old, new)
            self.reload()
            known = self.certificates.of_client(CERTIFIED, new)
            eventually(lambda: not self._minibroker(known), "the new authority is not trusted")
            self.expect("client of the old authority", self._minibroker(former), "")
        self.certificates.authority = new
        with self.step("certificates of the new authority"):
            self.issue()
        self.move_clients("clients with the new authority")
        with self.step("the old authority is removed"):
            self.certificates.trust(new)
            self.reload()
            eventually(lambda: bool(self._minibroker(former)), "the old authority is trusted")
            self.expect("client of the removed authority", self._minibroker(former), "Error")
            stranger = self.certificates.stranger(2, old)
            self.refusals["peer of the removed authority"] = refusal_of_node(
                self.cluster.address(1, "peer"), context(stranger), 2, ""
            )
        with self.step("a node is restarted", is_disturbing=True):
            self.cluster.restart(self.random.choice(NODES))
            self.balance()
        self.move_clients("clients connect anew, the old authority gone")

    def replace_key(self) -> None:
        with self.step("the cluster's key is rotated"):
            first, *others = map(self._key_file, NODES)
            self.operator.types("security", "key", "new", str(first))
            for each in others:
                each.write_bytes(first.read_bytes())
            before = self.operator.types("security", "key", "status")
            self.operator.types("security", "key", "rotate")
            after = self.operator.types("security", "key", "status")
            current = [each.splitlines()[0] for each in (before, after)]
            if current[0] == current[1]:
                self.faults.append(f"the key is not rotated: {current[0]}")

    # ---- the judgement

    def finish(self) -> None:
        for each in self.writers:
            each.stop()
        for each in self.writers:
            each.join()
        log = read_all(self.cluster.bootstrap(), TOPICS, self.stock("judge"))
        ends = {place for place in log if place.topic == KAFKA_TOPIC}
        eventually(
            lambda: ends <= {place for each in self.readers for place in each.seen.copy()},
            "the group does not read to the end",
        )
        for reader in self.readers:
            reader.stop()
        for reader in self.readers:
            reader.join()
        self.faults += judge(log, self.writers, self.readers)
        for client in (*self.kafka_writers, *self.readers):
            self.faults += [f"{client.name}: {each}" for each in client.complaints.errors]
        denied = Counter(
            each["principal"]
            for each in self.cluster.audited()
            if each["kind"] == "denial" and each["result"] == "denied"
        )
        prepared = {f"User:{name}" for name in (*_USERS, *_OTHERS)} - {"User:stray"}
        self.faults += [
            f"{name} was refused {denied[name]} times" for name in denied if name in prepared
        ]


def _has_more(writer: Writer, count: int) -> bool:
    if writer.failure is not None:
        raise writer.failure
    assert not writer.errors, f"{writer.name}: {writer.errors[0]}"
    return len(writer.acknowledged) >= count


def eventually(holds: Callable[[], bool], what: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    pause = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(what if isinstance(what, str) else what())
        pause.wait(_LOOK_S)


def _served(address: str) -> str:
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=30)


def run(root: Path, before: Path, seed: int) -> Lockdown:
    with LockedCluster(root, before) as cluster:
        lockdown = Lockdown(root, cluster, seed)
        try:
            lockdown.begin()
            lockdown.upgrade()
            lockdown.make_listeners_optional()
            lockdown.make_users()
            lockdown.move_clients("clients move to TLS and logins, one by one")
            lockdown.audit()
            lockdown.require()
            lockdown.refuse_clients()
            lockdown.replace_certificates()
            lockdown.replace_authority()
            lockdown.replace_key()
            lockdown.refuse_nodes()
            lockdown.finish()
        except BaseException:
            for node, each in cluster.nodes.items():
                print(f"node {node}", *each.log[-30:], sep="\n  ", file=sys.stderr)
            print(*lockdown.faults, sep="\n", file=sys.stderr)
            raise
        return lockdown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, metavar="SRC_DIR")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        done = run(Path(directory), options.before.resolve(), options.seed)
    kind = "a secret" if done.by_secret else "certificates"
    print(f"seed {options.seed}: nodes recognise each other by {kind}")
    for name, seconds in done.durations.items():
        print(f"{name:52}{seconds:8.1f} s")
    for what, answer in done.refusals.items():
        print(f"{what:40}{answer}")
    for writer in done.writers:
        print(f"acknowledged, {writer.name:26}{len(writer.acknowledged):>12,}")
    print(f"{'acknowledged':40}{done.acknowledged():>12,}")
    print(f"{'commands':40}{done.operator.commands:>12,}")
    print(f"{'violations':40}{len(done.faults):>12,}")
    print(f"{'seconds':40}{time.monotonic() - begun:>12,.0f}")
    for each in done.faults:
        print(f"VIOLATION {each}")
    return int(bool(done.faults))


if __name__ == "__main__":
    sys.exit(main())
