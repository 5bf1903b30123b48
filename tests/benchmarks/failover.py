"""How long a partition takes no writes when its leader goes: three nodes as processes.

    make failover                        30 rounds of each kind, as a table
    make failover ARGS="--rounds 5 kill"

Measured from the signal to the next acknowledged write with acks=all, through a connection that is
open already to one of the other nodes, asked every few milliseconds. `kill` is kill -9: the peers
see their connections reset. `kill-controller`: the node leads the metadata as well. `pause` is
SIGSTOP: no peer is notified. `stop` is SIGTERM: the node hands over before it goes.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from dragoman.api.values import Told, TopicDescription, Transfer
from dragoman.cli.status import CommandError
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from dragoman.log.batch import Record, build_batch
from dragoman.protocols.kafka import messages as m
from nodes.cluster import ServedCluster
from nodes.process import WAIT_S
from protocols.kafka_socket import KafkaSocket

TOPIC = "failover"
PRODUCE_VERSION = 9
ASK_EVERY_S = 0.003
KINDS = ("kill", "kill-controller", "pause", "pause-controller", "stop", "stop-controller")
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "stop": signal.SIGTERM}
TARGETS_S = {"kill": 0.5, "pause": 1.5, "stop": 0.3}


class Round:
    def __init__(self, cluster: ServedCluster, kind: str) -> None:
        self.cluster = cluster
        self.how, _, also = kind.partition("-")
        self.also_controller = bool(also)

    def run(self) -> float:
        """Seconds without an acknowledged write."""
        cluster = self.cluster
        victim = self._prepare()
        others = [node for node in (1, 2, 3) if node != victim]
        sockets = [KafkaSocket(cluster.address(node, "kafka")) for node in others]
        begun = time.monotonic()
        cluster.nodes[victim].signal(SIGNALS[self.how])
        try:
            elapsed = self._until_written(sockets, begun)
        finally:
            for each in sockets:
                each.socket.close()
        self._bring_back(victim)
        return elapsed

    def _prepare(self) -> int:
        """Everybody is in sync, and the metadata is led where it shall be. Returns the leader."""
        status = self.cluster.wait_in_sync()
        victim = self._leader()
        others = [node for node in (1, 2, 3) if node != victim]
        wanted = [victim] if self.also_controller else others
        if status.controller not in wanted:
            transfer = Transfer(metadata_to=wanted[0])
            self.cluster.remote().post("/api/v1/cluster/transfers", transfer, Told)
        for node in (1, 2, 3):
            self.cluster.wait(lambda status: status.controller in wanted, node)
            self.cluster.wait_in_sync(node)
        return victim

    def _leader(self) -> int:
        found = self.cluster.remote().get(f"/api/v1/topics/{TOPIC}", TopicDescription)
        leader = found.partitions[0].leader
        assert leader is not None
        return leader

    def _until_written(self, sockets: list[KafkaSocket], begun: float) -> float:
        while time.monotonic() < begun + WAIT_S:
            for each in sockets:
                if produce(each) == 0:
                    return time.monotonic() - begun
                time.sleep(ASK_EVERY_S)
        raise AssertionError("no node takes writes")

    def _bring_back(self, victim: int) -> None:
        node = self.cluster.nodes[victim]
        if self.how == "pause":
            node.signal(signal.SIGCONT)
        else:
            node.finish()
            self.cluster.start(victim)


def produce(to: KafkaSocket) -> int:
    """Write a record; the error code."""
    batch = build_batch([Record(value=b"x", timestamp=int(time.time() * 1000))])
    part = m.ProduceRequestPartition(0, bytes(batch))
    topic = m.ProduceRequestTopic(name=TOPIC, partition_data=[part])
    request = m.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
    answer = to.ask(request, PRODUCE_VERSION, m.ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def measure(kind: str, rounds: int) -> list[float]:
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedCluster(Path(directory), 3, "--log-level", "info") as cluster,
    ):
        cluster.start(1, 2, 3)
        with BlockingKafkaClient(cluster.bootstrap()) as client:
            client.create_topic(NewTopic(name=TOPIC, partitions=1, replication_factor=3))
        # Who made the topic knows it; the others hear of it a moment later.
        for node in (1, 2, 3):
            cluster.wait(lambda status: status.topics > 0, node)
        found = []
        for number in range(rounds):
            try:
                found.append(Round(cluster, kind).run())
            except (AssertionError, CommandError):
                for node, each in cluster.nodes.items():
                    print(f"node {node}", *each.log[-20:], sep="\n  ", file=sys.stderr)
                raise
            print(f"{kind} {number + 1}: {found[-1] * 1000:.0f} ms", file=sys.stderr, flush=True)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    print("| what | rounds | p50 ms | worst ms | target ms |\n|---|---|---|---|---|")
    for kind in options.kinds or KINDS:
        found = [each * 1000 for each in measure(kind, options.rounds)]
        target = TARGETS_S[kind.partition("-")[0]] * 1000
        row = (kind, len(found), f"{statistics.median(found):.0f}", f"{max(found):.0f}")
        print("|", " | ".join(map(str, (*row, f"{target:.0f}"))), "|", flush=True)


if __name__ == "__main__":
    main()
