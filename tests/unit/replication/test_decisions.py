"""Goal: the controller's decisions follow the rules of leadership, in-sync sets and eligibility.

Method: events are applied to an image; each decision is looked at and applied in turn.
"""

from __future__ import annotations

import pytest

from dragoman.broker.errors import ElectionNotNeeded, InvalidReplicaAssignment
from dragoman.cluster.events import (
    Event,
    Member,
    PartitionChanged,
    PartitionPlacement,
    TopicConfigChanged,
    TopicCreated,
    decode_event,
    encode_event,
)
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.replication.decisions import Decisions
from dragoman.replication.messages import Decision, InSyncChange, Registration

TOPIC_ID = b"t" * 16


class World:
    def __init__(self, *replicas: int, config: dict[str, str] | None = None) -> None:
        self.image = MetadataImage()
        self.controller = Decisions(self.image)
        for node in (1, 2, 3, 4):
            self.register(node)
        placement = PartitionPlacement(1, replicas or (1, 2, 3))
        event = TopicCreated(
            name="t", topic_id=TOPIC_ID, partitions=(placement,), config=config or {}
        )
        self.image.apply(event)

    @property
    def partition(self) -> PartitionMetadata:
        return self.image.partitions[1]

    def apply(self, events: list[Event]) -> list[Event]:
        for each in events:
            self.image.apply(decode_event(encode_event(each)))
        return events

    def register(self, node: int, life: str = "1", **more: object) -> list[Event]:
        values: dict[str, object] = {"directory": f"d{node}", "is_intact": True, **more}
        request = Registration(node_id=node, life=life, **values)  # type: ignore[arg-type]
        return self.apply(self.controller.register(request))

    def member(self, node: int) -> Member:
        return Member(node, self.image.nodes[node])

    def fence(self, *nodes: int) -> None:
        for node in nodes:
            self.apply(self.controller.fence(self.member(node)))

    def change(self, leader: int, *nodes: int, **epochs: int) -> Decision:
        partition = self.partition
        change = InSyncChange(
            1,
            epochs.get("leader_epoch", partition.leader_epoch),
            epochs.get("partition_epoch", partition.partition_epoch),
            tuple(self.member(each) for each in nodes),
        )
        outcome, events = self.controller.change_in_sync(self.member(leader), change)
        self.apply(events)
        return outcome


def test_a_new_partition_is_led_by_its_first_replica_and_all_are_in_sync() -> None:
    partition = World().partition
    assert (partition.leader, partition.in_sync, partition.min_insync) == (1, (1, 2, 3), 2)
    assert World(1, 2).partition.min_insync == 1


def test_a_fenced_leader_is_replaced_from_the_in_sync_set_in_a_new_epoch() -> None:
    world = World()
    world.fence(1)
    assert (world.partition.leader, world.partition.leader_epoch) == (2, 1)
    assert world.partition.in_sync == (2, 3)
    assert world.partition.eligible == ()


def test_members_lost_below_the_minimum_stay_eligible_and_lead_when_they_come_back() -> None:
    world = World()
    world.fence(1, 2, 3)
    partition = world.partition
    assert (partition.leader, partition.in_sync, partition.eligible) == (-1, (), (2, 3))
    world.register(1, life="2")
    assert partition.leader == -1, "node 1 left while records could be committed without it"
    world.register(3, life="2")
    assert (partition.leader, partition.in_sync, partition.eligible) == (3, (3,), (2,))


@pytest.mark.parametrize(
    "loss", [{"is_intact": False}, {"directory": "new"}, {"damaged": (1,)}], ids=str
)
def test_a_node_that_comes_back_without_its_data_is_not_eligible(loss: dict[str, object]) -> None:
    world = World()
    world.fence(1, 2, 3)
    world.register(3, life="2", **loss)
    assert (world.partition.leader, world.partition.eligible) == (-1, (2,))


def test_the_second_start_of_a_new_disk_is_still_a_new_disk() -> None:
    world = World()
    world.fence(1, 2, 3)
    world.register(3, life="2", directory="new", is_intact=True)
    assert world.partition.leader == -1


def test_a_new_incarnation_leaves_every_in_sync_set() -> None:
    world = World()
    events = world.register(1, life="2")
    assert world.partition.in_sync == (2, 3)
    assert world.partition.leader == 2
    assert world.image.nodes[1] == 2
    assert sum(isinstance(each, PartitionChanged) for each in events) == 1
    assert world.register(1, life="2") == [], "a repetition changes nothing"


def test_a_sole_replica_stays_as_it_is_over_a_restart() -> None:
    world = World(1)
    world.register(1, life="2")
    partition = world.partition
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 0, 0)


def test_a_sole_replica_that_was_fenced_leads_again_in_a_new_epoch() -> None:
    world = World(1)
    world.fence(1)
    assert world.partition.leader == -1
    world.register(1, life="2")
    partition = world.partition
    assert (partition.leader, partition.leader_epoch) == (1, 2)
    assert partition.members == (Member(1, 2),)


def test_a_sole_replica_that_gets_company_leads_in_its_present_life() -> None:
    world = World(1)
    world.register(1, life="2")
    world.apply(world.controller.reassign(1, (1, 2)))
    partition = world.partition
    assert (partition.leader, partition.leader_epoch) == (1, 1)
    assert partition.members == (Member(1, 2),)


def test_members_of_an_earlier_life_leave_a_partition_made_meanwhile() -> None:
    world = World()
    placement = PartitionPlacement(2, (1, 2, 3))
    registered = world.controller.register(
        Registration(node_id=1, life="2", directory="d1", is_intact=True)
    )
    world.image.apply(TopicCreated(name="u", topic_id=b"u" * 16, partitions=(placement,)))
    world.apply(registered)
    world.apply(world.controller.settle([world.image.partitions[2]]))
    assert world.image.partitions[2].leader == 2
    assert world.image.partitions[2].in_sync == (2, 3)
    assert world.controller.settle(world.image.partitions.values()) == []


def test_next_leader_leaves_members_of_an_earlier_incarnation_out() -> None:
    """A partition is made while node 1 comes back, and node 2 goes before that is settled."""
    world = World()
    placement = PartitionPlacement(2, (2, 1, 3))
    registered = world.controller.register(
        Registration(node_id=1, life="2", directory="d1", is_intact=True)
    )
    world.image.apply(TopicCreated(name="u", topic_id=b"u" * 16, partitions=(placement,)))
    world.apply(registered)
    world.fence(2)
    partition = world.image.partitions[2]
    assert (partition.leader, partition.in_sync) == (3, (3,))
    assert partition.eligible == (1, 2)


def test_coming_back_from_a_fence_keeps_the_incarnation() -> None:
    world = World()
    world.fence(2)
    world.register(2)
    assert world.image.nodes[2] == 1
    assert 2 not in world.image.fenced


def test_in_sync_changes_are_compare_and_set() -> None:
    world = World()
    assert world.change(1, 1, 2, partition_epoch=7) is Decision.CONFLICT
    assert world.change(1, 1, 2, leader_epoch=7) is Decision.CONFLICT
    assert world.change(2, 1, 2) is Decision.CONFLICT
    assert world.change(1, 1, 2) is Decision.ACCEPTED
    assert (world.partition.in_sync, world.partition.partition_epoch) == ((1, 2), 1)
    assert world.partition.leader_epoch == 0


def test_in_sync_changes_name_live_replicas_in_their_present_lives() -> None:
    world = World()
    assert world.change(1, 1, 4) is Decision.REFUSED
    assert world.change(1, 2, 3) is Decision.REFUSED
    stale = InSyncChange(1, 0, 0, (world.member(1), Member(2, 0)))
    assert world.controller.change_in_sync(world.member(1), stale) == (Decision.REFUSED, [])
    world.fence(3)
    assert world.change(1, 1, 2, 3) is Decision.REFUSED


def test_a_change_to_what_is_there_ends_earlier_requests() -> None:
    world = World()
    assert world.change(1, 1, 2, 3) is Decision.ACCEPTED
    assert world.partition.partition_epoch == 1


def test_no_replica_is_eligible_once_the_minimum_is_lowered() -> None:
    world = World()
    world.change(1, 1)
    assert world.partition.eligible == (2, 3)
    config = {"min.insync.replicas": "1"}
    world.image.apply(TopicConfigChanged(topic_id=TOPIC_ID, config=config))
    assert world.partition.eligible == ()


def test_hand_over_moves_what_others_can_lead() -> None:
    world = World()
    world.apply(world.controller.hand_over(world.member(1)))
    assert (world.partition.leader, world.partition.in_sync) == (2, (2, 3))
    alone = World(1)
    assert alone.controller.hand_over(alone.member(1)) == []
    assert world.controller.hand_over(Member(2, 7)) == []


def test_balance_gives_the_lead_back_to_the_first_replica() -> None:
    world = World()
    world.fence(1)
    world.register(1)
    assert world.controller.balance(10) == []
    world.change(2, 2, 3, 1)
    world.apply(world.controller.balance(10))
    assert world.partition.leader == 1
    assert world.controller.balance(0) == []


def test_a_move_adds_waits_and_drops() -> None:
    world = World()
    world.apply(world.controller.reassign(1, (4, 2)))
    partition = world.partition
    assert (partition.replicas, partition.target) == ((4, 2, 1, 3), (4, 2))
    assert world.controller.finish_moves() == []
    world.change(1, 1, 2, 3, 4)
    world.apply(world.controller.finish_moves())
    assert (partition.replicas, partition.target, partition.leader) == ((4, 2), (), 4)
    assert partition.in_sync == (2, 4)
    assert world.image.moving == {}


@pytest.mark.parametrize("replicas", [(), (1, 1), (9,)])
def test_a_move_to_nowhere_is_refused(replicas: tuple[int, ...]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        World().controller.reassign(1, replicas)


def test_unclean_election_happens_on_request_and_is_marked() -> None:
    world = World()
    with pytest.raises(ElectionNotNeeded):
        world.controller.elect_unclean(1, 1)
    world.fence(1, 2, 3)
    world.register(1, life="2")
    with pytest.raises(InvalidReplicaAssignment):
        world.controller.elect_unclean(1, 4)
    (event,) = world.apply(world.controller.elect_unclean(1, 1))
    assert isinstance(event, PartitionChanged)
    assert event.is_unclean
    assert (world.partition.leader, world.partition.eligible) == (1, ())


def test_a_move_that_is_taken_back_leaves_the_replicas_of_before() -> None:
    world = World(1, 2, 3)
    world.apply(world.controller.reassign(1, (2, 3, 4)))
    assert set(world.partition.replicas) == {1, 2, 3, 4}
    world.apply(world.controller.cancel_move(1))
    assert (world.partition.replicas, world.partition.target) == ((1, 2, 3), ())
    assert world.partition.in_sync == (1, 2, 3)


def test_a_partition_that_gets_its_first_copies_takes_writes_meanwhile() -> None:
    world = World(1)
    world.apply(world.controller.reassign(1, (1, 2, 3)))
    assert (world.partition.in_sync, world.partition.min_insync) == ((1,), 1)
    assert world.change(1, 1, 2, 3) is Decision.ACCEPTED
    world.apply(world.controller.finish_moves())
    assert (world.partition.replicas, world.partition.min_insync) == ((1, 2, 3), 2)


def test_a_sole_replica_that_was_restarted_gets_copies_as_what_it_is_now() -> None:
    world = World(1)
    world.register(1, life="2")
    world.apply(world.controller.reassign(1, (1, 2, 3)))
    assert world.partition.members == (world.member(1),) == (Member(1, 2),)
    assert (world.partition.leader, world.partition.leader_epoch) == (1, 1)


def test_a_relieved_node_leads_nothing_that_others_can_and_stays_in_sync() -> None:
    world = World()
    world.apply(world.controller.relieve(1))
    assert (world.partition.leader, world.partition.in_sync) == (2, (1, 2, 3))
    world.fence(1, 3)
    assert world.controller.relieve(2) == []
