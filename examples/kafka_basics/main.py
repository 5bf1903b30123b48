"""Keyed records, a group, a commit, and a second member that resumes where the first one stopped.

    dragoman serve &
    python examples/kafka_basics/main.py [BOOTSTRAP_SERVERS]

Uses confluent-kafka and nothing of Dragoman: it runs against any Kafka broker.
"""

from __future__ import annotations

import sys
import uuid

from confluent_kafka import Consumer, KafkaException, Message, Producer

TOPIC = "orders"
GROUP = "billing"
SECONDS_MAX = 30


def produce(servers: str, run: str, count: int) -> None:
    """Waits until every record is acknowledged. Records of one key stay in order."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(count):
        producer.produce(TOPIC, key=f"customer-{number % 4}", value=f"{run} order {number}")
    unsent = producer.flush(SECONDS_MAX)
    if unsent:
        raise SystemExit(f"{unsent} records were not acknowledged")


def read(servers: str, run: str, count: int) -> list[Message]:
    """Takes `count` records of this run as a member of the group, and commits what it took."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    taken: list[Message] = []
    try:
        while len(taken) < count:
            message = consumer.poll(SECONDS_MAX)
            if message is None:
                raise SystemExit(f"only {len(taken)} of {count} records came")
            if message.error():
                raise KafkaException(message.error())
            consumer.commit(message, asynchronous=False)
            if (message.value() or b"").startswith(run.encode()):
                taken.append(message)
    finally:
        consumer.close()
    return taken


def main() -> None:
    servers = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    # Marks this run's records, so that the example works twice on the same topic.
    run = uuid.uuid4().hex[:8]
    produce(servers, run, 20)
    print(f"produced 20 records to {TOPIC}")
    first = read(servers, run, 10)
    print(f"first member read {len(first)} and committed")
    second = read(servers, run, 10)
    print(f"second member read the other {len(second)}")
    values = {message.value() for message in (*first, *second)}
    if len(values) != 20:
        raise SystemExit(f"expected 20 different records, got {len(values)}")


if __name__ == "__main__":
    main()
