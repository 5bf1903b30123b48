"""RocketMQ: records are messages, keys their `KEYS`, headers their properties, partitions queues.

A group is not joined: nothing is divided among several readers, and it must have no members. Where
several brokers have queues of a topic, these are numbered through in their order. Messages are sent
in batches, one after the other for each queue, and queues by keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NoReturn
from zlib import crc32

import msgspec

from dragoman.cli.positions import Bounds, Place, resolve
from dragoman.cli.speaking.interface import (
    Headers,
    OutgoingRecord,
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
from dragoman.client.rocketmq import (
    ClientSettings,
    GroupOfflineError,
    Message,
    MessageQueue,
    NotFoundError,
    Producer,
    Pulled,
    PullStatus,
    ReceivedMessage,
    RocketmqClient,
    TopicNotFoundError,
)
from dragoman.limits import (
    CLI_RECORDS_AT_ONCE,
    CLI_ROCKETMQ_BATCH_BYTES,
    CLI_TIMEOUT_SECONDS,
)

_NAME: Final = "rocketmq"
_KEYS: Final = "KEYS"
#: A broker adds these to every message that it delivers: they describe the broker, not the record,
#: and a record that is copied must not carry them along.
_BROKERS_OWN: Final = frozenset({"MSG_REGION", "TRACE_ON", "CLUSTER"})
_HELLO: Final = ClientSettings(operation_timeout_s=HELLO_TRIES_S, request_timeout_s=HELLO_ANSWER_S)
_SETTINGS: Final = ClientSettings(
    operation_timeout_s=float(CLI_TIMEOUT_SECONDS), request_timeout_s=float(CLI_TIMEOUT_SECONDS)
)
#: How long the broker waits for a message when it is followed.
_WAIT_S: Final = 10.0


class ReadRecord(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: Headers


def refuse(option: str, reason: str) -> NoReturn:
    refuse_for(option, _NAME, reason)


# ---- writing


class _Publisher:
    def __init__(self, producer: Producer, target: Target, queues: Sequence[MessageQueue]) -> None:
        self._producer = producer
        self._target = target
        self._queues = queues
        self._turn = 0
        self.written_records = 0

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        lanes: dict[MessageQueue, list[Message]] = {}
        for record in records:
            message = _message(self._target.topic, record)
            lanes.setdefault(self._queue(record), []).append(message)
        sending = [self._send_all(queue, messages) for queue, messages in lanes.items()]
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        for each in outcomes:
            if isinstance(each, BaseException):
                raise each

    def _queue(self, record: OutgoingRecord) -> MessageQueue:
        count = len(self._queues)
        if record.partition is not None:
            check_partition(self._target.topic, record.partition, count)
            return self._queues[record.partition]
        if record.key is not None:
            return self._queues[crc32(record.key) % count]
        self._turn += 1
        return self._queues[self._turn % count]

    async def _send_all(self, queue: MessageQueue, messages: list[Message]) -> None:
        for batch in _batched(messages):
            if self._target.acks == "0":
                for message in batch:
                    await self._producer.send_one_way(message, queue=queue)
            elif len(batch) == 1:
                # Alone, it may be larger than what fits into a batch.
                await self._producer.send(batch[0], queue=queue)
            else:
                await self._producer.send_batch(batch, queue=queue)
            self.written_records += len(batch)


def _batched(messages: Iterable[Message]) -> Iterable[list[Message]]:
    batch: list[Message] = []
    size = 0
    for message in messages:
        size += len(message.body)
        if batch and (size > CLI_ROCKETMQ_BATCH_BYTES or len(batch) >= CLI_RECORDS_AT_ONCE):
            yield batch
            batch, size = [], len(message.body)
        batch.append(message)
    if batch:
        yield batch


def _message(topic: str, record: OutgoingRecord) -> Message:
    properties = {}
    for name, value in record.headers:
        text = _text(f"header {name!r}", value)
        if name in properties or name == _KEYS:
            refuse("--header", f"a message has one property {name!r}")
        properties[name] = text
    if record.key is not None:
        properties[_KEYS] = _text("key", record.key)
    return Message(topic=topic, body=record.value or b"", properties=properties)


def _text(what: str, value: bytes | None) -> str:
    """As a property of a message."""
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        raise CommandError(f"{what}: rocketmq has text only, got {value!r}", USAGE) from None
    if not text or "\x01" in text or "\x02" in text:
        raise CommandError(f"{what}: rocketmq cannot express {value!r}", USAGE)
    return text


@asynccontextmanager
async def _publishing(target: Target) -> AsyncIterator[Publisher]:
    async with RocketmqClient(target.bootstrap, settings=_HELLO) as client:
        await client.producer("dragoman-hello").queues(target.topic)
    async with (
        RocketmqClient(target.bootstrap, settings=_SETTINGS) as client,
        client.producer("dragoman-cli") as producer,
    ):
        queues = await producer.queues(target.topic)
        if not queues:
            raise CommandError(f"topic {target.topic!r} cannot be written to")
        yield _Publisher(producer, target, queues)


# ---- reading


def _check(plan: Plan) -> None:
    if plan.follow and plan.until is not None and plan.last_offset is None:
        refuse("--until", "with --follow, expected an offset")
    if not plan.is_committed_only:
        refuse("--isolation", "it reads committed records only")


def _record(topic: str, partition: int, message: ReceivedMessage) -> ReadRecord:
    key = message.properties.get(_KEYS)
    return ReadRecord(
        topic,
        partition,
        message.queue_offset,
        message.store_ms,
        None if key is None else key.encode(),
        message.body,
        tuple(
            (name, value.encode())
            for name, value in message.properties.items()
            if name != _KEYS and name not in _BROKERS_OWN
        ),
    )


class _Reading:
    """One run of `consume`: the queues, where each begins and ends."""

    def __init__(self, client: RocketmqClient, plan: Plan, queues: Sequence[MessageQueue]) -> None:
        self._client = client
        self._plan = plan
        self._queues = queues
        self._wanted = tuple(dict.fromkeys(plan.partitions)) or tuple(range(len(queues)))
        for each in self._wanted:
            check_partition(plan.topic, each, len(queues))

    async def talk(self) -> Talk:
        plan = self._plan
        bounds = Bounds(
            {
                each: await self._client.admin.min_offset(self._queues[each])
                for each in self._wanted
            },
            {
                each: await self._client.admin.max_offset(self._queues[each])
                for each in self._wanted
            },
        )
        starts = await self._resolved(plan.start, bounds)
        if plan.group is not None:
            starts |= bounds.clamp(await self._committed(plan.group))
        if plan.follow:
            ends = {} if plan.last_offset is None else dict.fromkeys(starts, plan.last_offset)
        else:
            ends = await self._resolved(plan.until or Place("end"), bounds)
        sources = [self._batches(each, starts[each], ends.get(each)) for each in self._wanted]
        return Talk(sources, None if plan.group is None else self.commit)

    async def _resolved(self, place: Place, bounds: Bounds[int]) -> dict[int, int]:
        at_time: dict[int, int] = {}
        if place.kind == "time":
            for each in self._wanted:
                queue = self._queues[each]
                at_time[each] = await self._client.admin.search_offset(queue, place.number)
        return resolve(place, bounds, at_time=lambda _: at_time)

    async def _committed(self, group: str) -> dict[int, int]:
        try:
            members = await self._client.admin.examine_consumer_connection_info(group)
        except GroupOfflineError:
            pass
        else:
            count = len(members.connection_set)
            raise CommandError(f"group {group!r} has {count} members; stop them first")
        found: dict[int, int] = {}
        for each in self._wanted:
            try:
                queue = self._queues[each]
                found[each] = await self._client.admin.query_consume_offset(queue, group)
            except NotFoundError:
                continue
        return found

    async def commit(self, offsets: Mapping[int, int]) -> None:
        assert self._plan.group is not None
        for each, offset in offsets.items():
            queue = self._queues[each]
            await self._client.admin.update_consume_offset(queue, self._plan.group, offset)

    async def _batches(self, partition: int, position: int, end: int | None) -> Batches:
        is_claimed = self._plan.group is None
        while end is None or position < end:
            pulled = await self._pulled(partition, position)
            found = [
                _record(self._plan.topic, partition, each)
                for each in pulled.messages
                if end is None or each.queue_offset < end
            ]
            if found and not is_claimed:
                # Somebody else's group is found out before anything is printed.
                await self.commit({partition: position})
                is_claimed = True
            if found:
                yield found
            if pulled.next_offset <= position and not self._plan.follow:
                return
            # There is nothing at an offset behind the end, as of a topic that was made anew.
            is_moved = pulled.status is PullStatus.OFFSET_ILLEGAL
            position = pulled.next_offset if is_moved else max(position, pulled.next_offset)

    async def _pulled(self, partition: int, position: int) -> Pulled:
        return await self._client.admin.pull_message(
            self._queues[partition],
            position,
            max_count=CLI_RECORDS_AT_ONCE,
            wait_s=_WAIT_S if self._plan.follow else 0.0,
        )


@asynccontextmanager
async def _talking(plan: Plan) -> AsyncIterator[Talk]:
    async with RocketmqClient(plan.bootstrap, settings=_HELLO) as client:
        try:
            await client.routes.route(plan.topic)
        except TopicNotFoundError:
            raise CommandError(f"topic {plan.topic!r}: there is no such topic") from None
    async with RocketmqClient(plan.bootstrap, settings=_SETTINGS) as client:
        queues = (await client.routes.route(plan.topic)).read_queues
        yield await _Reading(client, plan, queues).talk()


SPEAKER = Speaker(
    bootstrap="127.0.0.1:9876",
    cannot_write={
        "null": "it has no null",
        "timestamp": "the broker gives records their time",
        "codec": "it compresses large messages by itself",
    },
    check=_check,
    write=lambda target: writing(_NAME, _publishing(target)),
    read=lambda plan: reading(_NAME, _talking(plan)),
)
