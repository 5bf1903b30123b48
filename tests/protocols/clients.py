"""One client of each protocol behind the same few calls, and what each protocol makes of a record.

A record goes through two translations (`docs/reference`). `write` says what the writer's protocol
puts into the log; `shown` is what the reader's protocol shows of what is there. What B reads of a
record that A wrote is therefore `B.shown(A.write(...).stored)`, for every pair of protocols.
"""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from dragoman.client.cursus import BlockingConsumer as CursusConsumer
from dragoman.client.cursus import BlockingCursusClient, CursusError
from dragoman.client.minibroker import (
    BlockingGroupSubscription,
    BlockingMinibrokerClient,
    Delivered,
    RefusedError,
)
from dragoman.client.mlog import BlockingMlogClient, CommitRefusedError
from dragoman.client.rocketmq import (
    BlockingPullConsumer,
    BlockingRocketmqAdmin,
    BlockingRocketmqClient,
    MessageQueue,
    NotFoundError,
    ReceivedMessage,
    RocketmqError,
)
from dragoman.client.rocketmq import Message as RocketmqMessage

#: Of every topic that these speakers use.
PARTITIONS = 3
WAIT_S = 60.0
AGES_AGO_MS = 1_700_000_000_000


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Place(NamedTuple):
    partition: int
    offset: int


class Written(NamedTuple):
    place: Place
    #: What the log holds, which is what the protocol could express.
    stored: Record


class Member(ABC):
    """A reader of a group; where the protocol has members, a live one until it leaves."""

    def take(self) -> Place:
        """The place of the next record."""
        place = self.poll(WAIT_S)
        assert place is not None, "no record came"
        return place

    @abstractmethod
    def poll(self, timeout_s: float) -> Place | None:
        """The same; None when there was none in time."""

    @abstractmethod
    def commit(self) -> None:
        """Everything taken so far is done."""

    @abstractmethod
    def leave(self) -> None: ...


class Speaker(ABC):
    #: The protocol, as refusals name it.
    name: str
    has_members = True
    #: What its client raises when the server refuses.
    refusal: type[Exception]

    @abstractmethod
    def __init__(self, address: str) -> None: ...

    def __enter__(self) -> Speaker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def write(self, topic: str, record: Record, partition: int) -> Written:
        """Durable when this returns. The partition is a wish: some protocols choose it."""

    @abstractmethod
    def shown(self, stored: Record) -> Record:
        """What this protocol shows of a record in the log."""

    @abstractmethod
    def read(self, topic: str, start: Place, count: int) -> list[tuple[Place, Record]]:
        """The next `count` records of a partition."""

    @abstractmethod
    def committed(self, topic: str, group: str, partition: int) -> int:
        """The next offset that the group is to read; 0 when nothing was committed."""

    @abstractmethod
    def commit(self, topic: str, group: str, place: Place) -> None:
        """Without a member."""

    @abstractmethod
    def join(self, topic: str, group: str) -> Member: ...

    @abstractmethod
    def is_foreign(self, refusal: Exception, group: str, owner: str) -> bool:
        """Whether this says, in the protocol's own form, that the group is `owner`'s for now."""


def live_members(group: str, owner: str) -> str:
    return f"group '{group}' has live members of protocol {owner}"


# ---- Kafka


class KafkaSpeaker(Speaker):
    """Everything is stored, and everything shown."""

    name = "kafka"
    refusal = KafkaException
    group_protocol = "classic"

    def __init__(self, address: str) -> None:
        self._address = address
        self._producer = Producer({"bootstrap.servers": address, "log_level": 0})

    def close(self) -> None:
        assert self._producer.flush(WAIT_S) == 0

    def write(self, topic: str, record: Record, partition: int) -> Written:
        offsets: list[int | None] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offsets.append(message.offset())

        self._producer.produce(
            topic,
            record.value,
            key=record.key,
            headers=list(record.headers),
            partition=partition,
            on_delivery=delivered,
        )
        assert self._producer.flush(WAIT_S) == 0
        assert offsets[0] is not None
        return Written(Place(partition, offsets[0]), record)

    def shown(self, stored: Record) -> Record:
        return stored

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = self._opened(group)
        try:
            yield consumer
        finally:
            consumer.close()

    def _opened(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._address,
                "log_level": 0,
                "group.id": group,
                "group.protocol": self.group_protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )

    def read(self, topic: str, start: Place, count: int) -> list[tuple[Place, Record]]:
        with self._consumer("nobody") as consumer:
            consumer.assign([TopicPartition(topic, start.partition, start.offset)])
            found = [polled(consumer) for _ in range(count)]
        # Every protocol's records have the time of their writing.
        assert all(time_of(each) > AGES_AGO_MS for each in found)
        return [
            (place_of(each), Record(each.value(), each.key(), headers_of(each))) for each in found
        ]

    def committed(self, topic: str, group: str, partition: int) -> int:
        with self._consumer(group) as consumer:
            (found,) = consumer.committed([TopicPartition(topic, partition)], WAIT_S)
        return max(0, found.offset)

    def commit(self, topic: str, group: str, place: Place) -> None:
        with self._consumer(group) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, *place)], asynchronous=False)

    def join(self, topic: str, group: str) -> Member:
        consumer = self._opened(group)
        try:
            return KafkaMember(consumer, topic)
        except BaseException:
            consumer.close()
            raise

    def is_foreign(self, refusal: Exception, group: str, owner: str) -> bool:
        told = refusal.args[0]
        assert isinstance(told, KafkaError)
        if told.code() == KafkaError._FATAL:
            # What the broker said is in the text alone; the code says that the client is done for.
            return "Broker: Inconsistent group protocol" in told.str()
        return told.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL


class KafkaConsumerGroupSpeaker(KafkaSpeaker):
    """With the group protocol of KIP-848."""

    group_protocol = "consumer"


class KafkaMember(Member):
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._waiting: deque[Message] = deque()
        self._taken: dict[int, int] = {}
        self._topic = topic
        consumer.subscribe([topic])
        # A join shows with the first record.
        self._waiting.append(polled(consumer))

    def poll(self, timeout_s: float) -> Place | None:
        message = self._waiting.popleft() if self._waiting else self._consumer.poll(timeout_s)
        if message is None:
            return None
        place = place_of(checked(message))
        self._taken[place.partition] = place.offset + 1
        return place

    def commit(self) -> None:
        offsets = [TopicPartition(self._topic, *each) for each in self._taken.items()]
        self._consumer.commit(offsets=offsets, asynchronous=False)

    def leave(self) -> None:
        self._consumer.close()


def polled(consumer: Consumer) -> Message:
    message = consumer.poll(WAIT_S)
    assert message is not None, "no record came"
    return checked(message)


def checked(message: Message) -> Message:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    return message


def time_of(message: Message) -> int:
    kind, time_ms = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    return time_ms


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    headers = message.headers() or []
    assert isinstance(headers, list)
    return tuple((name, value) for name, value in headers if not isinstance(value, str))


def place_of(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Place(partition, offset)


# ---- minibroker


class MinibrokerSpeaker(Speaker):
    """Null and empty are the same to it: empty keys are stored as none, and nulls shown as empty.
    There are no headers, and partitions are chosen by key or in turn."""

    name = "minibroker"
    refusal = RefusedError

    def __init__(self, address: str) -> None:
        self._client = BlockingMinibrokerClient(address).open()

    def close(self) -> None:
        self._client.close()

    def write(self, topic: str, record: Record, partition: int) -> Written:
        value, key = record.value or b"", record.key or b""
        placed = self._client.publish(topic, value, key)
        return Written(Place(placed.partition, placed.offset), Record(value, key or None))

    def shown(self, stored: Record) -> Record:
        return Record(stored.value or b"", stored.key or b"")

    def read(self, topic: str, start: Place, count: int) -> list[tuple[Place, Record]]:
        with self._client.subscribe(topic, *start) as subscription:
            found = [subscription.next(WAIT_S) for _ in range(count)]
        return [
            (Place(each.partition, each.offset), Record(each.payload, each.key))
            for each in found
            if each is not None
        ]

    def committed(self, topic: str, group: str, partition: int) -> int:
        """There is no such question: where a member is made to begin tells."""
        member = self.join(topic, group)
        try:
            while (place := member.take()).partition != partition:
                pass
            return place.offset
        finally:
            member.leave()

    def commit(self, topic: str, group: str, place: Place) -> None:
        self._client.commit(topic, group, *place)

    def join(self, topic: str, group: str) -> Member:
        return MinibrokerMember(self._client.join(topic, group))

    def is_foreign(self, refusal: Exception, group: str, owner: str) -> bool:
        return str(refusal) == live_members(group, owner)


class MinibrokerMember(Member):
    def __init__(self, subscription: BlockingGroupSubscription) -> None:
        self._subscription = subscription
        self._taken: dict[int, Delivered] = {}

    def poll(self, timeout_s: float) -> Place | None:
        record = self._subscription.next(timeout_s)
        if record is None:
            return None
        self._taken[record.partition] = record
        return Place(record.partition, record.offset)

    def commit(self) -> None:
        for record in self._taken.values():
            self._subscription.commit(record)

    def leave(self) -> None:
        self._subscription.close()


# ---- Cursus


class CursusSpeaker(Speaker):
    """Null and empty are the same to it, as for minibroker. A producer's identity and its sequence
    number are stored as a header; other headers are neither stored nor shown."""

    name = "cursus"
    refusal = CursusError

    def __init__(self, address: str) -> None:
        self._client = BlockingCursusClient(address)
        self._producer = self._client.producer()
        self._sent: dict[tuple[str, int], int] = {}

    def close(self) -> None:
        self._producer.close()
        self._client.close()

    def write(self, topic: str, record: Record, partition: int) -> Written:
        value, key = record.value or b"", record.key or b""
        offset = self._producer.send(topic, value, key=key, partition=partition)
        sequence = self._sent[topic, partition] = self._sent.get((topic, partition), 0) + 1
        producer = f"{self._producer._part.producer_id}:0:{sequence}"
        stored = Record(value, key or None, (("cursus.producer", producer.encode()),))
        return Written(Place(partition, offset), stored)

    def shown(self, stored: Record) -> Record:
        headers = tuple(each for each in stored.headers if each[0].startswith("cursus."))
        return Record(stored.value or b"", stored.key or b"", headers)

    def read(self, topic: str, start: Place, count: int) -> list[tuple[Place, Record]]:
        found: list[tuple[Place, Record]] = []
        while len(found) < count:
            offset = found[-1][0].offset + 1 if found else start.offset
            for each in self._client.consume(topic, start.partition, offset, wait_s=WAIT_S):
                producer = f"{each.producer_id}:{each.epoch}:{each.seq_num}".encode()
                headers = (("cursus.producer", producer),) if each.producer_id else ()
                record = Record(each.payload, each.key, headers)
                found.append((Place(start.partition, each.offset), record))
        return found

    def committed(self, topic: str, group: str, partition: int) -> int:
        return self._client.committed(group, topic, partition)

    def commit(self, topic: str, group: str, place: Place) -> None:
        # The command of the first protocol page, the only one for those who are no members.
        where = {"topic": topic, "group": group}
        self._client.command("COMMIT", {**where, "partition": place[0], "offset": place[1]})

    def join(self, topic: str, group: str) -> Member:
        consumer = self._client.consumer(topic, group, auto_commit_s=None, heartbeat_s=0.2)
        return CursusMember(consumer)

    def is_foreign(self, refusal: Exception, group: str, owner: str) -> bool:
        return str(refusal) == f'command_failed reason="{live_members(group, owner)}"'


class CursusMember(Member):
    def __init__(self, consumer: CursusConsumer) -> None:
        self._consumer = consumer
        consumer.__enter__()

    def poll(self, timeout_s: float) -> Place | None:
        record = self._consumer.take(timeout_s)
        return None if record is None else Place(record.partition, record.offset)

    def commit(self) -> None:
        self._consumer.commit()

    def leave(self) -> None:
        self._consumer.close()


# ---- mlog


def mlog_name(topic: str, partition: int) -> str:
    return f"{topic}@{partition}" if partition else topic


class MlogSpeaker(Speaker):
    """Values and nothing else: no keys, no headers, and a null of others is a null. A name stands
    for one partition. Groups are names to commit under; there are no members."""

    name = "mlog"
    has_members = False
    refusal = CommitRefusedError

    def __init__(self, address: str) -> None:
        self._client = BlockingMlogClient(address)

    def close(self) -> None:
        self._client.close()

    def write(self, topic: str, record: Record, partition: int) -> Written:
        value, name = record.value or b"", mlog_name(topic, partition)
        # A Produce has to have a value, those of a batch may be empty.
        alone, together = self._client.produce, self._client.produce_batch
        offset = alone(name, value) if value else together(name, [value])[0]
        return Written(Place(partition, offset), Record(value))

    def shown(self, stored: Record) -> Record:
        return Record(stored.value)

    def read(self, topic: str, start: Place, count: int) -> list[tuple[Place, Record]]:
        name = mlog_name(topic, start.partition)
        reading = self._client.consume(name, id="nobody", offset=start.offset, wait=True)
        found = islice(reading, count)
        return [(Place(start.partition, each.offset), Record(each.value)) for each in found]

    def committed(self, topic: str, group: str, partition: int) -> int:
        return self._client.committed(mlog_name(topic, partition), id=group)

    def commit(self, topic: str, group: str, place: Place) -> None:
        self._client.commit(mlog_name(topic, place.partition), place.offset, id=group)

    def join(self, topic: str, group: str) -> Member:
        return MlogReader(self._client, topic, group)

    def is_foreign(self, refusal: Exception, group: str, owner: str) -> bool:
        assert isinstance(refusal, CommitRefusedError)
        return refusal.number == 7 and live_members(group, owner) in str(refusal)


class MlogReader(Member):
    """Reads the partitions in turn, one record each."""

    def __init__(self, client: BlockingMlogClient, topic: str, group: str) -> None:
        names = [mlog_name(topic, partition) for partition in range(PARTITIONS)]
        self._consumers = [client.consume(each, id=group, max_count=1) for each in names]
        self._turn = 0

    def poll(self, timeout_s: float) -> Place | None:
        """Does not wait: mlog waits for one partition at a time."""
        for _ in self._consumers:
            partition = self._turn % PARTITIONS
            self._turn += 1
            for entry in self._consumers[partition].next_entries():
                return Place(partition, entry.offset)
        return None

    def commit(self) -> None:
        for consumer in self._consumers:
            consumer.commit()

    def leave(self) -> None:
        """There is nothing to leave."""


# ---- RocketMQ

#: Flag, sysFlag, time and host of birth, times of retry, offset of a half.
_OWN_FIELDS = struct.Struct(">iiq8siq")


#: What a broker says about itself in every message that it delivers, and does not store.
_OF_THE_BROKER = {"CLUSTER": b"DefaultCluster", "MSG_REGION": b"DefaultRegion", "TRACE_ON": b"true"}


class RocketmqSpeaker(Speaker):
    """Bodies are never null. A key is the property `KEYS`, which is text; all other properties are
    headers with a prefix, and what else a message has is one more. Headers of others are properties
    when they could be: text, and not empty."""

    name = "rocketmq"
    refusal = RocketmqError

    def __init__(self, address: str) -> None:
        self._client = BlockingRocketmqClient(address)
        self._admin = BlockingRocketmqAdmin(address)
        self._producer = self._client.producer("speaker")
        self._reader = self._client.pull_consumer("TOOLS_CONSUMER")

    def close(self) -> None:
        self._producer.close()
        self._admin.close()
        self._client.close()

    def _queue(self, topic: str, partition: int) -> MessageQueue:
        return next(each for each in self._producer.queues(topic) if each.queue_id == partition)

    def write(self, topic: str, record: Record, partition: int) -> Written:
        body, key = record.value or b"", property_text(record.key)
        properties = {
            name: text
            for name, value in record.headers
            if (text := property_text(value)) is not None
        }
        message = RocketmqMessage(
            topic=topic, body=body, keys=[key] if key else (), properties=properties
        )
        sent = self._producer.send(message, queue=self._queue(topic, partition))
        stored = self._admin.query_message_by_offset(sent.queue, sent.queue_offset)
        own = _OWN_FIELDS.pack(
            stored.flag,
            stored.sys_flag,
            stored.born_ms,
            stored.born_host,
            stored.reconsume_times,
            stored.prepared_offset,
        )
        not_stored = {"KEYS", *_OF_THE_BROKER}
        given = [each for each in stored.properties.items() if each[0] not in not_stored]
        headers = (("rocketmq", own), *((f"rocketmq.{n}", v.encode()) for n, v in given))
        assert dict(given).items() >= properties.items()
        place = Place(partition, sent.queue_offset)
        return Written(place, Record(body, key.encode() if key else None, headers))

    def shown(self, stored: Record) -> Record:
        key = property_text(stored.key)
        properties = {
            name.removeprefix("rocketmq."): text.encode()
            for name, value in stored.headers
            if name != "rocketmq" and (text := property_text(value)) is not None
        }
        headers = tuple(sorted({**_OF_THE_BROKER, **properties}.items()))
        return Record(stored.value or b"", key.encode() if key else None, headers)

    def read(self, topic: str, start: Place, count: int) -> list[tuple[Place, Record]]:
        queue = self._queue(topic, start.partition)
        self._reader.seek(queue, start.offset)
        found: list[ReceivedMessage] = []
        while len(found) < count:
            found += self._reader.pull(queue, wait_s=5.0).messages
        return [
            (Place(each.queue_id, each.queue_offset), as_record(each)) for each in found[:count]
        ]

    def committed(self, topic: str, group: str, partition: int) -> int:
        try:
            return self._admin.query_consume_offset(self._queue(topic, partition), group)
        except NotFoundError:
            return 0

    def commit(self, topic: str, group: str, place: Place) -> None:
        queue = self._queue(topic, place.partition)
        self._admin.update_consume_offset(queue, group, place.offset)

    def join(self, topic: str, group: str) -> Member:
        consumer = self._client.pull_consumer(group)
        try:
            return RocketmqMember(consumer, topic)
        except BaseException:
            consumer.close()
            raise

    def is_foreign(self, refusal: Exception, group: str, owner: str) -> bool:
        assert isinstance(refusal, RocketmqError)
        return refusal.number == 1 and live_members(group, owner) in str(refusal)


def property_text(value: bytes | None) -> str | None:
    """What a property may be."""
    if not value or b"\x01" in value or b"\x02" in value:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def as_record(message: ReceivedMessage) -> Record:
    properties = dict(message.properties)
    key = properties.pop("KEYS", None)
    headers = tuple(sorted((name, value.encode()) for name, value in properties.items()))
    return Record(message.body, key.encode() if key else None, headers)


class RocketmqMember(Member):
    """Reads the queues in turn, one message each."""

    def __init__(self, consumer: BlockingPullConsumer, topic: str) -> None:
        self._consumer = consumer
        self._queues = consumer.queues(topic)
        self._turn = 0

    def poll(self, timeout_s: float) -> Place | None:
        until = time.monotonic() + timeout_s
        while True:
            queue = self._queues[self._turn % len(self._queues)]
            self._turn += 1
            # Only the last of a round waits: the others may have something.
            is_last = self._turn % len(self._queues) == 0
            wait_s = min(0.2, timeout_s) if is_last else 0.0
            for message in self._consumer.pull(queue, max_count=1, wait_s=wait_s).messages:
                return Place(message.queue_id, message.queue_offset)
            if is_last and time.monotonic() >= until:
                return None

    def commit(self) -> None:
        for queue in self._queues:
            self._consumer.commit(queue)

    def leave(self) -> None:
        self._consumer.close()


SPEAKERS: dict[str, type[Speaker]] = {
    "kafka": KafkaSpeaker,
    "minibroker": MinibrokerSpeaker,
    "cursus": CursusSpeaker,
    "mlog": MlogSpeaker,
    "rocketmq": RocketmqSpeaker,
}
#: The same for groups: Kafka has two kinds.
GROUP_SPEAKERS: dict[str, type[Speaker]] = {**SPEAKERS, "kafka-848": KafkaConsumerGroupSpeaker}
