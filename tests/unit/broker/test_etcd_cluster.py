"""Goal: a node whose metadata is in etcd takes part in its cluster, and trusts only its own etcd.

Method: one node and a toy etcd on virtual time; the other nodes are what is said of them.
"""

from __future__ import annotations

from random import Random

import pytest

from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import Member, NodeRegistered
from dragoman.config.settings import Settings
from dragoman.errors import ClusterError, ConfigError, DragomanError, OutcomeUnknownError
from dragoman.log.node import FEATURE_LEVEL
from dragoman.outcome import start
from dragoman.replication.messages import (
    AddNode,
    ControlReply,
    ControlRequest,
    Heartbeat,
    MembershipRequest,
    PartitionRequest,
    Registration,
    RemoveNode,
    TransferMetadata,
)
from dragoman.replication.messages import (
    Decision as Answer,
)
from dragoman.world import Disk
from worlds.broker import Outcome, World, batch_of
from worlds.etcd import ToyEtcd, ToyGateway
from worlds.remote_leaders import propose


class Node(World):
    def __init__(
        self, etcd: ToyEtcd, disk: Disk | None = None, *, seed: int = 1, **settings: object
    ) -> None:
        self.etcd = etcd
        self.gateway = ToyGateway(etcd, Random(1))
        self.fatal: list[OSError | DragomanError] = []
        self.loaded = Outcome()
        given = Settings(metadata_quorum="etcd", **settings)  # type: ignore[arg-type]
        super().__init__(
            given,
            disk=disk,
            start=False,
            seed=seed,
            scheduler=etcd.scheduler,
            etcd=self.gateway,
        )
        self.broker.on_fatal = self.fatal.append
        self.broker.load().then(self.loaded)
        self.advance(0.1)

    def settle(self) -> None:
        """etcd needs its time."""
        self.advance(0.1)

    def begin(self) -> Node:
        assert self.loaded.error is None
        started = Outcome()
        start(self.broker.start()).then(started)
        self.advance(0.5)
        assert started.error is None
        return self

    def again(self, etcd: ToyEtcd | None = None) -> Node:
        """The next start after a clean stop, not begun."""
        self.broker.stop()
        self.advance(0.1)
        self.store.close()
        return Node(etcd if etcd is not None else self.etcd, self.disk)

    def ask(self, request: ControlRequest) -> ControlReply | None:
        access = self.broker.cluster.access
        if isinstance(request, PartitionRequest | MembershipRequest):
            reply = start(access.request(request))
        else:
            reply = start(access.ask(request))
        self.advance(0.1)
        return reply.result()

    def say_alive(self, node_id: int) -> None:
        self.etcd.put(f"/dragoman/nodes/{node_id}", b'{"node":%d,"incarnation":1}' % node_id)
        self.advance(0.1)


@pytest.fixture
def etcd() -> ToyEtcd:
    from dragoman.testing.sim.scheduler import SimScheduler

    return ToyEtcd(SimScheduler())


@pytest.fixture
def node(etcd: ToyEtcd) -> Node:
    return Node(etcd).begin()


def test_the_first_node_founds_the_cluster(node: Node) -> None:
    assert node.broker.quorum.leader == 1
    assert node.broker.image.nodes == {1: 1}
    assert node.broker.image.cluster_id


def test_the_lease_is_as_long_as_asked(etcd: ToyEtcd) -> None:
    Node(etcd, metadata_etcd_lease_seconds=17).begin()
    assert [ttl for _, ttl in etcd.leases.values()] == [17]


def test_a_node_waits_for_etcd_and_leads_nothing_before_it_is_recovered(etcd: ToyEtcd) -> None:
    etcd.stop()
    node = Node(etcd)
    node.advance(600)
    assert not node.loaded.is_known
    etcd.restart()
    node.advance(5)
    assert node.loaded.error is None
    assert not etcd.leases
    assert node.begin().broker.quorum.is_leading


def test_topics_and_records_outlive_a_restart(node: Node) -> None:
    [replica] = node.create("t")
    node.append(replica, batch_of(b"one"))
    again = node.again().begin()
    assert again.broker.partitions.find("t", 0).log.log_end_offset == 1
    assert again.broker.image.nodes == {1: 2}


def test_directory_of_a_deleted_topic_is_removed(node: Node) -> None:
    [replica] = node.create("t")
    node.append(replica, batch_of(b"one"))
    node.store.checkpoint_now()
    assert node.disk.names("partitions")
    outcome = Outcome()
    start(node.broker.topics.delete("t")).then(outcome)
    node.advance(0.1)
    assert outcome.error is None
    assert node.disk.names("partitions") == []


# ---- liveness

#: What a node of this release joins with.
JOINING = Registration(
    node_id=2, directory="d", life="1/0", is_intact=True, feature_level=FEATURE_LEVEL
)


def test_heartbeats_count_only_with_a_lease_in_etcd(node: Node) -> None:
    other = Member(2, 1)
    propose(node, NodeRegistered(node_id=2, incarnation=1))
    node.advance(0.1)
    assert node.ask(Heartbeat(member=other)) is None
    node.say_alive(2)
    assert node.ask(Heartbeat(member=other)) == ControlReply(outcomes=(Answer.ACCEPTED,))


def test_a_node_without_a_lease_is_not_let_in(node: Node) -> None:
    request = JOINING
    assert node.ask(request) is None
    assert 2 not in node.broker.image.nodes
    node.say_alive(2)
    assert node.ask(request) is not None
    assert node.broker.image.nodes == {1: 1, 2: 1}


# ---- etcd is away


def test_what_is_led_is_served_while_etcd_is_away_and_changes_fail_as_unknown(node: Node) -> None:
    [replica] = node.create("t")
    node.etcd.stop()
    outcome = Outcome()
    start(node.broker.topics.create(NewTopic(name="u"))).then(outcome)
    node.advance(11)
    assert isinstance(outcome.error, OutcomeUnknownError)
    node.append(replica, batch_of(b"one"))
    assert replica.log.high_watermark == 1
    assert node.fatal == []
    node.etcd.restart()
    node.advance(10)
    node.create("v")


def test_a_lease_longer_than_the_patience_does_not_leave_the_cluster_without_controller(
    etcd: ToyEtcd,
) -> None:
    node = Node(etcd, metadata_etcd_lease_seconds=300).begin()
    node.say_alive(2)
    etcd.stop()
    # A decision of the controller whose fate is not known.
    request = JOINING
    answers: list[ControlReply | None] = []
    start(node.broker.cluster.access.ask(request)).then(answers.append)
    node.advance(11)
    assert answers == [None]
    etcd.restart()
    node.advance(10)
    assert node.ask(request) is not None


# ---- etcd is not what it was


def test_etcd_that_has_lost_everything_stops_the_node(node: Node) -> None:
    node.etcd.keys.clear()
    node.gateway.break_streams()
    node.advance(5)
    [error] = node.fatal
    assert isinstance(error, ClusterError)
    assert "etcd has lost metadata" in str(error)


def test_directory_of_a_cluster_is_refused_where_etcd_knows_none(node: Node) -> None:
    empty = ToyEtcd(node.scheduler)
    again = node.again(empty)
    with pytest.raises(ConfigError, match=r"the metadata in etcd is none; look at"):
        again.broker.recover()
    assert empty.changes == []


def test_directory_of_a_cluster_is_refused_by_the_etcd_of_another(node: Node) -> None:
    other = ToyEtcd(node.scheduler)
    theirs = Node(other, seed=2).begin().broker.image.cluster_id
    again = node.again(other)
    with pytest.raises(ConfigError, match=f"the metadata in etcd is that of cluster {theirs};"):
        again.broker.recover()


def test_etcd_that_was_restored_from_an_old_backup_is_refused(node: Node) -> None:
    backup = dict(node.etcd.keys)
    [replica] = node.create("t")
    node.append(replica, batch_of(b"one"))
    node.broker.stop()
    node.store.close()
    node.etcd.keys = backup
    again = Node(node.etcd, node.disk)
    with pytest.raises(ConfigError, match=r"etcd has lost metadata: .* restore etcd"):
        again.broker.recover()
    assert node.disk.names("partitions")


def test_directory_with_metadata_of_its_own_is_refused(etcd: ToyEtcd) -> None:
    alone = World()
    alone.create("t")
    alone.broker.stop()
    alone.store.close()
    node = Node(etcd, alone.disk)
    with pytest.raises(ConfigError, match="the data directory has metadata of its own"):
        node.broker.recover()


def test_directory_of_a_cluster_with_etcd_is_refused_without(node: Node) -> None:
    node.broker.stop()
    node.store.close()
    alone = World(disk=node.disk, start=False)
    with pytest.raises(ConfigError, match="whose metadata is in etcd: start with"):
        alone.broker.recover()


def test_directory_of_another_node_is_refused(node: Node) -> None:
    node.broker.stop()
    node.store.close()
    other = Node(node.etcd, node.disk, node_id=2)
    with pytest.raises(ConfigError, match=r"belongs to node 1, but node\.id is 2"):
        other.broker.recover()


# ---- what operators ask for


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (AddNode(node_id=2, address="a:1"), "nodes join by themselves: start node 2 with the same"),
        (TransferMetadata(node_id=2), "which decides who leads it"),
        (RemoveNode(node_id=7), "there is no node 7 in the cluster"),
        (RemoveNode(node_id=1), "node 1 would come back by itself: stop it first"),
    ],
)
def test_what_is_the_affair_of_etcd_is_refused(
    node: Node, request_: ControlRequest, text: str
) -> None:
    reply = node.ask(request_)
    assert reply is not None
    assert reply.outcomes == (Answer.REFUSED,)
    assert text in reply.text


def test_a_node_that_is_gone_is_removed(node: Node) -> None:
    propose(node, NodeRegistered(node_id=2, incarnation=1))
    node.broker.cluster.controller.begin()
    node.advance(2)
    assert node.broker.image.fenced == {2}
    reply = node.ask(RemoveNode(node_id=2))
    assert reply is not None
    assert reply.outcomes == (Answer.ACCEPTED,)
    assert node.broker.image.nodes == {1: 1}
