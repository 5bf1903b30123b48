"""OpenStaging (32000) and PublishStaged (32001), version 0: Dragoman's own requests.

A writer that must not duplicate records, such as a Spark job, has each task attempt open a place in
the staging topic and produce its batches there. One PublishStaged then names the pieces to publish.
It can be retried after any failure: a batch id is published once.
"""

from __future__ import annotations

from dragoman.broker.staged_writes import STAGING_TOPIC, Destination, Piece, Publication
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text
from dragoman.protocols.kafka.handlers.resources import check_kafka_name
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.security.access import Operation, Resource


@awaited
async def handle_open(call: Call) -> m.OpenStagingResponse:
    request = call.decode(m.OpenStagingRequest)
    try:
        _authorize_writer(call, request.writer_id)
        place = await call.service.broker.staged_writes.staging_topic.open()
    except DragomanError as error:
        return m.OpenStagingResponse(error_code=wire_code(error), error_message=wire_text(error))
    return m.OpenStagingResponse(
        topic=place.topic,
        partition=place.partition,
        producer_id=place.producer_id,
        producer_epoch=place.epoch,
    )


@awaited
async def handle_publish(call: Call) -> m.PublishStagedResponse:
    request = call.decode(m.PublishStagedRequest)
    try:
        _authorize_writer(call, request.writer_id)
        for topic in request.topics:
            check_kafka_name(topic.name)
            call.authorize(Operation.WRITE, Resource.TOPIC, topic.name)
        is_repeated = await call.service.broker.staged_writes.publish(_publication(request))
    except DragomanError as error:
        return m.PublishStagedResponse(error_code=wire_code(error), error_message=wire_text(error))
    return m.PublishStagedResponse(was_published_before=is_repeated)


def _authorize_writer(call: Call, writer_id: str) -> None:
    """Authorize a writer id like a transactional id."""
    call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, writer_id)
    call.authorize(Operation.WRITE, Resource.TOPIC, STAGING_TOPIC)


def _publication(request: m.PublishStagedRequest) -> Publication:
    return Publication(
        writer_id=request.writer_id,
        query_id=request.query_id,
        batch_id=request.batch_id,
        is_single=request.is_single,
        destinations=tuple(
            Destination(topic.name, partition.index, tuple(map(_piece, partition.pieces)))
            for topic in request.topics
            for partition in topic.partitions
        ),
    )


def _piece(piece: m.PublishStagedRequestPiece) -> Piece:
    return Piece(
        piece.staging_partition,
        piece.first_offset,
        piece.next_offset,
        piece.record_count,
        piece.checksum,
    )
