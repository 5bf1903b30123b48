"""The runbook of upgrades with the release before: three nodes go forward, back and forward again
under a producer, and a node on its own returns to its copy.

    make deploy-check ARGS=upgrade BEFORE=SRC_DIR
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from chaos.checker import judge, read_all
from chaos.clients import KAFKA_TOPIC, PARTITIONS, KafkaWriter
from deploy_check.command import BUILD, CheckError, NotRun
from deploy_check.faults.machine import Machine, machine
from deploy_check.faults.prometheus import wait
from deploy_check.faults.runbook import RUNBOOKS, Step, follow, steps
from deploy_check.faults.served import NodeService, SingleNode, dragoman, variables_of
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from dragoman.log.node import FEATURE_LEVEL
from nodes.cluster import ServedCluster
from nodes.process import ServedNode

_PROGRESS = 50


def check() -> None:
    named = os.environ.get("BEFORE")
    if not named:
        raise NotRun("BEFORE does not name the sources of the release before")
    before = Path(named).resolve()
    home = BUILD / "upgrade"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    old = ("env", f"PYTHONPATH={before}", sys.executable)
    with machine(home) as commands:
        _cluster(home, commands, old)
        _single(home, commands, old)


def _cluster(home: Path, commands: Machine, old: tuple[str, ...]) -> None:
    pages = steps(RUNBOOKS / "upgrade-and-rollback.md")
    with ServedCluster(home, 3) as cluster:
        cluster.launchers = dict.fromkeys((1, 2, 3), old)
        cluster.start(1, 2, 3)
        with BlockingKafkaClient(cluster.bootstrap()) as client:
            new = NewTopic(name=KAFKA_TOPIC, partitions=PARTITIONS, replication_factor=3)
            client.create_topic(new)
        writer = KafkaWriter("writer", cluster.bootstrap(), 0)
        writer.start()

        def install(node: int, release: tuple[str, ...]) -> None:
            def begin() -> ServedNode:
                cluster.launchers[node] = release
                return cluster.begin(node)

            commands.services = [NodeService(begin, lambda: cluster.nodes[node])]
            _run(pages["Each node"], commands, variables_of(cluster, node, by=node % 3 + 1))
            _grows(writer)

        level = cluster.status().feature_level
        _run(pages["Before"], commands, variables_of(cluster, 1, by=1))
        for node, release in ((1, ()), (2, ()), (2, old), (1, old), (1, ()), (2, ())):
            install(node, release or (sys.executable,))
            if cluster.status(3).feature_level != level:
                raise CheckError("the feature level has risen too early")
        print(f"  two of three nodes upgraded and rolled back at level {level}, under load")
        install(3, (sys.executable,))
        cluster.wait(lambda status: status.feature_level == FEATURE_LEVEL)
        _run(pages["After"], commands, variables_of(cluster, 1, by=1))
        writer.stop()
        writer.join()
        if faults := judge(read_all(cluster.bootstrap(), {KAFKA_TOPIC: PARTITIONS}), [writer], []):
            raise CheckError(f"the log is wrong: {faults}")
        print(f"  upgraded to level {FEATURE_LEVEL}: {len(writer.acknowledged)} records, none lost")
        if level < FEATURE_LEVEL:
            _refused(cluster, old)


def _refused(cluster: ServedCluster, old: tuple[str, ...]) -> None:
    cluster.nodes[3].stop()
    cluster.launchers[3] = old
    older = cluster.begin(3)
    if older.finish() != 2 or "feature level" not in older.log[-1]:
        raise CheckError(f"the old release takes the directory: {older.log}")
    print(f"  the old release is refused afterwards: {older.log[-1].strip()}")


def _single(home: Path, commands: Machine, old: tuple[str, ...]) -> None:
    """Backed up with the old release, upgraded, and returned to the copy."""
    pages = steps(RUNBOOKS / "backup-and-restore.md")
    data = home / "single"
    with SingleNode(data, launcher=old) as served:
        to = ("--bootstrap", served.kafka)
        dragoman("topic", "create", "orders", "--partitions", "1", "--server", served.url)
        dragoman("produce", "orders", *to, standard_input="before\n")
        commands.services = [served.service]
        variables = served.variables(COPY=f"{data}.copy")
        _run(pages["A node that is stopped"], commands, variables)
        served.service.stop()
        served.launcher = (sys.executable,)
        served.service.start()
        dragoman("produce", "orders", *to, standard_input="after\n")
        served.launcher = old
        _run(pages["A node on its own"][:1], commands, variables)
        if dragoman("consume", "orders", *to) != "before\n":
            raise CheckError("the copy does not have the records of before")
    print("  a node on its own has returned to the release before by its copy")


def _run(found: list[Step], commands: Machine, variables: dict[str, str]) -> None:
    for step in found:
        environment = commands.environment(variables)
        follow(step, environment=environment, launcher=(), patiently=bool(step.shown))


def _grows(writer: KafkaWriter) -> None:
    wanted = len(writer.acknowledged) + _PROGRESS
    wait(lambda: len(writer.acknowledged) >= wanted, "the producer is not answered")
