"""What a node reports of its log, partitions and groups, on a broker without sockets."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from dragoman.api.metrics.groups import group_stats
from dragoman.api.metrics.log import LogMetrics
from dragoman.api.metrics.replicas import replica_stats
from dragoman.cluster.metadata import NO_LEADER
from dragoman.log.store import Durability
from dragoman.telemetry.catalogue import Distribution, Number, Stats
from dragoman.telemetry.snapshot import families
from worlds.broker import World


def shown(parts: Iterable[Stats]) -> dict[str, dict[tuple[str, ...], Number]]:
    return {
        each.metric.name: dict(each.series)
        for each in families(parts)
        if each is not None and each.metric.name != "metric_series_left_out"
    }


def log_of(world: World) -> dict[str, Number]:
    found = shown(LogMetrics(world.broker).stats())
    return {name: series[()] for name, series in found.items() if () in series}


def test_batches_and_bytes_are_those_that_were_appended() -> None:
    world = World()
    (replica,) = world.create("t")
    before = log_of(world)
    for _ in range(3):
        world.write(replica, b"v")
    after = log_of(world)
    assert after["appended_batches_total"] == before["appended_batches_total"] + 3
    assert after["appended_bytes_total"] == before["appended_bytes_total"] + replica.log.size
    assert after["journal_bytes_total"] > after["appended_bytes_total"]


def test_each_group_of_appends_is_in_the_histograms() -> None:
    world = World()
    (replica,) = world.create("t")
    before = log_of(world)
    for _ in range(4):
        world.write(replica, b"v", settle=False)
    world.settle()
    after = log_of(world)
    for name in ("journal_group_batches", "journal_group_bytes", "journal_sync_seconds"):
        was, now = before[name], after[name]
        assert isinstance(was, Distribution)
        assert isinstance(now, Distribution)
        assert sum(now.counts) == sum(was.counts) + 1
    was, now = before["journal_group_batches"], after["journal_group_batches"]
    assert isinstance(was, Distribution)
    assert isinstance(now, Distribution)
    assert now.total == was.total + 4


def test_batches_are_counted_without_a_journal() -> None:
    world = World(durability=Durability.OS)
    (replica,) = world.create("t")
    before = log_of(world)["appended_batches_total"]
    world.write(replica, b"v")
    assert log_of(world)["appended_batches_total"] == before + 1


def test_size_of_the_log_includes_partitions_that_are_not_open() -> None:
    world = World()
    for replica in world.create("t", 3):
        world.write(replica, b"v" * 100)
    size = log_of(world)["log_bytes"]
    later = world.reopened()
    assert later.broker.partitions.opened(replica.metadata.partition_id) is None
    # The start has written to the log of the metadata, and perhaps to others.
    assert size <= log_of(later)["log_bytes"] <= size + 1000
    assert later.broker.partitions.opened(replica.metadata.partition_id) is None


def test_sizes_and_ends_are_shown_by_partition_and_topic() -> None:
    world = World()
    first, second = world.create("t", 2)
    world.write(first, b"v", b"w")
    world.write(second, b"x")
    found = shown(LogMetrics(world.broker).stats())
    assert found["partition_log_end_offset"]["t", "0"] == 2
    assert found["partition_log_start_offset"]["t", "1"] == 0
    assert found["topic_log_records"]["t",] == 3
    assert found["topic_log_bytes"]["t",] == first.log.size + second.log.size


def test_more_partitions_than_series_are_shown_by_topic_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.api.metrics.log.METRIC_SERIES_MAX", 2)
    world = World()
    for replica in world.create("t", 3):
        world.write(replica, b"v")
    found = shown(LogMetrics(world.broker).stats())
    assert found["partition_bytes"] == {}
    assert found["topic_log_records"]["t",] == 3


def test_unreadable_manifest_counts_as_nothing() -> None:
    world = World()
    (replica,) = world.create("t")
    world.write(replica, b"v" * 100)
    later = world.reopened()
    path = f"{replica.log.directory}/manifest.json"
    file = later.disk.open(path, "write")
    file.write([b"?"], 0)
    assert log_of(later)["log_bytes"] < replica.log.size + 1000


def test_files_in_quarantine_are_counted() -> None:
    world = World()
    assert log_of(world)["log_quarantined_bytes"] == 0
    world.disk.make_directory("quarantine")
    world.disk.open("quarantine/a", "create").write([b"12345"], 0)
    assert log_of(world)["log_quarantined_bytes"] == 5


def test_bytes_for_readers_are_counted() -> None:
    world = World()
    (replica,) = world.create("t")
    world.write(replica, b"v")
    before = log_of(world)["fetched_bytes_total"]
    from dragoman.broker.fetch import Wanted

    world.fetch([Wanted(replica, 0, 1 << 20)])
    assert log_of(world)["fetched_bytes_total"] == before + replica.log.size


def test_partitions_and_metadata_are_described() -> None:
    world = World()
    world.create("t", 3)
    found = {name: series.get(()) for name, series in shown(replica_stats(world.broker)).items()}
    assert found["leader_partitions"] == found["replicas"] == 3
    assert found["under_replicated_partitions"] == found["offline_partitions"] == 0
    assert found["is_controller"] == 1
    assert found["metadata_leader_changes_total"] == 1
    assert found["partition_leader_changes_total"] == found["in_sync_changes_total"] == 0
    assert found["metadata_committed_offset"] == world.broker.quorum.applied


def test_partitions_without_enough_replicas_in_sync_are_counted() -> None:
    world = World()
    first, _ = world.create("t", 2)
    found = shown(replica_stats(world.broker))
    assert found["under_min_insync_partitions"][()] == 0
    first.metadata.min_insync = 2
    found = shown(replica_stats(world.broker))
    assert found["under_min_insync_partitions"][()] == 1


def test_leader_of_the_metadata_is_in_reach_while_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    broker = world.broker

    def has_leader() -> Number:
        return shown(replica_stats(broker))["metadata_has_leader"][()]

    assert has_leader() == 1
    monkeypatch.setattr(type(broker.quorum), "leader", property(lambda _: 2))
    silence = type(broker.cluster.replication)
    monkeypatch.setattr(silence, "controller_silence_s", property(lambda _: 9.0))
    assert has_leader() == 1
    monkeypatch.setattr(silence, "controller_silence_s", property(lambda _: 11.0))
    assert has_leader() == 0
    monkeypatch.setattr(type(broker.quorum), "leader", property(lambda _: NO_LEADER))
    assert has_leader() == 0


def test_lag_of_a_follower_is_that_of_its_worst_partition() -> None:
    def led(end: int, *ends: tuple[int, int]) -> SimpleNamespace:
        return SimpleNamespace(
            replica=SimpleNamespace(log=SimpleNamespace(log_end_offset=end)),
            followers={node: SimpleNamespace(stable_end=stable) for node, stable in ends},
        )

    world = World()
    world.broker.cluster.replication.led = lambda: [  # type: ignore[method-assign]
        led(100, (2, 90), (3, 100)),
        led(50, (2, 45), (4, -1)),
    ]
    assert shown(replica_stats(world.broker))["replica_lag_records"] == {
        ("2",): 10,
        ("3",): 0,
        ("4",): 50,
    }


def test_groups_of_all_states_are_shown() -> None:
    world = World()
    found = shown(group_stats(world.broker))
    assert found["groups"]["Stable",] == 0
    assert found["group_members"] == {(): 0}
    assert found["transactions_open"] == {(): 0}
