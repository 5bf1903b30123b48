"""Goal: one slow disk delays only the partitions that need it (L2).

Method: a simulated cluster; the disk of the one node that does not hold a partition becomes slow.
Times are those of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.client.kafka import TopicPartition
from dragoman.testing.sim.background import SimBackground, SyncDelays
from simulation.cluster.clients import MAIN, Producer
from simulation.cluster.cluster import Cluster
from simulation.cluster.observers import watched

#: Node 2 holds the first partition of three, not the third.
SLOW_NODE = 2
NEEDS_IT = TopicPartition(MAIN, 0)
DOES_NOT = TopicPartition(MAIN, 2)
SLOW_S = 3.0


class Steady(Producer):
    """Writes to one partition, one batch after the other, and knows how long it waited."""

    def __init__(self, cluster: Cluster, number: int, place: TopicPartition) -> None:
        self._place = place
        super().__init__(cluster, number, is_idempotent=False, acks=-1)

    def where(self) -> TopicPartition:
        return self._place

    def longest_wait(self, seconds: float) -> float:
        """Between two acknowledgements, in that time from now on."""
        world = self.cluster.world
        end, longest = world.now + seconds, 0.0
        while world.now < end:
            begun = world.now
            self.cluster.run_until(self._has_more_than(len(self.acknowledged)), end - world.now)
            longest = max(longest, world.now - begun)
        return longest

    def _has_more_than(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.acknowledged) > count


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_slow_disk_delays_only_the_partitions_that_need_it(seed: int) -> None:
    with watched():
        cluster = Cluster(seed, 3)
        cluster.begin({})
        for client in cluster.clients:
            client.is_stopped = True
        assert cluster.run_until(lambda: all(each.task.done() for each in cluster.clients), 20)
        needs, does_not = Steady(cluster, 10, NEEDS_IT), Steady(cluster, 11, DOES_NOT)
        assert needs.longest_wait(3) < 1
        node = cluster.nodes[SLOW_NODE - 1].node
        assert node is not None
        background = node.store.directory.background
        assert isinstance(background, SimBackground)
        background._delays = SyncDelays(usual_seconds_max=SLOW_S)
        node.store.commits.sync_average_s = 1.0
        assert does_not.longest_wait(10) < 1
        assert needs.longest_wait(10) > 1, "the disk is not slow"
        for client in (needs, does_not):
            client.is_stopped = True
