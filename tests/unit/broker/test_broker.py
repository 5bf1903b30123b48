"""Goal: the broker as a whole starts, stops, fails and comes back without losing or inventing.

Method: a broker on virtual time over disks in memory: whole, too small, and failing on command.
"""

from __future__ import annotations

import errno
import random

import pytest

from dragoman.broker.errors import (
    NotLeader,
    RequestTimedOut,
    ShuttingDown,
    UnknownTopic,
    UnknownTopicId,
)
from dragoman.broker.fetch import Wanted
from dragoman.broker.partitions import directory_name
from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import Member, NodeRegistered, PartitionChanged
from dragoman.cluster.metadata import new_cluster_id
from dragoman.config.settings import Settings
from dragoman.errors import (
    ConfigError,
    DiskFullError,
    DragomanError,
    LogStoppedError,
    OutcomeUnknownError,
)
from dragoman.limits import PRODUCER_ID_BLOCK
from dragoman.log.manifest import Identity
from dragoman.log.store import Durability
from dragoman.outcome import start
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults
from worlds.broker import Outcome, World, batch_of


def producer_ids(world: World, count: int) -> list[int]:
    got: list[int] = []

    def take(producer_id: int | DragomanError) -> None:
        assert isinstance(producer_id, int)
        got.append(producer_id)

    for _ in range(count):
        start(world.broker.coordination.transactions.producer_ids.next()).then(take)
    world.settle()
    return got


# ---- partitions


def test_partition_is_found_by_name_and_by_id(world: World) -> None:
    first, second = world.create("t", 2)
    topic_id = first.metadata.topic.topic_id
    assert world.broker.partitions.find("t", 1) is second
    assert world.broker.partitions.find_by_id(topic_id, 0) is first
    assert list(world.broker.partitions) == [first, second]


@pytest.mark.parametrize("index", [-1, 2, 1 << 31])
def test_partition_that_is_not_there(world: World, index: int) -> None:
    (replica, _) = world.create("t", 2)
    with pytest.raises(UnknownTopic):
        world.broker.partitions.find("t", index)
    with pytest.raises(UnknownTopic):
        world.broker.partitions.find_by_id(replica.metadata.topic.topic_id, index)


def test_topic_that_is_not_there(world: World) -> None:
    with pytest.raises(UnknownTopic):
        world.broker.partitions.find("t", 0)
    with pytest.raises(UnknownTopicId):
        world.broker.partitions.find_by_id(bytes(16), 0)


def test_partition_led_by_another_node_is_refused(world: World) -> None:
    world.broker.image.apply(NodeRegistered(node_id=2, incarnation=1))
    assert world.create_outcome(NewTopic(name="t", assignment=((2,),))) is None
    with pytest.raises(NotLeader, match="node 2 leads t-0"):
        world.broker.partitions.find("t", 0)
    partition = world.broker.image.topics["t"].partitions[0]
    moved = PartitionChanged(
        partition_id=partition.partition_id,
        leader=1,
        leader_epoch=1,
        partition_epoch=1,
        replicas=(1,),
        in_sync=(Member(1, 1),),
    )
    world.broker.quorum.propose([moved]).then(Outcome())
    world.settle()
    assert world.broker.partitions.find("t", 0).leader_epoch == 1


def test_directory_name_is_for_people_and_fits_any_file_system() -> None:
    def name(topic: str) -> str:
        return directory_name(Identity(partition_id=7, topic=topic, partition=2, topic_id=""))

    assert name("orders.eu_1-a") == "7-orders.eu_1-a-2"
    assert name("a/b\0ü") == "7-a~b~~-2"
    assert len(name("x" * 249)) < 200


# ---- start and stop


def test_first_start_makes_a_cluster_and_later_ones_keep_it(world: World) -> None:
    cluster_id = world.broker.image.cluster_id
    assert len(cluster_id) == 22
    assert world.broker.image.nodes == {1: 1}
    again = world.reopened()
    assert again.broker.image.cluster_id == cluster_id
    assert again.broker.image.nodes == {1: 2}


def test_cluster_ids_differ() -> None:
    ids = {new_cluster_id(random.Random(seed)) for seed in range(100)}
    assert len(ids) == 100
    assert {len(each) for each in ids} == {22}


def test_broker_is_ready_only_once_its_registration_is_durable() -> None:
    world = World(start=False)
    outcome = Outcome()
    start(world.broker.start()).then(outcome)
    assert not world.broker.is_ready
    world.settle()
    assert outcome.error is None
    assert world.broker.is_ready


def test_data_of_another_node_is_refused(world: World) -> None:
    world.create("t")
    world.broker.stop()
    world.store.close()
    other = World(Settings(node_id=2), disk=world.disk, start=False)
    with pytest.raises(ConfigError, match=r"belongs to node 1.*node\.id is 2"):
        start(other.broker.start()).result()
    other.store.abandon()
    assert "t" in World(disk=world.disk).broker.image.topics


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("durability", list(Durability))
def test_topics_and_records_survive(kill: bool, durability: Durability) -> None:
    world = World(durability=durability)
    for name in ("a", "b"):
        for index, replica in enumerate(world.create(name, 3)):
            world.write(replica, f"{name}{index}".encode(), b"second")
    again = world.reopened(kill=kill)
    for name in ("a", "b"):
        for index in range(3):
            log = again.broker.partitions.find(name, index).log
            assert log.high_watermark == 2
            values = [record.value for record in log.iterate(0, 2)]
            assert values == [f"{name}{index}".encode(), b"second"]


def test_stop_makes_staged_appends_durable_and_acknowledges_them(world: World) -> None:
    (replica,) = world.create("t")
    appended = world.write(replica, b"a", settle=False)
    outcome = Outcome()
    replica.when_committed(appended.next_offset, outcome)
    world.broker.stop()
    assert outcome.error is None
    assert world.broker.is_stopping


def test_stop_completes_waiting_requests(world: World) -> None:
    (replica,) = world.create("t")
    outcome = Outcome()
    # Nothing will ever bring the log this far.
    replica.when_committed(100, outcome)
    world.broker.stop()
    assert isinstance(outcome.error, ShuttingDown)


def test_stop_finishes_changes_under_way(world: World) -> None:
    outcome = Outcome()
    start(world.broker.topics.create(NewTopic(name="t"))).then(outcome)
    world.broker.stop()
    assert outcome.error is None
    world.store.close()
    assert "t" in World(disk=world.disk).broker.image.topics


def test_deletion_interrupted_before_its_files_went_is_finished_at_the_next_start(
    world: World,
) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"v")
    world.store.checkpoint_now()
    directory = replica.log.directory
    kept = [(name, _read(world, f"{directory}/{name}")) for name in world.disk.names(directory)]
    start(world.broker.topics.delete("t")).then(Outcome())
    world.settle()
    world.store.abandon()
    world.disk.make_directory(directory)
    for name, data in kept:
        file = world.disk.open(f"{directory}/{name}", "create")
        file.write([data], 0)
        file.close()
    again = World(disk=world.disk)
    assert not again.disk.exists(directory)


def test_records_of_a_deleted_topic_in_the_journal_are_not_damage(world: World) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"in the segment that went with the topic")
    world.store.checkpoint_now()
    world.write(replica, b"still in the journal")
    start(world.broker.topics.delete("t")).then(Outcome())
    world.settle()
    again = world.reopened(kill=True)
    assert again.store.stats.damage == 0
    assert again.store.opened(replica.metadata.partition_id) is None
    assert not again.disk.exists(replica.log.directory)


def _read(world: World, path: str) -> bytes:
    file = world.disk.open(path, "read")
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def test_directories_that_are_no_partitions_are_left_alone(world: World) -> None:
    world.disk.make_directory("partitions/notes")
    world.disk.make_directory("partitions/999-future-0")
    world.create("t")
    start(world.broker.topics.delete("t")).then(Outcome())
    world.settle()
    again = world.reopened()
    assert again.disk.exists("partitions/notes")
    assert again.disk.exists("partitions/999-future-0")


# ---- deletion with people waiting


def test_deletion_fails_producers_that_wait(world: World) -> None:
    (replica,) = world.create("t")
    outcome = Outcome()
    replica.when_committed(100, outcome)
    start(world.broker.topics.delete("t")).then(Outcome())
    world.settle()
    assert isinstance(outcome.error, UnknownTopic)


def test_deletion_with_an_append_in_the_same_turn(world: World) -> None:
    (replica, other) = world.create("t")[0], world.create("other")[0]
    start(world.broker.topics.delete("t")).then(deleted := Outcome())
    appended = world.write(replica, b"a", settle=False)
    replica.when_committed(appended.next_offset, outcome := Outcome())
    world.settle()
    assert deleted.error is None
    assert outcome.is_known
    world.write(other, b"still works")
    assert other.log.high_watermark == 1
    assert world.reopened(kill=True).broker.partitions.find("other", 0).log.high_watermark == 1


# ---- producer ids


def test_producer_ids_are_never_given_twice(world: World) -> None:
    first = producer_ids(world, 3)
    again = world.reopened(kill=True)
    second = producer_ids(again, PRODUCER_ID_BLOCK + 5)
    third = producer_ids(again.reopened(), 2)
    everything = first + second + third
    assert len(set(everything)) == len(everything)
    assert min(everything) >= 0


def test_ids_asked_for_while_a_block_is_reserved_differ(world: World) -> None:
    got = producer_ids(world, 10)
    assert len(set(got)) == 10


def test_producer_id_is_refused_when_the_log_has_stopped(world: World) -> None:
    world.store.fail(OSError(errno.EIO, "gone"))
    refused: list[int | DragomanError] = []
    start(world.broker.coordination.transactions.producer_ids.next()).then(refused.append)
    world.settle()
    assert isinstance(refused[0], DragomanError)
    assert isinstance(refused[0].__cause__, LogStoppedError)


# ---- a disk that fails


def test_failed_sync_stops_the_node_and_tells_everybody() -> None:
    disk = SimDisk(random.Random(1))
    world = World(disk=disk)
    fatal: list[OSError] = []
    world.broker.on_fatal = fatal.append
    (replica,) = world.create("t")
    disk.faults = DiskFaults(sync_error_rate=1.0)
    produced, created = Outcome(), Outcome()
    appended = world.write(replica, b"lost", settle=False)
    replica.when_committed(appended.next_offset, produced)
    start(world.broker.topics.create(NewTopic(name="u"))).then(created)
    world.settle()
    assert isinstance(produced.error, RequestTimedOut)
    assert isinstance(created.error, OutcomeUnknownError)
    assert [each.errno for each in fatal] == [errno.EIO]
    assert "u" not in world.broker.image.topics
    with pytest.raises(LogStoppedError):
        world.write(replica, b"more")
    assert isinstance(world.create_outcome(NewTopic(name="v")), LogStoppedError)
    # What was durable before can still be read.
    assert world.fetch([Wanted(replica, 0, 1000)], wait_s=0).found[0].error is None


def fill(world: World) -> None:
    """Leave room for little more than a manifest."""
    file = world.disk.open("ballast", "create")
    file.write([bytes(world.disk.free_bytes() - 2000)], 0)
    file.close()


def test_full_disk_refuses_records_and_keeps_serving_reads() -> None:
    world = World(disk=MemoryDisk(2 << 20), durability=Durability.OS)
    (replica,) = world.create("t")
    world.write(replica, b"kept")
    fill(world)
    outcome = Outcome()
    appended = world.append(replica, batch_of(b"x" * 5000), settle=False)
    replica.when_committed(appended.next_offset, outcome)
    world.settle()
    assert isinstance(outcome.error, DiskFullError)
    assert world.fetch([Wanted(replica, 0, 1000)]).values == [[b"kept"]]
    world.disk.remove("ballast")
    world.advance(10)
    world.write(replica, b"again")
    found = [world.fetch([Wanted(replica, offset, 1000)]).values[0][0] for offset in (0, 1)]
    assert found == [b"kept", b"again"]


def test_full_disk_refuses_topics_and_forgets_what_it_refused() -> None:
    world = World(disk=MemoryDisk(2 << 20), durability=Durability.OS)
    large = NewTopic(name="refused", partition_count=1000)
    world.create("before")
    fill(world)
    assert isinstance(world.create_outcome(large), DiskFullError)
    assert set(world.broker.image.topics) == {"before"}
    world.disk.remove("ballast")
    world.advance(10)
    world.create("after")
    # The image is what the log adds up to, now and after a restart.
    assert set(world.broker.image.topics) == {"before", "after"}
    again = world.reopened(kill=True)
    assert set(again.broker.image.topics) == {"before", "after"}
    assert again.create_outcome(large) is None
