"""What must hold at every step and at the end: the invariants of replication.md, section 5.

The checker sees what no node can: all logs at once, and which bytes each of the disks was promised
to hold. It is notified of every watermark, leadership, truncation, acknowledgement, death and
restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dragoman.cluster.events import Event, Member, PartitionChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import CorruptionError
from dragoman.log.batch import batches, records
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.replication.leader import LedPartition
from dragoman.replication.replica import Replica
from dragoman.replication.replication import Replication
from simulation.harness.runs import Violation

if TYPE_CHECKING:
    from simulation.harness.cluster import ReplicatedCluster

#: Newest committed batches that a new leader is compared with.
_COMPARED = 20
#: How long a message may still count on a copy that has been lost since.
_MESSAGE_S = 4.0


class Node(Protocol):
    node_id: int

    @property
    def is_up(self) -> bool: ...

    @property
    def replicas(self) -> Mapping[int, Replica]: ...

    @property
    def replication(self) -> Replication: ...


class Committed(NamedTuple):
    next_offset: int
    epoch: int
    data: bytes
    #: The leadership in which it became committed.
    committed_in: int


class Copy:
    """What the disk of one node was last known to hold of one partition."""

    def __init__(self) -> None:
        self.stable_end = 0
        self.member: Member | None = None
        #: The newest epoch that was served as leader, and not cut since.
        self.led_epoch = -1
        self.is_damaged = False


class Checker:
    def __init__(self, cluster: ReplicatedCluster) -> None:
        self._cluster = cluster
        self.committed: dict[int, dict[int, Committed]] = {}
        self.committed_end: dict[int, int] = {}
        self._leaders: dict[tuple[int, int], Member] = {}
        self._copies: dict[tuple[int, int], Copy] = {}
        self._lost: list[tuple[float, int, int, int]] = []
        #: Truncations under way: the power may go in the middle of one.
        self._cutting: dict[tuple[int, int], int] = {}
        self.acks = 0
        self.elections = 0
        self.truncations = 0
        self.copied_anew = 0

    def expect(self, condition: bool, text: str) -> None:
        if not condition:
            raise Violation(text)

    def _copy(self, node: Node, partition_id: int) -> Copy:
        return self._copies.setdefault((node.node_id, partition_id), Copy())

    # ---- nodes

    def died(self, node: Node) -> None:
        for partition_id, replica in node.replicas.items():
            copy = self._copy(node, partition_id)
            copy.stable_end = replica.log.stable_end
            copy.member = node.replication.member
            cut = self._cutting.pop((node.node_id, partition_id), None)
            if cut is not None:
                copy.stable_end = min(copy.stable_end, cut)
                copy.led_epoch = -1
        for node_id, partition_id in list(self._cutting):
            if node_id == node.node_id:
                # It was about to empty what it does not hold any more.
                del self._cutting[node_id, partition_id]
                self.emptied(node, partition_id)

    def emptied(self, node: Node, partition_id: int) -> None:
        """What was there before is not expected to be there after a start."""
        copy = self._copy(node, partition_id)
        copy.stable_end, copy.led_epoch = 0, -1

    def wiped(self, node: Node) -> None:
        for (node_id, partition_id), copy in list(self._copies.items()):
            if node_id == node.node_id:
                now = self._cluster.time()
                self._lost.append((now, node_id, partition_id, copy.stable_end))
                del self._copies[node_id, partition_id]

    def reopened(self, node: Node, log: PartitionLog) -> None:
        copy = self._copy(node, log.identity.partition_id)
        where = f"node {node.node_id}, {log.describe()}"
        if copy.is_damaged:
            return
        self.expect(not log.is_damaged, f"{where} is said to be damaged: {log.problems}")
        self.expect(
            log.log_end_offset >= copy.stable_end,
            f"S5: {where} reported {copy.stable_end} as stable and came back with "
            f"{log.log_end_offset}",
        )
        self.expect(
            log.epochs.latest >= copy.led_epoch,
            f"S2: {where} led epoch {copy.led_epoch} and came back with {log.epochs.latest}",
        )

    def _stable_end(self, node: Node, partition_id: int) -> int:
        if node.is_up:
            replica = node.replicas.get(partition_id)
            return replica.log.stable_end if replica is not None else 0
        copy = self._copies.get((node.node_id, partition_id))
        return copy.stable_end if copy is not None else 0

    # ---- leaders

    def leads(self, node: Node, leading: LedPartition) -> None:
        """S1, S2 and S4, when a node begins to lead."""
        self.elections += 1
        log = leading.replica.log
        partition_id = leading.replica.metadata.partition_id
        key = (partition_id, leading.leader_epoch)
        # A life, not a node: what it had not synced may be different the next time.
        before = self._leaders.setdefault(key, leading.member)
        self.expect(before == leading.member, f"S1: {before} and {leading.member} lead {key}")
        copy = self._copy(node, partition_id)
        copy.led_epoch = leading.leader_epoch
        committed = self.committed.get(partition_id, {})
        # A node may begin to lead late, when another one already leads a newer epoch.
        earlier = [
            (base, each)
            for base, each in committed.items()
            if each.committed_in < leading.leader_epoch
        ]
        end = max((each.next_offset for _, each in earlier), default=0)
        where = f"node {node.node_id} leads {log.describe()} in epoch {leading.leader_epoch}"
        self.expect(
            log.log_end_offset >= end,
            f"S4: {where} and has {log.log_end_offset} of {end} committed",
        )
        for base, each in earlier[-_COMPARED:]:
            if each.next_offset > log.log_start_offset:
                found = self._batch_at(node, log, base)
                self.expect(
                    found is None or found == each.data,
                    f"S4: {where} and has something else at {base}",
                )

    def _batch_at(self, node: Node, log: PartitionLog, base: int) -> bytes | None:
        try:
            offset = max(base, log.log_start_offset)
            buffers = log.read(offset, 1, log.log_end_offset).buffers
        except CorruptionError:
            self.expect(node is self._cluster.victim, f"node {node.node_id}: {log!r} is damaged")
            return None
        return bytes(buffers[0]) if buffers else b""

    def watermark(self, node: Node, leading: LedPartition, before: int) -> None:
        """S6, and what is committed from now on. `before`: where the watermark was."""
        replica = leading.replica
        log, metadata = replica.log, replica.metadata
        partition_id = metadata.partition_id
        watermark = log.high_watermark
        self.expect(log.log_start_offset <= watermark <= log.stable_end, f"S10: {log!r}")
        if watermark <= self.committed_end.get(partition_id, 0):
            return
        if watermark == before:
            # Known from an earlier leader, whose log could not be read when it moved.
            self._note_committed(node, leading, watermark)
            return
        agreed = self._cluster.image.partitions[partition_id]
        if agreed.leader_epoch == leading.leader_epoch:
            for member in agreed.members:
                self._expect_has(node, member, partition_id, watermark)
        self.expect(
            len(metadata.members) >= metadata.min_insync,
            f"S6: {log.describe()} is committed to {watermark} with {metadata.members} in sync",
        )
        self._note_committed(node, leading, watermark)

    def agreed(self, event: PartitionChanged) -> None:
        """S6 and S9: each in-sync replica is there in that life and has all that is committed."""
        end = self.committed_end.get(event.partition_id, 0)
        for member in event.in_sync:
            known = self._cluster.image.nodes.get(member.node_id)
            self.expect(
                known == member.incarnation, f"S9: {member} is in sync, it is {known} by now"
            )
            if not event.is_unclean:
                self._expect_has(
                    self._cluster.nodes[event.leader - 1], member, event.partition_id, end
                )
        for node_id in event.eligible:
            node = self._cluster.nodes[node_id - 1]
            if node is not self._cluster.victim:
                has = self._stable_end(node, event.partition_id)
                self.expect(has >= end, f"S9: node {node_id} is eligible with {has} of {end}")

    def _expect_has(self, leader: Node, member: Member, partition_id: int, end: int) -> None:
        other = self._cluster.nodes[member.node_id - 1]
        if other.is_up:
            if other.replication.member != member:
                return
        elif self._copy(other, partition_id).member != member:
            return
        has = self._stable_end(other, partition_id)
        self.expect(
            has >= end,
            f"S6: node {leader.node_id} has partition {partition_id} committed to {end}, "
            f"{member} is in sync and has {has}",
        )

    def _note_committed(self, node: Node, leading: LedPartition, watermark: int) -> None:
        log = leading.replica.log
        partition_id = leading.replica.metadata.partition_id
        known = self.committed.setdefault(partition_id, {})
        offset = max(self.committed_end.get(partition_id, 0), log.log_start_offset)
        others = self._copies_in_sync(node, leading, watermark)
        while offset < watermark:
            try:
                found = log.read(offset, 1 << 20, watermark)
            except CorruptionError:
                self.expect(node is self._cluster.victim, f"{log!r} is damaged")
                # It leads all the same until that is read; the others have it whole.
                if not others:
                    return
                log = others.pop()
                continue
            for buffer in found.buffers:
                for header, batch in batches(memoryview(buffer)):
                    next_offset = header.last_offset + 1
                    known[header.base_offset] = Committed(
                        next_offset, header.leader_epoch, bytes(batch), leading.leader_epoch
                    )
            self.expect(
                found.next_offset > offset,
                f"S10: {log!r} has nothing at {offset}, below the watermark {watermark}",
            )
            offset = found.next_offset
            self.committed_end[partition_id] = offset

    def _copies_in_sync(self, node: Node, leading: LedPartition, end: int) -> list[PartitionLog]:
        """Those of other nodes that are up, as far as they reach."""
        metadata = leading.replica.metadata
        others = [self._cluster.nodes[each.node_id - 1] for each in metadata.members]
        return [
            held.log
            for other in others
            if other is not node
            and other.is_up
            and self._stable_end(other, metadata.partition_id) >= end
            # A node that has just started may not have opened it.
            and (held := other.replicas.get(metadata.partition_id)) is not None
        ]

    def acknowledged(
        self, node: Node, store: LogStore, leading: LedPartition, next_offset: int
    ) -> None:
        """S5 and S13, at the moment of the reply."""
        self.acks += 1
        metadata = leading.replica.metadata
        partition_id = metadata.partition_id
        self.expect(not store.has_failed(), f"S13: node {node.node_id} acknowledges after EIO")
        now = self._cluster.time()
        holders = {
            each.node_id
            for each in self._cluster.nodes
            if self._stable_end(each, partition_id) >= next_offset
        }
        holders.update(
            node_id
            for at, node_id, lost_of, end in self._lost
            if lost_of == partition_id and end >= next_offset and now - at < _MESSAGE_S
        )
        self.expect(
            len(holders) >= metadata.min_insync,
            f"S5: {leading.replica.log.describe()} is acknowledged to {next_offset}, "
            f"only {holders} have it",
        )

    # ---- cuts

    def cutting(self, node: Node, log: PartitionLog, end: int) -> None:
        self._cutting[node.node_id, log.identity.partition_id] = end

    def cut(
        self, node: Node, log: PartitionLog, old_end: int, epochs: list[tuple[int, int]]
    ) -> None:
        """S8: nothing that is committed was cut."""
        partition_id = log.identity.partition_id
        del self._cutting[node.node_id, partition_id]
        self.truncations += 1
        copy = self._copy(node, partition_id)
        if log.epochs.latest < copy.led_epoch:
            copy.led_epoch = -1
        for base, each in self.committed.get(partition_id, {}).items():
            if log.log_end_offset <= base < old_end:
                own = max((epoch for epoch, start in epochs if start <= base), default=-1)
                self.expect(
                    own != each.epoch,
                    f"S8: node {node.node_id} cut {log.describe()} from {old_end} to "
                    f"{log.log_end_offset}, {base} of epoch {own} is committed",
                )

    def restarted(self, node: Node, log: PartitionLog, old_end: int) -> None:
        """A copy was given up, to be made anew: only what does not count may be."""
        partition_id = log.identity.partition_id
        self._cutting.pop((node.node_id, partition_id), None)
        self.copied_anew += 1
        copy = self._copy(node, partition_id)
        copy.led_epoch, copy.is_damaged = -1, False
        now = self._cluster.time()
        self._lost.append((now, node.node_id, partition_id, old_end))
        agreed = self._cluster.image.partitions.get(partition_id)
        if agreed is not None and node.node_id in agreed.replicas:
            member = node.replication.member
            self.expect(
                member not in agreed.members and node.node_id not in agreed.eligible,
                f"S8: node {node.node_id} gave up its copy of {log.describe()} that counts",
            )

    def flipped(self, node: Node, partition_id: int) -> None:
        self._copy(node, partition_id).is_damaged = True

    # ---- clients

    def consumed(self, partition_id: int, data: bytes) -> None:
        """S7: everything that a consumer gets is committed, and never another."""
        known = self.committed.get(partition_id, {})
        for header, batch in batches(memoryview(data)):
            found = known.get(header.base_offset)
            self.expect(
                found is not None and found.data == bytes(batch),
                f"S7: a consumer was given {header.base_offset} of partition {partition_id}, "
                "which is not what is committed",
            )

    # ---- the end

    def compare_logs(self) -> None:
        """S3 and S4: every log holds what is committed, byte for byte."""
        for node in self._cluster.nodes:
            for partition_id, replica in node.replicas.items():
                agreed = self._cluster.image.partitions.get(partition_id)
                if agreed is None:
                    continue
                # One that has just come back may not know yet that its copy has gone elsewhere.
                if node.node_id in agreed.replicas and node.node_id in replica.metadata.replicas:
                    self._compare(node, replica.log, partition_id)

    def _compare(self, node: Node, log: PartitionLog, partition_id: int) -> None:
        expected = log.log_start_offset
        for base, each in self.committed.get(partition_id, {}).items():
            if each.next_offset <= log.log_start_offset:
                continue
            found = self._batch_at(node, log, base)
            if found is not None:
                self.expect(
                    found == each.data,
                    f"S3: node {node.node_id}, {log.describe()}: {base} is not what is committed",
                )
            self.expect(base <= expected, f"S10: {log.describe()} has a gap before {base}")
            expected = each.next_offset
        self.expect(
            log.log_end_offset >= self.committed_end.get(partition_id, 0),
            f"S4: node {node.node_id} lacks the end of {log.describe()}",
        )


def check_chain(image: MetadataImage, event: Event) -> str | None:
    """S9: one chain of changes, and leaders from those who may lead."""
    if not isinstance(event, PartitionChanged):
        return None
    before = image.partitions.get(event.partition_id)
    if before is None:
        return None
    if event.partition_epoch != before.partition_epoch + 1:
        return f"S9: partition epoch {event.partition_epoch} after {before.partition_epoch}"
    may_lead = {*before.in_sync, *before.eligible, -1}
    if not event.is_unclean and event.leader not in may_lead:
        return f"S9: node {event.leader} leads, of {sorted(may_lead)}"
    if event.leader != before.leader and event.leader_epoch <= before.leader_epoch:
        return f"S1: two leaders in epoch {event.leader_epoch}"
    return None


def check_writes(
    expect: Callable[[bool, str], None],
    producers: Iterable[Any],
    logs: Mapping[Any, Iterable[bytes]],
    log_starts: Mapping[Any, int] | None = None,
) -> None:
    """S4, S11 and S15: the final logs bear out every acknowledgement of producers.

    `logs` has the batches by partition. What is acknowledged below `log_starts` may have been
    deleted; without them, logs start with their first record.
    """
    found: dict[bytes, list[tuple[object, int]]] = {}
    firsts: dict[object, int] = {}
    for where, data in logs.items():
        sequences: dict[int, int] = {}
        for offset, value, producer_id, sequence in _values_of(data):
            firsts.setdefault(where, offset)
            found.setdefault(value, []).append((where, offset))
            if producer_id >= 0:
                # Without the log's starts, it is not known what was deleted.
                first = sequence if log_starts is None and firsts[where] else 0
                expected = sequences.get(producer_id, first)
                text = f"S11: producer {producer_id} has {sequence} at {offset} of {where}"
                expect(sequence == expected, f"{text}, not {expected}")
                sequences[producer_id] = sequence + 1
    starts = firsts if log_starts is None else log_starts
    for producer in producers:
        for value, place in producer.acknowledged.items():
            where, offset = place
            if where in logs and offset >= starts.get(where, 0):
                text = f"S4: {value[:30]!r} was acknowledged at {place}"
                expect(found.get(value) == [place], f"{text}, found at {found.get(value)}")
        for value, why in producer.refused.items():
            text = f"S15: {value[:30]!r} was refused and is there: {why}"
            expect(value not in found, f"{text}; {found.get(value)}")


def _values_of(data: Iterable[bytes]) -> Iterator[tuple[int, bytes, int, int]]:
    for each in data:
        for header, batch in batches(memoryview(each)):
            for number, record in enumerate(records(batch, header)):
                sequence = header.base_sequence + number
                yield record.offset, record.value or b"", header.producer_id, sequence
