"""What a test asks about topics and groups, and asserts, without a client of its own.

    broker.topic("orders").create(partitions=3)
    broker.topic("orders").write("3 apples", key="alice")
    broker.topic("orders").assert_values("3 apples")
    broker.group("billing").assert_caught_up("orders")

Records are those that are committed, as a reader of committed records gets them. Assertions wait
for what is still to come, and say at the end what was there instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Final, Generic, Protocol, Self, TypeVar

import msgspec

from dragoman import limits
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.groups import GroupService
from dragoman.broker.broker import Broker
from dragoman.broker.errors import InvalidReplicationFactor, NotEnoughReplicas
from dragoman.broker.topics import DEFAULT, NewTopic
from dragoman.errors import DragomanError
from dragoman.log.batch import Record
from dragoman.net.future import settled
from dragoman.outcome import Outcome
from dragoman.partitioner import partition_for_key
from dragoman.security.access import Caller, Principal
from dragoman.security.authorizer import OPERATOR_KIND
from dragoman.testing.records import StoredRecord, encoded, listed, records_of, shown

Result = TypeVar("Result")
#: How long assertions wait.
WAIT_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
#: The test, which may do everything.
_CALLER: Final = Caller(Principal(OPERATOR_KIND, "test"), is_proven=True)


class Runner(Protocol):
    """Runs work in the loop of a node, and waits for its result."""

    def __call__(self, work: Callable[[Broker], Coroutine[None, None, Result]], /) -> Result: ...


class TopicUnderTest:
    """A topic of a broker under test, which need not exist yet."""

    def __init__(self, name: str, run: Runner) -> None:
        self.name = name
        self._run = run

    def create(
        self,
        *,
        partitions: int = DEFAULT,
        replicas: int = DEFAULT,
        config: Mapping[str, str] | None = None,
    ) -> Self:
        """Create the topic, by default as the settings of the broker say. Waits until there are as
        many nodes as it needs. Raises `TopicExists`.
        """
        new = NewTopic(
            name=self.name,
            partition_count=partitions,
            replication_factor=replicas,
            config=dict(config or {}),
        )
        self._run(lambda broker: _insist(lambda: settled(broker.topics.create(new))))
        return self

    def write(
        self,
        *values: str | bytes | None,
        key: str | bytes | None = None,
        partition: int | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Self:
        """Append a record for each value, and return when they are committed. They go to the
        partition that is given, else to that of the key as Kafka's clients choose it, else to 0.
        """
        named = tuple((name, encoded(value)) for name, value in (headers or {}).items())

        async def append(broker: Broker) -> None:
            partitions = broker.image.topics[self.name].partitions
            held = encoded(key)
            index = partition
            if index is None:
                index = 0 if held is None else partition_for_key(held, len(partitions))
            now = broker.clock.wall_ms()
            appended: Outcome[int] = Outcome()
            broker.leader_queues.add_all(
                partitions[index],
                [
                    Record(key=held, value=encoded(each), headers=named, timestamp=now)
                    for each in values
                ],
                lambda offset, error: appended.settle(offset if error is None else error),
                caller=_CALLER,
            )
            await settled(appended)

        if values:
            self._run(lambda broker: _insist(lambda: append(broker)))
        return self

    def records(self) -> list[StoredRecord]:
        """All committed records, by partition and offset; none of a topic that does not exist."""
        return self._run(self._read)

    def values(self) -> list[bytes | None]:
        """The values of `records`."""
        return [each.value for each in self.records()]

    def wait_for(self, count: int, *, timeout_s: float = WAIT_SECONDS) -> list[StoredRecord]:
        """All records, as soon as there are at least so many. Raises `AssertionError`."""
        seen = self._await_count(count, timeout_s)
        found = seen.value or []
        if len(found) < count:
            raise AssertionError(
                f"topic {self.name!r} has too few records after {timeout_s:g} s\n"
                f"  expected at least {count}\n{shown(found)}{seen.trouble}"
            )
        return found

    def assert_values(self, *expected: str | bytes | None, timeout_s: float = WAIT_SECONDS) -> None:
        """The topic has records with these values and no others: in this order if all are in one
        partition, else in any. Waits until there are as many.
        """
        wanted = [encoded(each) for each in expected]
        seen = self._await_count(len(wanted), timeout_s)
        records = seen.value or []
        found = [each.value for each in records]
        is_ordered = len({each.partition for each in records}) < 2
        missing, others = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        if found == wanted or not (is_ordered or missing or others):
            return
        lines = [f"topic {self.name!r} has other values than expected"]
        lines += [f"  expected {len(wanted)}: {listed(wanted)}", shown(records)]
        if missing:
            lines.append(f"  missing: {listed(missing.elements())}")
        if others:
            lines.append(f"  unexpected: {listed(others.elements())}")
        if not missing and not others:
            lines.append("  the order differs")
        raise AssertionError("\n".join(lines) + seen.trouble)

    def _await_count(self, count: int, timeout_s: float) -> _Seen[list[StoredRecord]]:
        return self._run(
            lambda broker: _until(
                lambda: self._read(broker), lambda found: len(found) >= count, timeout_s
            )
        )

    async def _read(self, broker: Broker) -> list[StoredRecord]:
        topic = broker.image.topics.get(self.name)
        found: list[StoredRecord] = []
        for partition in topic.partitions if topic is not None else ():
            found += await records_of(broker, partition)
        return found


class GroupUnderTest:
    """A group of consumers of a broker under test."""

    def __init__(self, name: str, run: Runner) -> None:
        self.name = name
        self._run = run

    def offsets(self, topic: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        return self._run(lambda broker: self._offsets(broker, topic))

    def lag(self, topic: str) -> int:
        """Offsets from the committed ones, or from the first record, to the ends of a topic."""
        return sum(self._run(lambda broker: self._lags(broker, topic)).values())

    def assert_offsets(
        self, topic: str, expected: Mapping[int, int], *, timeout_s: float = WAIT_SECONDS
    ) -> None:
        """These are the committed offsets in a topic, by partition, and there are no others. Waits
        until they are.
        """
        seen = self._run(
            lambda broker: _until(
                lambda: self._offsets(broker, topic), lambda found: found == expected, timeout_s
            )
        )
        if seen.value != expected:
            raise AssertionError(
                f"group {self.name!r} has other offsets in {topic!r} after {timeout_s:g} s\n"
                f"  expected {dict(expected)}\n  found    {seen.value or {}}{seen.trouble}"
            )

    def assert_caught_up(self, topic: str, *, timeout_s: float = WAIT_SECONDS) -> None:
        """The group has committed all records of a topic. Waits until it has."""
        seen = self._run(
            lambda broker: _until(
                lambda: self._lags(broker, topic), lambda lags: not any(lags.values()), timeout_s
            )
        )
        if seen.value is None or any(seen.value.values()):
            behind = {index: lag for index, lag in (seen.value or {}).items() if lag}
            lags = ", ".join(f"partition {index}: {lag}" for index, lag in behind.items())
            raise AssertionError(
                f"group {self.name!r} is behind in {topic!r} after {timeout_s:g} s\n"
                f"  not committed: {lags or 'unknown'}{seen.trouble}"
            )

    async def _offsets(self, broker: Broker, topic: str) -> dict[int, int]:
        service, limit = GroupService(broker), PageLimit(limits.HTTP_PAGE_ITEMS_MAX)
        found: dict[int, int] = {}
        after: str | None = ""
        while after is not None:
            try:
                page = await service.describe_group(_CALLER, self.name, after, limit)
            except ApiError as error:
                if error.code == "unknown_group":
                    return {}
                raise
            for each in page.offsets:
                if each.topic == topic:
                    found[each.partition] = each.committed_offset
            after = page.next
        return found

    async def _lags(self, broker: Broker, topic: str) -> dict[int, int]:
        found = broker.image.topics.get(topic)
        committed = await self._offsets(broker, topic)
        ends = await settled(broker.readers.all_ends(found.partitions if found else ()))
        return {
            index: max(0, each.high_watermark - committed.get(index, each.log_start_offset))
            for index, each in enumerate(ends)
        }


# ---- waiting


class _Seen(msgspec.Struct, Generic[Result]):
    """What was seen last, and the error of the last look, if it failed."""

    value: Result | None = None
    error: str = ""

    @property
    def trouble(self) -> str:
        return f"\n  the broker answered: {self.error}" if self.error else ""


async def _insist(act: Callable[[], Awaitable[None]]) -> None:
    """Act again for a time while nodes are missing: a busy machine may keep one from its
    heartbeats.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_SECONDS
    while True:
        try:
            return await act()
        except (InvalidReplicationFactor, NotEnoughReplicas):
            if loop.time() > end:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)


async def _until(
    look: Callable[[], Awaitable[Result]], is_enough: Callable[[Result], bool], timeout_s: float
) -> _Seen[Result]:
    """Look until it is enough, or until the time is over. Errors may pass, as during elections."""
    seen: _Seen[Result] = _Seen()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    seen.value, seen.error = await look(), ""
                    if is_enough(seen.value):
                        return seen
                except DragomanError as error:
                    seen.error = str(error)
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError:
        return seen
