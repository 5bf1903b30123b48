"""Records that have come due go to their partitions: a decision, then roll forward, lane by lane.

    ready ──► [persist: batch decided] ──► [deliver] ──► [persist: batch done, next one decided] …
                ^ from here on it will be delivered, whatever happens

A decision names the records and the producer id and sequence under which they are appended, so that
it can be repeated by whoever leads next: the partition recognises what it has. That a batch is done
and that its records are kept no longer is one write, and comes after the partition has them. A lane
does one thing at a time; what comes due meanwhile goes together in the next batch.

Each leadership of the internal partition writes under a producer id of its own, and counts from 0:
only what an earlier one had decided on and not done is repeated under that one's. So no state of a
lane outlives its batch, and targets need not be asked which sequence they expect. A partition that
objects to one has lost records (a power cut can do that where `durability` is `os`): the lane goes
on under another producer id.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from dragoman.broker.delayed.records import Kind, encode_key, encode_value, removal
from dragoman.broker.delayed.state import Batch, Lane, Phase, Shelf
from dragoman.broker.internal import KeyValue
from dragoman.broker.replica import Acknowledge
from dragoman.errors import DragomanError
from dragoman.limits import (
    DEFERRED_BATCH_RECORDS_MAX,
    DEFERRED_DELIVERIES_MAX,
    DEFERRED_RECORDS_PER_SLICE,
    DEFERRED_RETRY_S,
)
from dragoman.log.batch import Record, build_batch
from dragoman.log.producers import (
    DuplicateSequenceError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
)
from dragoman.world import Clock, Scheduler

log = logging.getLogger("dragoman.deferring")
#: Lanes change their producer id, never its epoch.
PRODUCER_EPOCH = 0


class Ports(Protocol):
    """The topic that records wait in. Each call with `done` answers exactly once."""

    def persist(self, index: int, records: Sequence[KeyValue], done: Acknowledge) -> None: ...

    def new_producer_id(self, done: Callable[[int | DragomanError], None]) -> None: ...

    def read_record(self, index: int, offset: int, timestamp: int) -> Record:
        """A record that is kept aside. Raises `DragomanError`."""
        ...


class Targets(Protocol):
    """The partitions that records go to, by their ids."""

    def room_for(self, target_id: int) -> int:
        """Bytes of records that a batch for the partition may have."""
        ...

    def is_deleted(self, target_id: int) -> bool: ...

    def leader_of(self, target_id: int) -> int:
        """The node that a batch for the partition goes to, or -1."""
        ...

    def deliver(self, target_id: int, batch: bytearray, done: Acknowledge) -> None:
        """Append the batch unless it is there; `done` comes when it is committed."""
        ...


class Delivery:
    def __init__(self, clock: Clock, scheduler: Scheduler, ports: Ports, targets: Targets) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._ports = ports
        self._targets = targets
        #: By the node they go to, so that a slow one delays no others: batches on their way, and
        #: lanes whose batch waits for one of them to arrive.
        self._under_way: Counter[int] = Counter()
        self._queues: defaultdict[int, deque[tuple[Shelf, Lane]]] = defaultdict(deque)

    def go_on(self, shelf: Shelf, lane: Lane) -> None:
        """Something is ready, or the target is gone; unless the lane is busy, and finds out."""
        if lane.is_busy:
            return
        if self._targets.is_deleted(lane.target_id):
            lane.is_busy = True
            self._drop(shelf, lane)
        elif lane.ready:
            lane.is_busy = True
            self._decide(shelf, lane)

    def resume(self, shelf: Shelf) -> int:
        """A partition was read back: deliver what was decided on; returns how many records."""
        count = 0
        for lane in list(shelf.lanes.values()):
            if lane.batch is None:
                self.go_on(shelf, lane)
                continue
            lane.is_busy = True
            count += len(lane.batch.offsets)
            for offset in lane.batch.offsets:
                shelf.entries[offset].phase = Phase.DUE
            self._deliver(shelf, lane)
        return count

    # ---- the decision

    def _decide(self, shelf: Shelf, lane: Lane) -> None:
        """The next batch, or none; and the one before it is done."""
        if lane.ready and shelf.producer_id < 0:
            self._ports.new_producer_id(partial(self._identified, shelf, lane))
            return
        if lane.producer_id < 0:
            lane.producer_id = shelf.producer_id
        chosen = tuple(self._choose(shelf, lane))
        now_ms = self._clock.wall_ms()
        after = Batch(lane.producer_id, lane.next_sequence, now_ms, chosen) if chosen else None
        done = () if lane.batch is None else lane.batch.offsets

        def written(error: DragomanError | None) -> None:
            if shelf.is_gone:
                return
            if error is not None:
                self._stall(shelf, lane, error, self._decide)
                return
            for offset in done:
                del shelf.entries[offset]
            lane.batch = after
            if after is None:
                lane.is_busy = False
                self.go_on(shelf, lane)
                return
            for _ in chosen:
                lane.ready.popleft()
            lane.next_sequence = after.next_sequence
            self._deliver(shelf, lane)

        changes = [*self._removals(shelf, done), _stored(shelf, lane, after)]
        self._ports.persist(shelf.index, changes, written)

    def _identified(self, shelf: Shelf, lane: Lane, producer_id: int | DragomanError) -> None:
        if shelf.is_gone:
            return
        if isinstance(producer_id, DragomanError):
            self._stall(shelf, lane, producer_id, self._decide)
            return
        if shelf.producer_id < 0:
            shelf.producer_id = producer_id
        self._decide(shelf, lane)

    def _choose(self, shelf: Shelf, lane: Lane) -> list[int]:
        """As many as fit into one batch; one at least."""
        room = self._targets.room_for(lane.target_id)
        chosen: list[int] = []
        for offset in lane.ready:
            room -= shelf.entries[offset].size
            if chosen and (room < 0 or len(chosen) == DEFERRED_BATCH_RECORDS_MAX):
                break
            chosen.append(offset)
        return chosen

    def _removals(self, shelf: Shelf, offsets: Sequence[int]) -> list[KeyValue]:
        return [
            change
            for offset in offsets
            for change in removal(
                shelf.index, offset, is_released=shelf.entries[offset].is_released
            )
        ]

    # ---- after it

    def _deliver(self, shelf: Shelf, lane: Lane) -> None:
        if shelf.is_gone:
            return
        if self._targets.is_deleted(lane.target_id):
            self._drop(shelf, lane)
            return
        node = self._targets.leader_of(lane.target_id)
        if self._under_way[node] < DEFERRED_DELIVERIES_MAX:
            self._under_way[node] += 1
            self._send(shelf, lane, partial(self._arrived, shelf, lane, node))
        else:
            self._queues[node].append((shelf, lane))

    def _deliver_queued(self, node: int) -> None:
        queue = self._queues[node]
        while queue and self._under_way[node] < DEFERRED_DELIVERIES_MAX:
            self._deliver(*queue.popleft())

    def _send(self, shelf: Shelf, lane: Lane, arrived: Acknowledge) -> None:
        batch = lane.batch
        assert batch is not None
        try:
            found = [
                self._ports.read_record(shelf.index, offset, batch.decided_ms)
                for offset in batch.offsets
            ]
        except DragomanError as error:
            arrived(error)
            return
        data = build_batch(
            found,
            producer_id=batch.producer_id,
            producer_epoch=PRODUCER_EPOCH,
            base_sequence=batch.first_sequence,
        )
        self._targets.deliver(lane.target_id, data, arrived)

    def _arrived(self, shelf: Shelf, lane: Lane, node: int, error: DragomanError | None) -> None:
        self._under_way[node] -= 1
        if self._queues[node]:
            # Not from here: deliveries that fail at once would pile up on the stack.
            self._scheduler.call_soon(self._deliver_queued, node)
        if shelf.is_gone:
            return
        match error:
            case None | DuplicateSequenceError():
                lane.is_stalled = False
                self._decide(shelf, lane)
            case OutOfOrderSequenceError() | InvalidProducerEpochError():
                log.error("partition %d has lost records: %s", lane.target_id, error)
                self._ports.new_producer_id(partial(self._resequence, shelf, lane))
            case _:
                self._stall(shelf, lane, error, self._deliver)

    def _resequence(self, shelf: Shelf, lane: Lane, producer_id: int | DragomanError) -> None:
        """The same batch, under a sequence that the partition takes."""
        if shelf.is_gone:
            return
        if isinstance(producer_id, DragomanError):
            self._stall(shelf, lane, producer_id, self._deliver)
            return
        assert lane.batch is not None
        amended = Batch(producer_id, 0, lane.batch.decided_ms, lane.batch.offsets)

        def written(error: DragomanError | None) -> None:
            if shelf.is_gone:
                return
            if error is not None:
                self._stall(shelf, lane, error, self._deliver)
                return
            lane.batch = amended
            lane.producer_id, lane.next_sequence = producer_id, amended.next_sequence
            self._deliver(shelf, lane)

        self._ports.persist(shelf.index, [_stored(shelf, lane, amended)], written)

    def _stall(
        self,
        shelf: Shelf,
        lane: Lane,
        error: DragomanError,
        again: Callable[[Shelf, Lane], None],
    ) -> None:
        if not lane.is_stalled:
            lane.is_stalled = True
            text = "records for partition %d are due and not delivered yet: %s; tried again"
            log.warning(text, lane.target_id, error)

        def retry() -> None:
            if not shelf.is_gone:
                again(shelf, lane)

        self._scheduler.call_later(DEFERRED_RETRY_S, retry)

    # ---- targets that are gone

    def _drop(self, shelf: Shelf, lane: Lane) -> None:
        offsets = shelf.offsets_for(lane.target_id)
        if not offsets and lane.batch is None:
            # Nothing waits for it, in the log neither.
            del shelf.lanes[lane.target_id]
            return
        text = "%d deferred records are dropped: partition %d was deleted"
        log.warning(text, len(offsets), lane.target_id)
        self._drop_some(shelf, lane, offsets)

    def _drop_some(self, shelf: Shelf, lane: Lane, offsets: list[int]) -> None:
        """The decision goes first: it must not be found without its records."""
        some = offsets[:DEFERRED_RECORDS_PER_SLICE]
        rest = offsets[DEFERRED_RECORDS_PER_SLICE:]

        def written(error: DragomanError | None) -> None:
            if shelf.is_gone:
                return
            if error is not None:
                self._stall(shelf, lane, error, partial(self._drop_some, offsets=offsets))
                return
            for offset in some:
                shelf.entries.pop(offset, None)
            if rest:
                self._drop_some(shelf, lane, rest)
            elif shelf.offsets_for(lane.target_id):
                # One came while the last were dropped.
                self._drop(shelf, lane)
            else:
                del shelf.lanes[lane.target_id]

        # Clients may have dropped some meanwhile.
        removals = self._removals(shelf, [each for each in some if each in shelf.entries])
        self._ports.persist(shelf.index, [_stored(shelf, lane, None), *removals], written)


def _stored(shelf: Shelf, lane: Lane, batch: Batch | None) -> KeyValue:
    value = None if batch is None else encode_value(batch)
    return encode_key(Kind.BATCH, shelf.index, lane.target_id), value
