"""The metadata as bytes: events as batches of a log, and the image as a snapshot.

An entry of the metadata log is a record batch of events; its offsets are its index, its leader
epoch is its term. The quorum writes two kinds of entries for itself: the beginning of a term and a
change of membership. Both are ordinary events, so every reader of the log can read them.

The image is encoded as its version and a sequence of events that rebuilds it, so there is no second
definition of what events do. State that no event expresses is encoded beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman.cluster.events import (
    ClientQuotaChanged,
    ClusterCreated,
    Event,
    FeatureLevelChanged,
    GroupConfigChanged,
    LoginSecretSet,
    NodeAdded,
    NodeConfigChanged,
    NodeFenced,
    PartitionChanged,
    PartitionPlacement,
    ProducerIdsReserved,
    RulesChanged,
    SecurityModeChanged,
    TermBegan,
    TopicCreated,
    UserChanged,
    VotersChanged,
    decode_event,
    encode_event,
)
from dragoman.cluster.metadata import (
    SECURITY_MODE_FIRST,
    MetadataImage,
    PartitionMetadata,
    TopicMetadata,
)
from dragoman.errors import MALFORMED, DecodeError, FormatError
from dragoman.log.batch import NO_TIMESTAMP, Record, build_batch, read_header, records
from dragoman.raft.membership import Membership
from dragoman.types import Buffer


class _State(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    #: The next partition id; ids of deleted partitions are never reused.
    next_partition_id: int
    events: tuple[Event, ...]
    #: The current replicas, leader and in-sync set of each partition.
    partitions: tuple[PartitionChanged, ...] = ()
    #: By partition id, the newest leadership that began without all committed records.
    unclean_epochs: dict[int, int] = {}


_decoder = msgspec.msgpack.Decoder(_State)


def encode_image(image: MetadataImage, version: int) -> bytes:
    state = _State(
        version=version,
        next_partition_id=image.next_partition_id,
        events=tuple(image_events(image)),
        # In order of names, so that the bytes do not depend on the history of the image.
        partitions=tuple(
            _holders(each) for topic in image.topics.values() for each in topic.partitions
        ),
        unclean_epochs={
            each.partition_id: each.unclean_epoch
            for each in image.partitions.values()
            if each.unclean_epoch >= 0
        },
    )
    return msgspec.msgpack.encode(state)


def restore_image(image: MetadataImage, data: bytes) -> int:
    """Replace the contents of the image; returns its version. Raises `FormatError`."""
    try:
        state = _decoder.decode(data)
    except MALFORMED as error:
        raise FormatError(f"metadata snapshot cannot be read: {error}; a newer release?") from None
    revisions = (image.topics_revision, image.security_revision, image.rules_revision)
    # Replaced in place: the whole broker refers to this object.
    vars(image).update(vars(MetadataImage()))
    for event in state.events:
        image.apply(event)
    for held in state.partitions:
        image.set_holders(held)
    for partition_id, epoch in state.unclean_epochs.items():
        image.partitions[partition_id].unclean_epoch = epoch
    image.next_partition_id = state.next_partition_id
    # Revisions that were seen before must not stand for other contents now.
    topics, security, rules = revisions
    image.topics_revision += topics + 1
    image.security_revision += security + 1
    image.rules_revision += rules + 1
    return state.version


def image_events(image: MetadataImage) -> list[Event]:
    """The shortest event history that leads to an image, except for the state of its partitions."""
    events: list[Event] = []
    if image.cluster_id:
        events.append(ClusterCreated(cluster_id=image.cluster_id))
    events += [NodeAdded(node_id=node, address=where) for node, where in image.added.items()]
    events += image.registrations.values()
    events += [NodeFenced(node_id=n, incarnation=image.nodes[n]) for n in sorted(image.fenced)]
    events += map(_creation, image.topics.values())
    events.append(ProducerIdsReserved(next_id=image.next_producer_id))
    events += [NodeConfigChanged(node_id=n, config=c) for n, c in image.node_configs.items()]
    events += [GroupConfigChanged(group_id=g, config=c) for g, c in image.group_configs.items()]
    events += [ClientQuotaChanged(entity=e, quotas=q) for e, q in image.client_quotas.items()]
    events += [FeatureLevelChanged(feature=f, level=n) for f, n in image.features.items()]
    events += image.captures.values()
    if image.login_secret:
        events.append(LoginSecretSet(secret=image.login_secret))
    events += [UserChanged(user=each) for each in image.users.values()]
    if image.rules:
        events.append(RulesChanged(added=tuple(image.rules)))
    if image.security_mode != SECURITY_MODE_FIRST:
        events.append(SecurityModeChanged(mode=image.security_mode))
    if image.cluster_key is not None:
        events.append(image.cluster_key)
    if image.voters:
        events.append(VotersChanged(voters=image.voters, learners=image.learners))
    return events


def _creation(topic: TopicMetadata) -> Event:
    return TopicCreated(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(PartitionPlacement(p.partition_id, p.replicas) for p in topic.partitions),
        config=topic.config,
        is_internal=topic.is_internal,
        created_ms=topic.created_ms,
    )


def _holders(partition: PartitionMetadata) -> PartitionChanged:
    return PartitionChanged(
        partition_id=partition.partition_id,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        in_sync=partition.members,
        eligible=partition.eligible,
        target=partition.target,
        before=partition.before,
    )


# ---- entries


_MEMBERSHIP_TAG = str(VotersChanged.__struct_config__.tag).encode()


def event_batch(events: Sequence[Event], timestamp: int = NO_TIMESTAMP) -> bytearray:
    return build_batch([Record(value=encode_event(each), timestamp=timestamp) for each in events])


def events_in(batch: Buffer) -> list[Event]:
    """Raises `FormatError` for events of a newer release, `DecodeError` for an invalid batch."""
    view = memoryview(batch)
    return [decode_event(_value(each)) for each in records(view, read_header(view))]


def _value(record: Record) -> bytes:
    if record.value is None:
        raise DecodeError(f"metadata record at {record.offset} has no value")
    return record.value


class MetadataEntries:
    """Encodes and decodes the Raft core's own entries."""

    def term_batch(self, leader: int) -> bytearray:
        return event_batch([TermBegan(leader=leader)])

    def membership_batch(self, membership: Membership) -> bytearray:
        return event_batch([VotersChanged(voters=membership.voters, learners=membership.learners)])

    def membership_in(self, batch: Buffer) -> Membership | None:
        # Metadata batches are not compressed, and very few contain this tag.
        if _MEMBERSHIP_TAG not in bytes(batch):
            return None
        for event in events_in(batch):
            if isinstance(event, VotersChanged):
                return Membership(event.voters, event.learners)
        return None
