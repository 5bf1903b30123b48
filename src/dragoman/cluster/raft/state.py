"""The metadata image as bytes, for snapshots: the events that lead to it, and how many there were.

Rebuilding an image from events needs no second description of everything that events can do. The
few things that no event tells are beside them.
"""

from __future__ import annotations

import msgspec

from dragoman.cluster.events import (
    ClientQuotaChanged,
    ClusterCreated,
    Event,
    FeatureLevelChanged,
    GroupConfigChanged,
    LeaderChanged,
    NodeConfigChanged,
    NodeRegistered,
    PartitionPlacement,
    ProducerIdsReserved,
    TopicCreated,
    VotersChanged,
)
from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.errors import FormatError


class _State(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    #: Ids of deleted partitions are never given again.
    next_partition_id: int
    events: tuple[Event, ...]


_decoder = msgspec.msgpack.Decoder(_State)


def encode_image(image: MetadataImage, version: int) -> bytes:
    state = _State(
        version=version,
        next_partition_id=image.next_partition_id,
        events=tuple(image_events(image)),
    )
    return msgspec.msgpack.encode(state)


def restore_image(image: MetadataImage, data: bytes) -> int:
    """Make the image what it was; returns its version. Raises `FormatError`."""
    try:
        state = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise FormatError(f"metadata snapshot cannot be read: {error}; a newer release?") from None
    revision = image.topics_revision
    # In place: the whole broker holds on to this object.
    vars(image).update(vars(MetadataImage()))
    for event in state.events:
        image.apply(event)
    image.next_partition_id = state.next_partition_id
    image.topics_revision += revision + 1
    return state.version


def image_events(image: MetadataImage) -> list[Event]:
    """The shortest history of an image."""
    events: list[Event] = []
    if image.cluster_id:
        events.append(ClusterCreated(cluster_id=image.cluster_id))
    for topic in image.topics.values():
        events += _topic_events(topic)
    events.append(ProducerIdsReserved(next_id=image.next_producer_id))
    events += [NodeRegistered(node_id=n, incarnation=i) for n, i in image.nodes.items()]
    events += [NodeConfigChanged(node_id=n, config=c) for n, c in image.node_configs.items()]
    events += [GroupConfigChanged(group_id=g, config=c) for g, c in image.group_configs.items()]
    events += [ClientQuotaChanged(entity=e, quotas=q) for e, q in image.client_quotas.items()]
    events += [FeatureLevelChanged(feature=f, level=n) for f, n in image.features.items()]
    if image.voters:
        events.append(VotersChanged(voters=image.voters, learners=image.learners))
    return events


def _topic_events(topic: TopicMetadata) -> list[Event]:
    created = TopicCreated(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(PartitionPlacement(p.partition_id, p.replicas) for p in topic.partitions),
        config=topic.config,
        is_internal=topic.is_internal,
        created_ms=topic.created_ms,
    )
    changed = [
        LeaderChanged(
            partition_id=p.partition_id,
            leader=p.leader,
            leader_epoch=p.leader_epoch,
            in_sync=p.in_sync,
            partition_epoch=p.partition_epoch,
        )
        for p in topic.partitions
        if p.partition_epoch
    ]
    return [created, *changed]
