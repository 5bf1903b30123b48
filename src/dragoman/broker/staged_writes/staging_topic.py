"""The topic in which attempts leave their records until it is known which attempts count.

An ordinary internal topic, with two differences. Clients may write to it, by ordinary Produce
requests, under an identity that `open` gave them: its epoch is one that no other producer ever has,
so that the batches themselves say whether they belong here. And its beginning moves by rules of its
own, since record timestamps come from the user and say nothing about the age of an attempt:

- what was published, or will never be, is *released* by the publisher; the start moves over it as
  soon as nothing before it is in use;
- what was never released, the work of attempts that died, is removed when it is `STAGING_AGE_MAX_S`
  old;
- what is *held*, because a publication is under way, stays whatever its age.

The publisher may run on another node than the leader of the staging partition: then it reports what
it holds and has released to the leader, again and again. All this is kept in memory only: after a
restart, or under another leader, the age counts from then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE
from dragoman.broker.partitions import Partitions
from dragoman.broker.staged_writes.publication import STAGING_TOPIC, Piece
from dragoman.broker.topics import NewTopic, Topics
from dragoman.broker.transactions import ProducerIds
from dragoman.cluster.metadata import PartitionMetadata
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
from dragoman.log.partition import PartitionLog
from dragoman.outcome import ignore
from dragoman.replication.replica import Replica
from dragoman.rpc import Call, Done, Node, Registry, Request, Rpc

#: The epoch of every batch that is staged, and of no other: ordinary producers stay below it.
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
    """Where an attempt is to stage its records, and as whom."""

    topic: str
    partition: int
    producer_id: int
    epoch: int


class KeepStaged(Request[Done], frozen=True, kw_only=True, tag="KeepStaged"):
    """What the calling node needs of a staging partition, and what it needs no more."""

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
        #: By staging partition: pieces that are not needed any more, first offset to next offset.
        self._released: dict[int, dict[int, int]] = {}
        #: By owner: the first offset that it needs in each staging partition.
        self._held: dict[str, dict[int, int]] = {}
        #: By node and staging partition: what it holds, and until when it is believed to.
        self._held_abroad: dict[tuple[int, int], tuple[int, float]] = {}
        #: Staging partitions whose leaders believe that this node needs something.
        self._reported: set[int] = set()
        #: By staging partition: when the log ended where, oldest first.
        self._ends: dict[int, deque[tuple[float, int]]] = {}

    def serve(self, registry: Registry) -> None:
        registry.serve(KeepStaged, self._keep)

    # ---- attempts

    async def open(self) -> StagingPlace:
        """A place for one attempt; attempts take turns over the partitions."""
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

    # ---- what may go

    def hold(self, owner: str, pieces: Iterable[Piece]) -> None:
        """Keep everything from the first of these pieces on until `owner` lets go."""
        first: dict[int, int] = {}
        for piece in pieces:
            known = first.get(piece.partition, piece.first_offset)
            first[piece.partition] = min(known, piece.first_offset)
        self._held[owner] = first

    def let_go(self, owner: str) -> None:
        self._held.pop(owner, None)

    def release(self, pieces: Iterable[Piece]) -> None:
        """These pieces are not needed any more."""
        for piece in pieces:
            self._release(piece.partition, piece.first_offset, piece.next_offset)

    def _release(self, index: int, first: int, end: int) -> None:
        released = self._released.setdefault(index, {})
        if len(released) >= STAGING_RELEASED_MAX:
            # Behind a gap that only age will close; age will then take these too.
            released.clear()
        released[first] = end

    def sweep(self) -> None:
        """Move the start of each staging partition up to the first record that is needed."""
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
        """Tell the leader of a staging partition what this node needs of it."""
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
            # What is held is reported again at the next sweep. A release that is lost does no
            # harm: the records are removed when they are old enough.
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
        """Where the log ended `STAGING_AGE_MAX_S` ago, as far as is known."""
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
