"""Goal: a node takes part in its cluster as its settings say.

Method: a node that is the first of a cluster and so far the only one, on virtual time.
"""

from __future__ import annotations

import pytest

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import Member, NodeRegistered, PartitionChanged
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError
from dragoman.limits import CONTROLLER_PATIENCE_S
from dragoman.outcome import start
from dragoman.replication.messages import ControlReply, Heartbeat, RemoveNode
from worlds.broker import World
from worlds.remote_leaders import propose

ALONE = ("1@127.0.0.1:9190",)


def node(**settings: object) -> World:
    return World(Settings(cluster=ALONE, **settings))  # type: ignore[arg-type]


def test_the_first_node_of_a_cluster_is_its_own_controller() -> None:
    world = node()
    assert world.broker.quorum.leader == 1
    assert world.broker.image.nodes == {1: 1}
    assert world.broker.image.cluster_id


def test_node_registers_with_its_rack() -> None:
    assert node(broker_rack="r7").broker.image.registrations[1].rack == "r7"


def test_a_node_that_is_silent_for_its_session_is_fenced() -> None:
    world = node(broker_session_timeout_ms=4000, broker_heartbeat_interval_ms=500)
    propose(world, NodeRegistered(node_id=2, incarnation=1))
    world.broker.cluster.controller.begin()
    world.advance(3.9)
    assert world.broker.image.fenced == set()
    world.advance(0.6)
    assert world.broker.image.fenced == {2}


def test_the_node_itself_is_heard_by_its_own_heartbeats() -> None:
    world = node(broker_session_timeout_ms=1000, broker_heartbeat_interval_ms=500)
    world.advance(30)
    assert world.broker.image.fenced == set()


@pytest.mark.parametrize("lag_ms", [2_000, 20_000])
def test_a_follower_that_does_not_come_is_out_of_sync_after_its_time(lag_ms: int) -> None:
    world = node(replica_lag_time_max_ms=lag_ms, broker_session_timeout_ms=600_000)
    propose(world, NodeRegistered(node_id=2, incarnation=1))
    assert world.create_outcome(NewTopic(name="t", assignment=((1, 2),))) is None
    partition = world.broker.image.topics["t"].partitions[0]
    world.advance(lag_ms / 1000 * 0.9)
    assert partition.in_sync == (1, 2)
    world.advance(lag_ms / 1000)
    assert partition.in_sync == (1,)


@pytest.mark.parametrize(("is_enabled", "leader"), [(True, 1), (False, 2)])
def test_partitions_go_back_to_their_preferred_leaders(is_enabled: bool, leader: int) -> None:
    world = node(
        auto_leader_rebalance_enable=is_enabled,
        leader_imbalance_check_interval_seconds=5,
        replica_lag_time_max_ms=600_000,
        broker_session_timeout_ms=600_000,
    )
    propose(world, NodeRegistered(node_id=2, incarnation=1))
    assert world.create_outcome(NewTopic(name="t", assignment=((1, 2),))) is None
    partition = world.broker.image.topics["t"].partitions[0]
    propose(
        world,
        PartitionChanged(
            partition_id=partition.partition_id,
            leader=2,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
            replicas=partition.replicas,
            in_sync=partition.members,
        ),
    )
    assert partition.leader == 2
    world.advance(12)
    assert partition.leader == leader


@pytest.mark.parametrize(("wanted", "copies"), [(1, 1), (2, 2), (3, 2)])
def test_internal_topics_have_their_copies(wanted: int, copies: int) -> None:
    world = node(
        offsets_topic_replication_factor=wanted, transaction_state_log_replication_factor=wanted
    )
    propose(world, NodeRegistered(node_id=2, incarnation=1))
    for log in world.broker.coordination._logs.values():
        start(log.ensure())
        world.settle()
        partitions = world.broker.image.topics[log.name].partitions
        assert {len(each.replicas) for each in partitions} == {copies}


def test_copies_stand_in_different_racks() -> None:
    world = node(broker_rack="a")
    for number, rack in ((2, "a"), (3, "b"), (4, "b")):
        propose(world, NodeRegistered(node_id=number, incarnation=1, rack=rack))
    new = NewTopic(name="t", partition_count=8, replication_factor=2)
    assert world.create_outcome(new) is None
    racks = {node: each.rack for node, each in world.broker.image.registrations.items()}
    for partition in world.broker.image.topics["t"].partitions:
        assert {racks[node] for node in partition.replicas} == {"a", "b"}


def test_data_of_a_cluster_needs_its_nodes() -> None:
    world = node()
    start(world.broker.quorum.driver.add(2))
    world.settle()
    world.store.abandon()
    alone = World(disk=world.disk, start=False)
    assert world.broker.quorum.membership.learners == (2,)
    alone.broker.recover()
    alone.store.abandon()
    other = World(Settings(cluster=("1@a:1", "2@b:1")), disk=world.disk, start=False)
    other.broker.recover()
    other.store.abandon()


def test_a_directory_of_another_node_is_refused() -> None:
    world = node()
    world.broker.stop()
    world.store.close()
    wrong = World(Settings(node_id=2, cluster=("1@a:1", "2@b:1")), disk=world.disk, start=False)
    with pytest.raises(ConfigError, match="belongs to node 1"):
        start(wrong.broker.start()).result()
    wrong.store.abandon()


def test_internal_topics_get_copies_when_nodes_come_and_topics_of_users_do_not() -> None:
    world = node(offsets_topic_num_partitions=2, broker_session_timeout_ms=600_000)
    image = world.broker.image
    assert world.create_outcome(NewTopic(name="t")) is None
    start(world.broker.coordination.find_coordinator(CoordinatorKind.GROUP, "g")).then(
        lambda _: None
    )
    world.settle()
    partitions = image.topics[OFFSETS_TOPIC].partitions

    def copies() -> list[int]:
        return [len(each.target or each.replicas) for each in partitions]

    assert copies() == [1, 1]
    for number in (2, 3, 4):
        propose(world, NodeRegistered(node_id=number, incarnation=1))
        world.settle()
        assert copies() == [min(number, 3)] * 2
        # The copies are there.
        for each in partitions:
            members = tuple(Member(node, 1) for node in each.target)
            if members:
                propose(world, settled(each, members))
    assert [each.replicas for each in image.topics["t"].partitions] == [(1,)]
    # Taken away by an operator, they stay away, also when a node comes back.
    for each in partitions:
        propose(world, settled(each, (Member(1, 1),)))
    propose(world, NodeRegistered(node_id=3, incarnation=2))
    world.settle()
    assert copies() == [1, 1]


def settled(partition: PartitionMetadata, members: tuple[Member, ...]) -> PartitionChanged:
    return PartitionChanged(
        partition_id=partition.partition_id,
        leader=1,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        replicas=tuple(each.node_id for each in members),
        in_sync=members,
    )


@pytest.mark.parametrize("is_in_time", [True, False])
def test_what_operators_ask_for_waits_for_a_controller(is_in_time: bool) -> None:
    """Right after an election the leader does not know yet what was agreed on before."""
    world = node()
    access = world.broker.cluster.access
    access.is_controller = False
    replies: list[ControlReply | None] = []
    removal = start(access.request(RemoveNode(node_id=9)))
    start(access.ask(Heartbeat(member=Member(1, 1)))).then(replies.append)
    world.advance(1)
    assert replies == [None], "replication repeats its requests by itself"
    assert not removal.is_settled
    access.is_controller = is_in_time
    world.advance(CONTROLLER_PATIENCE_S)
    assert (removal.result() is not None) == is_in_time
