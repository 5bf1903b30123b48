"""Fetch (1), versions 4 to 17: read record batches, waiting for them when there are none.

Every request is taken as a full one and answered with session id 0, which the protocol allows.
Batches go out as they are in the log: the first may begin before the offset asked for. Nothing is
recompressed, so clients of versions before 10, which may not know zstd, are refused such batches.
"""

from __future__ import annotations

from dragoman.broker.errors import NotAuthorized, UnsupportedCompression
from dragoman.broker.fetch import Fetched, FetchLimits, Wanted
from dragoman.broker.replica import Replica
from dragoman.errors import DragomanError
from dragoman.log.batch import CODEC_MASK, read_header
from dragoman.log.compression import Codec
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
)
from dragoman.security.authorizer import Operation, Resource

_READ_COMMITTED = 1
_ZSTD_SINCE_VERSION = 10


def handle(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, FetchRequest)
    if request.session_id and request.session_epoch > 0:
        # Sessions are not kept: the client starts over with a full request.
        call.reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return
    broker = call.service.broker
    wanted = [
        _wanted(call, topic, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    budget = call.service.budget
    limits = FetchLimits(
        bytes_min=request.min_bytes,
        bytes_max=min(request.max_bytes, broker.settings.fetch_max_bytes),
        wait_s=request.max_wait_ms / 1000,
        committed_only=request.isolation_level == _READ_COMMITTED,
        # Half of what is left, so that however many readers are stuck there is room for one more.
        room=lambda: budget.room // 2,
    )

    def finish(found: list[Fetched]) -> None:
        if call.version < _ZSTD_SINCE_VERSION:
            found = [_without_zstd(each) for each in found]
        call.reply(_response(request, found))

    parked = broker.fetch(wanted, limits, finish)
    if parked is not None:
        call.on_drop(lambda: broker.cancel(parked))


def _wanted(call: Call, topic: FetchRequestTopic, partition: FetchRequestPartition) -> Wanted:
    try:
        replica = _find(call, topic, partition.partition)
        replica.check_epoch(partition.current_leader_epoch)
    except DragomanError as error:
        return Wanted(None, 0, 0, error)
    return Wanted(replica, partition.fetch_offset, partition.partition_max_bytes)


def _find(call: Call, topic: FetchRequestTopic, index: int) -> Replica:
    broker = call.service.broker
    if call.version >= 13:
        replica = broker.find_by_id(topic.topic_id, index)
    else:
        replica = broker.find(topic.topic, index)
    principal = call.session.principal
    name = replica.metadata.topic.name
    if not broker.authorizer.is_allowed(principal, Operation.READ, Resource.TOPIC, name):
        raise NotAuthorized(f"{principal.name} may not read topic {name!r}")
    return replica


def _response(request: FetchRequest, found: list[Fetched]) -> FetchResponse:
    results = iter(found)
    return FetchResponse(
        responses=[
            FetchResponseTopic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _partition(partition.partition, next(results)) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _without_zstd(found: Fetched) -> Fetched:
    """An error in place of batches that the client may not be able to read."""
    for buffer in found.buffers:
        position = 0
        while position < len(buffer):
            header = read_header(buffer, position)
            position += header.size
            if header.attributes & CODEC_MASK == Codec.ZSTD:
                error = UnsupportedCompression("batches are compressed with zstd")
                return found._replace(error=error, buffers=[], size=0)
    return found


def _partition(index: int, found: Fetched) -> FetchResponsePartition:
    aborted = found.aborted
    return FetchResponsePartition(
        partition_index=index,
        error_code=0 if found.error is None else wire_code(found.error),
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else [
            FetchResponseAbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in aborted
        ],
        records=tuple(found.buffers) if found.buffers else b"",
    )
