"""Torture of nodes that run a capture: killed, stopped and frozen, one after the other, under load.

    PYTHONPATH=src:tests:examples python -m torture.capture_nodes --seed 1 --rounds 10

Three nodes as processes, a real PostgreSQL. A node that is frozen does not know that others lead
what it led, and its capture continues beside the new one until that one's writes fence it. Fails
when anything is lost, doubled or out of order.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from captures.rows import Writer, checked, empty, everything
from demo.postgres import LocalPostgres
from dragoman.api.values import CaptureDescription, Told
from dragoman.captures.definition import Definition
from dragoman.cli.status import CommandError
from nodes.cluster import ServedCluster

_PATH = "/api/v1/captures"
_WAIT_S = 180


class Scene:
    def __init__(self, cluster: ServedCluster) -> None:
        self._cluster = cluster

    def look(self, node: int) -> CaptureDescription | None:
        """None: it does not say."""
        try:
            return self._cluster.remote(node).get(f"{_PATH}/shop", CaptureDescription)
        except CommandError:
            return None

    def wait(self, node: int, holds: Callable[[CaptureDescription], bool]) -> CaptureDescription:
        deadline = time.monotonic() + _WAIT_S
        last = None
        while time.monotonic() < deadline:
            last = self.look(node)
            if last is not None and holds(last):
                return last
            time.sleep(0.1)
        logs = {number: each.log[-10:] for number, each in self._cluster.nodes.items()}
        raise AssertionError(f"node {node} says {last}; {logs}")

    def round(self, kind: str, victim: int) -> None:
        cluster = self._cluster
        node = cluster.nodes[victim]
        asked = victim % 3 + 1
        if kind == "kill":
            node.kill()
        elif kind == "stop":
            assert node.stop() == 0
        else:
            node.signal(signal.SIGSTOP)
        self.wait(asked, lambda each: each.node not in (victim, None))
        before = self.wait(asked, lambda each: each.status.state == "streaming").rows
        self.wait(asked, lambda each: each.rows > before + 100)
        if kind == "freeze":
            node.signal(signal.SIGCONT)
        else:
            cluster.start(victim)
        cluster.wait_in_sync(asked)
        self.wait(asked, lambda each: each.status.state == "streaming")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kinds", default="kill,stop,freeze", help="with commas")
    told = parser.parse_args()
    dice = random.Random(told.seed)
    postgres = LocalPostgres().start()
    try:
        writer = Writer(empty(postgres.dsn()))
        with (
            tempfile.TemporaryDirectory() as directory,
            ServedCluster(Path(directory), 3) as cluster,
        ):
            cluster.start(1, 2, 3)
            scene = Scene(cluster)
            definition = Definition(
                name="shop", dsn=postgres.dsn(), tables=("orders",), snapshot="never"
            )
            cluster.remote().post(_PATH, definition, CaptureDescription)
            scene.wait(1, lambda each: each.status.state == "streaming")
            with writer:
                for number in range(told.rounds):
                    kind = dice.choice(told.kinds.split(","))
                    victim = scene.wait(1, lambda each: each.node is not None).node
                    assert victim is not None
                    began = time.monotonic()
                    scene.round(kind, victim)
                    took = time.monotonic() - began
                    print(f"round {number}: {kind} {victim}, {took:.1f} s, rows {writer.rows}")
            wanted = 2 * writer.rows - 1
            deadline = time.monotonic() + _WAIT_S
            while len(everything(cluster.bootstrap())) < wanted and time.monotonic() < deadline:
                time.sleep(1)
            checked(everything(cluster.bootstrap()), writer.rows)
            cluster.remote().remove(f"{_PATH}/shop", Told)
            secret = postgres.password
            assert not any(secret in line for each in cluster.nodes.values() for line in each.log)
    finally:
        postgres.stop()
        postgres.remove()
    print(f"{wanted} changes over {told.rounds} rounds: each once and in order")


if __name__ == "__main__":
    main()
