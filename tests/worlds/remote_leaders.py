"""Other nodes in the image of a world, and partitions that they lead: moved by hand, as the
controller of a cluster does it.
"""

from __future__ import annotations

from dragoman.cluster.events import Event, Member, NodeRegistered, PartitionChanged
from worlds.broker import Outcome, World

OTHER = 2
HOST = "two.example"
ADDRESSES = {"kafka": f"{HOST}:9192", "cursus": f"{HOST}:9100", "minibroker": f"{HOST}:4322"}


def propose(world: World, *events: Event) -> None:
    outcome = Outcome()
    world.broker.quorum.propose(list(events)).then(outcome)
    world.settle()
    assert outcome.error is None


def register_another(world: World) -> None:
    propose(world, NodeRegistered(node_id=OTHER, incarnation=1, addresses=ADDRESSES))


def move(world: World, topic: str, leader: int, index: int = 0) -> int:
    """The partition gets a leader in the next epoch, which is returned; no node knows it yet."""
    partition = world.broker.image.topics[topic].partitions[index]
    propose(
        world,
        PartitionChanged(
            partition_id=partition.partition_id,
            leader=leader,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
            replicas=(leader,),
            in_sync=(Member(leader, 1),),
        ),
    )
    return partition.leader_epoch


def hand_over(world: World, topic: str, leader: int = OTHER) -> None:
    """Another node leads all partitions of an internal topic."""
    for partition in world.broker.image.topics[topic].partitions:
        move(world, topic, leader, partition.index)
        world.broker.directory.internal_topics[topic].resign(partition.index)
