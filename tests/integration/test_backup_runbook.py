"""Goal: backup, restore, upgrade and rollback work as their runbooks say.

Method: the blocks of commands of the pages are run as they are written, on real nodes, the frozen
copy under load. `systemctl` in them is that of the nodes here.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from deploy_check.faults.machine import Machine, machine
from deploy_check.faults.runbook import RUNBOOKS, Step, follow, steps
from deploy_check.faults.served import (
    NodeService,
    SingleNode,
    dragoman,
    service_of,
    variables_of,
)
from dragoman.log.node import FEATURE_LEVEL
from nodes.cluster import ServedCluster
from nodes.ports import free_ports

BACKUP = steps(RUNBOOKS / "backup-and-restore.md")
UPGRADE = steps(RUNBOOKS / "upgrade-and-rollback.md")
TOPIC = "orders"


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as found:
        yield found


def run(found: list[Step], commands: Machine, variables: dict[str, str]) -> None:
    for step in found:
        # What only looks is repeated until it shows what it should.
        environment = commands.environment(variables)
        follow(step, environment=environment, launcher=(), patiently=bool(step.shown))


class Load:
    """A stock producer that keeps sending, and what was acknowledged to it."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._is_over = threading.Event()
        self._grown = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce(TOPIC, str(number), on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.001)

    def _delivered(self, error: object, message: Message) -> None:
        value = message.value()
        assert error is None
        assert isinstance(value, bytes)
        with self._grown:
            self.acknowledged.append(value.decode())
            self._grown.notify_all()

    def wait_for(self, count: int) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.acknowledged) >= count, 60)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.flush(60)


def read(bootstrap: str) -> list[str]:
    return dragoman("consume", TOPIC, "--bootstrap", bootstrap).splitlines()


def created(served: SingleNode) -> dict[str, str]:
    dragoman("topic", "create", TOPIC, "--partitions", "1", "--server", served.url)
    return served.variables(
        TOPIC=TOPIC,
        COPY=f"{served.data}.copy",
        SPARE_PORT=str(next(free_ports())),
    )


def produce(served: SingleNode, *lines: str) -> None:
    text = "".join(f"{line}\n" for line in lines)
    dragoman("produce", TOPIC, "--bootstrap", served.kafka, standard_input=text)


def test_every_section_with_commands_is_run_here() -> None:
    with_commands = {title for title, found in BACKUP.items() if found}
    assert with_commands == {
        "A node that is stopped",
        "A node that is frozen",
        "Check a copy",
        "A node on its own",
        "A node of a cluster",
        "A single topic",
    }
    assert {title for title, found in UPGRADE.items() if found} == {"Before", "Each node", "After"}


def test_copy_of_a_stopped_node_has_everything(tmp_path: Path, commands: Machine) -> None:
    with SingleNode(tmp_path / "node") as served:
        variables = created(served)
        commands.services = [served.service]
        produce(served, "before")
        run(BACKUP["A node that is stopped"], commands, variables)
        run(BACKUP["Check a copy"], commands, variables)
        produce(served, "after")
        run(BACKUP["A node on its own"], commands, variables)
        assert read(served.kafka) == ["before"]


def test_copy_keeps_the_number_of_its_node(tmp_path: Path) -> None:
    with SingleNode(tmp_path / "node") as served:
        served.service.stop()
    other = SingleNode(tmp_path / "node", "--node-id", "2")
    assert other.node.finish() == 2
    message = "the data directory belongs to node 1, but node.id is 2"
    assert message in other.node.log[-1]
    assert message in (RUNBOOKS / "backup-and-restore.md").read_text()


def test_copy_of_a_frozen_node_under_load_has_what_was_acknowledged_before(
    tmp_path: Path, commands: Machine
) -> None:
    with SingleNode(tmp_path / "node") as served:
        variables = created(served)
        commands.services = [served.service]
        load = Load(served.kafka)
        load.wait_for(2000)
        before = len(load.acknowledged)
        run(BACKUP["A node that is frozen"], commands, variables)
        load.wait_for(before + 2000)
        load.stop()
        run(BACKUP["Check a copy"], commands, variables)
        run(BACKUP["A node on its own"], commands, variables)
        found = read(served.kafka)
    assert len(found) >= before
    # In order and without a gap, as they were sent.
    assert found == [str(number) for number in range(len(found))]


def test_single_topic_is_copied_from_a_backup(tmp_path: Path, commands: Machine) -> None:
    with SingleNode(tmp_path / "node") as served:
        variables = created(served)
        commands.services = [served.service]
        produce(served, "first", "second")
        run(BACKUP["A node that is frozen"], commands, variables)
        dragoman("topic", "delete", TOPIC, "--yes", "--server", served.url)
        dragoman("topic", "create", TOPIC, "--partitions", "1", "--server", served.url)
        run(BACKUP["A single topic"], commands, variables)
        assert read(served.kafka) == ["first", "second"]


def test_lost_node_of_a_cluster_returns_with_an_empty_directory(
    tmp_path: Path, commands: Machine
) -> None:
    with ServedCluster(tmp_path, 3) as cluster:
        cluster.start(1, 2, 3)
        create = ("--partitions", "3", "--server", cluster.url(1))
        dragoman("topic", "create", TOPIC, *create)
        to = ("--bootstrap", cluster.bootstrap())
        dragoman("produce", TOPIC, *to, standard_input="".join(f"{n}\n" for n in range(100)))
        cluster.wait_in_sync()
        lost = service_of(cluster, 3)
        lost.kill()
        commands.services = [lost]
        variables = variables_of(cluster, 3, by=1) | {"NODE_ADDRESS": cluster.name(3)}
        run(BACKUP["A node of a cluster"], commands, variables)
        found = dragoman("consume", TOPIC, *to).split()
        assert sorted(map(int, found)) == list(range(100))
        partitions = cluster.remote().topic(TOPIC).partitions
        assert all(sorted(each.in_sync) == [1, 2, 3] for each in partitions)


def test_copies_of_all_stopped_nodes_are_a_backup_of_the_cluster(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, 3) as cluster:
        cluster.start(1, 2, 3)
        dragoman("topic", "create", TOPIC, "--partitions", "3", "--server", cluster.url(1))
        to = ("--bootstrap", cluster.bootstrap())
        dragoman("produce", TOPIC, *to, standard_input="".join(f"{n}\n" for n in range(100)))
        stop(cluster)
        for node in (1, 2, 3):
            shutil.copytree(cluster.data(node), tmp_path / f"copy-{node}")
        alone = cluster.begin(1, cluster=[])
        assert alone.finish() == 2
        assert "name all of them with --cluster" in alone.log[-1]
        cluster.start(1, 2, 3)
        dragoman("produce", TOPIC, *to, standard_input="later\n")
        stop(cluster)
        for node in (1, 2, 3):
            cluster.wipe(node)
            shutil.copytree(tmp_path / f"copy-{node}", cluster.data(node))
        cluster.start(1, 2, 3)
        cluster.wait_in_sync()
        found = dragoman("consume", TOPIC, *to).split()
        assert sorted(map(int, found)) == list(range(100))


def stop(cluster: ServedCluster) -> None:
    for node in (1, 2, 3):
        cluster.nodes[node].signal(15)
    for node in (1, 2, 3):
        assert cluster.nodes[node].finish() == 0


def test_upgrade_and_rollback_follow_the_runbook(tmp_path: Path, commands: Machine) -> None:
    with ServedCluster(tmp_path, 3) as cluster:
        cluster.start(1, 2, 3)
        cluster.wait_in_sync()
        install = partial(installed, cluster, commands)
        variables = variables_of(cluster, 1, by=1)
        run(UPGRADE["Before"], commands, variables)
        install(1, "nodes.newer_release")
        install(2, "nodes.newer_release")
        # The level is still the old one: a node may return.
        install(2, "dragoman.cli.main")
        assert cluster.status().feature_level == FEATURE_LEVEL
        install(2, "nodes.newer_release")
        install(3, "nodes.newer_release")
        run(UPGRADE["After"], commands, variables)
        status = cluster.wait(lambda status: status.feature_level == FEATURE_LEVEL + 1)
        assert {each.feature_level for each in status.nodes} == {FEATURE_LEVEL + 1}
        cluster.nodes[2].stop()
        cluster.modules[2] = "dragoman.cli.main"
        older = cluster.begin(2)
        assert older.finish() == 2
        refusal = f"uses feature level {FEATURE_LEVEL + 1}, this release knows {FEATURE_LEVEL}"
        assert refusal in older.log[-1]


def installed(cluster: ServedCluster, commands: Machine, node: int, module: str) -> None:
    """Follow the steps for a node, whose release is exchanged while it is stopped."""

    class Installing(NodeService):
        def start(self) -> None:
            cluster.modules[node] = module
            super().start()

    commands.services = [Installing(lambda: cluster.begin(node), lambda: cluster.nodes[node])]
    variables = variables_of(cluster, node, by=1 if node != 1 else 2)
    run(UPGRADE["Each node"], commands, variables)
