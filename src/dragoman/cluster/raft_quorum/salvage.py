"""The metadata of a data directory without a quorum: what can be read of it, and how to rebuild it.

`read_stored_image` changes nothing, and damage does not stop it: it applies what is readable before
and after the damage. The image therefore has at least what the node knew and is not damaged: enough
to tell which partition a directory belongs to and which nodes hold it.

`complete` and `replace_metadata` repair a node that is alone. Topics and partitions whose creation
is lost are restored from the manifests of their partitions. Settings of such topics are lost; they
get no retention limit, so that nothing is deleted before the operator has set them again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from dragoman.cluster.codec import MetadataEntries, encode_image, events_in, restore_image
from dragoman.cluster.events import (
    ClusterCreated,
    NodeRegistered,
    PartitionPlacement,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from dragoman.cluster.metadata import METADATA_PARTITION_ID, MetadataImage
from dragoman.cluster.raft_quorum.storage import SNAPSHOT_FILE
from dragoman.errors import CorruptionError, DecodeError, DragomanError
from dragoman.log.batch import assign, batches
from dragoman.log.directory import QUARANTINE
from dragoman.log.journal import EntryKind, JournalReader, read_entry
from dragoman.log.manifest import Manifest
from dragoman.log.partition import PartitionLog
from dragoman.log.salvage import Bad, read_batches
from dragoman.log.segment import parse_segment_name
from dragoman.log.store import LogStore
from dragoman.raft.membership import Membership
from dragoman.raft.ports import NO_NODE
from dragoman.raft.snapshots import Snapshot, decode_snapshot, encode_snapshot
from dragoman.world import Disk, read_whole, replace_file

#: The default number of partitions of internal topics, which determines where a record lies.
_INTERNAL_PARTITIONS = 50
_COMPACTED = ("__consumer_offsets", "__transaction_state")
#: Producer ids that may have been allocated after the last known block.
_PRODUCER_IDS_SKIPPED = 1_000_000


class StoredImage(NamedTuple):
    image: MetadataImage
    #: Whether nothing was unreadable, or missing at the beginning.
    is_whole: bool
    #: Ids of deleted topics, which the image still has.
    deleted: set[bytes]


def check_snapshot(disk: Disk) -> None:
    """Raises `CorruptionError` for a snapshot that cannot be read."""
    if disk.exists(SNAPSHOT_FILE):
        try:
            decode_snapshot(read_whole(disk, SNAPSHOT_FILE))
        except DecodeError as error:
            raise CorruptionError(SNAPSHOT_FILE, 0, str(error)) from None


def read_stored_image(disk: Disk, directory: str) -> StoredImage:
    """Read the snapshot and the segments of the metadata log in `directory`."""
    image = MetadataImage()
    deleted: set[bytes] = set()
    end, is_whole = 0, True
    if disk.exists(SNAPSHOT_FILE):
        try:
            snapshot = decode_snapshot(read_whole(disk, SNAPSHOT_FILE))
            restore_image(image, snapshot.state)
            end = snapshot.end
        except DragomanError:
            is_whole = False
    names = disk.names(directory) if directory else []
    found = sorted((key[0], name) for name in names if (key := parse_segment_name(name)))
    if found and found[0][0] > end:
        is_whole = False
    for base, name in found:
        is_whole &= _take_in(image, deleted, disk, f"{directory}/{name}", base, end)
    return StoredImage(image, is_whole, deleted)


def _take_in(
    image: MetadataImage, deleted: set[bytes], disk: Disk, path: str, base: int, end: int
) -> bool:
    """Apply the events of one segment from `end` on; False when some are lost."""
    is_whole = True
    file = disk.open(path, "read")
    try:
        for found in read_batches(file, 0, file.size(), base):
            if isinstance(found, Bad):
                is_whole = False
            elif found.header.base_offset >= end:
                is_whole &= _apply(image, deleted, found.batch)
    finally:
        file.close()
    return is_whole


def _apply(image: MetadataImage, deleted: set[bytes], batch: memoryview) -> bool:
    try:
        for event in events_in(batch):
            if isinstance(event, TopicDeleted):
                deleted.add(event.topic_id)
            else:
                image.apply(event)
    except (DragomanError, KeyError):
        # The event refers to something whose creation is lost.
        return False
    return True


def journalled_registrations(disk: Disk, seed: int) -> dict[int, NodeRegistered]:
    """Nodes whose registration is in a journal with this seed, and perhaps in no other file yet."""
    found: dict[int, NodeRegistered] = {}
    for entry in JournalReader(disk, seed).entries():
        if entry.kind is EntryKind.APPEND and entry.partition_id == METADATA_PARTITION_ID:
            with suppress(DragomanError):
                for _, batch in batches(memoryview(read_entry(disk, entry))):
                    for event in events_in(batch):
                        if isinstance(event, NodeRegistered):
                            found[event.node_id] = event
    return found


# ---- repair


class Reconstruction(NamedTuple):
    #: Topics known only from manifests; their settings are lost.
    topics: tuple[str, ...]
    partitions: int


def complete(
    image: MetadataImage, manifests: list[Manifest], deleted: set[bytes], node: int
) -> Reconstruction:
    """Add to the image what only the manifests know."""
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
            # A leader epoch is never used twice.
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
    """Restart the metadata log after a snapshot of the image. Damaged files are kept aside."""
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
    # As after a snapshot from another node, a placeholder batch sets the log's offset and term.
    batch = MetadataEntries().term_batch(NO_NODE)
    assign(batch, end - 1, term)
    log.append_as_is(batch)
    store.settle(log)
    log.advance_high_watermark(log.stable_end)
    log.move_log_start(end)
