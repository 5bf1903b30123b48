"""The partitions of which this node has a replica: opened on first use, led or followed.

`find` and `replica` return a partition that this node leads, `held` any with a local replica.
Replicas follow the metadata: a partition that moves to other nodes is no longer served here, and a
deleted one is removed with its directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import RequestTimedOut, UnknownTopic, UnknownTopicId
from dragoman.cluster.metadata import METADATA_PARTITION_ID, PartitionMetadata, TopicMetadata
from dragoman.errors import CorruptionError, DragomanError, LogError
from dragoman.log.directory import PARTITIONS
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Identity, decode_manifest
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.replication.replica import Replica, not_leader
from dragoman.world import read_whole

log = logging.getLogger("dragoman.broker")
_ESCAPED_NAME_CHARACTERS_MAX = 120


class Extent(NamedTuple):
    """Bytes of a partition's segments, and the ends of its log."""

    size: int
    log_start_offset: int
    log_end_offset: int


class Partitions:
    def __init__(self, context: NodeContext, store: LogStore) -> None:
        self._context = context
        self._store = store
        self._replicas: dict[int, Replica] = {}
        #: Called when this node begins to lead a partition, and when it no longer does.
        self.on_led: Callable[[PartitionMetadata], None] = _ignore
        self.on_resigned: Callable[[PartitionMetadata], None] = _ignore

    def __iter__(self) -> Iterator[Replica]:
        """The open replicas."""
        return iter(list(self._replicas.values()))

    def opened(self, partition_id: int) -> Replica | None:
        """A replica, if it is open."""
        return self._replicas.get(partition_id)

    # ---- looking up

    def find(self, topic: str, index: int) -> Replica:
        """A partition that this node leads. Raises `UnknownTopic` or `NotLeader`."""
        metadata = self._context.image.topics.get(topic)
        if metadata is None or not 0 <= index < len(metadata.partitions):
            raise UnknownTopic(f"there is no partition {index} of topic {topic!r}")
        return self.replica(metadata.partitions[index])

    def find_by_id(self, topic_id: bytes, index: int) -> Replica:
        """`find` by the topic's id. Raises `UnknownTopicId`, too."""
        metadata = self._context.image.topics_by_id.get(topic_id)
        if metadata is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id.hex()}")
        if not 0 <= index < len(metadata.partitions):
            raise UnknownTopic(f"there is no partition {index} of topic {metadata.name!r}")
        return self.replica(metadata.partitions[index])

    def replica(self, metadata: PartitionMetadata) -> Replica:
        """The partition, if this node leads it. Raises `NotLeader`."""
        found = self._replicas.get(metadata.partition_id)
        if (found is None or not found.is_led) and self._is_sole(metadata):
            found = found if found is not None else self.open(metadata)
            self._lead_alone(found)
        if found is None or not found.is_led:
            raise not_leader(metadata)
        return found

    def held(self, metadata: PartitionMetadata) -> Replica:
        """This node's replica of a partition, led or not. Raises `NotLeader` when it has none."""
        found = self._replicas.get(metadata.partition_id)
        return found if found is not None else self.replica(metadata)

    def open(self, metadata: PartitionMetadata) -> Replica:
        """This node's replica of a partition, led or not."""
        found = self._replicas.get(metadata.partition_id)
        if found is None:
            config = self._context.config_of(metadata.topic)
            found = Replica(metadata, self.open_log(metadata), config)
            found.log.config = config
            self._replicas[metadata.partition_id] = found
        return found

    def open_log(self, metadata: PartitionMetadata) -> PartitionLog:
        identity = _identity(metadata)
        config = self._context.config_of(metadata.topic)
        # The metadata may be older than the data: other nodes may have the partition by now.
        is_shared = self._context.settings.is_clustered
        directory = directory_name(identity)
        return self._store.partition(identity, directory, config, is_shared=is_shared)

    def extent(self, metadata: PartitionMetadata) -> Extent:
        """The extent of a partition; that of one that is not open is what its manifest lists.

        Raises `OSError` and `FormatError` where that cannot be read.
        """
        found = self._replicas.get(metadata.partition_id)
        if found is not None:
            log = found.log
            return Extent(log.size, log.log_start_offset, log.log_end_offset)
        path = f"{PARTITIONS}/{directory_name(_identity(metadata))}/{MANIFEST}"
        try:
            manifest = decode_manifest(read_whole(self._store.disk, path), path)
        except FileNotFoundError:
            return Extent(0, 0, 0)
        clean_end = manifest.clean_end.size if manifest.clean_end is not None else 0
        size = sum(each.size for each in manifest.segments) + clean_end
        return Extent(size, manifest.log_start_offset, manifest.log_end_offset)

    # ---- leadership without followers

    def _is_sole(self, metadata: PartitionMetadata) -> bool:
        return metadata.replicas == (self._context.node_id,)

    def unshared(self, metadata: PartitionMetadata) -> None:
        """From now on this node is the partition's only replica, or has none."""
        found = self._replicas.get(metadata.partition_id)
        if self._is_sole(metadata):
            if found is not None:
                self._lead_alone(found)
            if metadata.leader == self._context.node_id:
                self.on_led(metadata)
        elif found is not None:
            self._move_away(found)

    def _lead_alone(self, replica: Replica) -> None:
        """Raises what a write to the log raises; then the partition is not led, and can be
        retried.
        """
        replica.role = None
        replica.is_led = False
        if replica.metadata.leader == self._context.node_id:
            if replica.leader_epoch > max(replica.log.epochs.latest, 0):
                replica.log.begin_epoch(replica.leader_epoch)
            replica.is_led = True
            replica.advance()

    def _move_away(self, replica: Replica) -> None:
        del self._replicas[replica.metadata.partition_id]
        if replica.is_led:
            replica.is_led = False
            self.on_resigned(replica.metadata)
        replica.is_moved = True
        where = replica.log.describe()
        # The next leader's log may or may not have the records of waiting producers.
        replica.fail_waiters(RequestTimedOut(f"{where} has moved; the outcome is unknown"))
        try:
            # The directory stays: the partition may return under the same id.
            replica.log.restart_at(0)
        except DragomanError as error:
            log.warning("%s: keeps unneeded records: %s", where, error)

    # ---- changes of the metadata

    def refresh_configs(self, partitions: Iterable[PartitionMetadata] | None = None) -> None:
        """Settings or the configuration of a topic have changed."""
        replicas = (
            list(self._replicas.values())
            if partitions is None
            else [
                self._replicas[each.partition_id]
                for each in partitions
                if each.partition_id in self._replicas
            ]
        )
        for replica in replicas:
            replica.config = replica.log.config = self._context.config_of(replica.metadata.topic)

    def restored(self) -> None:
        """A snapshot has replaced the image, and every object in it."""
        image = self._context.image
        for opened in self._store.open_partitions():
            partition_id = opened.identity.partition_id
            if partition_id != METADATA_PARTITION_ID and partition_id not in image.partitions:
                self._drop(partition_id)
        for partition_id, replica in self._replicas.items():
            replica.metadata = image.partitions[partition_id]

    def drop(self, topic: TopicMetadata) -> None:
        """A topic was deleted."""
        for partition in topic.partitions:
            self._drop(partition.partition_id)

    def _drop(self, partition_id: int) -> None:
        opened = self._store.opened(partition_id)
        if opened is not None and self._context.settings.is_clustered:
            # The next start may replay journal entries before it knows of the deletion: they must
            # not look like the rest of a damaged log.
            with suppress(LogError):
                opened.restart_at(0)
        if opened is not None and not self._store.has_failed():
            self._store.remove_partition(opened)
        replica = self._replicas.pop(partition_id, None)
        if replica is not None:
            replica.fail_waiters(UnknownTopic(f"{replica.log.describe()} was deleted"))

    def remove_leftovers(self) -> None:
        """Remove directories of topics whose deletion was committed but not finished."""
        if self._store.has_failed():
            return
        image, disk = self._context.image, self._store.disk
        for name in disk.names(PARTITIONS):
            number = name.partition("-")[0]
            if not number.isdecimal():
                continue
            partition_id = int(number)
            is_deleted = METADATA_PARTITION_ID < partition_id < image.next_partition_id
            if is_deleted and partition_id not in image.partitions:
                log.info("removing %s/%s: its topic was deleted", PARTITIONS, name)
                directory = f"{PARTITIONS}/{name}"
                for each in disk.names(directory):
                    disk.remove(f"{directory}/{each}")
                disk.remove_directory(directory)

    # ---- failures

    def fail_all(self, error: DragomanError) -> None:
        """Stop acknowledging."""
        for replica in list(self._replicas.values()):
            replica.fail_waiters(error)

    def replicate_anew(self, replica: Replica) -> None:
        """The replica is damaged: if the partition has others, it is copied from one of them."""
        if replica.on_unreadable is not None and replica.log.is_damaged:
            error = CorruptionError(replica.log.directory, 0, "damaged")
            replica.on_unreadable(replica, error)


def _identity(metadata: PartitionMetadata) -> Identity:
    return Identity(
        partition_id=metadata.partition_id,
        topic=metadata.topic.name,
        partition=metadata.index,
        topic_id=metadata.topic.topic_id.hex(),
    )


def directory_name(identity: Identity) -> str:
    """The directory's name: unique by the id, with the topic's name for people. A long name is cut;
    the manifest has it whole.
    """
    escaped = "".join(
        character if character.isascii() and (character.isalnum() or character in "._-") else "~"
        for character in identity.topic
    )
    cut = escaped[:_ESCAPED_NAME_CHARACTERS_MAX]
    return f"{identity.partition_id}-{cut}-{identity.partition}"


def _ignore(_partition: PartitionMetadata) -> None:
    return None
