"""Delivery of due records to their partitions: a decision, then roll forward.

    ready ──► [persist: batch decided] ──► [deliver] ──► [persist: batch done, next one decided] …
                                       ^ from here on it will be delivered, whatever happens

A decision names the records and the producer id and sequence of their append, so that the next
leader can repeat it: the partition recognises a batch that it has. One write records that a batch
is done and removes its records; it follows the append. The queue of a target does one thing at a
time; records that come due meanwhile form the next batch.

Each leadership of the internal partition writes under a producer id of its own, and counts from 0;
only pending decisions of an earlier leadership are repeated under that one's. So no state of a
queue outlives its batch, and targets are not asked for the expected sequence. A partition that
refuses a sequence has lost records (after a power cut where `durability` is `os`): the queue
continues under another producer id.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from dragoman.broker.delayed.records import Kind, encode_key, encode_value, removal
from dragoman.broker.delayed.state import Batch, Phase, StoredPartition, TargetQueue
from dragoman.broker.internal_topic import KeyValue
from dragoman.errors import DragomanError
from dragoman.limits import (
    DELAYED_BATCH_RECORDS_MAX,
    DELAYED_DELIVERIES_MAX,
    DELAYED_RECORDS_PER_SLICE,
    DELAYED_RETRY_S,
)
from dragoman.log.batch import Record, build_batch
from dragoman.log.producer import (
    DuplicateSequenceError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
)
from dragoman.outcome import Outcome, attempt, ignore, pause, start
from dragoman.world import Clock, Scheduler

log = logging.getLogger("dragoman.delayed")
T = TypeVar("T")
#: Queues change their producer id, never its epoch.
PRODUCER_EPOCH = 0


class Ports(Protocol):
    """The topic that stores the records."""

    async def persist(self, index: int, records: Sequence[KeyValue]) -> None: ...

    async def new_producer_id(self) -> int: ...

    def read_record(self, index: int, offset: int, timestamp: int) -> Record:
        """Read a stored record. Raises `DragomanError`."""
        ...


class Targets(Protocol):
    """The target partitions, by id."""

    def room_for(self, target_id: int) -> int:
        """The maximum size of a batch for the partition."""
        ...

    def is_deleted(self, target_id: int) -> bool: ...

    def leader_of(self, target_id: int) -> int:
        """The node that leads the target, or -1."""
        ...

    async def deliver(self, target_id: int, batch: bytearray) -> None:
        """Append the batch unless the partition has it, and wait until it is committed."""
        ...


class _Moved(Exception):  # noqa: N818 # ends the work of a leadership that is over
    """Another node leads the partition, so the work of this leadership ends."""


class Delivery:
    def __init__(self, clock: Clock, scheduler: Scheduler, ports: Ports, targets: Targets) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._ports = ports
        self._targets = targets
        #: By target node, so that a slow one does not delay others: batches in flight, and queues
        #: that wait for one of them.
        self._under_way: Counter[int] = Counter()
        self._waiting: defaultdict[int, deque[Outcome[None]]] = defaultdict(deque)

    def begin(self, partition: StoredPartition, queue: TargetQueue) -> None:
        """Deliver the ready records, or drop them if the target is gone. A busy queue notices by
        itself.
        """
        if not queue.is_busy and (queue.ready or self._targets.is_deleted(queue.target_id)):
            start(self._run(partition, queue)).then(ignore)

    def resume(self, partition: StoredPartition) -> int:
        """A partition was loaded: deliver the decided batches; returns their number of records."""
        count = 0
        for queue in list(partition.queues.values()):
            if queue.batch is None:
                self.begin(partition, queue)
                continue
            count += len(queue.batch.offsets)
            for offset in queue.batch.offsets:
                partition.entries[offset].phase = Phase.DUE
            start(self._run(partition, queue)).then(ignore)
        return count

    async def _run(self, partition: StoredPartition, queue: TargetQueue) -> None:
        """Deliver batch after batch, until nothing is ready."""
        queue.is_busy = True
        with suppress(_Moved):
            while queue.batch is not None or queue.ready or self._is_deleted(queue):
                if queue.batch is None:
                    is_deleted = self._is_deleted(queue)
                else:
                    is_deleted = not await self._deliver(partition, queue)
                if is_deleted:
                    await self._drop(partition, queue)
                    return
                await self._decide(partition, queue)
            queue.is_busy = False

    def _is_deleted(self, queue: TargetQueue) -> bool:
        return self._targets.is_deleted(queue.target_id)

    async def _step(self, partition: StoredPartition, step: Coroutine[object, None, T]) -> T:
        """The result of a step. Raises `_Moved` if the leadership has ended."""
        result = await attempt(step)
        if partition.is_gone:
            raise _Moved
        if isinstance(result, DragomanError):
            raise result
        return result

    async def _stall(
        self, partition: StoredPartition, queue: TargetQueue, error: DragomanError
    ) -> None:
        """Wait before a retry."""
        if not queue.is_stalled:
            queue.is_stalled = True
            text = "records for partition %d are due and not delivered yet: %s; tried again"
            log.warning(text, queue.target_id, error)
        await pause(self._scheduler, DELAYED_RETRY_S)
        if partition.is_gone:
            raise _Moved

    # ---- the decision

    async def _decide(self, partition: StoredPartition, queue: TargetQueue) -> None:
        """Commit that the previous batch is done, and the next batch, if there is one."""
        while True:
            try:
                if queue.ready:
                    await self._identify(partition)
                await self._decide_once(partition, queue)
                return
            except DragomanError as error:
                await self._stall(partition, queue, error)

    async def _identify(self, partition: StoredPartition) -> None:
        if partition.producer_id < 0:
            producer_id = await self._step(partition, self._ports.new_producer_id())
            # Another queue may have taken the slot.
            if partition.producer_id < 0:
                partition.producer_id = producer_id

    async def _decide_once(self, partition: StoredPartition, queue: TargetQueue) -> None:
        if queue.producer_id < 0:
            queue.producer_id = partition.producer_id
        chosen = tuple(self._choose(partition, queue))
        now_ms = self._clock.wall_ms()
        after = Batch(queue.producer_id, queue.next_sequence, now_ms, chosen) if chosen else None
        done = () if queue.batch is None else queue.batch.offsets
        changes = [*self._removals(partition, done), _stored(partition, queue, after)]
        await self._step(partition, self._ports.persist(partition.index, changes))
        for offset in done:
            partition.remove(offset)
        queue.batch = after
        if after is not None:
            for _ in chosen:
                queue.ready.popleft()
            queue.next_sequence = after.next_sequence

    def _choose(self, partition: StoredPartition, queue: TargetQueue) -> list[int]:
        """The records that fit into one batch; at least one."""
        room = self._targets.room_for(queue.target_id)
        chosen: list[int] = []
        for offset in queue.ready:
            room -= partition.entries[offset].size
            if chosen and (room < 0 or len(chosen) == DELAYED_BATCH_RECORDS_MAX):
                break
            chosen.append(offset)
        return chosen

    def _removals(self, partition: StoredPartition, offsets: Sequence[int]) -> list[KeyValue]:
        return [
            change
            for offset in offsets
            for change in removal(
                partition.index, offset, is_released=partition.entries[offset].is_released
            )
        ]

    # ---- after it

    async def _deliver(self, partition: StoredPartition, queue: TargetQueue) -> bool:
        """Append the batch to its target, retrying without limit. Returns False if the target was
        deleted.
        """
        while not self._is_deleted(queue):
            node = self._targets.leader_of(queue.target_id)
            if self._under_way[node] >= DELAYED_DELIVERIES_MAX:
                # The target may have another leader by now.
                await self._turn(partition, node)
                continue
            try:
                try:
                    await self._step(partition, self._send(partition, queue, node))
                except DuplicateSequenceError:
                    pass
                except (OutOfOrderSequenceError, InvalidProducerEpochError) as error:
                    log.error("partition %d has lost records: %s", queue.target_id, error)
                    await self._resequence(partition, queue)
                    continue
                queue.is_stalled = False
                return True
            except DragomanError as error:
                await self._stall(partition, queue, error)
        return False

    async def _turn(self, partition: StoredPartition, node: int) -> None:
        turn: Outcome[None] = Outcome()
        self._waiting[node].append(turn)
        await turn
        if partition.is_gone:
            raise _Moved

    def _give_turns(self, node: int) -> None:
        waiting = self._waiting[node]
        while waiting and self._under_way[node] < DELAYED_DELIVERIES_MAX:
            waiting.popleft().succeed(None)

    async def _send(self, partition: StoredPartition, queue: TargetQueue, node: int) -> None:
        batch = queue.batch
        assert batch is not None
        self._under_way[node] += 1
        try:
            found = [
                self._ports.read_record(partition.index, offset, batch.decided_ms)
                for offset in batch.offsets
            ]
            data = build_batch(
                found,
                producer_id=batch.producer_id,
                producer_epoch=PRODUCER_EPOCH,
                base_sequence=batch.first_sequence,
            )
            await self._targets.deliver(queue.target_id, data)
        finally:
            self._under_way[node] -= 1
            if self._waiting[node]:
                # In a later turn, so that queues start from a fresh stack.
                self._scheduler.call_soon(self._give_turns, node)

    async def _resequence(self, partition: StoredPartition, queue: TargetQueue) -> None:
        """Number the same batch so that the partition accepts it."""
        producer_id = await self._step(partition, self._ports.new_producer_id())
        batch = queue.batch
        assert batch is not None
        amended = Batch(producer_id, 0, batch.decided_ms, batch.offsets)
        change = _stored(partition, queue, amended)
        await self._step(partition, self._ports.persist(partition.index, [change]))
        queue.batch = amended
        queue.producer_id, queue.next_sequence = producer_id, amended.next_sequence

    # ---- deleted targets

    async def _drop(self, partition: StoredPartition, queue: TargetQueue) -> None:
        """Remove the records of a deleted target, including later ones."""
        offsets = partition.offsets_for(queue.target_id)
        while offsets or queue.batch is not None:
            text = "%d delayed records are dropped: partition %d was deleted"
            log.warning(text, len(offsets), queue.target_id)
            # At least one round, for a decision without records.
            for begin in range(0, max(len(offsets), 1), DELAYED_RECORDS_PER_SLICE):
                some = offsets[begin : begin + DELAYED_RECORDS_PER_SLICE]
                await self._drop_some(partition, queue, some)
            queue.batch = None
            offsets = partition.offsets_for(queue.target_id)
        del partition.queues[queue.target_id]

    async def _drop_some(
        self, partition: StoredPartition, queue: TargetQueue, offsets: list[int]
    ) -> None:
        """The decision is removed first, so that it is never found without its records."""
        while True:
            # Clients may have dropped some of them.
            left = [each for each in offsets if each in partition.entries]
            changes = [_stored(partition, queue, None), *self._removals(partition, left)]
            try:
                await self._step(partition, self._ports.persist(partition.index, changes))
                break
            except DragomanError as error:
                await self._stall(partition, queue, error)
        for offset in offsets:
            partition.remove(offset)


def _stored(partition: StoredPartition, queue: TargetQueue, batch: Batch | None) -> KeyValue:
    value = None if batch is None else encode_value(batch)
    return encode_key(Kind.BATCH, partition.index, queue.target_id), value
