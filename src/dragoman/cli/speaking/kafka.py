"""Kafka, which has a word for everything that `produce` and `consume` know.

A group is not joined: nothing is divided among several readers, and it must have no members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal

from dragoman.cli.positions import Bounds, Place
from dragoman.cli.speaking.interface import OutgoingRecord, Plan, Speaker, Target
from dragoman.cli.status import USAGE, CommandError
from dragoman.cli.wire import (
    DEFAULT_BOOTSTRAP,
    bounds_of,
    connected,
    offsets_of,
    refuse_live_group,
)
from dragoman.client.kafka import (
    BlockingKafkaClient,
    BlockingProducer,
    BlockingReader,
    Codec,
    ConsumedRecord,
    Isolation,
    NewRecord,
    ProducerOptions,
    TopicPartition,
)

_ACKS: Final[dict[str, Literal[-1, 0, 1]]] = {"all": -1, "1": 1, "0": 0}


# ---- writing


class _Writer:
    def __init__(self, producer: BlockingProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    @property
    def written_records(self) -> int:
        return self._producer.written_records

    def write(self, records: Sequence[OutgoingRecord]) -> None:
        new = [
            NewRecord(
                key=each.key,
                value=each.value,
                headers=each.headers,
                partition=each.partition,
                timestamp=each.timestamp,
            )
            for each in records
        ]
        self._producer.send_many(self._topic, new)


@contextmanager
def _write(target: Target) -> Iterator[_Writer]:
    # Only acknowledgement by all replicas can be combined with protection against doubles.
    options = ProducerOptions(
        codec=Codec[target.codec.upper()],
        acks=_ACKS[target.acks],
        idempotent=target.acks == "all",
    )
    with connected(target.bootstrap) as client:
        client.topic(target.topic, auto_create=True)
        with client.producer(options) as producer:
            yield _Writer(producer, target.topic)


# ---- reading


def _check(plan: Plan) -> None:
    if plan.follow and plan.until is not None and plan.last_offset is None:
        raise CommandError("--until: with --follow, expected an offset", USAGE)


class _Reader:
    """Records as they come; how far they were printed, and how far that is committed."""

    def __init__(
        self,
        client: BlockingKafkaClient,
        reader: BlockingReader,
        group: str | None,
        starts: Mapping[TopicPartition, int],
    ) -> None:
        self._client = client
        self._reader = reader
        self._group = group
        self._committed = dict(starts)
        self._printed = dict(starts)
        self._given: list[ConsumedRecord] = []

    def next_records(self) -> list[ConsumedRecord]:
        self._given = self._reader.next_records()
        if not self._given:
            self.printed(0)
        return self._given

    def printed(self, count: int) -> None:
        if count == len(self._given):
            # Behind records that are not for printing, too, such as the ends of transactions.
            self._printed.update(self._reader.positions)
        for record in self._given[:count]:
            where = TopicPartition(record.topic, record.partition)
            self._printed[where] = max(self._printed[where], record.offset + 1)
        self.commit()

    def commit(self) -> None:
        if self._group is None:
            return
        news = {
            where: offset
            for where, offset in self._printed.items()
            if offset != self._committed[where]
        }
        if news:
            self._client.commit_offsets(self._group, news)
            self._committed.update(news)


@contextmanager
def _read(plan: Plan) -> Iterator[_Reader]:
    isolation = Isolation.READ_COMMITTED if plan.is_committed_only else Isolation.READ_UNCOMMITTED
    with connected(plan.bootstrap) as client:
        bounds = bounds_of(client, _partitions(client, plan), isolation)
        starts = offsets_of(client, plan.start, bounds)
        if plan.group is not None:
            refuse_live_group(client, plan.group)
            found = client.committed_offsets(plan.group, bounds.first)
            # A commit from before records were deleted means the first that are left.
            starts |= bounds.clamp({where: each.offset for where, each in found.items()})
        ends = _ends(client, plan, bounds)
        with client.reader(starts, until=ends, isolation=isolation) as opened:
            reader = _Reader(client, opened, plan.group, starts)
            try:
                yield reader
            finally:
                # Also when interrupted: what was printed was read.
                reader.commit()


def _partitions(client: BlockingKafkaClient, plan: Plan) -> list[TopicPartition]:
    every = client.topic(plan.topic).all_partitions()
    if not plan.partitions:
        return every
    wanted = [TopicPartition(plan.topic, each) for each in dict.fromkeys(plan.partitions)]
    for where in wanted:
        if where not in every:
            raise CommandError(
                f"topic {plan.topic!r} has no partition {where.partition}; it has {len(every)}"
            )
    return wanted


def _ends(
    client: BlockingKafkaClient, plan: Plan, bounds: Bounds[TopicPartition]
) -> dict[TopicPartition, int]:
    if not plan.follow:
        return offsets_of(client, plan.until or Place("end"), bounds)
    # Not limited by the present end: an offset that is not there yet is waited for.
    last = plan.last_offset
    return {} if last is None else dict.fromkeys(bounds.first, last)


SPEAKER = Speaker(bootstrap=DEFAULT_BOOTSTRAP, check=_check, write=_write, read=_read)
