"""Cursus: records with keys, partitions that the client chooses, groups that are joined.

A reader without a group requests batches partition by partition. A group member gets one stream of
all its partitions. To stop at the end, a member compares its offsets with the end. The last offsets
may belong to no record, because transaction markers have offsets, too; then the end is reached when
a request returns no records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from uuid import uuid4

from dragoman.cli.client_security import Credentials
from dragoman.cli.positions import Bounds
from dragoman.cli.record_clients.session import (
    COMMITTED_ONLY,
    FOLLOWS_TO_OFFSET,
    GROUP_ASSIGNS,
    HELLO_ANSWER_S,
    HELLO_TRIES_S,
    Batch,
    Batches,
    Fetched,
    OutgoingRecord,
    PlainRecord,
    Plan,
    RecordClient,
    Refusal,
    Target,
    TopicReader,
    TopicWriter,
    before,
    check_partition,
    not_from,
    not_until,
    portions,
)
from dragoman.cli.status import CommandError
from dragoman.client.cursus import (
    ClientError,
    Consumer,
    CursusClient,
    CursusSettings,
    Login,
    MemberFencedError,
    Producer,
    Record,
    UnknownTopicError,
)
from dragoman.limits import CLI_RECORDS_AT_ONCE, CLI_TIMEOUT_SECONDS

#: How long a request waits for records.
_WAIT_S: Final = 5.0
#: How long a member waits for a record before it checks whether it has reached the end.
_LAST_WAIT_S: Final = 0.2
_HEARTBEAT_S: Final = 1.0


async def _partition_count(where: Target | Plan, login: Login | None) -> int:
    settings = CursusSettings(
        operation_timeout_s=HELLO_TRIES_S,
        request_timeout_s=HELLO_ANSWER_S,
        login=login,
        tls=where.tls,
    )
    async with CursusClient(where.bootstrap, settings) as client:
        try:
            return (await client.topic(where.topic)).partitions
        except UnknownTopicError:
            raise CommandError(f"topic {where.topic!r}: there is no such topic") from None


def _client(where: Target | Plan, login: Login | None, compression: str = "none") -> CursusClient:
    settings = CursusSettings(
        operation_timeout_s=float(CLI_TIMEOUT_SECONDS),
        compression=compression,
        login=login,
        tls=where.tls,
    )
    return CursusClient(where.bootstrap, settings)


def _login(credentials: Credentials) -> Login | None:
    return Login(credentials.user, credentials.password()) if credentials.user else None


# ---- writing


class _Writer:
    """Sends a batch of records while the next one is read."""

    def __init__(self, producer: Producer, topic: str, partition_count: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partition_count = partition_count
        self._pending: Sequence[Awaitable[int]] = ()
        self.written_records = 0

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        for portion in portions(records, CLI_RECORDS_AT_ONCE):
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
            self._pending = begun

    async def settle(self) -> None:
        pending, self._pending = self._pending, ()
        failure: ClientError | None = None
        for each in pending:
            try:
                await each
            except ClientError as error:
                failure = failure or error
            else:
                self.written_records += 1
        if failure is not None:
            raise failure


@asynccontextmanager
async def _open_writer(target: Target) -> AsyncIterator[TopicWriter]:
    login = _login(target.credentials)
    count = await _partition_count(target, login)
    async with (
        _client(target, login, target.codec) as client,
        client.producer(acks=target.acks) as producer,
    ):
        writer = _Writer(producer, target.topic, count)
        yield writer
        await writer.settle()


# ---- reading


class _Reader(TopicReader):
    def __init__(self, client: CursusClient, plan: Plan, partition_count: int) -> None:
        super().__init__(plan, partition_count)
        self._client = client
        #: A new name, because the broker ignores the position of a group with committed offsets.
        self._reader = f"dragoman-{uuid4().hex}"

    async def bounds(self) -> Bounds[int]:
        found = await self._client.offsets(self.plan.topic)
        return Bounds(
            {each: found[each].earliest for each in self.partitions},
            {each: found[each].latest for each in self.partitions},
        )

    async def fetch(self, partition: int, position: int) -> Fetched:
        topic = self.plan.topic
        wait_s = _WAIT_S if self.plan.follow else 0.0
        found = await self._client.consume(
            topic, partition, position, group=self._reader, wait_s=wait_s
        )
        records = [_plain(topic, partition, each.offset, each.key, each.payload) for each in found]
        return Fetched(records, records[-1].offset + 1 if records else position)


def _plain(topic: str, partition: int, offset: int, key: bytes, payload: bytes) -> PlainRecord:
    """A record of the protocol. It has no null, so an empty key means no key."""
    return PlainRecord(topic, partition, offset, key or None, payload)


class _Member(_Reader):
    """Reads as a member of a group, up to the ends if there are any."""

    def __init__(
        self, client: CursusClient, consumer: Consumer, plan: Plan, partition_count: int
    ) -> None:
        super().__init__(client, plan, partition_count)
        self._consumer = consumer
        self._starts: Mapping[int, int] = {}
        self._ends: Mapping[int, int] = {}
        #: The next offset of each partition.
        self._positions: dict[int, int] = {}
        #: Offsets that could not be committed while the group was changing.
        self._uncommitted: dict[int, int] = {}

    async def sources(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Batches]:
        self._starts, self._ends = starts, ends
        return [self._stream()]

    async def _stream(self) -> Batches:
        while not await self._is_at_end():
            received = await self._receive()
            for each in received:
                self._positions[each.partition] = each.offset + 1
            kept = [
                _plain(each.topic, each.partition, each.offset, each.key, each.payload)
                for each in received
                if not self._ends or each.offset < self._ends.get(each.partition, 0)
            ]
            if kept:
                yield Batch(kept)
            elif not received and await self._is_nothing_left():
                return

    async def _receive(self) -> list[Record]:
        """The records received; empty if none arrives in time. Without ends, waits until one
        arrives.
        """
        first = await self._consumer.take(_LAST_WAIT_S if self._ends else None)
        received = [] if first is None else [first]
        while received and len(received) < CLI_RECORDS_AT_ONCE:
            more = await self._consumer.take(0)
            if more is None:
                break
            received.append(more)
        return received

    async def _is_at_end(self) -> bool:
        if not self._ends:
            return False
        return all([await self._is_read(each) for each in self._consumer.assigned])

    async def _is_read(self, partition: int) -> bool:
        if partition not in self._positions:
            committed = await self._client.committed(self.group, self.plan.topic, partition)
            self._positions[partition] = committed or self._starts.get(partition, 0)
        return self._positions[partition] >= self._ends.get(partition, 0)

    async def _is_nothing_left(self) -> bool:
        """Whether there is no record between here and the ends."""
        if self.plan.follow:
            return False
        for each in self._consumer.assigned:
            if not await self._is_read(each):
                fetched = await self.fetch(each, self._positions[each])
                if before(fetched.records, self._ends[each]).records:
                    return False
        return True

    async def commit(self, offsets: Mapping[int, int]) -> None:
        self._uncommitted.update(offsets)
        assigned = self._consumer.assigned
        own = {each: offset for each, offset in self._uncommitted.items() if each in assigned}
        if not own:
            return
        text = ",".join(f"P{each}:{offset}" for each, offset in own.items())
        try:
            await self._client.command("BATCH_COMMIT", self._consumer.identity(), last=text)
        except MemberFencedError:
            # The group is rebalancing. Partitions that this member keeps are committed next time;
            # another member reads the others from their last committed offset.
            return
        self._uncommitted.clear()


@asynccontextmanager
async def _open_reader(plan: Plan) -> AsyncIterator[TopicReader]:
    login = _login(plan.credentials)
    count = await _partition_count(plan, login)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(plan, login))
        if plan.group is None:
            yield _Reader(client, plan, count)
            return
        consumer = client.consumer(
            plan.topic,
            plan.group,
            reset="latest" if plan.start.kind == "end" else "earliest",
            auto_commit_s=None,
            heartbeat_s=_HEARTBEAT_S,
        )
        member = _Member(client, consumer, plan, count)
        await stack.enter_async_context(consumer)
        yield member


CLIENT = RecordClient(
    name="cursus",
    title="cursus",
    bootstrap="127.0.0.1:9000",
    cannot_write={
        "null": "it has no null",
        "headers": "its records have no headers of their own",
        "timestamp": "the broker sets the time of a record",
    },
    cannot_show={
        "headers": "it does not return headers",
        "timestamp": "it does not return the time of a record",
    },
    cannot_read=(
        not_from("it cannot look up times", "time"),
        not_until("it cannot look up times", "time"),
        FOLLOWS_TO_OFFSET,
        COMMITTED_ONLY,
        GROUP_ASSIGNS,
        Refusal(
            "--from",
            "with --group, expected beginning or end",
            lambda plan: plan.group is not None and plan.start.kind not in ("beginning", "end"),
        ),
    ),
    open_writer=_open_writer,
    open_reader=_open_reader,
)
