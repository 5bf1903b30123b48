"""Fetch (1), versions 4 to 17: reads record batches, and waits for some if there are none.

Batches are sent as stored in the log, so the first may begin before the requested offset. They are
not recompressed: versions before 10, whose clients may not know zstd, get an error for zstd
batches.
"""

from __future__ import annotations

from functools import partial

from dragoman.broker.errors import UnsupportedCompression
from dragoman.broker.fetch import Fetched, FetchLimits, Wanted, refused_fetch
from dragoman.errors import DragomanError
from dragoman.log.batch import CODEC_MASK, read_header
from dragoman.log.compression import Codec
from dragoman.protocols.kafka.handlers.fetch_sessions import (
    NO_SESSION,
    Key,
    SessionError,
    requested_partitions,
)
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
)
from dragoman.replication.replica import Replica
from dragoman.security.access import Operation, Resource

_READ_COMMITTED = 1
_IDS_SINCE_VERSION = 13
_ZSTD_SINCE_VERSION = 10


def handle(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, FetchRequest)
    try:
        session = call.service.fetch_sessions.open(request, call.version >= _IDS_SINCE_VERSION)
    except SessionError as error:
        call.failed(error.code)
        call.reply(FetchResponse(error_code=error.code))
        return
    broker = call.service.broker
    if session is not None:
        keys, wanted = session.resolve(broker.quorum.version, call.caller, partial(_wanted, call))
    else:
        keys, wanted = [], []
        for key, partition in requested_partitions(request):
            keys.append(key)
            wanted.append(_wanted(call, key, partition))
    budget = call.service.budget
    limits = FetchLimits(
        bytes_min=request.min_bytes,
        bytes_max=min(request.max_bytes, broker.settings.fetch_max_bytes),
        wait_s=request.max_wait_ms / 1000,
        committed_only=request.isolation_level == _READ_COMMITTED,
        # Half of the remaining budget, so that any number of stuck readers leaves room for one
        # more.
        room=lambda: budget.room // 2,
    )

    grants, sent = broker.grants, call.service.sent
    sends_all = request.session_epoch <= 0
    revision = grants.revision

    def finish(found: list[Fetched]) -> None:
        if grants.revision != revision:
            # Rights have changed while the fetch was parked.
            found = [_still_allowed(call, *each) for each in zip(wanted, found, strict=True)]
        if call.version < _ZSTD_SINCE_VERSION:
            found = [_without_zstd(each) for each in found]
        topics: dict[tuple[str, bytes], list[FetchResponsePartition]] = {}
        for key, asked, each in zip(keys, wanted, found, strict=True):
            if each.size and asked.replica is not None:
                flow = sent[asked.replica.metadata.topic.name]
                flow.size += each.size
                flow.records += each.next_offset - asked.offset
            elif each.error is not None:
                call.failed(wire_code(each.error))
            if session is None or session.has_news(key, each) or sends_all:
                name, topic_id, index = key
                topics.setdefault((name, topic_id), []).append(_partition(index, each))
        session_id = session.session_id if session is not None else NO_SESSION
        responses = [
            FetchResponseTopic(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ]
        call.reply(FetchResponse(session_id=session_id, responses=responses))

    parked = broker.fetches.begin(wanted, limits, finish)
    if parked is None:
        return

    ask = partial(_ask_again, call, wanted)
    call.grant = grant = grants.hold(ask, lambda _: parked.finish_now())

    def forget() -> None:
        grant.release()
        broker.fetches.cancel(parked)

    call.on_drop(forget)
    call.on_end(parked.finish_now)


def _wanted(call: Call, key: Key, partition: FetchRequestPartition) -> Wanted:
    try:
        replica = _find(call, key)
        replica.check_epoch(partition.current_leader_epoch)
    except DragomanError as error:
        # A parked fetch would otherwise keep the stack frames of the error alive.
        return Wanted(None, 0, 0, error.with_traceback(None))
    return Wanted(replica, partition.fetch_offset, partition.partition_max_bytes)


def _find(call: Call, key: Key) -> Replica:
    partitions = call.service.broker.partitions
    name, topic_id, index = key
    if call.version >= _IDS_SINCE_VERSION:
        call.authorize_by_id(Operation.READ, topic_id)
        return partitions.find_by_id(topic_id, index)
    call.authorize(Operation.READ, Resource.TOPIC, name)
    return partitions.find(name, index)


def _ask_again(call: Call, wanted: list[Wanted]) -> None:
    """Raises `NotAuthorized` if the client may no longer read one of the topics."""
    for name in {each.replica.metadata.topic.name for each in wanted if each.replica is not None}:
        call.authorize(Operation.READ, Resource.TOPIC, name)


def _still_allowed(call: Call, wanted: Wanted, found: Fetched) -> Fetched:
    """The result, or the refusal of a client that has lost the right to read the topic."""
    if wanted.replica is None:
        return found
    try:
        call.authorize(Operation.READ, Resource.TOPIC, wanted.replica.metadata.topic.name)
    except DragomanError as error:
        return refused_fetch(error.with_traceback(None))
    return found


def _without_zstd(found: Fetched) -> Fetched:
    """Replace batches that the client may not be able to read by an error."""
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
