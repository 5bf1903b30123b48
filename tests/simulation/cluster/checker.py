"""What must hold of a whole cluster: the invariants of replication.md, section 5.

Partitions are checked as in every simulated cluster. This module adds the metadata, which nodes
agree on themselves, and the replies to clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dragoman.cluster.codec import _holders, image_events
from dragoman.cluster.events import (
    Event,
    NodeRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsReserved,
    TermBegan,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    decode_event,
    encode_event,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.log.partition import PartitionLog
from dragoman.replication.leader import LedPartition
from simulation.harness.checker import Checker, check_chain
from simulation.harness.runs import Violation

if TYPE_CHECKING:
    from simulation.cluster.cluster import Cluster
    from simulation.cluster.process import Process


class ClusterChecker(Checker):
    _cluster: Cluster

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        #: The first promise that was broken. The raising code may be inside of a node.
        self.violation: Violation | None = None
        self._terms: dict[int, int] = {}
        self._last_terms: dict[int, int] = {}
        #: Partitions of which not all is known that is committed.
        self._unseen: set[int] = set()

    def expect(self, condition: bool, text: str) -> None:
        if not condition and self.violation is None:
            self.violation = Violation(text)
            self._cluster.note(text)
        super().expect(condition, text)

    def term(self, process: Process, term: int, leads: bool) -> None:
        """S1 and S2, of the metadata."""
        last = self._last_terms.get(process.node_id, 0)
        self.expect(term >= last, f"S2: node {process.node_id} goes from term {last} to {term}")
        self._last_terms[process.node_id] = term
        if leads:
            first = self._terms.setdefault(term, process.node_id)
            text = f"S1: nodes {first} and {process.node_id} lead the metadata in term {term}"
            self.expect(first == process.node_id, text)

    def forget_deleted(self, process: Process) -> None:
        """Copies of deleted topics go. A later start may find older metadata and make them anew."""
        assert process.node is not None
        image = process.node.broker.image
        for node_id, partition_id in list(self._copies):
            is_known = partition_id < image.next_partition_id
            if node_id == process.node_id and is_known and partition_id not in image.partitions:
                del self._copies[node_id, partition_id]

    def reopened(self, node: Process, log: PartitionLog) -> None:
        # A power cut keeps some of the removals of a deleted topic's files, in any order. A node
        # that has yet to learn of the deletion again finds what is left.
        if log.identity.partition_id in self._cluster.agreed.image.partitions:
            super().reopened(node, log)

    def watermark(self, node: Process, leading: LedPartition, before: int) -> None:
        if leading.replica.metadata.partition_id in self._cluster.agreed.image.partitions:
            super().watermark(node, leading, before)

    def _note_committed(self, node: Process, leading: LedPartition, watermark: int) -> None:
        super()._note_committed(node, leading, watermark)
        partition_id = leading.replica.metadata.partition_id
        # The victim's log may be damaged where it should be read; another leader makes up for it.
        if self.committed_end.get(partition_id, 0) < watermark:
            self._unseen.add(partition_id)
        else:
            self._unseen.discard(partition_id)

    def consumed(self, partition_id: int, data: bytes) -> None:
        if self._is_followed(partition_id):
            super().consumed(partition_id, data)

    def _is_followed(self, partition_id: int) -> bool:
        """Whether all is known that is committed: not while a node alone holds the partition, nor
        before a node has heard that it is not alone any more.
        """
        partition = self._cluster.agreed.image.partitions[partition_id]
        leader = self._cluster.nodes[partition.leader - 1].replicas.get(partition_id)
        is_led = leader is not None and isinstance(leader.role, LedPartition)
        return is_led and partition.leader >= 0 and partition_id not in self._unseen

    def _stable_end(self, node: Process, partition_id: int) -> int:
        replica = node.replicas.get(partition_id)
        if replica is not None:
            return replica.log.stable_end
        # Not opened since the start.
        copy = self._copies.get((node.node_id, partition_id))
        return copy.stable_end if copy is not None else 0

    def told_committed(self, topic: str, index: int, next_offset: int) -> None:
        """Invariant S5, when a client with acks=all is acknowledged."""
        self.acks += 1
        known = self._cluster.agreed.image.topics.get(topic)
        if known is None:
            return
        partition = known.partitions[index]
        partition_id = partition.partition_id
        where = f"{topic}-{index} is acknowledged to {next_offset}"
        if self._is_followed(partition_id):
            end = self.committed_end.get(partition_id, 0)
            self.expect(end >= next_offset, f"S5: {where}, {end} is committed")
        holders = {
            each.node_id
            for each in self._cluster.nodes
            if self._stable_end(each, partition_id) >= next_offset
        }
        wanted = partition.min_insync
        recent = {
            node_id
            for at, node_id, lost_of, end in self._lost
            if lost_of == partition_id and end >= next_offset and self._cluster.world.now - at < 4
        }
        holders |= recent
        self.expect(len(holders) >= wanted, f"S5: {where}, only {holders} have it")


class AgreedMetadata:
    """The metadata as it is agreed on: what the first node applies, every other has to."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.image = MetadataImage()
        self.version = 0
        self.events: list[Event] = []
        self._digests: dict[int, int] = {}

    def applied(self, process: Process, event: Event, version: int) -> None:
        if isinstance(event, TermBegan):
            return
        checker = self._cluster.checker
        if version > self.version:
            self._cluster.note(f"event {version} at {process.node_id} {_short(event)}")
            checker.expect(version == self.version + 1, f"S14: version {version} is applied first")
            problem = check_chain(self.image, event) or self._staleness(event)
            checker.expect(problem is None, problem or "")
            self.version = version
            own = decode_event(encode_event(event))
            self.events.append(own)
            self.image.apply(own)
            if isinstance(event, PartitionChanged) and event.partition_id in self.image.partitions:
                checker.agreed(event)
            self._digests[version] = _digest(self.image)
        self.compare(process, version)

    def _staleness(self, event: Event) -> str | None:
        """What was checked when a change was decided on must still hold when it is applied."""
        match event:
            case TopicCreated():
                is_free = event.name not in self.image.topics
            case PartitionsAdded() | TopicConfigChanged() | TopicDeleted():
                is_free = event.topic_id in self.image.topics_by_id
            case ProducerIdsReserved():
                is_free = event.next_id > self.image.next_producer_id
            case _:
                return None
        ids = [each.partition_id for each in getattr(event, "partitions", ())]
        is_free = is_free and all(each >= self.image.next_partition_id for each in ids)
        return None if is_free else f"S14: decided on an image that was gone: {event}"

    def compare(self, process: Process, version: int) -> None:
        """S14: the same version is the same state, whatever led to it."""
        assert process.node is not None
        found = _digest(process.node.broker.image)
        self._cluster.checker.expect(
            found == self._digests.get(version, 0) or version == 0,
            f"S14: node {process.node_id} has another image of version {version}",
        )


def _digest(image: MetadataImage) -> int:
    """Of all that the image says, without the order in which partitions came to be."""
    holders = sorted(map(_holders, image.partitions.values()), key=lambda each: each.partition_id)
    state = (image_events(image), holders, image.next_partition_id)
    return hash(msgspec.msgpack.encode(state))


def _short(event: Event) -> str:
    match event:
        case PartitionChanged():
            members = ",".join(f"{each.node_id}/{each.incarnation}" for each in event.in_sync)
            return (
                f"partition {event.partition_id} leader {event.leader} "
                f"epochs {event.leader_epoch} {event.partition_epoch} in sync {members} "
                f"eligible {event.eligible} replicas {event.replicas} target {event.target}"
            )
        case NodeRegistered():
            return f"node {event.node_id} registered as {event.incarnation}, life {event.life}"
        case TopicCreated():
            return f"{event.name} created: {event.partitions}"
        case _:
            return str(event)
