"""The reader and the writer behind `consume` and `produce`, shared by all protocols.

Clients use asyncio, commands block. So a client runs on an event loop in its own thread, where
group heartbeats continue while the command's output blocks.

    consume   plan ── refusals ── open the topic ── bounds of its partitions ── starts and ends
              ── sources, merged as their batches come ── records to print ── commit of what was
              printed, for a group
    produce   target ── open the topic ── records, some at a time ── wait for the broker

A protocol implements `TopicWriter` and `TopicReader`, and declares a `RecordClient`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from typing import Final, Literal, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from dragoman.cli.client_security import NO_LOGIN, Broker, BrokerTarget, Credentials
from dragoman.cli.positions import Bounds, Place, PlaceKind, resolve
from dragoman.cli.status import USAGE, CommandError, one_line_failures
from dragoman.client_core.blocking_client import LoopThread
from dragoman.client_core.tls import TlsSettings

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
#: Record fields and request options that some protocols cannot express.
Feature: TypeAlias = Literal["key", "null", "headers", "partition", "timestamp", "codec", "acks"]


class OutgoingRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A record to be written."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    #: None: the client or the broker chooses.
    partition: int | None = None
    #: Milliseconds since 1970; None: now.
    timestamp: int | None = None


class IncomingRecord(Protocol):
    """A record that was read. Fields that the protocol lacks are None."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers | None: ...


class PlainRecord(msgspec.Struct, frozen=True, gc=False):
    """An `IncomingRecord` whose defaults suit a protocol without these fields."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: Headers | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how `produce` writes."""

    bootstrap: str
    topic: str
    codec: str = "none"
    acks: Literal["all", "1", "0"] = "all"
    tls: TlsSettings | None = None
    credentials: Credentials = NO_LOGIN


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `consume` reads."""

    bootstrap: str
    topic: str
    #: Empty: all.
    partitions: tuple[int, ...] = ()
    start: Place = Place("beginning")
    #: None: the current end, or no end when `follow` is set.
    until: Place | None = None
    follow: bool = False
    max_records: int | None = None
    group: str | None = None
    is_committed_only: bool = True
    tls: TlsSettings | None = None
    credentials: Credentials = NO_LOGIN

    @property
    def last_offset(self) -> int | None:
        """The offset in `until`, if it is an offset."""
        is_offset = self.until is not None and self.until.kind == "offset"
        return self.until.number if self.until is not None and is_offset else None


# ---- what a protocol cannot read


class Refusal(msgspec.Struct, frozen=True):
    """Plans that a protocol cannot express, and why."""

    option: str
    reason: str
    applies: Callable[[Plan], bool]
    #: Whether the error message names the protocol as the cause.
    is_by_protocol: bool = True


def not_from(reason: str, *kinds: PlaceKind) -> Refusal:
    return Refusal("--from", reason, lambda plan: plan.start.kind in kinds)


def not_until(reason: str, *kinds: PlaceKind) -> Refusal:
    return Refusal(
        "--until", reason, lambda plan: plan.until is not None and plan.until.kind in kinds
    )


#: With --follow there is no end of the partition that other places could be relative to.
FOLLOWS_TO_OFFSET: Final = Refusal(
    "--until",
    "with --follow, expected an offset",
    lambda plan: plan.follow and plan.until is not None and plan.last_offset is None,
)
COMMITTED_ONLY: Final = Refusal(
    "--isolation", "it reads committed records only", lambda plan: not plan.is_committed_only
)
GROUP_ASSIGNS: Final = Refusal(
    "--partition",
    "with --group, the broker assigns the partitions",
    lambda plan: plan.group is not None and bool(plan.partitions),
)


def check_partition(topic: str, partition: int, count: int) -> None:
    if not 0 <= partition < count:
        raise CommandError(f"topic {topic!r} has no partition {partition}; it has {count}")


def portions(records: Sequence[OutgoingRecord], size: int) -> list[Sequence[OutgoingRecord]]:
    return [records[begin : begin + size] for begin in range(0, len(records), size)]


# ---- readers and writers


#: Bounds of the first request. A server of another protocol may respond with garbage, close the
#: connection or send nothing.
HELLO_TRIES_S: Final = 1.0
HELLO_ANSWER_S: Final = 10.0
#: The position of the next record to be written, in a protocol that does not report where a
#: partition ends.
NEXT: Final = -1

Opened = TypeVar("Opened")


@contextmanager
def running(
    protocol: str, opening: AbstractAsyncContextManager[Opened]
) -> Iterator[tuple[LoopThread, Opened]]:
    """Enter a context on an event loop in a thread. Every failure in it becomes a
    `CommandError`.
    """
    with one_line_failures(protocol):
        thread = LoopThread(f"dragoman-{protocol}")
        try:
            opened = thread.run(opening.__aenter__)
            try:
                yield thread, opened
            finally:
                thread.run(lambda: opening.__aexit__(None, None, None))
        finally:
            thread.close()


# ---- writing


class TopicWriter(Protocol):
    """A topic that was opened for `produce`."""

    @property
    def written_records(self) -> int:
        """How many records the broker has acknowledged."""
        ...

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        """Send records. May raise the failure of an earlier call."""
        ...


class Writer:
    def __init__(self, thread: LoopThread, topic: TopicWriter) -> None:
        self._thread = thread
        self._topic = topic

    @property
    def written_records(self) -> int:
        return self._topic.written_records

    def write(self, records: Sequence[OutgoingRecord]) -> None:
        """Send records. May raise the failure of an earlier call."""
        future = self._thread.begin(lambda: self._topic.write(records))
        try:
            future.result()
        except KeyboardInterrupt:
            # After an interrupt, the records already read are still written. A second interrupt
            # ends the wait.
            future.result()
            raise


# ---- reading


class Batch(msgspec.Struct, frozen=True):
    """Records that were received together."""

    records: Sequence[IncomingRecord] = ()
    #: The next offset of partitions read beyond their last record, such as past transaction
    #: markers.
    positions: Mapping[int, int] = {}


class Fetched(NamedTuple):
    """Records of a partition, and the next position to read."""

    records: Sequence[IncomingRecord]
    position: int


Batches: TypeAlias = AsyncGenerator[Batch, None]


class TopicReader:
    """A topic that was opened for `consume`, the base class of the protocols' readers.

    A protocol overrides what it supports. Most protocols read partition by partition and override
    `fetch`; streaming protocols override `sources`.
    """

    #: Whether an offset is committed before the first record of a partition is printed, because
    #: the protocol reveals the members of a group only by refusing a commit.
    claims_group = False

    def __init__(self, plan: Plan, partition_count: int) -> None:
        """Raises `CommandError` for a partition that does not exist."""
        for each in plan.partitions:
            check_partition(plan.topic, each, partition_count)
        self.plan = plan
        self.group = plan.group or ""
        self.partitions = tuple(dict.fromkeys(plan.partitions)) or tuple(range(partition_count))

    async def bounds(self) -> Bounds[int] | None:
        """The bounds of the partitions; None if the protocol does not report them."""
        return None

    async def offsets_at(self, time_ms: int) -> Mapping[int, int]:
        """The first offset of each partition at or after a time."""
        raise NotImplementedError

    async def committed(self) -> Mapping[int, int]:
        """The group's committed offsets; empty if the broker applies them itself.

        Raises `CommandError` when the group has members.
        """
        return {}

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit the next offset of each partition for the group."""
        raise NotImplementedError

    async def fetch(self, partition: int, position: int) -> Fetched:
        """Read records from a position on. With `follow`, waits if there are none."""
        raise NotImplementedError

    async def sources(
        self, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Sequence[Batches]:
        """Streams of batches, to be read concurrently. `ends` lacks partitions without an end."""
        return [self.batches(each, starts[each], ends.get(each)) for each in self.partitions]

    async def batches(self, partition: int, position: int, end: int | None) -> Batches:
        is_claimed = not (self.claims_group and self.group)
        while end is None or position < end:
            fetched = await self.fetch(partition, position)
            batch = before(fetched.records, end)
            if batch.records and not is_claimed:
                await self.commit({partition: position})
                is_claimed = True
            if batch.records:
                yield batch
            if fetched.position <= position and not self.plan.follow:
                return
            position = fetched.position


def before(records: Sequence[IncomingRecord], end: int | None) -> Batch:
    return Batch(records if end is None else [each for each in records if each.offset < end])


async def resolved(topic: TopicReader) -> tuple[dict[int, int], dict[int, int]]:
    """The start of each partition, and the end of those that have one.

    A committed offset whose record was deleted is moved to the first remaining record.
    """
    plan = topic.plan
    bounds = await topic.bounds()
    last = plan.last_offset
    last_offsets = {} if last is None else dict.fromkeys(topic.partitions, last)
    if bounds is None:
        start = NEXT if plan.start.kind == "end" else plan.start.number
        starts = dict.fromkeys(topic.partitions, start)
    else:
        starts = await _offsets(topic, plan.start, bounds)
    if topic.group:
        committed = await topic.committed()
        starts |= committed if bounds is None else bounds.clamp(committed)
    if bounds is None or plan.follow:
        # An offset may lie beyond the current end: the reader waits for its records.
        return starts, last_offsets
    return starts, await _offsets(topic, plan.until or Place("end"), bounds)


async def _offsets(topic: TopicReader, place: Place, bounds: Bounds[int]) -> dict[int, int]:
    at_time = await topic.offsets_at(place.number) if place.kind == "time" else None
    return resolve(place, bounds, at_time=at_time)


class Merged:
    """Batches of several sources, in order of arrival. Each source reads at most one batch
    ahead.
    """

    def __init__(self, sources: Sequence[Batches]) -> None:
        #: Batches, each with a future that is settled when the batch is consumed, and tasks of
        #: sources that have ended.
        self._found: asyncio.Queue[tuple[Batch, asyncio.Future[None]] | asyncio.Task[None]] = (
            asyncio.Queue()
        )
        self._tasks = [asyncio.create_task(self._pump(source)) for source in sources]
        for task in self._tasks:
            task.add_done_callback(self._found.put_nowait)
        self._open = len(self._tasks)

    async def _pump(self, source: Batches) -> None:
        async with aclosing(source):
            async for batch in source:
                taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._found.put_nowait((batch, taken))
                await taken

    async def next_batch(self) -> Batch | None:
        """The next batch; None when every source has ended. Raises the first failure."""
        while self._open:
            found = await self._found.get()
            if isinstance(found, tuple):
                batch, taken = found
                taken.set_result(None)
                return batch
            found.result()
            self._open -= 1
        return None

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Reader:
    def __init__(self, thread: LoopThread, topic: TopicReader) -> None:
        self._thread = thread
        self._topic = topic
        self._merged = thread.run(lambda: _merged(topic))
        self._batch = Batch()
        #: By partition, the offset after the printed records, and the last committed offset.
        self._printed: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def next_records(self) -> Sequence[IncomingRecord]:
        """The next records, at least one; empty when everything was read."""
        while (batch := self._thread.run(self._merged.next_batch)) is not None:
            self._batch = batch
            if batch.records:
                return batch.records
            self.printed(0)
        return ()

    def printed(self, count: int) -> None:
        """Note that the first `count` of the last records were printed, and commit them for a
        group.
        """
        if not self._topic.group:
            return
        records = self._batch.records
        self._printed |= {each.partition: each.offset + 1 for each in records[:count]}
        if count == len(records):
            self._printed |= self._batch.positions
        self.commit()

    def commit(self) -> None:
        """Commit the offsets of printed records that are not committed yet."""
        news = {
            partition: offset
            for partition, offset in self._printed.items()
            if self._committed.get(partition) != offset
        }
        if news:
            self._thread.run(lambda: self._topic.commit(news))
            self._committed |= news

    def close(self) -> None:
        self._thread.run(self._merged.close)


async def _merged(topic: TopicReader) -> Merged:
    return Merged(await topic.sources(*await resolved(topic)))


# ---- the client


class RecordClient(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol as `produce` and `consume` use it."""

    name: str
    #: The name of the protocol in messages.
    title: str
    #: The address of a broker when `--bootstrap` is not given.
    bootstrap: str
    #: By feature, why a record or a request cannot have it.
    cannot_write: Mapping[Feature, str] = {}
    #: By feature, why it cannot be printed. JSON shows it as null.
    cannot_show: Mapping[Feature, str] = {}
    #: Why a client cannot log in by a name and a password; empty: it can.
    cannot_log_in: str = ""
    #: Plans that the protocol cannot read; the first match is reported.
    cannot_read: tuple[Refusal, ...] = ()
    #: The context connects on entry, and waits for acknowledgements on exit.
    open_writer: Callable[[Target], AbstractAsyncContextManager[TopicWriter]]
    #: The context connects on entry, and leaves the group on exit.
    open_reader: Callable[[Plan], AbstractAsyncContextManager[TopicReader]]

    def refuse(self, option: str, reason: str) -> NoReturn:
        raise CommandError(f"{option}: not possible with --protocol {self.name}: {reason}", USAGE)

    def found(self, options: BrokerTarget) -> Broker:
        """Where to connect. Raises `CommandError`, also for a login without a place in the
        protocol. A user in the environment may be meant for other protocols.
        """
        if options.user and self.cannot_log_in:
            self.refuse("--user", self.cannot_log_in)
        return options.resolved(self.bootstrap)

    def check(self, plan: Plan) -> None:
        """Raises `CommandError` for a plan that the protocol cannot express."""
        for each in self.cannot_read:
            if each.applies(plan):
                if each.is_by_protocol:
                    self.refuse(each.option, each.reason)
                raise CommandError(f"{each.option}: {each.reason}", USAGE)

    @contextmanager
    def write(self, target: Target) -> Iterator[Writer]:
        with running(self.title, self.open_writer(target)) as (thread, topic):
            yield Writer(thread, topic)

    @contextmanager
    def read(self, plan: Plan) -> Iterator[Reader]:
        """The context commits the offsets of printed records for a group on exit."""
        with running(self.title, self.open_reader(plan)) as (thread, topic):
            reader = Reader(thread, topic)
            try:
                yield reader
            finally:
                try:
                    # Runs even after an interrupt, so that printed records are not read again.
                    reader.commit()
                finally:
                    reader.close()
