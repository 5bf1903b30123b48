"""Cursus: records with keys, partitions that the client chooses, groups that are joined.

Readers without a group ask for batches partition by partition. Members of a group are streamed
theirs; that a stream stands at the end shows in the offset, or, when the last records are not for
readers (ends of transactions take offsets, too), in that a request for more brings nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, NoReturn
from uuid import uuid4

from dragoman.cli.positions import Bounds, Place, resolve
from dragoman.cli.speaking.interface import (
    OutgoingRecord,
    PlainRecord,
    Plan,
    Speaker,
    Target,
    check_partition,
)
from dragoman.cli.speaking.interface import refuse as refuse_for
from dragoman.cli.speaking.looped import (
    HELLO_ANSWER_S,
    HELLO_TRIES_S,
    Batches,
    Publisher,
    Talk,
    reading,
    writing,
)
from dragoman.cli.status import CommandError
from dragoman.client.cursus import (
    ClientError,
    Consumer,
    CursusClient,
    CursusSettings,
    MemberFencedError,
    Producer,
    Record,
    UnknownTopicError,
)
from dragoman.limits import CLI_RECORDS_AT_ONCE, CLI_TIMEOUT_SECONDS

_NAME: Final = "cursus"
#: How long a request for records waits for some; and how long a member that is to stop at the end
#: waits for a record before it asks whether there is one.
_WAIT_S: Final = 5.0
_LOOK_S: Final = 0.2
_HEARTBEAT_S: Final = 1.0


async def _partition_count(bootstrap: str, topic: str) -> int:
    settings = CursusSettings(operation_timeout_s=HELLO_TRIES_S, request_timeout_s=HELLO_ANSWER_S)
    async with CursusClient(bootstrap, settings) as client:
        try:
            return (await client.topic(topic)).partitions
        except UnknownTopicError:
            raise CommandError(f"topic {topic!r}: there is no such topic") from None


def _client(bootstrap: str, compression: str = "none") -> CursusClient:
    patience_s = float(CLI_TIMEOUT_SECONDS)
    return CursusClient(
        bootstrap, CursusSettings(operation_timeout_s=patience_s, compression=compression)
    )


# ---- writing


class _Publisher:
    """One portion of records is under way while the next one is read."""

    def __init__(self, producer: Producer, topic: str, partition_count: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partition_count = partition_count
        self._under_way: Sequence[Awaitable[int]] = ()
        self.written_records = 0

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        for begin in range(0, len(records), CLI_RECORDS_AT_ONCE):
            portion = records[begin : begin + CLI_RECORDS_AT_ONCE]
            for each in portion:
                if each.partition is not None:
                    check_partition(self._topic, each.partition, self._partition_count)
            begun = [
                await self._producer.begin(
                    self._topic, each.value or b"", key=each.key or b"", partition=each.partition
                )
                for each in portion
            ]
            await self.settle()
            self._under_way = begun

    async def settle(self) -> None:
        under_way, self._under_way = self._under_way, ()
        failure: ClientError | None = None
        for each in under_way:
            try:
                await each
            except ClientError as error:
                failure = failure or error
            else:
                self.written_records += 1
        if failure is not None:
            raise failure


@asynccontextmanager
async def _publishing(target: Target) -> AsyncIterator[Publisher]:
    count = await _partition_count(target.bootstrap, target.topic)
    async with (
        _client(target.bootstrap, target.codec) as client,
        client.producer(acks=target.acks) as producer,
    ):
        publisher = _Publisher(producer, target.topic, count)
        yield publisher
        await publisher.settle()


# ---- reading


def _check(plan: Plan) -> None:
    for option, place in (("--from", plan.start), ("--until", plan.until)):
        if place is not None and place.kind == "time":
            refuse(option, "it cannot look up times")
    if plan.follow and plan.until is not None and plan.last_offset is None:
        refuse("--until", "with --follow, expected an offset")
    if not plan.is_committed_only:
        refuse("--isolation", "it reads committed records only")
    if plan.group is not None and plan.partitions:
        refuse("--partition", "with --group, the broker gives the partitions")
    if plan.group is not None and plan.start.kind not in ("beginning", "end"):
        refuse("--from", "with --group, expected beginning or end")


def refuse(option: str, reason: str) -> NoReturn:
    refuse_for(option, _NAME, reason)


async def _bounds(client: CursusClient, plan: Plan) -> Bounds[int]:
    found = await client.offsets(plan.topic)
    for each in plan.partitions:
        check_partition(plan.topic, each, len(found))
    wanted = plan.partitions or range(len(found))
    return Bounds(
        {each: found[each].earliest for each in wanted},
        {each: found[each].latest for each in wanted},
    )


def _ends(plan: Plan, bounds: Bounds[int]) -> dict[int, int]:
    """Where each partition's reading ends; empty: nowhere."""
    if not plan.follow:
        return resolve(plan.until or Place("end"), bounds)
    last = plan.last_offset
    return {} if last is None else dict.fromkeys(bounds.first, last)


class _Partitions:
    """Reading without a group."""

    def __init__(self, client: CursusClient, plan: Plan) -> None:
        self._client = client
        self._plan = plan
        #: The broker prefers what a group has committed, so this is nobody's name.
        self._reader = f"dragoman-{uuid4().hex}"

    async def batches(self, partition: int, position: int, end: int | None) -> Batches:
        plan = self._plan
        wait_s = _WAIT_S if plan.follow else 0.0
        while end is None or position < end:
            found = await self._client.consume(
                plan.topic, partition, position, group=self._reader, wait_s=wait_s
            )
            if found:
                position = found[-1].offset + 1
            elif not plan.follow:
                return
            kept = [
                _plain(plan.topic, partition, each.offset, each.key, each.payload)
                for each in found
                if end is None or each.offset < end
            ]
            if kept:
                yield kept


def _plain(topic: str, partition: int, offset: int, key: bytes, payload: bytes) -> PlainRecord:
    """An empty key is none."""
    return PlainRecord(topic, partition, offset, key or None, payload)


@asynccontextmanager
async def _talking(plan: Plan) -> AsyncIterator[Talk]:
    await _partition_count(plan.bootstrap, plan.topic)
    async with _client(plan.bootstrap) as client:
        bounds = await _bounds(client, plan)
        ends = _ends(plan, bounds)
        partitions = _Partitions(client, plan)
        yield Talk(
            [
                partitions.batches(each, start, ends.get(each))
                for each, start in resolve(plan.start, bounds).items()
            ]
        )


class _Member:
    """Reading as a member of a group, up to the ends if there are any."""

    def __init__(
        self, client: CursusClient, consumer: Consumer, plan: Plan, bounds: Bounds[int]
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._plan = plan
        self._first = resolve(plan.start, bounds)
        self._ends = _ends(plan, bounds)
        #: Of the next record of each partition.
        self._positions: dict[int, int] = {}
        #: What could not be committed while the group was changing.
        self._left: dict[int, int] = {}

    async def batches(self) -> Batches:
        while not await self._is_at_end():
            batch = await self._take()
            for each in batch:
                self._positions[each.partition] = each.offset + 1
            kept = [
                _plain(each.topic, each.partition, each.offset, each.key, each.payload)
                for each in batch
                if not self._ends or each.offset < self._ends.get(each.partition, 0)
            ]
            if kept:
                yield kept
            elif not batch and await self._is_nothing_left():
                return

    async def _take(self) -> list[Record]:
        """Empty when nothing came in time, for readers that are to stop somewhere."""
        first = await self._consumer.take(_LOOK_S if self._ends else None)
        batch = [] if first is None else [first]
        while batch and len(batch) < CLI_RECORDS_AT_ONCE:
            more = await self._consumer.take(0)
            if more is None:
                break
            batch.append(more)
        return batch

    async def _is_at_end(self) -> bool:
        if not self._ends:
            return False
        return all([await self._is_read(each) for each in self._consumer.assigned])

    async def _is_read(self, partition: int) -> bool:
        if partition not in self._positions:
            plan = self._plan
            assert plan.group is not None
            committed = await self._client.committed(plan.group, plan.topic, partition)
            self._positions[partition] = committed or self._first.get(partition, 0)
        return self._positions[partition] >= self._ends.get(partition, 0)

    async def _is_nothing_left(self) -> bool:
        """Whether there is no record between here and the ends."""
        if self._plan.follow:
            return False
        reader = _Partitions(self._client, self._plan)
        for each in self._consumer.assigned:
            if not await self._is_read(each):
                batches = reader.batches(each, self._positions[each], self._ends[each])
                async with aclosing(batches):
                    async for _ in batches:
                        return False
        return True

    async def commit(self, offsets: Mapping[int, int]) -> None:
        self._left.update(offsets)
        own = {
            each: offset for each, offset in self._left.items() if each in self._consumer.assigned
        }
        if not own:
            return
        text = ",".join(f"P{each}:{offset}" for each, offset in own.items())
        try:
            await self._client.command("BATCH_COMMIT", self._consumer.identity(), last=text)
        except MemberFencedError:
            # The group is changing. Partitions that stay are committed the next time; those that
            # go are read again, from the last commit on, by whoever gets them.
            return
        self._left.clear()


@asynccontextmanager
async def _talking_as_member(plan: Plan) -> AsyncIterator[Talk]:
    assert plan.group is not None
    await _partition_count(plan.bootstrap, plan.topic)
    async with _client(plan.bootstrap) as client:
        bounds = await _bounds(client, plan)
        consumer = client.consumer(
            plan.topic,
            plan.group,
            reset="latest" if plan.start.kind == "end" else "earliest",
            auto_commit_s=None,
            heartbeat_s=_HEARTBEAT_S,
        )
        async with consumer:
            member = _Member(client, consumer, plan, bounds)
            yield Talk([member.batches()], member.commit)


SPEAKER = Speaker(
    bootstrap="127.0.0.1:9000",
    cannot_write={
        "null": "it has no null",
        "headers": "its records have no headers of their own",
        "timestamp": "the broker gives records their time",
    },
    cannot_show={
        "headers": "it does not show headers",
        "timestamp": "it does not show the time of a record",
    },
    check=_check,
    write=lambda target: writing(_NAME, _publishing(target)),
    read=lambda plan: reading(
        _NAME, _talking(plan) if plan.group is None else _talking_as_member(plan)
    ),
)
