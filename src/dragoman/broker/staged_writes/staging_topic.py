"""The topic in which attempts stage their records until the publication decides which ones count.

An ordinary internal topic, with two differences. Clients may write to it, by ordinary Produce
requests, under an identity from `open`: its epoch is used by no other producer, so that a batch
identifies itself as staged. And its log start moves by rules of its own, since record
timestamps come from the user and say nothing about the age of an attempt:

- the publisher *releases* pieces that were published, or never will be; the log start moves past
  them as soon as nothing before them is in use;
- pieces that were never released, because their attempts died, are removed at the age of
  `STAGING_AGE_MAX_S`;
- pieces that a publication in progress *holds* stay whatever their age.

The publisher may run on another node than the leader of the staging partition: then it repeatedly
reports its held and released pieces to the leader. All this state is in memory only: after a
restart, or under another leader, the age counts from then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import InvalidRecord, NotAuthorized
from dragoman.broker.partitions import Partitions
from dragoman.broker.staged_writes.publication import STAGING_TOPIC, Piece
from dragoman.broker.topics import NewTopic, Topics
from dragoman.broker.transactions import ProducerIds
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.limits import (
    PRODUCER_EPOCH_MAX,
    STAGING_AGE_MARKS,
    STAGING_AGE_MAX_S,
    STAGING_HOLD_LEASE_S,
    STAGING_PARTITIONS,
    STAGING_PRODUCER_IDLE_MS_MAX,
    STAGING_RELEASED_MAX,
    STAGING_SEGMENT_BYTES,
)
from dragoman.log.batch import BatchHeader
from dragoman.log.partition import PartitionLog
from dragoman.outcome import ignore
from dragoman.replication.replica import Replica
from dragoman.rpc import Call, Done, Node, Registry, Request, Rpc

#: The epoch of every staged batch, and of no other: ordinary producers stay below it.
STAGING_EPOCH: Final = PRODUCER_EPOCH_MAX + 1
_LONG_MAX: Final = (1 << 63) - 1
#: Batches are kept as they were sent, and only `StagingTopic` removes them.
_CONFIG: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": str((1 << 31) - 1),
    "message.timestamp.after.max.ms": str(_LONG_MAX),
    "message.timestamp.before.max.ms": str(_LONG_MAX),
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.bytes": str(STAGING_SEGMENT_BYTES),
}


class StagingPlace(msgspec.Struct, frozen=True):
    """The partition and the producer identity of an attempt."""

    topic: str
    partition: int
    producer_id: int
    epoch: int


class KeepStaged(Request[Done], frozen=True, kw_only=True, tag="KeepStaged"):
    """The calling node's needs of a staging partition, and its releases."""

    partition: int
    #: -1: nothing.
    held_from: int = -1
    released: tuple[tuple[int, int], ...] = ()


class StagingTopic:
    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        producer_ids: ProducerIds,
        rpc: Rpc,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._topics = topics
        self._producer_ids = producer_ids
        self._rpc = rpc
        topics.reserve(STAGING_TOPIC)
        self._opened = 0
        #: By staging partition, released pieces: first offset to next offset.
        self._released: dict[int, dict[int, int]] = {}
        #: By owner, the first needed offset in each staging partition.
        self._held: dict[str, dict[int, int]] = {}
        #: By node and staging partition: the held offsets, and when the claim expires.
        self._held_abroad: dict[tuple[int, int], tuple[int, float]] = {}
        #: Staging partitions on whose leaders this node has a claim.
        self._reported: set[int] = set()
        #: By staging partition, log ends by time, oldest first.
        self._ends: dict[int, deque[tuple[float, int]]] = {}

    def serve(self, registry: Registry) -> None:
        registry.serve(KeepStaged, self._keep)

    # ---- attempts

    async def open(self) -> StagingPlace:
        """A partition for one attempt; attempts are distributed round-robin."""
        settings = self._context.settings
        new = NewTopic(
            name=STAGING_TOPIC,
            partition_count=STAGING_PARTITIONS,
            replication_factor=self._context.internal_factor(
                settings.transaction_state_log_replication_factor
            ),
            config=dict(_CONFIG),
            is_internal=True,
        )
        await self._topics.ensure(new)
        producer_id = await self._producer_ids.next()
        self._opened += 1
        index = self._opened % len(self._context.image.topics[STAGING_TOPIC].partitions)
        return StagingPlace(STAGING_TOPIC, index, producer_id, STAGING_EPOCH)

    # ---- retention

    def hold(self, owner: str, pieces: Iterable[Piece]) -> None:
        """Retain everything from the first of these pieces on, until `owner` releases it."""
        first: dict[int, int] = {}
        for piece in pieces:
            known = first.get(piece.partition, piece.first_offset)
            first[piece.partition] = min(known, piece.first_offset)
        self._held[owner] = first

    def let_go(self, owner: str) -> None:
        self._held.pop(owner, None)

    def release(self, pieces: Iterable[Piece]) -> None:
        """Release these pieces."""
        for piece in pieces:
            self._release(piece.partition, piece.first_offset, piece.next_offset)

    def _release(self, index: int, first: int, end: int) -> None:
        released = self._released.setdefault(index, {})
        if len(released) >= STAGING_RELEASED_MAX:
            # The gap before them closes by age, which then removes these, too.
            released.clear()
        released[first] = end

    def sweep(self) -> None:
        """Move the log start of each staging partition to the first needed record."""
        topic = self._context.image.topics.get(STAGING_TOPIC)
        for partition in topic.partitions if topic is not None else ():
            if partition.leader != self._context.node_id:
                self._report(partition)
                continue
            self._reported.discard(partition.index)
            replica = self._partitions.replica(partition)
            start = self._free_below(partition.index, replica)
            if start > replica.log.log_start_offset:
                replica.delete_below(start)

    def _report(self, partition: PartitionMetadata) -> None:
        """Report this node's needs and releases to the leader of a staging partition."""
        index = partition.index
        self._ends.pop(index, None)
        held = self._held_here(index)
        released = self._released.pop(index, {})
        if partition.leader != NO_NODE and (held or released or index in self._reported):
            (self._reported.add if held else self._reported.discard)(index)
            request = KeepStaged(
                partition=index,
                held_from=min(held, default=-1),
                released=tuple(released.items()),
            )
            # Holds are reported again at the next sweep. A lost release is harmless: the records
            # are removed by age.
            self._rpc.begin(request, Node(partition.leader)).then(ignore)

    async def _keep(self, call: Call[KeepStaged]) -> Done:
        request, place = call.request, (call.node_id, call.request.partition)
        self._held_abroad.pop(place, None)
        if request.held_from >= 0:
            until = self._context.clock.monotonic() + STAGING_HOLD_LEASE_S
            self._held_abroad[place] = (request.held_from, until)
        for first, end in request.released:
            self._release(request.partition, first, end)
        return Done()

    def _held_from(self, index: int) -> list[int]:
        now = self._context.clock.monotonic()
        abroad = [
            first
            for (_, partition), (first, until) in self._held_abroad.items()
            if partition == index and now < until
        ]
        return abroad + self._held_here(index)

    def _held_here(self, index: int) -> list[int]:
        return [first[index] for first in self._held.values() if index in first]

    def _free_below(self, index: int, replica: Replica) -> int:
        log = replica.log
        held = self._held_from(index)
        start = max(log.log_start_offset, self._too_old_below(index, log))
        released = self._released.get(index, {})
        while start in released:
            start = released[start]
        start = min([start, log.high_watermark, *held])
        self._released[index] = {first: end for first, end in released.items() if end > start}
        return start

    def _too_old_below(self, index: int, log: PartitionLog) -> int:
        """The log end `STAGING_AGE_MAX_S` ago, as far as it is known."""
        clock = self._context.clock
        now = clock.monotonic()
        ends = self._ends.setdefault(index, deque())
        if not ends or now - ends[-1][0] >= STAGING_AGE_MAX_S / STAGING_AGE_MARKS:
            ends.append((now, log.high_watermark))
            if log.producers is not None:
                # Every attempt is a producer of its own, which never returns.
                log.producers.expire(clock.wall_ms(), STAGING_PRODUCER_IDLE_MS_MAX)
        offset = 0
        while ends and now - ends[0][0] >= STAGING_AGE_MAX_S:
            offset = ends.popleft()[1]
        return offset


def check_writable(
    topics: Topics, topic: TopicMetadata, header: BatchHeader, transactional_id: str | None
) -> None:
    """Check that a client may write this batch to the topic. Raises `NotAuthorized`.

    Only the broker writes to internal topics, with two exceptions: attempts of a publication bring
    their records to the staging topic, and transactions may write to topics that are reserved for
    them. A process that captures a database, for example, commits its position in one transaction
    with the rows.
    """
    if not topic.is_internal:
        return
    if topic.name == STAGING_TOPIC and header.producer_epoch == STAGING_EPOCH:
        if header.is_transactional:
            raise InvalidRecord("staged records cannot be part of a transaction")
        return
    if header.is_transactional and topics.accepts_transaction(topic.name, transactional_id):
        return
    raise NotAuthorized(f"topic {topic.name!r} is written by the broker only")
