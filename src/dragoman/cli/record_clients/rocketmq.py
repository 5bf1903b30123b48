"""RocketMQ: a record is a message, its key the property `KEYS`, its headers the other properties,
and a partition is a queue.

The command does not join a group, so several readers do not share its queues, and the group must
have no members. If several brokers have queues of a topic, the queues are numbered consecutively,
broker by broker. Each queue has one batch of messages in flight at a time; the key determines the
queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from zlib import crc32

import msgspec

from dragoman.cli.client_security import Credentials
from dragoman.cli.positions import Bounds
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
)
from dragoman.cli.status import USAGE, CommandError
from dragoman.client.rocketmq import (
    AccessKey,
    ClientSettings,
    GroupOfflineError,
    Message,
    MessageQueue,
    NotFoundError,
    Producer,
    PullStatus,
    ReceivedMessage,
    RocketmqClient,
    TlsSettings,
    TopicNotFoundError,
)
from dragoman.limits import CLI_RECORDS_AT_ONCE, CLI_ROCKETMQ_BATCH_BYTES, CLI_TIMEOUT_SECONDS
from dragoman.plural import plural

_KEYS: Final = "KEYS"
#: Properties that a broker adds to every message it delivers. They describe the broker, so they are
#: not headers of the record, which may be copied elsewhere.
_BROKER_PROPERTIES: Final = frozenset({"MSG_REGION", "TRACE_ON", "CLUSTER"})
_HELLO: Final = ClientSettings(operation_timeout_s=HELLO_TRIES_S, request_timeout_s=HELLO_ANSWER_S)
_SETTINGS: Final = ClientSettings(
    operation_timeout_s=float(CLI_TIMEOUT_SECONDS), request_timeout_s=float(CLI_TIMEOUT_SECONDS)
)
#: How long the broker waits for a message of a queue that is followed.
_WAIT_S: Final = 10.0


# ---- writing


class _Writer:
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
                # A single message may be larger than a batch.
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
            CLIENT.refuse("--header", f"a message has one property {name!r}")
        properties[name] = text
    if record.key is not None:
        properties[_KEYS] = _text("key", record.key)
    return Message(topic=topic, body=record.value or b"", properties=properties)


def _text(what: str, value: bytes | None) -> str:
    """A value as a property of a message."""
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        raise CommandError(f"{what}: rocketmq needs UTF-8 text, got {value!r}", USAGE) from None
    if not text or "\x01" in text or "\x02" in text:
        raise CommandError(f"{what}: rocketmq cannot express {value!r}", USAGE)
    return text


def _access_key(credentials: Credentials) -> AccessKey | None:
    """The user's name is the access key, and the password its secret."""
    return AccessKey(credentials.user, credentials.password()) if credentials.user else None


def _signed(
    settings: ClientSettings, access_key: AccessKey | None, tls: TlsSettings | None
) -> ClientSettings:
    return msgspec.structs.replace(settings, credentials=access_key, tls=tls)


@asynccontextmanager
async def _open_writer(target: Target) -> AsyncIterator[TopicWriter]:
    access_key = _access_key(target.credentials)
    async with RocketmqClient(
        target.bootstrap, settings=_signed(_HELLO, access_key, target.tls)
    ) as client:
        await client.producer("dragoman-hello").queues(target.topic)
    async with (
        RocketmqClient(
            target.bootstrap, settings=_signed(_SETTINGS, access_key, target.tls)
        ) as client,
        client.producer("dragoman-cli") as producer,
    ):
        queues = await producer.queues(target.topic)
        if not queues:
            raise CommandError(f"topic {target.topic!r} cannot be written to")
        yield _Writer(producer, target, queues)


# ---- reading


def _record(topic: str, partition: int, message: ReceivedMessage) -> PlainRecord:
    key = message.properties.get(_KEYS)
    return PlainRecord(
        topic,
        partition,
        message.queue_offset,
        None if key is None else key.encode(),
        message.body,
        message.store_ms,
        tuple(
            (name, value.encode())
            for name, value in message.properties.items()
            if name != _KEYS and name not in _BROKER_PROPERTIES
        ),
    )


class _Reader(TopicReader):
    claims_group = True

    def __init__(self, client: RocketmqClient, plan: Plan, queues: Sequence[MessageQueue]) -> None:
        super().__init__(plan, len(queues))
        self._admin = client.admin
        self._queues = queues

    async def bounds(self) -> Bounds[int]:
        queues = self._queues
        return Bounds(
            {each: await self._admin.min_offset(queues[each]) for each in self.partitions},
            {each: await self._admin.max_offset(queues[each]) for each in self.partitions},
        )

    async def offsets_at(self, time_ms: int) -> dict[int, int]:
        return {
            each: await self._admin.search_offset(self._queues[each], time_ms)
            for each in self.partitions
        }

    async def committed(self) -> dict[int, int]:
        try:
            members = await self._admin.examine_consumer_connection_info(self.group)
        except GroupOfflineError:
            pass
        else:
            count = plural(len(members.connection_set), "member")
            raise CommandError(f"group {self.group!r} has {count}; stop them first")
        found: dict[int, int] = {}
        for each in self.partitions:
            try:
                found[each] = await self._admin.query_consume_offset(self._queues[each], self.group)
            except NotFoundError:
                continue
        return found

    async def commit(self, offsets: Mapping[int, int]) -> None:
        for each, offset in offsets.items():
            await self._admin.update_consume_offset(self._queues[each], self.group, offset)

    async def fetch(self, partition: int, position: int) -> Fetched:
        pulled = await self._admin.pull_message(
            self._queues[partition],
            position,
            max_count=CLI_RECORDS_AT_ONCE,
            wait_s=_WAIT_S if self.plan.follow else 0.0,
        )
        records = [_record(self.plan.topic, partition, each) for each in pulled.messages]
        # An offset beyond the end has no record, for example after a topic was created again.
        is_moved = pulled.status is PullStatus.OFFSET_ILLEGAL
        following = pulled.next_offset if is_moved else max(position, pulled.next_offset)
        return Fetched(records, following)


@asynccontextmanager
async def _open_reader(plan: Plan) -> AsyncIterator[TopicReader]:
    access_key = _access_key(plan.credentials)
    async with RocketmqClient(
        plan.bootstrap, settings=_signed(_HELLO, access_key, plan.tls)
    ) as client:
        try:
            await client.routes.route(plan.topic)
        except TopicNotFoundError:
            raise CommandError(f"topic {plan.topic!r}: there is no such topic") from None
    async with RocketmqClient(
        plan.bootstrap, settings=_signed(_SETTINGS, access_key, plan.tls)
    ) as client:
        queues = (await client.routes.route(plan.topic)).read_queues
        yield _Reader(client, plan, queues)


CLIENT = RecordClient(
    name="rocketmq",
    title="rocketmq",
    bootstrap="127.0.0.1:9876",
    cannot_write={
        "null": "it has no null",
        "timestamp": "the broker sets the time of a record",
        "codec": "it compresses large messages by itself",
    },
    cannot_read=(FOLLOWS_TO_OFFSET, COMMITTED_ONLY),
    open_writer=_open_writer,
    open_reader=_open_reader,
)
