"""Goal: a node whose disk is full reports it, costs the others nothing, and returns with room.

Method: a simulated cluster under load; the disk of one node is as large as what is on it. With real
processes and a real file system: `tests/integration/test_full_disk.py`.
"""

from __future__ import annotations

import pytest

from dragoman.api.node import BrokerView
from dragoman.testing.sim.faults import DiskFaults
from simulation.cluster.cluster import Cluster
from simulation.cluster.observers import watched
from simulation.cluster.process import Process


def objection(process: Process) -> str:
    assert process.node is not None
    return BrokerView(process.node).objection()


def in_sync_sets_with(cluster: Cluster, process: Process) -> int:
    partitions = cluster.agreed.image.partitions.values()
    return sum(process.node_id in each.in_sync for each in partitions)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_node_with_a_full_disk_is_not_ready_until_there_is_room(seed: int) -> None:
    with watched():
        cluster = Cluster(seed, 3)
        cluster.begin({})
        node = cluster.nodes[seed % 3]
        assert objection(node) == ""
        node.disk.capacity_bytes = 0
        assert cluster.run_until(lambda: objection(node) == "the disk is full", 20)
        assert cluster.run_until(lambda: in_sync_sets_with(cluster, node) == 0, 20)
        acks = cluster.checker.acks
        # It stays away while there is no room, and the other nodes continue.
        assert not cluster.run_until(lambda: objection(node) == "", 20)
        assert cluster.checker.acks > acks + 20
        node.disk.capacity_bytes = DiskFaults().capacity_bytes
        assert cluster.run_until(lambda: objection(node) == "", 20)
        cluster.finish()
