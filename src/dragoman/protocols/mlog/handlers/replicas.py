"""ReplicateStream (0) and ApplyIsrUpdateEvent (27): what the original's nodes ask each other.

The original has no handler for either and leaves callers waiting. Here a ReplicateStream is
answered with one chunk, the binary batch, of committed records; a caller repeats it until
`EndOfStream`. Only nodes that hold a replica of the topic are answered. Which replicas are in sync
is the cluster's own business: an update of it is acknowledged, and changes nothing.
"""

from __future__ import annotations

from dragoman.limits import MLOG_FETCH_BYTES_MAX
from dragoman.protocols.mlog.errors import ErrorCode
from dragoman.protocols.mlog.handlers.fetch import as_entries, read
from dragoman.protocols.mlog.handlers.names import find, find_to_read, require_topic
from dragoman.protocols.mlog.handlers.refusals import Refused
from dragoman.protocols.mlog.handlers.session import MlogSession
from dragoman.protocols.mlog.handlers.topics import node_name
from dragoman.protocols.mlog.messages import (
    ApplyIsrUpdateEvent,
    ApplyIsrUpdateEventResp,
    ReplicateResp,
    ReplicateStream,
)
from dragoman.protocols.mlog.replication import encode_batch
from dragoman.protocols.session import Place
from dragoman.security.authorizer import Operation


def handle_replicate(session: MlogSession, request: ReplicateStream, place: Place) -> None:
    replica = find_to_read(session, request.topic)
    holders = [node_name(node) for node in replica.metadata.replicas]
    if request.replica_node_id not in holders:
        who = request.replica_node_id or "a client without a node id"
        text = f"{who} holds no replica of topic {request.topic}"
        raise Refused(ErrorCode.UNKNOWN, text)
    found = read(session, replica, request.offset, request.batch_size, MLOG_FETCH_BYTES_MAX)
    assert session.reading is not None
    session.reply(
        place,
        ReplicateResp(
            topic=request.topic,
            raw_chunk=encode_batch(as_entries(found)) or None,
            end_of_stream=not session.reading.has_more,
            leader_leo=replica.log.log_end_offset,
        ),
    )


def handle_isr_update(session: MlogSession, request: ApplyIsrUpdateEvent, place: Place) -> None:
    require_topic(request.topic)
    find(session, request.topic, Operation.DESCRIBE)
    session.reply(place, ApplyIsrUpdateEventResp())
