"""mlog: values without keys, partitions by name, and offsets that are committed under an id.

`orders@2` is the third partition of `orders`. Counting partitions takes a request for each. The
protocol does not report where a partition ends, so reading ends when a request returns no records.
Groups have no members, so only a refused commit reveals that another client reads for the group. So
the group's offset is committed again before anything is printed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from dragoman.cli.record_clients.session import (
    COMMITTED_ONLY,
    FOLLOWS_TO_OFFSET,
    HELLO_ANSWER_S,
    HELLO_TRIES_S,
    Fetched,
    OutgoingRecord,
    PlainRecord,
    Plan,
    RecordClient,
    Target,
    TopicReader,
    TopicWriter,
    check_partition,
    not_from,
    not_until,
)
from dragoman.cli.status import CommandError
from dragoman.client.mlog import (
    AckMode,
    ClientSettings,
    MlogClient,
    TlsSettings,
    TopicNotFoundError,
)
from dragoman.limits import (
    CLI_MLOG_BATCH_BYTES,
    CLI_MLOG_PARTITIONS_MAX,
    CLI_RECORDS_AT_ONCE,
    CLI_TIMEOUT_SECONDS,
)

_HELLO: Final = ClientSettings(
    operation_timeout_s=HELLO_TRIES_S,
    request_timeout_s=HELLO_ANSWER_S,
    # Counting partitions always ends with a request for a missing one.
    missing_topic_timeout_s=0.001,
)
_SETTINGS: Final = ClientSettings(operation_timeout_s=float(CLI_TIMEOUT_SECONDS))
_ACKS: Final = {"all": AckMode.ALL, "1": AckMode.LEADER, "0": AckMode.NONE}
#: Seconds between two requests to a partition that is followed.
_POLL_S: Final = 0.2
_PARTITION_NAME: Final = re.compile(r"(.+)@([0-9]{1,9})")


def _name(topic: str, partition: int) -> str:
    return f"{topic}@{partition}" if partition else topic


async def _partition_count(bootstrap: str, topic: str, tls: TlsSettings | None) -> int:
    if found := _PARTITION_NAME.fullmatch(topic):
        CLIENT.refuse(
            "TOPIC", f"{topic!r} is partition {found[2]} of {found[1]!r}; give --partition"
        )
    async with MlogClient(bootstrap, settings=replace(_HELLO, tls=tls)) as client:
        for partition in range(CLI_MLOG_PARTITIONS_MAX):
            try:
                await client.topic_leader(_name(topic, partition))
            except TopicNotFoundError:
                if not partition:
                    raise CommandError(f"topic {topic!r}: there is no such topic") from None
                return partition
    raise CommandError(f"topic {topic!r} has more than {CLI_MLOG_PARTITIONS_MAX} partitions")


# ---- writing


class _Writer:
    def __init__(self, client: MlogClient, target: Target, partition_count: int) -> None:
        self._client = client
        self._partition_count = partition_count
        self._topic = target.topic
        self._acks = _ACKS[target.acks]
        self.written_records = 0

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        """Batches are sent one at a time, because a retry could reorder them."""
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
async def _open_writer(target: Target) -> AsyncIterator[TopicWriter]:
    count = await _partition_count(target.bootstrap, target.topic, target.tls)
    async with MlogClient(target.bootstrap, settings=replace(_SETTINGS, tls=target.tls)) as client:
        yield _Writer(client, target, count)


# ---- reading


class _Reader(TopicReader):
    claims_group = True

    def __init__(self, client: MlogClient, plan: Plan, partition_count: int) -> None:
        super().__init__(plan, partition_count)
        self._client = client
        # The broker replaces offset 0 by the offset committed under the id, so a reader without a
        # group uses a new id.
        self._id = plan.group or f"dragoman-{uuid4().hex}"

    async def committed(self) -> dict[int, int]:
        found = {
            each: await self._client.committed(_name(self.plan.topic, each), id=self.group)
            for each in self.partitions
        }
        return {each: offset for each, offset in found.items() if offset}

    async def commit(self, offsets: Mapping[int, int]) -> None:
        for each, offset in offsets.items():
            await self._client.commit(_name(self.plan.topic, each), offset, id=self.group)

    async def fetch(self, partition: int, position: int) -> Fetched:
        topic = self.plan.topic
        found = await self._client.fetch_batch(
            _name(topic, partition), position, max_count=CLI_RECORDS_AT_ONCE, id=self._id
        )
        if not found:
            if self.plan.follow:
                await asyncio.sleep(_POLL_S)
            return Fetched((), position)
        records = [PlainRecord(topic, partition, each.offset, None, each.value) for each in found]
        return Fetched(records, records[-1].offset + 1)


@asynccontextmanager
async def _open_reader(plan: Plan) -> AsyncIterator[TopicReader]:
    count = await _partition_count(plan.bootstrap, plan.topic, plan.tls)
    async with MlogClient(plan.bootstrap, settings=replace(_SETTINGS, tls=plan.tls)) as client:
        yield _Reader(client, plan, count)


_NO_END: Final = "it reports neither where a partition ends nor when a record was written"
CLIENT = RecordClient(
    name="mlog",
    title="mlog",
    bootstrap="127.0.0.1:9094",
    cannot_log_in="the protocol has no login",
    cannot_write={
        "key": "its records have no keys",
        "null": "it has no null",
        "headers": "its records have no headers",
        "timestamp": "the broker sets the time of a record",
        "codec": "it does not compress",
    },
    cannot_show={
        "key": "it does not return keys",
        "headers": "it does not return headers",
        "timestamp": "it does not return the time of a record",
    },
    cannot_read=(
        not_from(_NO_END, "end", "first", "last", "time"),
        not_until(_NO_END, "beginning", "first", "last", "time"),
        FOLLOWS_TO_OFFSET,
        COMMITTED_ONLY,
    ),
    open_writer=_open_writer,
    open_reader=_open_reader,
)
