"""Faults of nodes and of a cluster: three nodes, of which one or two die, pause or are damaged."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy_check.faults.prometheus import Prometheus, wait
from deploy_check.faults.served import attempt, dragoman, service_of, variables_of
from deploy_check.faults.trial import Fault, Raised
from dragoman.certificates import authority_in, write_pair
from nodes.cluster import ServedCluster

_NODES = (1, 2, 3)
#: Longer than a node may be silent.
_PAUSE_S = 2.5
_OPTIONS = (
    *("--set", "listener.kafka-tls.tls=required"),
    *("--set", "leader.imbalance.check.interval.seconds=1"),
    *("--set", "offsets.topic.num.partitions=3"),
)


@contextmanager
def stage(home: Path, prometheus: Prometheus) -> Iterator[tuple[Fault, ...]]:
    with ServedCluster(home, len(_NODES), *_OPTIONS, listeners=("kafka-tls",)) as cluster:
        faults = _Faults(home, cluster, prometheus)
        cluster.start(*_NODES)
        prometheus.scrape(*(cluster.address(node, "http") for node in _NODES))
        create = ("topic", "create", "--server", cluster.url(1))
        dragoman(*create, "orders", "--partitions", "3")
        dragoman(*create, "alone", "--partitions", "3", "--replication-factor", "1")
        cluster.wait_in_sync()
        yield faults.all()


class _Faults:
    def __init__(self, home: Path, cluster: ServedCluster, prometheus: Prometheus) -> None:
        self._home = home
        self._cluster = cluster
        self._prometheus = prometheus
        self._services = {node: service_of(cluster, node) for node in _NODES}
        self._authority = authority_in(str(home / "certificates"))
        for node in _NODES:
            self._certificate_folder(node).mkdir()
            self._write_certificate(node)
        begin = cluster.begin
        cluster.begin = lambda node, *more, **named: begin(  # type: ignore[method-assign]
            node,
            *("--set", f"ssl.certificate.file={self._certificate_folder(node)}/server.pem"),
            *("--set", f"ssl.key.file={self._certificate_folder(node)}/server-key.pem"),
            *more,
            **named,
        )

    def all(self) -> tuple[Fault, ...]:
        return (
            Fault("DragomanNodeDown", "`kill -9` of a node", self._dead),
            Fault("DragomanUnderReplicated", "`kill -9` of a node", self._under_replicated),
            Fault(
                "DragomanOfflinePartitions", "`kill -9` of an only replica's node", self._offline
            ),
            Fault(
                "DragomanFewInSyncReplicas", "`kill -9` with a topic that asks for all", self._few
            ),
            Fault("DragomanNoQuorum", "`kill -9` of two of three nodes", self._no_quorum),
            Fault(
                "DragomanMetadataElections",
                "the controller pauses, again and again",
                self._elections,
            ),
            Fault("DragomanLeadersChange", "a node pauses, again and again", self._leaders),
            Fault("DragomanNodeRestarts", "`kill -9` three times", self._restarts),
            Fault("DragomanMixedReleases", "a node of another release", self._releases),
            Fault("DragomanCertificateExpires", "a certificate for three days", self._certificate),
            Fault("DragomanDamage", "a flipped bit in a segment without replicas", self._damage),
            Fault("DragomanDamageFound", "a flipped bit in a segment with replicas", self._found),
        )

    def _raised(self, node: int, by: int = 1, *nodes: int, **more: str) -> Raised:
        """About one node, with the commands of its runbook sent to another."""
        variables = variables_of(self._cluster, node, by) | more
        services = [self._services[each] for each in nodes or (node,)]
        return Raised({"instance": variables["ADDRESS"]}, variables, services)

    def _of_cluster(self, raised: Raised) -> Raised:
        return raised._replace(labels={})

    # ---- nodes that die

    def _dead(self) -> Iterator[Raised]:
        self._services[3].kill()
        yield self._raised(3)
        self._cluster.wait_in_sync()

    def _under_replicated(self) -> Iterator[Raised]:
        self._services[3].kill()
        # Both nodes that are left lead some.
        yield self._of_cluster(self._raised(3, TOPIC="orders"))
        self._cluster.wait_in_sync()

    def _offline(self) -> Iterator[Raised]:
        self._services[3].kill()
        yield self._of_cluster(self._raised(3, TOPIC="alone"))
        self._cluster.wait_in_sync()

    def _few(self) -> Iterator[Raised]:
        create = (
            "topic",
            "create",
            "strict",
            "--partitions",
            "3",
            "--server",
            self._cluster.url(1),
        )
        dragoman(*create, "--config", "min.insync.replicas=3")
        self._services[3].kill()
        yield self._of_cluster(self._raised(3, TOPIC="strict"))
        self._services[3].start()
        self._cluster.wait_in_sync()
        dragoman("topic", "delete", "strict", "--yes", "--server", self._cluster.url(1))

    def _no_quorum(self) -> Iterator[Raised]:
        found = self._cluster.remote().topic("orders").partitions
        index = str(next(each.partition for each in found if each.leader == 1))
        own = ("orders", "--partition", index, "--bootstrap", self._cluster.address(1, "kafka"))
        dragoman("produce", *own, standard_input="a record\n")
        for node in (2, 3):
            self._services[node].kill()
        # The page says that what a node leads is still read.
        dragoman("consume", *own, "--max", "1")
        yield self._raised(1, 1, 2, 3)
        self._cluster.wait_in_sync()

    # ---- nodes that pause

    def _elections(self) -> Iterator[Raised]:
        for _ in range(5):
            self._pause(self._controller())
        yield self._of_cluster(self._raised(1))
        self._cluster.wait_in_sync()

    def _leaders(self) -> Iterator[Raised]:
        node = next(each for each in _NODES if each != self._controller())
        led = self._led_by(node)
        for _ in range(8):
            self._pause(node)
            wait(lambda: self._led_by(node) >= led, "leaders do not return")
        yield self._of_cluster(self._raised(node, node))
        self._cluster.wait_in_sync()

    def _controller(self) -> int:
        return self._cluster.wait(lambda status: status.controller is not None).controller or 0

    def _led_by(self, node: int) -> int:
        status = self._cluster.status(next(each for each in _NODES if each != node))
        return next(each.leads for each in status.nodes if each.node_id == node)

    def _pause(self, node: int) -> None:
        self._services[node].signal(signal.SIGSTOP)
        time.sleep(_PAUSE_S)
        self._services[node].signal(signal.SIGCONT)
        self._cluster.wait_in_sync(next(each for each in _NODES if each != node))

    # ---- lives

    def _restarts(self) -> Iterator[Raised]:
        uptime = f'dragoman_uptime_seconds{{instance="{self._cluster.address(3, "http")}"}}'
        for _ in range(3):
            # Each life is long enough to be seen, and each start seen before the next.
            self._prometheus.until(f"{uptime} > 3", "the node is not scraped")
            self._services[3].kill()
            self._services[3].start()
            self._prometheus.until(f"{uptime} < 3", "the start is not seen")
        yield self._raised(3)
        self._cluster.wait_in_sync()

    def _releases(self) -> Iterator[Raised]:
        self._services[2].stop()
        self._cluster.modules[2] = "deploy_check.other_release"
        self._services[2].start()
        # The runbook stops and starts it; in between, the release is installed.
        begin = self._cluster.begin
        self._cluster.begin = self._installing(begin)  # type: ignore[method-assign]
        yield self._of_cluster(self._raised(2))
        self._cluster.begin = begin  # type: ignore[method-assign]
        self._cluster.wait_in_sync()

    def _installing(self, begin: Callable[..., object]) -> Callable[..., object]:
        def installed(node: int, *more: str, **named: object) -> object:
            self._cluster.modules.pop(node, None)
            return begin(node, *more, **named)

        return installed

    # ---- files

    def _certificate_folder(self, node: int) -> Path:
        return self._home / f"certificates-{node}"

    def _write_certificate(self, node: int, days: int = 365) -> None:
        pair = self._authority.server(["localhost"], days=days)
        write_pair(str(self._certificate_folder(node)), "server", pair)

    def _certificate(self) -> Iterator[Raised]:
        self._write_certificate(2, days=3)
        self._services[2].reload()
        raised = self._raised(2, 2, LISTENER_ADDRESS=self._cluster.address(2, "kafka-tls"))
        # What the second step of the runbook asks for, before the third reloads it.
        reload = self._services[2].reload
        self._services[2].reload = lambda: (self._write_certificate(2), reload())  # type: ignore
        yield raised
        self._services[2].reload = reload  # type: ignore[method-assign]

    def _damage(self) -> Iterator[Raised]:
        leader = self._flip_a_bit("fruit", 1)
        yield self._raised(leader, leader, TOPIC="fruit")

    def _found(self) -> Iterator[Raised]:
        leader = self._flip_a_bit("vegetables", 3)
        yield self._raised(leader, leader)

    def _flip_a_bit(self, topic: str, replicas: int) -> int:
        """In a segment that its leader has read; which node that is."""
        url, where = self._cluster.url(1), ("--bootstrap", self._cluster.bootstrap())
        options = ("--partitions", "1", "--replication-factor", str(replicas))
        small = ("--config", "segment.bytes=16384")
        dragoman("topic", "create", topic, *options, *small, "--server", url)
        for number in range(8):
            lines = "".join(f"{number} {index} {'apple' * 20}\n" for index in range(100))
            dragoman("produce", topic, *where, standard_input=lines)
        status = self._cluster.remote().topic(topic)
        leader = status.partitions[0].leader
        assert leader is not None
        self._services[leader].stop()
        segment = sorted(self._cluster.data(leader).glob(f"partitions/*-{topic}-0/*.log"))[1]
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 0xFF
        segment.write_bytes(data)
        self._services[leader].start()
        self._cluster.wait(
            lambda _: self._cluster.remote().topic(topic).partitions[0].leader == leader
        )
        attempt("consume", topic, "--max", "800", *where)
        return leader
