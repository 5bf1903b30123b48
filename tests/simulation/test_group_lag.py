"""Lag of groups against a ground truth, on virtual time, under steady and bursty load.

Method: producers write at known times, and a consumer commits behind them; from both follows what
the lag is, in records and in seconds. The node reports it from what it has in memory and in files.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from dragoman.api.metrics.lag import GroupLag
from dragoman.api.metrics.log import LogMetrics
from dragoman.protocols.kafka import messages as m
from dragoman.telemetry.catalogue import Number
from dragoman.telemetry.snapshot import families
from worlds.broker import Wire, World

PARTITIONS = 3
SECONDS = 600


class Scenario:
    """A topic, its producers, and a group that commits what it has read."""

    def __init__(self) -> None:
        self.world = World()
        self.replicas = self.world.create("t", PARTITIONS, {"segment.bytes": "14000"})
        self.lag = GroupLag(self.world.broker, LogMetrics(self.world.broker))  # type: ignore[arg-type]
        self._wire = Wire(self.world)
        #: By partition: the times of its records, and how many are committed.
        self.times: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.committed = [0] * PARTITIONS

    def write(self, partition: int, count: int) -> None:
        now_ms = self.world.clock.wall_ms()
        values = [b"v" * 50] * count
        self.world.write(self.replicas[partition], *values)
        self.times[partition] += [now_ms] * count

    def commit(self, partition: int, offset: int) -> None:
        self.committed[partition] = offset
        part = m.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics = [m.OffsetCommitRequestTopic(name="t", partitions=[part])]
        request = m.OffsetCommitRequest(group_id="g", topics=topics)
        response = self._wire.ask(request, 8, m.OffsetCommitResponse)
        assert response.topics[0].partitions[0].error_code == 0

    def forget_memory(self) -> None:
        for replica in self.replicas:
            replica.log.flush()
            replica.log.clear_tail()

    def reported(self) -> dict[str, Number]:
        found = families(self.lag.stats())
        return {
            each.metric.name: each.series["g", "t"]
            for each in found
            if each is not None and ("g", "t") in each.series
        }

    def truth(self) -> dict[str, Number]:
        now_ms = self.world.clock.wall_ms()
        left = [times[done:] for times, done in zip(self.times, self.committed, strict=True)]
        oldest = min((each[0] for each in left if each), default=now_ms)
        return {
            "group_lag_records": sum(map(len, left)),
            "group_lag_max_records": max(map(len, left)),
            "group_lag_seconds": (now_ms - oldest) / 1000,
        }


def steady(_rng: random.Random) -> Iterator[list[int]]:
    """One record in each partition every second."""
    while True:
        yield [1] * PARTITIONS


def bursty(rng: random.Random) -> Iterator[list[int]]:
    """Nothing for a while, then hundreds of records at once."""
    while True:
        yield [rng.choice((0, 0, 0, 0, 0, 0, 0, 1, 300)) for _ in range(PARTITIONS)]


@pytest.mark.parametrize("load", [steady, bursty])
@pytest.mark.parametrize("seed", [1, 2])
def test_lag_is_the_true_one(load, seed: int) -> None:
    rng = random.Random(seed)
    scenario = Scenario()
    for partition in range(PARTITIONS):
        scenario.commit(partition, 0)
    writes = load(rng)
    for second in range(SECONDS):
        for partition, count in enumerate(next(writes)):
            if count:
                scenario.write(partition, count)
        partition = rng.randrange(PARTITIONS)
        left = len(scenario.times[partition]) - scenario.committed[partition]
        if left and rng.random() < 0.6:
            done = scenario.committed[partition] + rng.randrange(left + 1)
            scenario.commit(partition, done)
        if second % 97 == 0:
            scenario.forget_memory()
        if second % 7 == 0:
            assert scenario.reported() == scenario.truth(), second
        scenario.world.advance(1)


def test_group_that_has_read_everything_has_no_lag() -> None:
    scenario = Scenario()
    for partition in range(PARTITIONS):
        scenario.write(partition, 5)
        scenario.commit(partition, 5)
    scenario.world.advance(100)
    assert set(scenario.reported().values()) == {0}


def test_records_that_retention_deleted_do_not_count() -> None:
    scenario = Scenario()
    scenario.commit(0, 0)
    scenario.write(0, 4)
    scenario.world.advance(10)
    scenario.write(0, 2)
    scenario.replicas[0].delete_below(4)
    assert scenario.reported() == {
        "group_lag_records": 2,
        "group_lag_max_records": 2,
        "group_lag_seconds": 0,
    }


def test_lag_is_known_after_a_restart_without_reading_all_partitions() -> None:
    scenario = Scenario()
    for partition in range(PARTITIONS):
        scenario.write(partition, 5)
        scenario.commit(partition, 5 if partition else 2)
    scenario.world.advance(30)
    later = scenario.world.reopened()
    # The first request of a group has the committed offsets read.
    Wire(later).ask(m.FindCoordinatorRequest(key="g"), 1, m.FindCoordinatorResponse)
    later.advance(5)
    lag = GroupLag(later.broker, LogMetrics(later.broker))  # type: ignore[arg-type]
    found = {
        each.metric.name: dict(each.series) for each in families(lag.stats()) if each is not None
    }
    assert found["group_lag_records"] == {("g", "t"): 3}
    assert found["group_lag_seconds"]["g", "t"] >= 5
    opened = [
        later.broker.partitions.opened(each.metadata.partition_id) for each in scenario.replicas
    ]
    assert [each is not None for each in opened] == [True, False, False]


def test_lag_of_many_groups_is_looked_up_a_few_at_a_time() -> None:
    scenario = Scenario()
    for partition in range(PARTITIONS):
        for _ in range(20):
            scenario.write(partition, 1)
    groups = scenario.world.broker.coordination.groups
    for number in range(60):
        part = m.OffsetCommitRequestPartition(
            partition_index=number % PARTITIONS, committed_offset=number // PARTITIONS
        )
        topics = [m.OffsetCommitRequestTopic(name="t", partitions=[part])]
        request = m.OffsetCommitRequest(group_id=f"g{number}", topics=topics)
        scenario._wire.ask(request, 8, m.OffsetCommitResponse)
    assert len(groups.table) == 60
    scenario.forget_memory()
    assert sum(not part for part in scenario.lag.stats()) == 12
    # The times are remembered.
    assert sum(not part for part in scenario.lag.stats()) == 0
