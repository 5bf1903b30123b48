"""Goal: who coordinates a group or a transactional id changes with the leader of its partition.

Method: a broker on virtual time whose leaderships are given and taken by hand, as replication does.
"""

from __future__ import annotations

from unittest import mock

import msgspec
import pytest

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotLeader,
    NotTransactionCoordinator,
    RequestTimedOut,
    TransactionCoordinatorLoading,
)
from dragoman.broker.groups import OFFSETS_TOPIC, JoinRequest
from dragoman.broker.groups.direct import DirectGroup, DirectMember, DirectRules
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.broker.staged_writes import STAGING_TOPIC
from dragoman.broker.transactions import ProducerIdentity, TransactionState
from dragoman.broker.transactions.service import TRANSACTIONS_TOPIC
from dragoman.config.settings import Settings
from dragoman.errors import DiskFullError, DragomanError
from dragoman.log.batch import TRANSACTIONAL, Record, build_batch
from dragoman.outcome import Outcome as Unsettled
from dragoman.outcome import start
from dragoman.replication.replica import Replica
from dragoman.types import GroupId, MemberId, Offset, Partition, TopicName
from worlds.broker import Outcome, World, batch_of
from worlds.remote_leaders import move, register_another

G = GroupId("g")
T = TopicName("t")
ONE_PARTITION = Settings(transaction_state_log_num_partitions=1, offsets_topic_num_partitions=1)


@pytest.fixture
def world() -> World:
    world = World(ONE_PARTITION)
    world.create("t", partitions=2)
    return world


def commit(world: World, offset: int, group: str = G) -> list[DragomanError | None]:
    """The outcome of the commit, now or later."""
    told: list[DragomanError | None] = []
    each = OffsetCommit(topic=T, partition=Partition(0), offset=Offset(offset))

    def done(_prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
        told.append(error)

    world.broker.coordination.groups.commit(
        CommitRequest(group_id=GroupId(group), offsets=(each,), owner="mlog"), done
    )
    return told


def committed(world: World, group: str = G) -> int | None:
    found = world.broker.coordination.groups.offsets.committed(GroupId(group), T, Partition(0))
    return None if found is None else found.offset


def offsets_replica(world: World, index: int = 0) -> Replica:
    return world.broker.partitions.find(OFFSETS_TOPIC, index)


# ---- leading and resigning


def test_a_node_that_resigns_forgets_its_groups_and_reads_them_back_when_it_leads(
    world: World,
) -> None:
    coordination = world.broker.coordination
    commit(world, 7)
    world.settle()
    coordination.groups.log.resign(0)
    assert committed(world) is None
    assert not len(coordination.groups.table)
    coordination.groups.log.lead(0, 0)
    assert committed(world) == 7


def test_requests_are_refused_while_a_partition_is_read_back_and_served_after(
    world: World,
) -> None:
    coordination = world.broker.coordination
    for offset in range(3):
        commit(world, offset)
        world.settle()
    coordination.groups.log.resign(0)
    with mock.patch("dragoman.broker.internal_topic.INTERNAL_RECORDS_PER_SLICE", 1):
        coordination.groups.log.lead(0, 0)
        with pytest.raises(CoordinatorLoading):
            coordination.groups.require(G)
        with pytest.raises(CoordinatorLoading):
            coordination.require_loaded(CoordinatorKind.GROUP)
        (error,) = commit(world, 9)
        assert isinstance(error, CoordinatorLoading)
        world.settle()
    coordination.groups.require(G)
    assert committed(world) == 2


def test_a_resignation_while_loading_ends_it(world: World) -> None:
    coordination = world.broker.coordination
    for offset in range(3):
        commit(world, offset)
        world.settle()
    coordination.groups.log.resign(0)
    with mock.patch("dragoman.broker.internal_topic.INTERNAL_RECORDS_PER_SLICE", 1):
        coordination.groups.log.lead(0, 0)
        coordination.groups.log.resign(0)
        world.settle()
    assert not len(coordination.groups.table)
    coordination.groups.log.lead(0, 0)
    assert committed(world) == 2


def test_leading_again_in_a_newer_epoch_reads_anew_and_in_an_older_one_does_nothing(
    world: World,
) -> None:
    coordination = world.broker.coordination
    commit(world, 1)
    world.settle()
    stale = world.broker.coordination.groups.table.get(G)
    epoch = move(world, OFFSETS_TOPIC, world.broker.node_id)
    coordination.groups.log.lead(0, epoch)
    assert coordination.groups.table.get(G) is not stale
    fresh = coordination.groups.table.get(G)
    coordination.groups.log.lead(0, 0)
    coordination.groups.log.lead(0, epoch)
    assert coordination.groups.table.get(G) is fresh
    assert commit(world, 2) == []
    world.settle()
    assert committed(world) == 2


def test_only_the_groups_of_the_partition_go() -> None:
    world = World(msgspec.structs.replace(ONE_PARTITION, offsets_topic_num_partitions=7))
    names = [f"group-{number}" for number in range(30)]
    for name in names:
        commit(world, 3, name)
    world.settle()
    coordination = world.broker.coordination
    coordination.groups.log.resign(4)
    gone = [name for name in names if committed(world, name) is None]
    assert gone == [name for name in names if coordination.groups.home_of(name)[1] == 4] != []
    with pytest.raises(CoordinatorLoading):
        # The image still says that this node leads: no event changed it.
        coordination.groups.require(gone[0])
    coordination.groups.log.lead(4, 0)
    assert all(committed(world, name) == 3 for name in names)


def test_records_of_earlier_leaders_are_read_once_they_are_known_to_be_committed(
    world: World,
) -> None:
    """A follower that takes over may have records above the watermark that it knows."""
    coordination = world.broker.coordination
    commit(world, 1)
    world.settle()
    coordination.groups.log.resign(0)
    replica = offsets_replica(world)
    replica.role = role = _Standing(replica.log.high_watermark)
    commit_elsewhere(world, 5)
    coordination.groups.log.lead(0, 0)
    with pytest.raises(CoordinatorLoading):
        coordination.groups.require(G)
    role.end = replica.log.stable_end
    replica.advance()
    assert committed(world) == 5


class _Standing:
    """A role whose watermark does not move by itself."""

    def __init__(self, end: int) -> None:
        self.end = end

    def committed_end(self) -> int:
        return self.end


def commit_elsewhere(world: World, offset: int) -> None:
    """What another node, as the leader, has written to the log of the only partition."""
    other = World(ONE_PARTITION)
    other.create("t", partitions=2)
    commit(other, offset)
    other.settle()
    log = offsets_replica(other).log
    copied = log.read(0, 1 << 20, log.high_watermark).buffers
    (batch,) = copied
    world.append(offsets_replica(world), batch)


def test_a_topic_deleted_while_groups_are_read_back_takes_its_offsets_along(world: World) -> None:
    coordination = world.broker.coordination
    for offset in range(3):
        commit(world, offset)
        world.settle()
    coordination.groups.log.resign(0)
    with mock.patch("dragoman.broker.internal_topic.INTERNAL_RECORDS_PER_SLICE", 1):
        coordination.groups.log.lead(0, 0)
        coordination.groups.topic_deleted(T)
        world.settle()
    assert committed(world) is None
    # From then on it is a name like any other.
    commit(world, 9)
    world.settle()
    assert committed(world) == 9
    coordination.groups.log.resign(0)
    coordination.groups.log.lead(0, 0)
    world.settle()
    assert committed(world) == 9


def test_a_partition_that_cannot_be_read_is_not_served_and_keeps_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(msgspec.structs.replace(ONE_PARTITION, offsets_topic_num_partitions=2))
    coordination = world.broker.coordination
    groups = [f"group-{number}" for number in range(20)]
    for group in groups:
        commit(world, 1, group)
    world.settle()
    of_tomorrow = build_batch([Record(key=b"\xff", value=b"", timestamp=0)])
    world.append(offsets_replica(world, 0), of_tomorrow)
    for index in range(2):
        coordination.groups.log.resign(index)
    for index in range(2):
        coordination.groups.log.lead(index, 0)
    assert "cannot be read and is not served" in caplog.text
    for group in groups:
        if coordination.groups.home_of(group)[1] == 0:
            assert committed(world, group) is None
            with pytest.raises(CoordinatorLoading):
                coordination.groups.require(group)
        else:
            assert committed(world, group) == 1


def test_a_partition_that_cannot_be_opened_yet_is_tried_again(world: World) -> None:
    coordination = world.broker.coordination
    commit(world, 1)
    world.settle()
    coordination.groups.log.resign(0)
    with mock.patch.object(world.broker.partitions, "find", side_effect=NotLeader("not yet")):
        coordination.groups.log.lead(0, 0)
        world.advance(3)
    with pytest.raises(CoordinatorLoading):
        coordination.groups.require(G)
    world.advance(1)
    assert committed(world) == 1


def test_with_too_few_replicas_in_sync_nothing_is_written(world: World) -> None:
    commit(world, 1)
    world.settle()
    replica = offsets_replica(world)
    replica.metadata.min_insync = 2
    end = replica.log.log_end_offset
    (error,) = commit(world, 2)
    assert isinstance(error, CoordinatorNotAvailable)
    assert replica.log.log_end_offset == end
    replica.metadata.min_insync = 1
    assert commit(world, 2) == []
    world.settle()
    assert committed(world) == 2


def test_a_node_that_stops_makes_no_topics(world: World) -> None:
    world.broker.stop()
    (error,) = commit(world, 1)
    assert isinstance(error, CoordinatorNotAvailable)
    world.settle()
    assert OFFSETS_TOPIC not in world.broker.image.topics


# ---- who waits


def test_waiting_group_members_get_not_coordinator(world: World) -> None:
    told: list[object] = []
    world.broker.coordination.groups.table.join(join_request(), told.append)
    commit(world, 1, "other")
    world.settle()
    assert told == []
    register_another(world)
    log = offsets_replica(world).log
    move(world, OFFSETS_TOPIC, 2)
    end = log.log_end_offset
    world.broker.coordination.groups.log.resign(0)
    (error,) = told
    assert isinstance(error, NotCoordinator)
    assert error.leader == 2
    world.advance(3600)
    assert log.log_end_offset == end


def join_request() -> JoinRequest:
    return JoinRequest(
        group_id=G,
        protocol_type="consumer",
        protocols=(("range", b""),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
    )


def test_a_commit_under_way_when_the_node_resigns_is_not_applied(world: World) -> None:
    coordination = world.broker.coordination
    commit(world, 1)
    world.settle()
    told = commit(world, 2)
    coordination.groups.log.resign(0)
    world.settle()
    assert isinstance(told[0], NotCoordinator)
    assert committed(world) is None
    coordination.groups.log.lead(0, 0)
    # It is in the log: the next leader finds it there.
    assert committed(world) == 2


def test_a_commit_is_refused_when_the_partition_has_another_epoch_than_was_loaded(
    world: World,
) -> None:
    commit(world, 1)
    world.settle()
    move(world, OFFSETS_TOPIC, world.broker.node_id)
    end = offsets_replica(world).log.log_end_offset
    (error,) = commit(world, 2)
    assert isinstance(error, NotCoordinator)
    assert offsets_replica(world).log.log_end_offset == end


def test_after_an_unknown_outcome_the_partition_is_read_anew(world: World) -> None:
    commit(world, 1)
    world.settle()
    replica = offsets_replica(world)
    told = commit(world, 2)
    replica.fail_waiters(RequestTimedOut("the leader changed; the outcome is unknown"))
    assert isinstance(told[0], CoordinatorNotAvailable)
    with pytest.raises(CoordinatorLoading):
        world.broker.coordination.groups.require(G)
    world.settle()
    assert committed(world) == 2
    assert commit(world, 3) == []
    world.settle()
    assert committed(world) == 3


def test_after_a_full_disk_nothing_is_read_anew(world: World) -> None:
    commit(world, 1)
    world.settle()
    group = world.broker.coordination.groups.table.get(G)
    told = commit(world, 2)
    offsets_replica(world).fail_waiters(DiskFullError("the disk is full"))
    assert isinstance(told[0], DiskFullError)
    assert world.broker.coordination.groups.table.get(G) is group
    assert committed(world) == 1


def test_direct_groups_stop_without_writing(world: World) -> None:
    coordination = world.broker.coordination
    group = direct(world)
    group.bind(T)
    group.join(
        DirectMember(
            MemberId("m"),
            T,
            client_host="h",
            on_assigned=lambda _: None,
            on_evicted=lambda: None,
        )
    )
    world.settle()
    end = offsets_replica(world).log.log_end_offset
    coordination.groups.log.resign(0)
    world.advance(60)
    assert offsets_replica(world).log.log_end_offset == end
    coordination.groups.log.lead(0, 0)
    assert direct(world).bound_to == T
    assert direct(world).generation == group.generation


def direct(world: World) -> DirectGroup:
    coordination = world.broker.coordination
    rules = DirectRules(lambda _m, _c: {}, 15, 5, coordination.groups.partition_count)
    return coordination.groups.direct(G, "cursus", rules)


# ---- who coordinates


def test_before_the_topic_is_made_a_node_that_is_alone_coordinates_everything(
    world: World,
) -> None:
    coordination = world.broker.coordination
    assert coordination.coordinator_of(CoordinatorKind.GROUP, G) == world.broker.node_id
    coordination.groups.require(G)
    assert OFFSETS_TOPIC not in world.broker.image.topics


def test_one_that_is_not_alone_makes_the_topic_first(world: World) -> None:
    coordination = world.broker.coordination
    for internal in (coordination.groups.log, coordination.transactions.log):
        internal.resign(0)
    assert coordination.coordinator_of(CoordinatorKind.GROUP, G) == -1
    with pytest.raises(CoordinatorNotAvailable):
        coordination.groups.require(G)
    found: list[object] = []
    start(coordination.find_coordinator(CoordinatorKind.TRANSACTION, "x")).then(found.append)
    world.settle()
    assert found == [world.broker.node_id]
    assert {OFFSETS_TOPIC, TRANSACTIONS_TOPIC} <= world.broker.image.topics.keys()


def test_internal_topics_have_as_many_replicas_as_there_are_nodes(world: World) -> None:
    register_another(world)
    commit(world, 1)
    world.settle()
    replicas = world.broker.image.topics[OFFSETS_TOPIC].partitions[0].replicas
    assert sorted(replicas) == [world.broker.node_id, 2]


def test_settings_say_how_many_replicas_internal_topics_have_at_most() -> None:
    world = World(
        msgspec.structs.replace(
            ONE_PARTITION,
            offsets_topic_replication_factor=1,
            transaction_state_log_replication_factor=2,
        )
    )
    world.create("t", partitions=2)
    register_another(world)
    for log in world.broker.coordination._logs.values():
        start(log.ensure())
    start(world.broker.staged_writes.staging_topic.open())
    world.settle()
    topics = world.broker.image.topics
    names = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, STAGING_TOPIC)
    assert [len(topics[name].partitions[0].replicas) for name in names] == [1, 2, 2]


def test_another_node_that_leads_is_named(world: World) -> None:
    register_another(world)
    coordination = world.broker.coordination
    commit(world, 1)
    world.settle()
    move(world, OFFSETS_TOPIC, 2)
    coordination.groups.log.resign(0)
    with pytest.raises(NotCoordinator) as refused:
        coordination.groups.require(G)
    assert refused.value.leader == 2
    assert coordination.coordinator_of(CoordinatorKind.GROUP, G) == 2
    coordination.require_loaded(CoordinatorKind.GROUP)
    move(world, OFFSETS_TOPIC, -1)
    with pytest.raises(CoordinatorNotAvailable):
        coordination.groups.require(G)
    found: list[object] = []
    start(coordination.find_coordinator(CoordinatorKind.GROUP, G)).then(found.append)
    world.settle()
    assert isinstance(found[0], CoordinatorNotAvailable)


# ---- transactions


def begin(world: World, name: str = "x") -> ProducerIdentity:
    told: list[object] = []
    transactions = world.broker.coordination.transactions.coordinator
    start(transactions.init_producer_id(name, 60_000, None)).then(told.append)
    world.settle()
    (identity,) = told
    assert isinstance(identity, ProducerIdentity)
    start(transactions.add_partitions(name, identity, [(T, Partition(0))])).then(Outcome())
    world.settle()
    batch = batch_of(
        b"v",
        timestamp=world.clock.wall_ms(),
        attributes=TRANSACTIONAL,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
    )
    world.append(world.broker.partitions.find(T, 0), batch)
    return identity


async def never(*_: object) -> None:
    """Markers that are never written."""
    await Unsettled()


def test_decided_transaction_is_finished_by_the_next_leader(world: World) -> None:
    identity = begin(world)
    coordination = world.broker.coordination
    told: list[object] = []
    with mock.patch.object(coordination.transactions.participants, "end_everywhere", never):
        start(coordination.transactions.coordinator.end("x", identity, True, False)).then(
            told.append
        )
        world.settle()
    assert told == [identity]
    coordination.transactions.log.resign(0)
    assert coordination.transactions.coordinator.list_transactions() == []
    epoch = move(world, TRANSACTIONS_TOPIC, world.broker.node_id)
    coordination.transactions.log.lead(0, epoch)
    world.settle()
    state = coordination.transactions.coordinator.describe("x").state
    assert state is TransactionState.COMPLETE_COMMIT
    log = world.broker.partitions.find(T, 0).log
    assert log.last_stable_offset == log.high_watermark == 2
    assert log.producers is not None
    known = log.producers.producers()[identity.producer_id]
    assert known.coordinator_epoch == epoch == 1


def test_an_operation_under_way_is_answered_when_the_node_resigns(world: World) -> None:
    identity = begin(world)
    coordination = world.broker.coordination
    told: list[object] = []
    start(coordination.transactions.coordinator.end("x", identity, True, False)).then(told.append)
    coordination.transactions.log.resign(0)
    assert [type(each) for each in told] == [NotTransactionCoordinator]
    world.settle()
    assert len(told) == 1
    start(coordination.transactions.coordinator.end("x", identity, True, False)).then(told.append)
    assert isinstance(told[1], TransactionCoordinatorLoading)
    # Nothing is written any more, neither markers nor the completion.
    assert world.broker.partitions.find(T, 0).log.last_stable_offset == 0
    coordination.transactions.log.lead(0, 0)
    world.settle()
    # The decision is in the log, so it holds.
    assert world.broker.partitions.find(T, 0).log.last_stable_offset == 2


def test_a_marker_of_an_older_coordinator_is_refused(world: World) -> None:
    identity = begin(world)
    coordination = world.broker.coordination
    epoch = move(world, TRANSACTIONS_TOPIC, world.broker.node_id)
    coordination.transactions.log.lead(0, epoch)
    ended: list[object] = []
    start(coordination.transactions.coordinator.end("x", identity, True, False)).then(ended.append)
    world.settle()
    with pytest.raises(DragomanError, match="coordinator epoch is 1, got 0"):
        world.end_transaction(
            world.broker.partitions.find(T, 0), identity.producer_id, commit=False
        )
