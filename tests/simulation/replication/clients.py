"""Producers and consumers of a simulated cluster, and what they know in the end.

An idempotent producer repeats a batch until it knows that it was acknowledged. A plain one tries
each value once and notes the outcome. A consumer reads committed records from the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.log.batch import Record, build_batch

if TYPE_CHECKING:
    from simulation.replication.cluster import Cluster

_TIMEOUT_S = 1.5
_FIRST_CLIENT = 100


class Client:
    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.address = _FIRST_CLIENT + number
        self.name = f"client {self.address}"
        self.random = cluster.random
        self.scheduler = cluster.new_process(self.address)
        self.is_stopped = False

    def leader_of(self, partition_id: int) -> int:
        """As some node knows it, or any."""
        up = [each for each in self.cluster.nodes if each.is_up]
        if up:
            partition = self.random.choice(up).image.partitions.get(partition_id)
            if partition is not None and partition.leader > 0:
                return partition.leader
        return self.random.randint(1, len(self.cluster.nodes))

    def partition(self) -> int:
        return self.random.choice(list(self.cluster.metadata.image.partitions))


class Producer(Client):
    def __init__(self, cluster: Cluster, number: int, *, is_idempotent: bool) -> None:
        super().__init__(cluster, number)
        self.producer_id = 1000 + number if is_idempotent else -1
        self._sequences: dict[int, int] = {}
        self._number = 0
        self._partition = 0
        self._values: list[bytes] = []
        self._attempts = 0
        #: Values by the outcome that their producer saw.
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: dict[bytes, str] = {}
        self.acknowledged_at: dict[int, float] = {}
        self._next()

    def _next(self) -> None:
        if self.is_stopped:
            return
        self._partition = self.partition()
        self._attempts = 0
        self._values = []
        for _ in range(self.random.choice((1, 1, 2))):
            self._number += 1
            size = self.random.choice((0, 20, 300, 1200))
            self._values.append(b"%d:%d:%s" % (self.address, self._number, b"x" * size))
        self._send()

    def _send(self) -> None:
        if self.is_stopped:
            return
        self._attempts += 1
        partition_id, values = self._partition, self._values
        sequence = self._sequences.get(partition_id, 0)
        batch = bytes(
            build_batch(
                [Record(value=each, timestamp=1_704_067_200_000) for each in values],
                producer_id=self.producer_id,
                producer_epoch=0 if self.producer_id >= 0 else -1,
                base_sequence=sequence if self.producer_id >= 0 else -1,
            )
        )
        node_id = self.leader_of(partition_id)
        node = self.cluster.nodes[node_id - 1]
        self.cluster.network.request(
            self.address,
            node_id,
            lambda answer: node.produce(partition_id, batch, answer),
            self._answered,
            _TIMEOUT_S,
        )

    def _answered(self, answer: object | None) -> None:
        kind = answer[0] if isinstance(answer, tuple) else "unknown"
        if kind == "ok":
            assert isinstance(answer, tuple)
            for at, value in enumerate(self._values):
                self.acknowledged[value] = (self._partition, answer[1] + at)
            self.acknowledged_at[self._partition] = self.scheduler.time()
            self.cluster.in_doubt.pop((self._partition, self.producer_id), None)
            count = len(self._values)
            self._sequences[self._partition] = self._sequences.get(self._partition, 0) + count
        elif self.producer_id >= 0:
            # An idempotent producer never gives up: what it sends next depends on this.
            self.scheduler.call_later(self.random.uniform(0.01, 0.2), self._send)
            return
        elif isinstance(answer, tuple) and kind == "no":
            self.refused.update(dict.fromkeys(self._values, answer[1]))
        self.scheduler.call_later(self.random.uniform(0.01, 0.15), self._next)


class Consumer(Client):
    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster, number)
        self._offsets: dict[int, int] = {}
        self.batches = 0
        self._poll()

    def _poll(self) -> None:
        if self.is_stopped:
            return
        partition_id = self.partition()
        offset = self._offsets.get(partition_id, 0)
        if self.random.random() < 0.1:
            offset = 0
        node_id = self.leader_of(partition_id)
        node = self.cluster.nodes[node_id - 1]

        def answered(answer: object | None) -> None:
            if isinstance(answer, tuple) and answer[0] == "start":
                self._offsets[partition_id] = answer[1]
            elif isinstance(answer, tuple) and answer[0] == "records":
                self.cluster.checker.consumed(partition_id, answer[3])
                self.batches += 1
                self._offsets[partition_id] = max(answer[2], self._offsets.get(partition_id, 0))
            self.scheduler.call_later(self.random.uniform(0.02, 0.2), self._poll)

        self.cluster.network.request(
            self.address,
            node_id,
            lambda answer: node.consume(partition_id, offset, answer),
            answered,
            _TIMEOUT_S,
        )
