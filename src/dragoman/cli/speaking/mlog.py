"""mlog: values without keys, partitions by name, and offsets that are committed under an id.

`orders@2` is the third partition of `orders`; how many there are is found out by asking for them.
Reading is at the end when a request brings nothing; where the end is, the protocol does not say.
There are no members of groups, so a group that others are reading is only found out by a commit:
the first one, of where the group is already, is made before anything is printed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NoReturn
from uuid import uuid4

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
from dragoman.client.mlog import AckMode, ClientSettings, MlogClient, TopicNotFoundError
from dragoman.limits import (
    CLI_MLOG_BATCH_BYTES,
    CLI_MLOG_PARTITIONS_MAX,
    CLI_RECORDS_AT_ONCE,
    CLI_TIMEOUT_SECONDS,
)

_NAME: Final = "mlog"
_HELLO: Final = ClientSettings(
    operation_timeout_s=HELLO_TRIES_S,
    request_timeout_s=HELLO_ANSWER_S,
    # A partition that is not there is the usual answer.
    missing_topic_timeout_s=0.001,
)
_SETTINGS: Final = ClientSettings(operation_timeout_s=float(CLI_TIMEOUT_SECONDS))
_ACKS: Final = {"all": AckMode.ALL, "1": AckMode.LEADER, "0": AckMode.NONE}
#: Between two looks at a partition that is followed.
_POLL_S: Final = 0.2
_PARTITION_NAME: Final = re.compile(r"(.+)@([0-9]{1,9})")


def _name(topic: str, partition: int) -> str:
    return f"{topic}@{partition}" if partition else topic


async def _partition_count(bootstrap: str, topic: str) -> int:
    if found := _PARTITION_NAME.fullmatch(topic):
        refuse("TOPIC", f"{topic!r} is partition {found[2]} of {found[1]!r}; give --partition")
    async with MlogClient(bootstrap, settings=_HELLO) as client:
        for partition in range(CLI_MLOG_PARTITIONS_MAX):
            try:
                await client.topic_leader(_name(topic, partition))
            except TopicNotFoundError:
                if not partition:
                    raise CommandError(f"topic {topic!r}: there is no such topic") from None
                return partition
    raise CommandError(f"topic {topic!r} has more than {CLI_MLOG_PARTITIONS_MAX} partitions")


# ---- writing


class _Publisher:
    def __init__(self, client: MlogClient, target: Target, partition_count: int) -> None:
        self._client = client
        self._partition_count = partition_count
        self._topic = target.topic
        self._acks = _ACKS[target.acks]
        self.written_records = 0

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        """One batch after the other: a batch that is sent again could overtake the next."""
        by_partition: dict[int, list[bytes]] = {}
        for each in records:
            by_partition.setdefault(each.partition or 0, []).append(each.value or b"")
        for partition, values in by_partition.items():
            check_partition(self._topic, partition, self._partition_count)
            name = _name(self._topic, partition)
            for batch in _cut(values):
                written = await self._client.produce_batch(name, batch, acks=self._acks)
                self.written_records += len(written)


def _cut(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    begin = size = 0
    for index, value in enumerate(values):
        is_full = size + len(value) > CLI_MLOG_BATCH_BYTES or index - begin >= CLI_RECORDS_AT_ONCE
        if index > begin and is_full:
            yield values[begin:index]
            begin, size = index, 0
        size += len(value)
    if values:
        yield values[begin:]


@asynccontextmanager
async def _publishing(target: Target) -> AsyncIterator[Publisher]:
    count = await _partition_count(target.bootstrap, target.topic)
    async with MlogClient(target.bootstrap, settings=_SETTINGS) as client:
        yield _Publisher(client, target, count)


# ---- reading


def _check(plan: Plan) -> None:
    if plan.start.kind not in ("beginning", "offset"):
        refuse("--from", "it says neither where a partition ends nor when a record was written")
    if plan.until is not None and plan.until.kind not in ("end", "offset"):
        refuse("--until", "it says neither where a partition ends nor when a record was written")
    if plan.follow and plan.until is not None and plan.last_offset is None:
        refuse("--until", "with --follow, expected an offset")
    if not plan.is_committed_only:
        refuse("--isolation", "it reads committed records only")


def refuse(option: str, reason: str) -> NoReturn:
    refuse_for(option, _NAME, reason)


async def _batches(client: MlogClient, plan: Plan, partition: int) -> Batches:
    name, group, last = _name(plan.topic, partition), plan.group, plan.last_offset
    # For offset 0 the broker takes what was committed under the id, so this is nobody's.
    reader = group or f"dragoman-{uuid4().hex}"
    position = plan.start.number
    if group is not None:
        position = await client.committed(name, id=group) or position
    is_claimed = group is None
    while last is None or position < last:
        found = await client.fetch_batch(name, position, max_count=CLI_RECORDS_AT_ONCE, id=reader)
        kept = [
            PlainRecord(plan.topic, partition, each.offset, None, each.value)
            for each in found
            if last is None or each.offset < last
        ]
        if kept and not is_claimed:
            await client.commit(name, position, id=reader)
            is_claimed = True
        if kept:
            yield kept
        if found:
            position = found[-1].offset + 1
        elif plan.follow:
            await asyncio.sleep(_POLL_S)
        else:
            return


@asynccontextmanager
async def _talking(plan: Plan) -> AsyncIterator[Talk]:
    topic, group = plan.topic, plan.group
    count = await _partition_count(plan.bootstrap, topic)
    for each in plan.partitions:
        check_partition(topic, each, count)
    async with MlogClient(plan.bootstrap, settings=_SETTINGS) as client:

        async def commit(offsets: Mapping[int, int]) -> None:
            for each, offset in offsets.items():
                await client.commit(_name(topic, each), offset, id=group or "")

        wanted = tuple(dict.fromkeys(plan.partitions)) or range(count)
        sources = [_batches(client, plan, each) for each in wanted]
        yield Talk(sources, None if group is None else commit)


SPEAKER = Speaker(
    bootstrap="127.0.0.1:9094",
    cannot_write={
        "key": "its records have no keys",
        "null": "it has no null",
        "headers": "its records have no headers",
        "timestamp": "the broker gives records their time",
        "codec": "it does not compress",
    },
    cannot_show={
        "key": "it does not show keys",
        "headers": "it does not show headers",
        "timestamp": "it does not show the time of a record",
    },
    check=_check,
    write=lambda target: writing(_NAME, _publishing(target)),
    read=lambda plan: reading(_NAME, _talking(plan)),
)
