"""minibroker: records with keys, partitions that the broker chooses, groups that are joined.

The protocol has no request that tells where a partition begins or ends, so reading ends at a count
or at an offset, and waits for them. How many partitions there are is told by the refusal of one
that cannot be.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

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
from dragoman.cli.status import USAGE, CommandError
from dragoman.client.minibroker import (
    ClientSettings,
    MinibrokerClient,
    RefusedError,
    Subscription,
)
from dragoman.limits import CLI_RECORDS_AT_ONCE, CLI_TIMEOUT_SECONDS

_NAME: Final = "minibroker"
_HELLO: Final = ClientSettings(retry_for_s=HELLO_TRIES_S, request_timeout_s=HELLO_ANSWER_S)
_SETTINGS: Final = ClientSettings(retry_for_s=float(CLI_TIMEOUT_SECONDS))
_PARTITION_MAX: Final = (1 << 32) - 1
_OUT_OF_RANGE: Final = re.compile(r"out of range \(0\.\.(\d+)\)")


async def _partition_count(bootstrap: str, topic: str) -> int:
    """Makes the topic if it is not there, as every use of it does."""
    async with MinibrokerClient(bootstrap, _HELLO) as client:
        try:
            await client.subscribe(topic, _PARTITION_MAX)
        except RefusedError as error:
            found = _OUT_OF_RANGE.search(error.reason)
            if found is None:
                raise
            return int(found[1]) + 1
    raise CommandError(f"{bootstrap} serves a partition {_PARTITION_MAX} of {topic!r}")


# ---- writing


class _Publisher:
    def __init__(self, client: MinibrokerClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self.written_records = 0

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        for begin in range(0, len(records), CLI_RECORDS_AT_ONCE):
            await self._write_some(records[begin : begin + CLI_RECORDS_AT_ONCE])

    async def _write_some(self, records: Sequence[OutgoingRecord]) -> None:
        publish, topic = self._client.publish, self._topic
        outcomes = await asyncio.gather(
            *(publish(topic, each.value or b"", each.key or b"") for each in records),
            return_exceptions=True,
        )
        failures = [each for each in outcomes if isinstance(each, BaseException)]
        self.written_records += len(outcomes) - len(failures)
        if failures:
            raise failures[0]


@asynccontextmanager
async def _publishing(target: Target) -> AsyncIterator[Publisher]:
    await _partition_count(target.bootstrap, target.topic)
    async with MinibrokerClient(target.bootstrap, _SETTINGS) as client:
        yield _Publisher(client, target.topic)


# ---- reading


def _check(plan: Plan) -> None:
    for option, place in (("--from", plan.start), ("--until", plan.until)):
        if place is not None and place.kind == "time":
            refuse(option, "it cannot look up times")
        if place is not None and place.kind == "last":
            refuse(option, "it does not say where a partition ends")
    if plan.until is not None and plan.last_offset is None:
        refuse("--until", "it does not say where a partition begins and ends; give an offset")
    if not plan.is_committed_only:
        refuse("--isolation", "it reads committed records only")
    if plan.group is not None:
        _check_group(plan)
    if not plan.follow and plan.max_records is None and plan.until is None:
        raise CommandError(
            "--protocol minibroker does not say where a partition ends: "
            "give --follow, --max or --until OFFSET",
            USAGE,
        )


def _check_group(plan: Plan) -> None:
    if plan.partitions:
        refuse("--partition", "with --group, the broker gives the partitions")
    if plan.start.kind != "beginning":
        refuse("--from", "with --group, the broker begins where the group is, or at the beginning")
    if plan.until is not None:
        refuse("--until", "with --group, it does not say where the group is; give --max")


def refuse(option: str, reason: str) -> None:
    refuse_for(option, _NAME, reason)


async def _batches(subscription: Subscription) -> Batches:
    async for first in subscription:
        batch = [first]
        while subscription.waiting_records and len(batch) < CLI_RECORDS_AT_ONCE:
            batch.append(await anext(subscription))
        yield [
            # An empty key is none.
            PlainRecord(each.topic, each.partition, each.offset, each.key or None, each.payload)
            for each in batch
        ]


async def _until(batches: Batches, last: int | None) -> Batches:
    async for batch in batches:
        kept = batch if last is None else [each for each in batch if each.offset < last]
        if kept:
            yield kept
        if last is not None and batch[-1].offset + 1 >= last:
            return


@asynccontextmanager
async def _talking(plan: Plan) -> AsyncIterator[Talk]:
    """A connection has one subscription to a topic: there is one for each partition."""
    count = await _partition_count(plan.bootstrap, plan.topic)
    partitions = tuple(dict.fromkeys(plan.partitions)) or range(count)
    for each in partitions:
        check_partition(plan.topic, each, count)
    offset = None if plan.start.kind == "end" else plan.start.number
    last = plan.last_offset
    if offset is not None and last is not None and offset >= last:
        partitions = ()
    async with AsyncExitStack() as stack:
        sources = []
        for each in partitions:
            client = await stack.enter_async_context(MinibrokerClient(plan.bootstrap, _SETTINGS))
            subscription = await client.subscribe(plan.topic, each, offset)
            sources.append(_until(_batches(subscription), last))
        yield Talk(sources)


@asynccontextmanager
async def _talking_as_member(plan: Plan) -> AsyncIterator[Talk]:
    topic, group = plan.topic, plan.group
    assert group is not None
    await _partition_count(plan.bootstrap, topic)
    async with (
        MinibrokerClient(plan.bootstrap, _SETTINGS) as client,
        await client.join(topic, group) as member,
    ):

        async def commit(offsets: Mapping[int, int]) -> None:
            await asyncio.gather(
                *(client.commit(topic, group, each, offset) for each, offset in offsets.items())
            )

        yield Talk([_batches(member)], commit)


SPEAKER = Speaker(
    bootstrap="127.0.0.1:4222",
    cannot_write={
        "null": "it has no null",
        "headers": "its records have no headers",
        "partition": "the broker chooses the partition, by the key",
        "timestamp": "the broker gives records their time",
        "codec": "it does not compress",
        "acks": "every record is acknowledged when it is durable",
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
