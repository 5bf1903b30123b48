"""Goal: a client that exceeds its quota is told so and is not read, as by a broker of Kafka."""

from __future__ import annotations

import pytest

from dragoman.broker.quotas import entity_key
from dragoman.cluster.events import ClientQuotaChanged
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from worlds.broker import (
    Wire,
    World,
    batch_of,
    fetch_request,
    only,
    produce_request,
    values_in,
)

LARGE = b"v" * 2000


def limit(world: World, **values: float) -> None:
    entity = entity_key({"client-id": "test"})
    world.apply(ClientQuotaChanged(entity=entity, quotas=values))


def express_of(wire: Wire) -> object:
    return wire.channel._session._express  # type: ignore[union-attr]


def test_producer_is_throttled_and_muted(world: World, wire: Wire) -> None:
    world.create("t")
    limit(world, producer_byte_rate=100)
    request = produce_request("t", batch_of(LARGE))
    response = wire.ask(request, 9, m.ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert 11_000 < response.throttle_time_ms < 14_000
    assert not wire.transport.is_reading
    # What has arrived already waits.
    wire.send(m.ApiVersionsRequest(), 0)
    world.settle()
    assert wire.replies() == []
    world.advance(response.throttle_time_ms / 1000 + 0.01)
    assert wire.transport.is_reading
    assert len(wire.replies()) == 1
    assert express_of(wire) is None


def test_producer_without_a_reply_is_muted(world: World, wire: Wire) -> None:
    world.create("t")
    limit(world, producer_byte_rate=100)
    wire.send(produce_request("t", batch_of(LARGE), acks=0), 9)
    world.settle()
    assert not wire.transport.is_reading


def test_others_are_not_throttled_and_take_the_express(world: World, wire: Wire) -> None:
    world.create("t")
    entity = entity_key({"client-id": "other"})
    world.apply(ClientQuotaChanged(entity=entity, quotas={"producer_byte_rate": 1}))
    for _ in range(2):
        response = wire.ask(produce_request("t", batch_of(LARGE)), 9, m.ProduceResponse)
        assert response.throttle_time_ms == 0
    assert express_of(wire) is not None


def test_new_quota_ends_the_express(world: World, wire: Wire) -> None:
    world.create("t")
    request = produce_request("t", batch_of(LARGE))
    for _ in range(2):
        wire.ask(request, 9, m.ProduceResponse)
    limit(world, producer_byte_rate=100)
    assert wire.ask(request, 9, m.ProduceResponse).throttle_time_ms > 0


def test_throttled_fetch_has_no_records_and_costs_nothing(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.write(replica, LARGE)
    limit(world, consumer_byte_rate=100)
    response = wire.ask(fetch_request("t"), 11, m.FetchResponse)
    assert response.responses == []
    assert response.throttle_time_ms > 0
    limit(world, consumer_byte_rate=1_000_000)
    world.advance(response.throttle_time_ms / 1000 + 0.01)
    part = only(wire.ask(fetch_request("t"), 11, m.FetchResponse))
    assert values_in(part.records) == [LARGE]


def test_fetch_within_the_quota_is_served(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.write(replica, LARGE)
    limit(world, consumer_byte_rate=1000)
    response = wire.ask(fetch_request("t"), 11, m.FetchResponse)
    assert response.throttle_time_ms == 0
    assert values_in(only(response).records) == [LARGE]


def _create(name: str, partitions: int) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequestTopic(name=name, num_partitions=partitions, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=1000)


@pytest.mark.parametrize("version", [6, 7])
def test_too_many_partitions_are_refused(world: World, wire: Wire, version: int) -> None:
    limit(world, controller_mutation_rate=1)
    first = wire.ask(_create("a", 15), version, m.CreateTopicsResponse)
    assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 4000)
    world.advance(2.0)
    # Muted: the request waits, and is allowed by then.
    wire.send(_create("b", 10), version)
    assert wire.replies() == []
    world.advance(2.01)
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.CreateTopicsResponse)
    assert reply.message.topics[0].error_code == 0
    other = Wire(world)
    refused = other.ask(_create("c", 1), version, m.CreateTopicsResponse)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms > 0
    assert "c" not in world.broker.image.topics


def test_clients_that_do_not_know_the_error_are_only_throttled(world: World) -> None:
    limit(world, controller_mutation_rate=1)
    for name in ("a", "b"):
        response = Wire(world).ask(_create(name, 15), 5, m.CreateTopicsResponse)
        assert response.topics[0].error_code == 0
        assert response.throttle_time_ms > 0


def test_deletions_count(world: World) -> None:
    world.create("a", 20)
    world.create("b", 1)
    limit(world, controller_mutation_rate=1)

    def delete(name: str) -> int:
        request = m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequestTopic(name=name)], timeout_ms=1000
        )
        return Wire(world).ask(request, 6, m.DeleteTopicsResponse).responses[0].error_code

    assert delete("a") == 0
    assert delete("b") == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_what_cannot_be_created_costs_nothing(world: World) -> None:
    world.create("t")
    limit(world, controller_mutation_rate=1)
    for _ in range(3):
        response = Wire(world).ask(_create("t", 100), 7, m.CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert response.throttle_time_ms == 0


def test_too_many_connections_of_an_address_are_closed(world: World) -> None:
    entity = entity_key({"ip": "10.0.0.9"})
    world.apply(ClientQuotaChanged(entity=entity, quotas={"connection_creation_rate": 1}))
    wires = [Wire(world) for _ in range(12)]
    assert [each.is_closed for each in wires] == [False] * 10 + [True] * 2


def test_connection_that_closes_while_muted_forgets_the_timer(world: World, wire: Wire) -> None:
    world.create("t")
    limit(world, producer_byte_rate=100)
    wire.ask(produce_request("t", batch_of(LARGE)), 9, m.ProduceResponse)
    wire.lose()
    world.advance(60)
    assert not world.channels.open
