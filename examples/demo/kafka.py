"""Steps with librdkafka, the C client behind most Kafka programs outside the JVM."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.readings import PARTITIONS, TOPIC, record
from demo.screen import Advance
from demo.story import DemoError, Stage, Step

_SECONDS_MAX = 60.0
_MESSAGES_AT_ONCE = 500

Delivered: TypeAlias = Callable[[KafkaError | None, "Message[bytes, bytes]"], None]


def client_settings(stage: Stage) -> dict[str, str | int | float | bool]:
    """Settings of every client. Its own log is off: a killed broker is part of the story."""
    return {"bootstrap.servers": stage.broker.bootstrap_servers, "log_level": 0}


# ---- create


def _create_topic(stage: Stage) -> str:
    admin = AdminClient(client_settings(stage))
    new = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    try:
        admin.create_topics([new], operation_timeout=_SECONDS_MAX)[TOPIC].result(_SECONDS_MAX)
    except KafkaException as error:
        raise DemoError(f"cannot create the topic: {error}") from None
    return f"{TOPIC}, {PARTITIONS} partitions"


# ---- produce


def _produce(stage: Stage) -> str:
    begun = time.monotonic()
    acknowledged = _produce_all(stage, stage.screen.count(stage.record_count))
    took = time.monotonic() - begun
    if acknowledged != stage.record_count:
        raise DemoError(f"{acknowledged} of {stage.record_count} records were acknowledged")
    return f"{acknowledged:,} acknowledged, {acknowledged / took:,.0f}/s"


def _produce_all(stage: Stage, advance: Advance) -> int:
    acknowledged = 0

    def delivered(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            raise DemoError(f"a record was refused: {error}")
        acknowledged += 1

    producer = Producer(
        {
            **client_settings(stage),
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": int(_SECONDS_MAX * 1000),
        }
    )
    for number in range(stage.record_count):
        key, value = record(number)
        produce_one(producer, TOPIC, key, value, delivered)
        if number % _MESSAGES_AT_ONCE == 0:
            producer.poll(0)
            advance(acknowledged)
    producer.flush(_SECONDS_MAX)
    advance(acknowledged)
    return acknowledged


def produce_one(
    producer: Producer, topic: str, key: bytes | None, value: bytes, delivered: Delivered
) -> None:
    """The client's queue is bounded; when it is full, wait for some of it to be delivered."""
    deadline = time.monotonic() + _SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            producer.produce(topic, key=key, value=value, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
        else:
            return
    raise DemoError("the broker takes no more records")


# ---- consume


def _consume(stage: Stage) -> str:
    begun = time.monotonic()
    advance = stage.screen.count(stage.record_count)
    check = Check(stage.record_count)
    for message in messages(stage, TOPIC, PARTITIONS):
        check.take(message)
        if check.count % _MESSAGES_AT_ONCE == 0:
            advance(check.count)
    took = time.monotonic() - begun
    check.finish()
    return f"{check.count:,}, each once, in order, {check.count / took:,.0f}/s"


def messages(stage: Stage, topic: str, partitions: int) -> Iterator[Message]:
    """Every message of a topic, from the first offsets to the ends that there are now."""
    consumer = Consumer(
        {
            **client_settings(stage),
            # The client asks for a name even where partitions are assigned by hand.
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    unfinished = set(range(partitions))
    deadline = time.monotonic() + _SECONDS_MAX
    try:
        while unfinished:
            if time.monotonic() > deadline:
                raise DemoError(f"partitions {sorted(unfinished)} did not come to an end")
            for message in consumer.consume(_MESSAGES_AT_ONCE, timeout=0.1):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                elif not error.retriable():
                    raise DemoError(f"cannot read: {error}")
    finally:
        consumer.close()


class Check:
    """Each record once, byte for byte; offsets without gaps; order kept for every key."""

    def __init__(self, expected: int) -> None:
        self.count = 0
        self._expected = expected
        self._seen = bytearray(expected)
        self._next_offsets: dict[int, int] = {}
        self._last_numbers: dict[bytes, int] = {}

    def take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        partition, offset = message.partition(), message.offset()
        place = f"partition {partition}, offset {offset}"
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        assert partition is not None
        number = json.loads(value)["number"]
        if not 0 <= number < self._expected or record(number) != (key, value):
            raise DemoError(f"{place}: {value!r} was never sent")
        if offset != self._next_offsets.get(partition, 0):
            raise DemoError(f"{place}: expected {self._next_offsets.get(partition, 0)}")
        if number <= self._last_numbers.get(key, -1):
            raise DemoError(f"{place}: record {number} came late or twice")
        self._next_offsets[partition] = offset + 1
        self._last_numbers[key] = number
        self._seen[number] = 1
        self.count += 1

    def finish(self) -> None:
        missing = self._seen.count(0)
        if missing:
            raise DemoError(f"{missing} of {self._expected} records did not come back")


CREATE_TOPIC = Step(title="Create a topic", run=_create_topic)
PRODUCE = Step(title="Produce with confluent-kafka", run=_produce)
CONSUME = Step(title="Consume and compare", run=_consume)
CONSUME_AGAIN = Step(title="Consume and compare once more", run=_consume)
