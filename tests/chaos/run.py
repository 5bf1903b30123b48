"""Cycles of faults on three nodes under load, and then the judgement.

make chaos CYCLES=500 SEED=1

Every cycle is planned from the seed and its own number. With `--totals` a seed continues
after the cycles that are noted there, and the file has the totals of all runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

from chaos.checker import judge, read_all
from chaos.clients import (
    CURSUS_TOPIC,
    KAFKA_TOPIC,
    MINIBROKER_TOPIC,
    MLOG_TOPIC,
    PARTITIONS,
    CursusWriter,
    GroupReader,
    KafkaWriter,
    MinibrokerPublishing,
    MlogPublishing,
    Publisher,
    Writer,
)
from chaos.cluster import NODES, ChaosCluster
from chaos.faults import plan
from chaos.totals import Book, Totals
from dragoman.client.kafka import LATEST, BlockingKafkaClient, NewTopic, TopicPartition

TOPICS = {
    KAFKA_TOPIC: PARTITIONS,
    MLOG_TOPIC: 1,
    MINIBROKER_TOPIC: PARTITIONS,
    CURSUS_TOPIC: PARTITIONS,
}
LISTENERS = ("mlog", "minibroker", "cursus")
_PATIENCE_S = 120.0


class Chaos:
    def __init__(self, cluster: ChaosCluster, seed: int) -> None:
        self.cluster = cluster
        self._seed = seed
        self.faults: Counter[str] = Counter()
        kafka, cursus = cluster.bootstrap(), cluster.bootstrap("cursus")
        self.writers: list[Writer] = [
            *(KafkaWriter(f"kafka-{n}", kafka, n % PARTITIONS) for n in range(PARTITIONS + 1)),
            *(CursusWriter(f"cursus-{n}", cursus, n) for n in range(PARTITIONS)),
            Publisher("mlog", partial(MlogPublishing, cluster.bootstrap("mlog"))),
            Publisher("minibroker", partial(MinibrokerPublishing, cluster.bootstrap("minibroker"))),
        ]
        self.readers = [GroupReader(f"reader-{n}", kafka) for n in range(2)]

    def begin(self) -> None:
        self.cluster.start(*NODES)
        with BlockingKafkaClient(self.cluster.bootstrap()) as client:
            for name, count in TOPICS.items():
                client.create_topic(NewTopic(name=name, partitions=count, replication_factor=3))
        for node in NODES:
            # A node that does not know the topic yet answers that there is none.
            self.cluster.wait(lambda status: status.topics >= len(TOPICS), node)
        for each in (*self.writers, *self.readers):
            each.start()

    def cycle(self, number: int) -> str:
        """Some faults at once, and back to health. Returns what they were."""
        random = Random(f"{self._seed}/{number}")
        faults = plan(random)
        for fault in faults:
            fault.begin(self.cluster)
            time.sleep(random.uniform(0.0, 0.3))
        time.sleep(random.uniform(0.2, 3.0))
        for fault in faults:
            fault.end(self.cluster)
        for fault in faults:
            fault.settle(self.cluster)
        self.cluster.wait_in_sync(random.choice(NODES))
        time.sleep(random.uniform(0.0, 1.0))
        self.faults.update(fault.kind for fault in faults)
        return ", ".join(map(str, faults))

    def acknowledged(self) -> int:
        return sum(len(each.acknowledged) for each in self.writers)

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
        """The group continues by itself, and comes to the end."""
        with BlockingKafkaClient(self.cluster.bootstrap()) as client:
            wanted = {TopicPartition(KAFKA_TOPIC, n): LATEST for n in range(PARTITIONS)}
            ends = {where: each.offset for where, each in client.list_offsets(wanted).items()}
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            read = {place for reader in self.readers for place in reader.seen.copy()}
            if all((*where, end - 1) in read for where, end in ends.items() if end):
                return
            time.sleep(0.1)

    def totals(self, cycles: int, violations: int) -> Totals:
        acknowledged: Counter[str] = Counter()
        for each in self.writers:
            acknowledged[each.name.partition("-")[0]] += len(each.acknowledged)
        return Totals(
            cycles=cycles,
            acknowledged=dict(acknowledged),
            faults=dict(self.faults),
            violations=violations,
        )


@contextmanager
def etcd_port(directory: Path, quorum: str) -> Iterator[int | None]:
    """That of an etcd which is there as long as this lasts; None where the nodes vote."""
    if quorum != "etcd":
        yield None
        return
    # Only who asks for it needs its wheel.
    from nodes.etcd import RealEtcd

    (directory / "etcd").mkdir()
    etcd = RealEtcd(directory / "etcd")
    try:
        yield etcd.port
    finally:
        etcd.stop()


def run(
    directory: Path,
    cycles: int,
    seed: int,
    first: int = 1,
    quorum: str = "raft",
    before: Path | None = None,
) -> tuple[list[str], Totals]:
    """What is wrong, and what was done."""
    with (
        etcd_port(directory, quorum) as port,
        ChaosCluster(directory, listeners=LISTENERS, etcd_port=port, before=before) as cluster,
    ):
        chaos = Chaos(cluster, seed)
        try:
            chaos.begin()
            begun = time.monotonic()
            for number in range(first, first + cycles):
                what = chaos.cycle(number)
                took, begun = time.monotonic() - begun, time.monotonic()
                print(
                    f"{number}/{first + cycles - 1}: {what}; {took:.1f} s, "
                    f"{chaos.acknowledged():,} acknowledged",
                    file=sys.stderr,
                    flush=True,
                )
            violations = chaos.finish()
        except BaseException:
            for node, each in cluster.nodes.items():
                print(f"node {node}", *each.log[-30:], sep="\n  ", file=sys.stderr)
            raise
        return violations, chaos.totals(cycles, len(violations))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, help="number of the first cycle")
    parser.add_argument("--totals", type=Path, help="file that sums up all runs")
    parser.add_argument("--quorum", choices=("raft", "etcd"), default="raft")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="SRC_DIR",
        help="another version: nodes of both, and every restart changes a node's version",
    )
    options = parser.parse_args()
    before = options.before.resolve() if options.before else None
    book = Book(options.totals) if options.totals else None
    done = book.seeds.get(options.seed, Totals()).cycles if book is not None else 0
    first = options.first if options.first is not None else done + 1
    with tempfile.TemporaryDirectory() as directory:
        violations, totals = run(
            Path(directory), options.cycles, options.seed, first, options.quorum, before
        )
    print(f"seed {options.seed}, cycles {first} to {first + options.cycles - 1}")
    print(*totals.lines(), sep="\n")
    if book is not None:
        book.add(options.seed, totals)
        print(f"all runs, seeds {', '.join(map(str, sorted(book.seeds)))}")
        print(*book.all().lines(), sep="\n")
    for each in violations:
        print(f"VIOLATION {each}")
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
