"""Goal: the image is what its events add up to, and ids only ever rise."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.cluster.codec import encode_image, restore_image
from dragoman.cluster.events import (
    ClusterCreated,
    LeaderChanged,
    Member,
    NodeAdded,
    NodeFenced,
    NodeRegistered,
    NodeRemoved,
    PartitionChanged,
    PartitionPlacement,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    VotersChanged,
)
from dragoman.cluster.metadata import METADATA_PARTITION_ID, MetadataImage
from dragoman.peers import peer_addresses

TOPIC = bytes(range(16))


@pytest.fixture
def image() -> MetadataImage:
    made = MetadataImage()
    placements = (PartitionPlacement(1, (1, 2)), PartitionPlacement(2, (2, 1)))
    made.apply(TopicCreated(name="t", topic_id=TOPIC, partitions=placements, config={"a": "b"}))
    return made


def test_topic_is_found_by_name_id_and_partition(image: MetadataImage) -> None:
    topic = image.topics["t"]
    assert image.topics_by_id[TOPIC] is topic
    assert [each.index for each in topic.partitions] == [0, 1]
    assert image.partitions[2] is topic.partitions[1]
    assert topic.config == {"a": "b"}


def test_first_replica_leads_and_all_are_in_sync(image: MetadataImage) -> None:
    second = image.partitions[2]
    assert (second.leader, second.in_sync, second.leader_epoch) == (2, (2, 1), 0)


def test_deleted_topic_leaves_nothing_but_its_ids_behind(image: MetadataImage) -> None:
    image.apply(TopicDeleted(topic_id=TOPIC))
    assert not image.topics
    assert not image.topics_by_id
    assert not image.partitions
    assert image.next_partition_id == 3


def test_added_partitions_follow_the_old_ones(image: MetadataImage) -> None:
    image.apply(PartitionsAdded(topic_id=TOPIC, partitions=(PartitionPlacement(9, (1,)),)))
    assert [each.partition_id for each in image.topics["t"].partitions] == [1, 2, 9]
    assert image.partitions[9].index == 2
    assert image.next_partition_id == 10


def test_configuration_is_replaced_as_a_whole(image: MetadataImage) -> None:
    image.apply(TopicConfigChanged(topic_id=TOPIC, config={"c": "d"}))
    assert image.topics["t"].config == {"c": "d"}


def test_leader_change_is_taken_and_one_for_a_deleted_partition_ignored(
    image: MetadataImage,
) -> None:
    change = LeaderChanged(
        partition_id=1, leader=2, leader_epoch=1, in_sync=(2,), partition_epoch=1
    )
    image.apply(change)
    partition = image.partitions[1]
    assert (partition.leader, partition.leader_epoch, partition.in_sync) == (2, 1, (2,))
    with pytest.raises(AssertionError):
        image.apply(change)
    image.apply(TopicDeleted(topic_id=TOPIC))
    image.apply(change)


def test_producer_ids_never_go_back(image: MetadataImage) -> None:
    for next_id in (5000, 3000):
        image.apply(ProducerIdsReserved(next_id=next_id))
    assert image.next_producer_id == 5000


def test_cluster_and_nodes(image: MetadataImage) -> None:
    image.apply(ClusterCreated(cluster_id="c"))
    image.apply(NodeRegistered(node_id=3, incarnation=1))
    image.apply(NodeRegistered(node_id=3, incarnation=2))
    assert (image.cluster_id, image.nodes) == ("c", {3: 2})


def test_ordinary_partitions_are_numbered_after_the_metadata_log() -> None:
    assert MetadataImage().next_partition_id == METADATA_PARTITION_ID + 1


def test_an_added_node_has_an_address_until_it_is_removed(image: MetadataImage) -> None:
    image.apply(NodeAdded(node_id=4, address="a:9190"))
    image.apply(NodeRegistered(node_id=4, incarnation=1))
    assert image.added == {4: "a:9190"}
    image.apply(NodeFenced(node_id=4, incarnation=1))
    image.apply(NodeRemoved(node_id=4))
    assert 4 not in {*image.nodes, *image.registrations, *image.fenced, *image.added}


def test_what_a_node_holds_is_found(image: MetadataImage) -> None:
    image.apply(PartitionsAdded(topic_id=TOPIC, partitions=(PartitionPlacement(9, (1,)),)))
    assert [each.partition_id for each in image.held_by(2)] == [1, 2]
    assert image.held_by(7) == []


def test_an_unclean_election_stays_visible(image: MetadataImage) -> None:
    change = PartitionChanged(
        partition_id=1,
        leader=2,
        leader_epoch=5,
        partition_epoch=1,
        replicas=(1, 2),
        in_sync=(Member(2, 1),),
        is_unclean=True,
    )
    image.apply(change)
    image.apply(msgspec.structs.replace(change, partition_epoch=2, is_unclean=False))
    again = MetadataImage()
    restore_image(again, encode_image(image, 1))
    assert again.partitions[1].unclean_epoch == image.partitions[1].unclean_epoch == 5


def test_a_number_that_left_is_where_it_is_added_again() -> None:
    """Its machine was replaced; its partitions wait for it."""
    image = MetadataImage()
    at = {"peer": "old:9190", "kafka": "old:9092"}
    for event in (
        ClusterCreated(cluster_id="c"),
        NodeRegistered(node_id=3, incarnation=1, directory="d", voter_directory="d", addresses=at),
        VotersChanged(voters=(1, 2, 3)),
        VotersChanged(voters=(1, 2)),
        NodeAdded(node_id=3, address="new:9190"),
        VotersChanged(voters=(1, 2), learners=(3,)),
    ):
        image.apply(event)
    assert str(peer_addresses(image)[3]) == "new:9190"
    assert image.registrations[3].addresses == {"kafka": "old:9092"}
