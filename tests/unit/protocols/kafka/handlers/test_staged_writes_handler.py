"""Goal: attempts stage their records by ordinary requests, and one call publishes those that count.

Method: the two requests of our own, and Produce and Fetch, over a wire to a broker on virtual time.
"""

from __future__ import annotations

import pytest

from dragoman.broker.staged_writes import STAGING_TOPIC
from dragoman.checksum import crc32c
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import (
    Wire,
    World,
    batch_of,
    fetch_request,
    only,
    only_produced,
    produce_request,
    values_in,
)
from worlds.kafka_admin import forbidden


@pytest.fixture
def world() -> World:
    world = World()
    world.create("t")
    return world


@pytest.fixture
def wire(world: World) -> Wire:
    return Wire(world)


def open_staging(wire: Wire) -> m.OpenStagingResponse:
    return wire.ask(m.OpenStagingRequest(writer_id="w"), 0, m.OpenStagingResponse)


def staged_batch(place: m.OpenStagingResponse, *values: bytes, sequence: int = 0) -> bytearray:
    return batch_of(
        *values,
        producer_id=place.producer_id,
        producer_epoch=place.producer_epoch,
        base_sequence=sequence,
    )


def produce(
    wire: Wire, place: m.OpenStagingResponse, batch: bytearray
) -> m.ProduceResponsePartition:
    request = produce_request(place.topic, bytes(batch), partition=place.partition)
    return only_produced(wire.ask(request, 9, m.ProduceResponse))


def stage(wire: Wire, *values: bytes) -> m.PublishStagedRequestPiece:
    place = open_staging(wire)
    batch = staged_batch(place, *values)
    produced = produce(wire, place, batch)
    assert produced.error_code == 0, produced
    return m.PublishStagedRequestPiece(
        staging_partition=place.partition,
        first_offset=produced.base_offset,
        next_offset=produced.base_offset + len(values),
        record_count=len(values),
        checksum=crc32c(batch[17:21]),
    )


def publish(
    wire: Wire, batch_id: int, *pieces: m.PublishStagedRequestPiece, topic: str = "t", query="q"
) -> m.PublishStagedResponse:
    partition = m.PublishStagedRequestPartition(index=0, pieces=list(pieces))
    request = m.PublishStagedRequest(
        writer_id="w",
        query_id=query,
        batch_id=batch_id,
        topics=[m.PublishStagedRequestTopic(name=topic, partitions=[partition])],
    )
    return wire.ask(request, 0, m.PublishStagedResponse)


def read(wire: Wire, topic: str = "t") -> list[bytes | None]:
    return values_in(only(wire.ask(fetch_request(topic), 11, m.FetchResponse)).records)


def test_staged_records_are_readable_once_they_are_published(wire: Wire):
    pieces = [stage(wire, b"a", b"b"), stage(wire, b"c")]
    stage(wire, b"loser")
    assert read(wire) == []
    assert publish(wire, 0, *pieces) == m.PublishStagedResponse()
    assert read(wire) == [b"a", b"b", b"c"]
    again = publish(wire, 0, stage(wire, b"a", b"b"))
    assert again == m.PublishStagedResponse(was_published_before=True)
    assert read(wire) == [b"a", b"b", b"c"]


def test_a_repeated_produce_to_staging_is_recognised(wire: Wire):
    place = open_staging(wire)
    batch = staged_batch(place, b"a")
    assert produce(wire, place, batch).base_offset == produce(wire, place, batch).base_offset


def test_other_producers_do_not_get_into_staging(wire: Wire):
    place = open_staging(wire)
    assert produce(wire, place, staged_batch(place, b"a")).error_code == 0
    # The connection has just written there: it must not have learnt a short way in.
    stranger = batch_of(b"x", producer_id=place.producer_id, producer_epoch=0, base_sequence=0)
    refused = produce(wire, place, stranger)
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert STAGING_TOPIC in (refused.error_message or "")


def test_refusals_say_why(wire: Wire):
    publish(wire, 4, stage(wire, b"a"))
    other = publish(wire, 0, stage(wire, b"b"), query="another")
    assert other.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert "belongs to query q" in (other.error_message or "")
    missing = publish(wire, 5, stage(wire, b"b"), topic="missing")
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    illegal = publish(wire, 5, stage(wire, b"b"), topic="no/topic")
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    wrong = m.PublishStagedRequestPiece(next_offset=1, record_count=7)
    assert publish(wire, 5, wrong).error_code == ErrorCode.INVALID_REQUEST


def test_both_requests_are_advertised(wire: Wire):
    reply = wire.ask(
        m.ApiVersionsRequest(client_software_name="t", client_software_version="1"),
        3,
        m.ApiVersionsResponse,
    )
    served = {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys}
    assert served[ApiKey.OPEN_STAGING] == served[ApiKey.PUBLISH_STAGED] == (0, 0)


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (Resource.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (Resource.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_write_may_not_stage_or_publish(resource: Resource, code: ErrorCode):
    wire = forbidden(resource, Operation.WRITE)
    assert open_staging(wire).error_code == code
    assert publish(wire, 0).error_code == code


def test_a_client_that_goes_away_does_not_stop_its_publication(world: World, wire: Wire):
    piece = stage(wire, b"a")
    partition = m.PublishStagedRequestPartition(index=0, pieces=[piece])
    topic = m.PublishStagedRequestTopic(name="t", partitions=[partition])
    wire.send(m.PublishStagedRequest(writer_id="w", query_id="q", topics=[topic]), 0)
    wire.lose()
    world.settle()
    assert read(Wire(world)) == [b"a"]
