"""minibroker: records with keys, partitions that the broker chooses, groups that are joined.

The protocol has no request for the bounds of a partition, so a reader waits for records up to a
count or an offset. The number of partitions comes from the error text for a partition that cannot
exist.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from msgspec.structs import replace

from dragoman.cli.record_clients.session import (
    COMMITTED_ONLY,
    GROUP_ASSIGNS,
    HELLO_ANSWER_S,
    HELLO_TRIES_S,
    NEXT,
    Batches,
    OutgoingRecord,
    PlainRecord,
    Plan,
    RecordClient,
    Refusal,
    Target,
    TopicReader,
    TopicWriter,
    before,
    not_from,
    not_until,
    portions,
)
from dragoman.cli.status import CommandError
from dragoman.client.minibroker import (
    ClientSettings,
    MinibrokerClient,
    RefusedError,
    Subscription,
    TlsSettings,
)
from dragoman.limits import CLI_RECORDS_AT_ONCE, CLI_TIMEOUT_SECONDS

_HELLO: Final = ClientSettings(retry_for_s=HELLO_TRIES_S, request_timeout_s=HELLO_ANSWER_S)
_SETTINGS: Final = ClientSettings(retry_for_s=float(CLI_TIMEOUT_SECONDS))
_PARTITION_MAX: Final = (1 << 32) - 1
_OUT_OF_RANGE: Final = re.compile(r"out of range \(0\.\.(\d+)\)")


async def _partition_count(bootstrap: str, topic: str, tls: TlsSettings | None) -> int:
    """The number of partitions. Creates the topic if it does not exist, like every request for a
    topic.
    """
    async with MinibrokerClient(bootstrap, replace(_HELLO, tls=tls)) as client:
        try:
            await client.subscribe(topic, _PARTITION_MAX)
        except RefusedError as error:
            found = _OUT_OF_RANGE.search(error.reason)
            if found is None:
                raise
            return int(found[1]) + 1
    raise CommandError(f"{bootstrap} serves a partition {_PARTITION_MAX} of {topic!r}")


# ---- writing


class _Writer:
    def __init__(self, client: MinibrokerClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self.written_records = 0

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        publish, topic = self._client.publish, self._topic
        for portion in portions(records, CLI_RECORDS_AT_ONCE):
            outcomes = await asyncio.gather(
                *(publish(topic, each.value or b"", each.key or b"") for each in portion),
                return_exceptions=True,
            )
            failures = [each for each in outcomes if isinstance(each, BaseException)]
            self.written_records += len(outcomes) - len(failures)
            if failures:
                raise failures[0]


@asynccontextmanager
async def _open_writer(target: Target) -> AsyncIterator[TopicWriter]:
    await _partition_count(target.bootstrap, target.topic, target.tls)
    async with MinibrokerClient(target.bootstrap, replace(_SETTINGS, tls=target.tls)) as client:
        yield _Writer(client, target.topic)


# ---- reading


async def _stream(subscription: Subscription, end: int | None = None) -> Batches:
    async for first in subscription:
        records = [first]
        while subscription.waiting_records and len(records) < CLI_RECORDS_AT_ONCE:
            records.append(await anext(subscription))
        batch = before(
            [
                # The protocol has no null, so an empty key means no key.
                PlainRecord(each.topic, each.partition, each.offset, each.key or None, each.payload)
                for each in records
            ],
            end,
        )
        if batch.records:
            yield batch
        if end is not None and records[-1].offset + 1 >= end:
            return


class _Reader(TopicReader):
    """Uses a connection per partition, because a connection has one subscription to a topic."""

    def __init__(self, stack: AsyncExitStack, plan: Plan, partition_count: int) -> None:
        super().__init__(plan, partition_count)
        self._stack = stack

    async def sources(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Batches]:
        plan = self.plan
        found = []
        for each in self.partitions:
            start, end = starts[each], ends.get(each)
            if end is not None and start >= end:
                continue
            client = MinibrokerClient(plan.bootstrap, replace(_SETTINGS, tls=plan.tls))
            await self._stack.enter_async_context(client)
            offset = None if start == NEXT else start
            found.append(_stream(await client.subscribe(plan.topic, each, offset), end))
        return found


class _Member(TopicReader):
    def __init__(
        self, client: MinibrokerClient, member: Subscription, plan: Plan, partition_count: int
    ) -> None:
        super().__init__(plan, partition_count)
        self._client = client
        self._member = member

    async def sources(self, _starts: Mapping[int, int], _ends: Mapping[int, int]) -> list[Batches]:
        return [_stream(self._member)]

    async def commit(self, offsets: Mapping[int, int]) -> None:
        commit, topic, group = self._client.commit, self.plan.topic, self.group
        await asyncio.gather(
            *(commit(topic, group, each, offset) for each, offset in offsets.items())
        )


@asynccontextmanager
async def _open_reader(plan: Plan) -> AsyncIterator[TopicReader]:
    count = await _partition_count(plan.bootstrap, plan.topic, plan.tls)
    async with AsyncExitStack() as stack:
        if plan.group is None:
            yield _Reader(stack, plan, count)
            return
        client = MinibrokerClient(plan.bootstrap, replace(_SETTINGS, tls=plan.tls))
        await stack.enter_async_context(client)
        member = await stack.enter_async_context(await client.join(plan.topic, plan.group))
        yield _Member(client, member, plan, count)


_NO_TIMES: Final = "it cannot look up times"
_NO_END: Final = "it does not report where a partition ends"
CLIENT = RecordClient(
    name="minibroker",
    title="minibroker",
    bootstrap="127.0.0.1:4222",
    cannot_log_in="the protocol has no login",
    cannot_write={
        "null": "it has no null",
        "headers": "its records have no headers",
        "partition": "the broker chooses the partition by the key",
        "timestamp": "the broker sets the time of a record",
        "codec": "it does not compress",
        "acks": "every record is acknowledged when it is durable",
    },
    cannot_show={
        "headers": "it does not return headers",
        "timestamp": "it does not return the time of a record",
    },
    cannot_read=(
        not_from(_NO_TIMES, "time"),
        not_from(_NO_END, "first", "last"),
        not_until(_NO_TIMES, "time"),
        not_until(_NO_END, "first", "last"),
        not_until(
            "it does not report where a partition begins and ends; give an offset",
            "beginning",
            "end",
        ),
        COMMITTED_ONLY,
        GROUP_ASSIGNS,
        Refusal(
            "--from",
            "with --group, the broker begins at the committed offset, or at the beginning",
            lambda plan: plan.group is not None and plan.start.kind != "beginning",
        ),
        Refusal(
            "--until",
            "with --group, it does not report the committed offset; give --max",
            lambda plan: plan.group is not None and plan.until is not None,
        ),
        Refusal(
            "--protocol minibroker does not report where a partition ends",
            "give --follow, --idle, --max or --until OFFSET",
            lambda plan: not plan.follow and plan.max_records is None and plan.until is None,
            is_by_protocol=False,
        ),
    ),
    open_writer=_open_writer,
    open_reader=_open_reader,
)
