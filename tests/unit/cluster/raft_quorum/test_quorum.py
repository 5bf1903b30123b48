"""Goal: proposals, reads and changes of membership end as the port says; snapshots are the image.

Method: three nodes of the simulation without misfortunes, asked by hand.
"""

from __future__ import annotations

import pytest

from dragoman.cluster.codec import encode_image, restore_image
from dragoman.cluster.events import (
    CaptureDefined,
    CaptureRemoved,
    ClientQuotaChanged,
    ClusterCreated,
    Event,
    FeatureLevelChanged,
    GroupConfigChanged,
    LeaderChanged,
    NodeAdded,
    NodeConfigChanged,
    NodeRegistered,
    NodeRemoved,
    PartitionPlacement,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    VotersChanged,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import (
    ClusterError,
    DiskFullError,
    FormatError,
    LogStoppedError,
    NotControllerError,
    OutcomeUnknownError,
    VersionConflictError,
)
from dragoman.outcome import start
from dragoman.raft.ports import Role, Settings
from simulation.raft.cluster import Cluster, Plan, SimNode
from simulation.raft.memory import MemoryMachine
from simulation.raft.network import NetworkFaults
from worlds.broker import Outcome

EVENT: Event = GroupConfigChanged(group_id="g", config={"operation": "0"})


class Quorum(Cluster):
    def __init__(self, voters: int = 3, spares: int = 0, snapshot_records: int = 10_000) -> None:
        plan = Plan(
            voters=voters,
            spares=spares,
            network=NetworkFaults(),
            misfortunes=(),
            pause_s=1.0,
            proposal_s=1.0,
            snapshot_records=snapshot_records,
            append_bytes_max=1 << 20,
            clock_drift=0.0,
        )
        super().__init__(1, MemoryMachine, plan=plan)
        for node in self.nodes.values():
            node.start()
        self.advance(3.0)

    def advance(self, seconds: float = 0.5) -> None:
        self.scheduler.advance(seconds)

    @property
    def leader(self) -> SimNode:
        [found] = [n for n in self.nodes.values() if n.is_up and n.raft.role is Role.LEADER]
        return found

    @property
    def follower(self) -> SimNode:
        return next(n for n in self.nodes.values() if n.is_up and n.raft.role is Role.FOLLOWER)

    def propose(self, node: SimNode, expected_version: int | None = None) -> Outcome:
        outcome = Outcome()
        event = NodeRegistered(node_id=9, incarnation=1)
        node.quorum.propose([event], expected_version).then(outcome)
        return outcome


def test_proposal_is_applied_on_every_node():
    cluster = Quorum()
    outcome = cluster.propose(cluster.leader)
    assert not outcome.is_known
    cluster.advance()
    assert outcome.error is None
    assert [node.quorum.version for node in cluster.nodes.values()] == [1, 1, 1]


def test_follower_refuses_and_names_the_leader():
    cluster = Quorum()
    error = cluster.propose(cluster.follower).error
    assert isinstance(error, NotControllerError)
    assert error.leader == cluster.leader.node_id == cluster.follower.quorum.leader


def test_proposal_for_another_version_conflicts_also_with_what_is_not_agreed_on_yet():
    cluster = Quorum()
    leader = cluster.leader
    first = cluster.propose(leader, expected_version=0)
    second = cluster.propose(leader, expected_version=0)
    third = cluster.propose(leader, expected_version=1)
    assert isinstance(second.error, VersionConflictError)
    cluster.advance()
    assert (first.error, third.error) == (None, None)
    assert isinstance(cluster.propose(leader, expected_version=0).error, VersionConflictError)


def test_what_files_may_be_about_has_topics_whose_deletion_is_not_agreed_on():
    cluster = Quorum()
    leader = cluster.leader
    placement = PartitionPlacement(1, (1, 2, 3))
    created = TopicCreated(name="t", topic_id=b"t" * 16, partitions=(placement,))
    leader.quorum.propose([created]).then(lambda _: None)
    cluster.advance()
    leader.quorum.propose([TopicDeleted(topic_id=b"t" * 16)]).then(lambda _: None)
    assert list(leader.quorum.local_image().partitions) == [1]
    cluster.advance()
    assert leader.quorum._image.partitions == {}
    assert leader.quorum.local_image().partitions == {}


def test_outcome_is_unknown_when_the_leader_is_deposed():
    cluster = Quorum()
    leader = cluster.leader
    cluster.network.isolated.add(leader.node_id)
    outcome = cluster.propose(leader)
    cluster.advance(3.0)
    assert isinstance(outcome.error, OutcomeUnknownError)


def test_retry_after_a_shutdown_error_is_refused():
    """A log that fails in the middle of an append stops the node from within."""
    cluster = Quorum()
    leader = cluster.leader
    again, read = Outcome(), Outcome()

    def told(_error: object) -> None:
        leader.quorum.propose([EVENT]).then(again)
        start(leader.quorum.read()).then(read)

    leader.quorum.propose([EVENT]).then(told)
    leader.quorum.driver._enter(leader.quorum.fail)
    for each in (again, read):
        assert isinstance(each.error, LogStoppedError)


def test_a_leader_whose_disk_is_full_lets_others_lead(monkeypatch: pytest.MonkeyPatch):
    cluster = Quorum()
    leader, outcome = cluster.leader, Outcome()

    def refuse(*_arguments: object) -> None:
        raise DiskFullError("the disk is full")

    monkeypatch.setattr(leader.raft.storage, "append", refuse)
    leader.quorum.propose([EVENT]).then(outcome)
    assert isinstance(outcome.error, DiskFullError)
    assert not leader.quorum.is_leading
    cluster.advance(5.0)
    assert cluster.leader is not leader


def test_proposal_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.cluster.raft_quorum.driver.RAFT_PROPOSAL_BYTES_MAX", 10)
    cluster = Quorum()
    assert isinstance(cluster.propose(cluster.leader).error, ClusterError)


def test_read_sees_everything_acknowledged_and_fails_without_a_leader():
    cluster = Quorum()
    leader = cluster.leader
    cluster.propose(leader)
    cluster.advance()
    outcome, refused, lost = Outcome(), Outcome(), Outcome()
    start(leader.quorum.read()).then(outcome)
    start(cluster.follower.quorum.read()).then(refused)
    cluster.advance()
    assert outcome.error is None
    assert isinstance(refused.error, NotControllerError)
    cluster.network.isolated.add(leader.node_id)
    start(leader.quorum.read()).then(lost)
    cluster.advance(3.0)
    assert isinstance(lost.error, OutcomeUnknownError)


def test_added_node_becomes_a_voter_when_it_has_caught_up_and_can_be_removed_again():
    cluster = Quorum(spares=1, snapshot_records=5)
    for _ in range(20):
        cluster.propose(cluster.leader)
        cluster.advance(0.1)
    removed = Outcome()
    added = start(cluster.leader.quorum.driver.add(4))
    cluster.advance(2.0)
    added.result().result()
    assert set(cluster.leader.raft.membership.voters) == {1, 2, 3, 4}
    assert cluster.nodes[4].quorum.version == cluster.leader.quorum.version
    cluster.leader.quorum.driver.remove(cluster.leader.node_id).then(removed)
    cluster.advance(3.0)
    assert removed.error is None
    assert len(cluster.leader.raft.membership.voters) == 3


def test_node_that_never_catches_up_stays_a_learner_and_may_be_added_again():
    cluster = Quorum(spares=1)
    cluster.network.isolated.add(4)
    first = start(cluster.leader.quorum.driver.add(4))
    cluster.advance(2.0)
    assert not first.result().is_settled
    assert cluster.leader.raft.membership.learners == (4,)
    cluster.network.heal()
    second = start(cluster.leader.quorum.driver.add(4))
    cluster.advance(2.0)
    second.result().result()


def test_leader_without_room_gives_way(monkeypatch: pytest.MonkeyPatch):
    cluster = Quorum()
    full = cluster.leader

    def refuse(*_: object) -> None:
        raise DiskFullError("the disk is full")

    monkeypatch.setattr(full.quorum.driver.raft.storage, "append", refuse)
    assert isinstance(cluster.propose(full).error, DiskFullError)
    assert not full.quorum.is_leading
    cluster.advance(10.0)
    assert cluster.leader is not full
    outcome = cluster.propose(cluster.leader)
    cluster.advance()
    assert outcome.error is None


def test_leadership_is_handed_over():
    cluster = Quorum()
    target = cluster.follower
    cluster.leader.quorum.driver.transfer(target.node_id)
    cluster.advance(0.1)
    assert cluster.leader is target
    with pytest.raises(ClusterError):
        cluster.follower.quorum.driver.transfer(1)


@pytest.mark.parametrize("seed", range(5))
def test_new_leader_is_there_in_time(seed: int):
    """At most half a second after a connection broke, one and a half after silence."""
    for is_reset, limit in ((True, 0.5), (False, 1.5)):
        cluster = Quorum()
        cluster.random.seed(seed)
        cluster.advance(seed * 0.037)
        dead = cluster.leader
        dead.crash()
        if is_reset:
            cluster._reset(dead.node_id)
        cluster.advance(limit)
        outcome = cluster.propose(cluster.leader)
        cluster.advance(0.1)
        assert outcome.error is None


def test_settings_keep_their_promise():
    """The longest silence before a new leader is asked for leaves time for the election itself."""
    settings = Settings()
    assert settings.election_s + settings.election_jitter_s <= 1.25
    assert settings.heartbeat_s * 3 < settings.election_s


# ---- the image as a snapshot


def history() -> list[Event]:
    def placed(*ids: int) -> tuple[PartitionPlacement, ...]:
        return tuple(PartitionPlacement(each, (1, 2)) for each in ids)

    return [
        ClusterCreated(cluster_id="c"),
        TopicCreated(name="a", topic_id=b"a" * 16, partitions=placed(1, 2), created_ms=5),
        TopicCreated(name="b", topic_id=b"b" * 16, partitions=placed(3), is_internal=True),
        PartitionsAdded(topic_id=b"a" * 16, partitions=placed(4)),
        TopicConfigChanged(topic_id=b"a" * 16, config={"x": "1"}),
        TopicDeleted(topic_id=b"b" * 16),
        TopicCreated(name="z", topic_id=b"z" * 16, partitions=placed(9)),
        TopicDeleted(topic_id=b"z" * 16),
        LeaderChanged(partition_id=2, leader=2, leader_epoch=3, in_sync=(2,), partition_epoch=4),
        ProducerIdsReserved(next_id=2000),
        NodeRegistered(node_id=1, incarnation=7),
        NodeRegistered(node_id=5, incarnation=1),
        NodeRemoved(node_id=5),
        NodeAdded(node_id=4, address="a:9190"),
        NodeConfigChanged(config={"k": "v"}, node_id=1),
        GroupConfigChanged(group_id="g", config={"k": "v"}),
        ClientQuotaChanged(entity=(("user", None),), quotas={"rate": 1.0}),
        FeatureLevelChanged(feature="f", level=2),
        CaptureDefined(name="shop", definition=b"{}", is_paused=True),
        CaptureDefined(name="gone", definition=b"{}"),
        CaptureRemoved(name="gone"),
        VotersChanged(voters=(1, 2, 3), learners=(4,)),
    ]


def test_image_comes_back_from_its_snapshot():
    image, again = MetadataImage(), MetadataImage()
    for event in history():
        image.apply(event)
    again.apply(NodeRegistered(node_id=99, incarnation=1))
    revision = again.topics_revision
    assert restore_image(again, encode_image(image, 17)) == 17
    assert encode_image(again, 17) == encode_image(image, 17)
    assert again.next_partition_id == 10
    assert 99 not in again.nodes
    assert again.topics_revision > revision
    assert vars(again).keys() == vars(MetadataImage()).keys()


def test_snapshot_of_a_newer_release_is_refused():
    with pytest.raises(FormatError):
        restore_image(MetadataImage(), b"\x80")
