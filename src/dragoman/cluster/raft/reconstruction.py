"""The metadata of a node that is alone, made again from what damage has left of it.

What the log and the snapshot still tell is taken as it is. Topics and partitions whose creation is
lost are known from the manifests of their partitions. What else was lost, nothing tells: the
settings of such topics, above all. They get no limit of age, so that nothing is deleted before the
operator has set them again.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.cluster.events import (
    ClusterCreated,
    PartitionPlacement,
    PartitionsAdded,
    TopicCreated,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.cluster.raft.entries import term_batch
from dragoman.cluster.raft.membership import Membership
from dragoman.cluster.raft.ports import Snapshot
from dragoman.cluster.raft.snapshots import encode_snapshot
from dragoman.cluster.raft.state import encode_image
from dragoman.cluster.raft.storage import SNAPSHOT_FILE
from dragoman.log.batch import assign
from dragoman.log.directory import QUARANTINE
from dragoman.log.manifest import Manifest
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.world import replace_file

#: As many as any internal topic has by default: where a record lies depends on the number.
_INTERNAL_PARTITIONS = 50
_COMPACTED = ("__consumer_offsets", "__transaction_state")
#: Producer ids that may have been given since the last that is known.
_PRODUCER_IDS_SKIPPED = 1_000_000
#: In a term that no node has begun.
_NOBODY = -1


class Reconstruction(NamedTuple):
    #: Topics that only their manifests tell of; their settings are lost.
    topics: tuple[str, ...]
    partitions: int


def complete(
    image: MetadataImage, manifests: list[Manifest], deleted: set[bytes], node: int
) -> Reconstruction:
    """Add to the image what the manifests know and it does not."""
    missing: dict[tuple[str, bytes], dict[int, int]] = {}
    epochs: dict[int, int] = {}
    for manifest in manifests:
        identity = manifest.identity
        epochs[identity.partition_id] = manifest.epochs[-1][0] if manifest.epochs else 0
        image.next_partition_id = max(image.next_partition_id, identity.partition_id + 1)
        topic_id = bytes.fromhex(identity.topic_id)
        if identity.partition_id not in image.partitions and topic_id not in deleted:
            key = (identity.topic, topic_id)
            missing.setdefault(key, {})[identity.partition] = identity.partition_id
    for (name, topic_id), found in missing.items():
        _add(image, name, topic_id, found, node)
    for partition_id, epoch in epochs.items():
        known = image.partitions.get(partition_id)
        if known is not None:
            # A leadership is never begun twice.
            known.leader_epoch = max(known.leader_epoch, epoch)
    image.next_producer_id += _PRODUCER_IDS_SKIPPED
    return Reconstruction(
        tuple(sorted(name for name, _ in missing)), sum(map(len, missing.values()))
    )


def _add(
    image: MetadataImage, name: str, topic_id: bytes, found: dict[int, int], node: int
) -> None:
    is_internal = name.startswith("__")
    topic = image.topics_by_id.get(topic_id)
    first = 0 if topic is None else len(topic.partitions)
    count = max(found) + 1
    if is_internal:
        count = max(count, _INTERNAL_PARTITIONS)
    placements = []
    for index in range(first, count):
        number = found.get(index)
        if number is None:
            number = image.next_partition_id
            image.next_partition_id += 1
        placements.append(PartitionPlacement(number, (node,)))
    if topic is not None:
        image.apply(PartitionsAdded(topic_id=topic_id, partitions=tuple(placements)))
        return
    config = {"cleanup.policy": "compact"} if name in _COMPACTED else {"retention.ms": "-1"}
    image.apply(
        TopicCreated(
            name=name,
            topic_id=topic_id,
            partitions=tuple(placements),
            config=config,
            is_internal=is_internal,
        )
    )


def replace_metadata(
    store: LogStore, log: PartitionLog, image: MetadataImage, node: int, cluster_id: str
) -> None:
    """Begin the metadata log anew behind a snapshot of the image. Damaged files are kept aside."""
    if not image.cluster_id:
        image.apply(ClusterCreated(cluster_id=cluster_id))
    end = log.log_end_offset + 1
    term = max(log.epochs.latest, store.ballot.term, 1)
    disk = store.disk
    disk.make_directory(QUARANTINE)
    if disk.exists(SNAPSHOT_FILE):
        kept = f"{QUARANTINE}/{SNAPSHOT_FILE}"
        disk.remove(kept)
        disk.link(SNAPSHOT_FILE, kept)
    snapshot = Snapshot(end, term, Membership((node,)), encode_image(image, end))
    replace_file(disk, SNAPSHOT_FILE, encode_snapshot(snapshot))
    log.restart_at(end - 1)
    # As after a snapshot that came from another node: a batch that nobody reads gives the log its
    # place and the term in front of it.
    batch = term_batch(_NOBODY)
    assign(batch, end - 1, term)
    log.append_as_is(batch)
    store.settle(log)
    log.advance_high_watermark(log.stable_end)
    log.move_log_start(end)
