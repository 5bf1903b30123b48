"""A decided batch on its way from staging into its topics.

A megabyte at a time: read, given the writer's producer id and the next sequence, appended, and
waited for until they are committed. What is in a partition already, from an earlier attempt at the
same copy, is told by the partition's producer state and left out. Batches keep their borders, so
the state ends at one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from dragoman.broker.produce import as_configured
from dragoman.broker.publishing.staging import Staging
from dragoman.broker.publishing.state import PRODUCER_EPOCH, Target, Writer
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.broker.steps import AllOf
from dragoman.errors import DragomanError
from dragoman.limits import PUBLISH_SLICE_BYTES
from dragoman.log.batch import read_header, stamp_producer
from dragoman.log.producers import SEQUENCE_MASK

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.publishing")


def next_sequence(replica: Replica, producer_id: int) -> int:
    """What the partition takes next of a producer. From one that it does not know, or has
    forgotten, that is 0.
    """
    states = replica.log.producers
    known = None if states is None else states.producers().get(producer_id)
    return 0 if known is None else known.next_sequence


def resequenced(broker: Broker, writer: Writer) -> Writer:
    """The same batch, under the sequences that its partitions will take.

    They differ from those decided only when a partition has lost records that were committed,
    which a power cut can do where `durability` is `os`. What it lost was at its end, hence all of
    this batch.
    """
    targets = list(writer.targets)
    for at, target in enumerate(targets):
        metadata = broker.image.partitions.get(target.partition_id)
        if metadata is not None:
            replica = broker.replica(metadata)
            expected = next_sequence(replica, writer.producer_id)
            if _appended_records(target, expected) > target.record_count:
                log.error(
                    "%s has lost records of writer %s that were published: sequence %d, not %d",
                    replica.log.describe(),
                    writer.writer_id,
                    expected,
                    target.first_sequence,
                )
                targets[at] = msgspec.structs.replace(target, first_sequence=expected)
    if targets == list(writer.targets):
        return writer
    return msgspec.structs.replace(writer, targets=tuple(targets))


def _appended_records(target: Target, expected: int) -> int:
    return (expected - target.first_sequence) & SEQUENCE_MASK


def copy(broker: Broker, staging: Staging, writer: Writer, done: Acknowledge) -> None:
    """Append what is missing of the writer's batch. `done` comes when all of it is committed.

    After an error the same call takes up where this one ended.
    """
    _Copy(broker, staging, writer, done).go_on()


class _Copy:
    def __init__(self, broker: Broker, staging: Staging, writer: Writer, done: Acknowledge) -> None:
        self._broker = broker
        self._staging = staging
        self._writer = writer
        self._done = done
        self._replicas: list[Replica] = []
        self._appending = self._append_all()

    def go_on(self) -> None:
        """One slice: appended together, hence durable together."""
        size = 0
        try:
            for appended in self._appending:
                size += appended
                if size >= PUBLISH_SLICE_BYTES:
                    break
            is_last = size < PUBLISH_SLICE_BYTES
        except DragomanError as error:
            self._done(error)
            return

        def committed(error: DragomanError | None) -> None:
            if error is not None or is_last:
                self._done(error)
            else:
                # Others first: a large batch takes many slices.
                self._broker.scheduler.call_soon(self.go_on)

        # Up to the end of each log: a copy that failed may have left appends under way.
        steps = [partial(each.when_committed, each.log.log_end_offset) for each in self._replicas]
        AllOf(len(steps), committed).run(steps)

    def _append_all(self) -> Iterator[int]:
        for target in self._writer.targets:
            metadata = self._broker.image.partitions.get(target.partition_id)
            if metadata is None:
                log.warning(
                    "writer %s: the topic of %d records was deleted before they were published",
                    self._writer.writer_id,
                    target.record_count,
                )
                continue
            replica = self._broker.replica(metadata)
            self._replicas.append(replica)
            yield from self._append_target(target, replica)

    def _append_target(self, target: Target, replica: Replica) -> Iterator[int]:
        producer_id = self._writer.producer_id
        expected = next_sequence(replica, producer_id)
        to_skip = _appended_records(target, expected)
        assert to_skip <= target.record_count, (self._writer, target, expected)
        sequence = target.first_sequence
        for piece in target.pieces:
            if to_skip >= piece.record_count:
                to_skip -= piece.record_count
                sequence = (sequence + piece.record_count) & SEQUENCE_MASK
                continue
            for header, staged in self._staging.batches(piece):
                if to_skip:
                    to_skip -= header.record_count
                    assert to_skip >= 0, (self._writer, target, expected)
                else:
                    batch = bytearray(staged)
                    stamp_producer(batch, producer_id, PRODUCER_EPOCH, sequence)
                    yield self._append(replica, batch)
                sequence = (sequence + header.record_count) & SEQUENCE_MASK

    def _append(self, replica: Replica, batch: bytearray) -> int:
        now_ms = self._broker.clock.wall_ms()
        fitted = as_configured(replica, memoryview(batch), read_header(batch), now_ms)
        # Not `place`: whether the batch fits the topic was asked before the decision.
        replica.log.append(*fitted, replica.leader_epoch)
        return len(batch)
