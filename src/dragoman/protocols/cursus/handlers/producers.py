"""Idempotent producers: each message is stored once, in order, despite retries.

Cursus identifies producers by text, and has epochs and sequence numbers of 64 bits, which do not
fit into a record batch. So each producer and epoch is assigned a producer id of the log, which is
stored before its first record. From then on the partition's own producer state recognises
duplicates and gaps, even after a restart. Sequence number 1 is 0 in the log, which counts modulo
2^31.

    sequence number    effect
    next               appended
    lower              a repeat: dropped and acknowledged
    higher             refused, with all messages after it: messages are missing
    0                  not checked

An epoch below the newest one that any partition has seen is refused: a newer instance of the
producer has taken over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from dragoman.broker.accumulator import RecordAccumulator
from dragoman.broker.errors import NotLeader
from dragoman.broker.transactions import ProducerIds
from dragoman.errors import DragomanError
from dragoman.limits import CURSUS_PRODUCERS_MAX
from dragoman.log.producer import SEQUENCE_MASK
from dragoman.outcome import Outcome, start
from dragoman.protocols.cursus.constants import ACKS_OF_ALL, ERROR, OK, PARTIAL
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.records import append_records, record_of
from dragoman.protocols.cursus.handlers.state import State, StoredProducer
from dragoman.protocols.cursus.messages import Batch, Message
from dragoman.replication.replica import Replica
from dragoman.world import Clock

log = logging.getLogger("dragoman.cursus")
#: Receives the last message that the reply concerns, its offset, the status and the error text.
_Answer: TypeAlias = Callable[[Message, int, str, str], None]
_Refuse: TypeAlias = Callable[[DragomanError], None]
#: A sequence number that is further behind than this counts as ahead.
_HALF = 1 << 30
_EPOCH = 0


class Producers:
    def __init__(
        self, state: State, producer_ids: ProducerIds, accumulator: RecordAccumulator, clock: Clock
    ) -> None:
        self._state = state
        self._producer_ids = producer_ids
        self._accumulator = accumulator
        self._clock = clock
        #: Batches that wait while a producer id is being stored, by producer and epoch.
        self._registering: dict[tuple[str, int], list[Outcome[None]]] = {}

    def publish(self, batch: Batch, replica: Replica, answer: _Answer, refuse: _Refuse) -> None:
        """Publish a batch whose sequence numbers are checked. Raises `Refusal`."""
        first = batch.messages[0]
        identity = (first.producer_id, first.epoch)
        if any((each.producer_id, each.epoch) != identity for each in batch.messages):
            raise Refusal('broker_error reason="a batch with sequence numbers has one producer"')

        def identified(found: int | DragomanError) -> None:
            if isinstance(found, Refusal):
                # Two of the published clients only understand JSON in reply to a batch.
                answer(first, -1, ERROR, found.text)
            elif isinstance(found, DragomanError):
                refuse(found)
            else:
                self._append(batch, replica, found, answer, refuse)

        known = self._known(*identity)
        if known is None:
            start(self._identify(*identity)).then(identified)
        else:
            identified(known)

    # ---- identity

    def _known(self, name: str, epoch: int) -> int | Refusal | None:
        """The log's producer id for a producer and epoch; None if none is stored yet."""
        stored = self._state.producers.pop(name, None) if self._state.is_loaded else None
        if stored is None:
            return None
        # Reinserted as the most recently used one.
        self._state.producers[name] = stored
        if epoch < stored.epoch:
            epochs = f"current={stored.epoch} got={epoch}"
            return Refusal(f"stale_producer_epoch producer={name} {epochs}")
        return stored.internal_id if stored.epoch == epoch else None

    async def _identify(self, name: str, epoch: int) -> int:
        """The log's producer id for a producer and epoch. Stores a new one if there is none. Raises
        `Refusal`.
        """
        await self._state.loaded()
        while True:
            known = self._known(name, epoch)
            if isinstance(known, Refusal):
                raise known
            if known is not None:
                return known
            # Looked up again, because a newer epoch may have been stored in between.
            await self._registered(name, epoch)

    async def _registered(self, name: str, epoch: int) -> None:
        """Return when the producer and epoch have a producer id. Batches of one producer resume in
        order of arrival.
        """
        registered: Outcome[None] = Outcome()
        waiting = self._registering.setdefault((name, epoch), [])
        waiting.append(registered)
        if len(waiting) == 1:
            start(self._register(name, epoch)).then(partial(self._resume, name, epoch))
        await registered

    async def _register(self, name: str, epoch: int) -> None:
        given = await self._producer_ids.next()
        await self._state.put_producer(name, StoredProducer(epoch, given))

    def _resume(self, name: str, epoch: int, error: DragomanError | None) -> None:
        for each in self._registering.pop((name, epoch)):
            each.acknowledge(error)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        producers = self._state.producers
        if len(producers) > CURSUS_PRODUCERS_MAX:
            oldest = next(iter(producers))
            start(self._state.put_producer(oldest, None)).then(_log_failure)

    # ---- records

    def _append(
        self, batch: Batch, replica: Replica, internal_id: int, answer: _Answer, refuse: _Refuse
    ) -> None:
        messages = batch.messages
        self._accumulator.flush(replica)
        expected = _expected(replica, internal_id, messages[0])
        fresh, failure = _fresh(messages, expected)
        now_ms = self._clock.wall_ms()
        log_end = replica.log.log_end_offset
        if fresh:
            appended = append_records(
                replica,
                [record_of(each, now_ms) for each in fresh],
                now_ms,
                producer_id=internal_id,
                producer_epoch=_EPOCH,
                sequence=expected,
            )
            if not appended.count and isinstance(appended.error, NotLeader):
                # Leadership was lost while the producer was looked up.
                refuse(appended.error)
                return
            fresh = fresh[: appended.count]
            failure, log_end = appended.error or failure, appended.next_offset
        status = OK if failure is None else PARTIAL if fresh else ERROR
        last = fresh[-1] if status == PARTIAL else messages[-1]

        def acknowledged(error: DragomanError | None) -> None:
            if error is not None:
                refuse(error)
            else:
                answer(last, log_end - 1, status, str(failure or ""))

        # A duplicate is acknowledged when the stored messages are as durable as its `acks`
        # requires.
        if batch.acks in ACKS_OF_ALL:
            replica.when_committed(log_end, acknowledged)
        else:
            replica.when_stable(log_end, acknowledged)


def _expected(replica: Replica, internal_id: int, first: Message) -> int:
    """The next sequence number in the log."""
    states = replica.log.producers
    known = None if states is None else states.producers().get(internal_id)
    if known is not None and known.next_sequence >= 0:
        return known.next_sequence
    is_lost = states is not None and internal_id < states.forgotten_below()
    return first.seq_num - 1 & SEQUENCE_MASK if known is not None or is_lost else 0


def _fresh(
    messages: Sequence[Message], expected: int
) -> tuple[Sequence[Message], DragomanError | None]:
    """The messages to append, and the error that stops at the one after them."""
    fresh: list[Message] = []
    for each in messages:
        ahead = (each.seq_num - 1 - expected) & SEQUENCE_MASK
        if each.seq_num and ahead == 0:
            fresh.append(each)
            expected = (expected + 1) & SEQUENCE_MASK
        elif not each.seq_num or ahead <= _HALF:
            gap = Refusal(f"sequence_gap producer={each.producer_id} got={each.seq_num}")
            return fresh, gap
    return fresh, None


def _log_failure(error: DragomanError | None) -> None:
    if error is not None:
        log.warning("an idle producer could not be removed: %s", error)
