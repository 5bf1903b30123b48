"""Cycles of kill -9, pause and restart on three nodes under load, and then the judgement.

make chaos CYCLES=500 SEED=1
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from random import Random

from chaos.checker import judge, read_all
from chaos.clients import (
    KAFKA_TOPIC,
    MINIBROKER_TOPIC,
    MLOG_TOPIC,
    PARTITIONS,
    GroupReader,
    KafkaWriter,
    MinibrokerPublishing,
    MlogPublishing,
    Publisher,
    Writer,
)
from dragoman.client.kafka import LATEST, BlockingKafkaClient, NewTopic, TopicPartition
from served_cluster import ServedCluster

NODES = (1, 2, 3)
TOPICS = {KAFKA_TOPIC: PARTITIONS, MLOG_TOPIC: 1, MINIBROKER_TOPIC: PARTITIONS}
_PATIENCE_S = 120.0


class Chaos:
    def __init__(self, cluster: ServedCluster, seed: int) -> None:
        self.cluster = cluster
        self._random = Random(seed)
        kafka = cluster.bootstrap()
        self.writers: list[Writer] = [
            *(KafkaWriter(f"kafka-{n}", kafka, n % PARTITIONS) for n in range(PARTITIONS + 1)),
            Publisher("mlog", partial(MlogPublishing, cluster.bootstrap("mlog"))),
            Publisher("minibroker", partial(MinibrokerPublishing, cluster.bootstrap("minibroker"))),
        ]
        self.readers = [GroupReader(f"reader-{n}", kafka) for n in range(2)]

    def begin(self) -> None:
        self.cluster.start(*NODES)
        with BlockingKafkaClient(self.cluster.bootstrap()) as client:
            for name, count in TOPICS.items():
                client.create_topic(NewTopic(name=name, partitions=count, replication_factor=3))
        for each in (*self.writers, *self.readers):
            each.start()

    def cycle(self) -> str:
        """One fault, and back to health. Returns what it was."""
        random = self._random
        victims = random.sample(NODES, random.choices((1, 2, 3), (6, 2, 1))[0])
        kinds = {node: random.choice(("kill", "kill", "pause")) for node in victims}
        for node, kind in kinds.items():
            self._fault(node, kind)
            time.sleep(random.uniform(0.0, 0.3))
        time.sleep(random.uniform(0.2, 2.5))
        for node, kind in kinds.items():
            if kind == "pause":
                self.cluster.nodes[node].signal(signal.SIGCONT)
            else:
                self.cluster.begin(node)
        for node, kind in kinds.items():
            if kind == "kill":
                self.cluster.nodes[node].ready()
        self.cluster.wait_in_sync(random.choice(NODES))
        time.sleep(random.uniform(0.0, 1.0))
        return ", ".join(f"{kind} {node}" for node, kind in kinds.items())

    def _fault(self, node: int, kind: str) -> None:
        if kind == "kill":
            self.cluster.nodes[node].kill()
        else:
            self.cluster.nodes[node].signal(signal.SIGSTOP)

    def finish(self) -> list[str]:
        """What is wrong."""
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.join()
        self._wait_for_readers()
        for reader in self.readers:
            reader.stop()
        for reader in self.readers:
            reader.join()
        log = read_all(self.cluster.bootstrap(), TOPICS)
        return judge(log, self.writers, self.readers)

    def _wait_for_readers(self) -> None:
        """The group goes on by itself, and comes to the end."""
        with BlockingKafkaClient(self.cluster.bootstrap()) as client:
            wanted = {TopicPartition(KAFKA_TOPIC, n): LATEST for n in range(PARTITIONS)}
            ends = {where: each.offset for where, each in client.list_offsets(wanted).items()}
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            read = {place for reader in self.readers for place in reader.seen.copy()}
            if all((*where, end - 1) in read for where, end in ends.items() if end):
                return
            time.sleep(0.1)

    def summary(self) -> str:
        counts = ", ".join(f"{each.name} {len(each.acknowledged)}" for each in self.writers)
        seen = sum(len(each.seen) for each in self.readers)
        return f"acknowledged: {counts}; read by the group: {seen}"


def run(directory: Path, cycles: int, seed: int) -> tuple[list[str], str]:
    """What is wrong, and what was done."""
    with ServedCluster(directory, 3, listeners=("mlog", "minibroker")) as cluster:
        chaos = Chaos(cluster, seed)
        try:
            chaos.begin()
            for number in range(cycles):
                begun = time.monotonic()
                what = chaos.cycle()
                took = time.monotonic() - begun
                print(f"{number + 1}: {what}, {took:.1f} s", file=sys.stderr, flush=True)
            faults = chaos.finish()
        except BaseException:
            for node, each in cluster.nodes.items():
                print(f"node {node}", *each.log[-30:], sep="\n  ", file=sys.stderr)
            print(chaos.summary(), file=sys.stderr)
            raise
        return faults, chaos.summary()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        faults, summary = run(Path(directory), options.cycles, options.seed)
    print(f"{options.cycles} cycles, seed {options.seed}; {summary}")
    for each in faults:
        print(f"FAULT {each}")
    print(f"faults: {len(faults)}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
