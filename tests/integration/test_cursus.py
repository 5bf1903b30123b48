"""Goal: what Cursus and Kafka have besides records and groups is there for the other one, too.

Method: events with their fields are read as headers; transactions are seen once they are committed.
`test_protocol_matrix.py` has what all protocols share.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from dragoman.client.cursus import BlockingCursusClient, Event
from dragoman.testing import EphemeralBroker
from protocols.clients import KafkaSpeaker, Place, Record

TIMEOUT_S = 30.0


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("kafka", "cursus")) as started:
        yield started


@pytest.fixture
def client(broker: EphemeralBroker) -> Iterator[BlockingCursusClient]:
    with BlockingCursusClient(broker.address("cursus")) as opened:
        opened.create_topic("orders", 1)
        yield opened


def test_events_have_headers(broker: EphemeralBroker, client: BlockingCursusClient) -> None:
    client.create_topic("es", 1, event_sourcing="true")
    event = Event(payload=b"{}", event_type="Created", schema_version=3, metadata="m")
    client.append_event("es", "o-1", 1, event)
    with KafkaSpeaker(broker.bootstrap_servers) as kafka:
        ((_, record),) = kafka.read("es", Place(0, 0), 1)
    assert record == Record(
        b"{}",
        b"o-1",
        (
            ("cursus.eventType", b"Created"),
            ("cursus.schemaVersion", b"3"),
            ("cursus.aggregateVersion", b"1"),
            ("cursus.metadata", b"m"),
        ),
    )


def test_a_kafka_transaction_is_seen_when_it_is_committed(
    broker: EphemeralBroker, client: BlockingCursusClient
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(TIMEOUT_S)
    for value, ends in (
        (b"lost", producer.abort_transaction),
        (b"kept", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("orders", value)
        producer.flush(TIMEOUT_S)
        assert client.consume("orders", 0, 0) == []
        ends(TIMEOUT_S)
    found = client.consume("orders", 0, 0, wait_s=TIMEOUT_S)
    assert [each.payload for each in found] == [b"kept"]
