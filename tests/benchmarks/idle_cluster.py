"""What an idle cluster of three nodes costs: CPU and resident memory of each process.

    make idle-cluster

All listeners are open, a topic has 30 partitions with three replicas each, no client is connected.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from nodes.cluster import ServedCluster

SETTLE_S = 5.0
MEASURE_S = 30.0
LISTENERS = ("cursus", "minibroker", "mlog", "any")


def cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedCluster(Path(directory), 3, listeners=LISTENERS) as cluster,
    ):
        cluster.start(1, 2, 3)
        with BlockingKafkaClient(cluster.bootstrap()) as client:
            client.create_topic(NewTopic(name="idle", partitions=30, replication_factor=3))
        controller = cluster.status().controller
        time.sleep(SETTLE_S)
        processes = {node: each.process.pid for node, each in cluster.nodes.items()}
        before = {node: cpu_s(each) for node, each in processes.items()}
        time.sleep(MEASURE_S)
        print("| node | CPU % | resident MB |\n|---|---|---|")
        for node, process in processes.items():
            used = (cpu_s(process) - before[node]) / MEASURE_S * 100
            role = ", leads the metadata" if node == controller else ""
            print(f"| {node}{role} | {used:.2f} | {resident_mb(process):.0f} |")


if __name__ == "__main__":
    main()
