"""CommitOffset (12) and FetchOffset (14): what a client id has read.

An id is a group: committed offsets are those of all protocols, and a group with live members of
another protocol is theirs to commit. As in the original, an offset may be committed for a topic
that does not exist, and what was never committed is 0.
"""

from __future__ import annotations

from dragoman.broker.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.errors import DragomanError
from dragoman.net.framed import Place
from dragoman.protocols.mlog.constants import DEFAULT_ID
from dragoman.protocols.mlog.handlers.names import require_topic, split
from dragoman.protocols.mlog.handlers.session import MlogSession
from dragoman.protocols.mlog.messages import (
    CommitOffset,
    CommitOffsetResp,
    FetchOffset,
    FetchOffsetResp,
)
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import GroupId, Offset, Partition, TopicName

OWNER = "mlog"


def handle_commit(session: MlogSession, request: CommitOffset, place: Place) -> None:
    require_topic(request.topic)
    topic, index = split(request.topic)
    group = GroupId(request.id or DEFAULT_ID)
    session.authorize(Operation.READ, Resource.GROUP, group)
    commit = OffsetCommit(
        topic=TopicName(topic), partition=Partition(index), offset=Offset(request.offset)
    )

    def done(prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
        if prepared is not None:
            error = next(iter(prepared.errors.values()), None)
        if error is not None:
            session.fail(place, error)
        else:
            session.reply(place, CommitOffsetResp(success=True))

    session.service.broker.coordination.commit(
        CommitRequest(group_id=group, offsets=(commit,), owner=OWNER), done
    )


def handle_fetch_offset(session: MlogSession, request: FetchOffset, place: Place) -> None:
    require_topic(request.topic)
    offset = committed(session, *split(request.topic), request.id)
    session.reply(place, FetchOffsetResp(offset=offset or 0))


def committed(session: MlogSession, topic: str, index: int, client_id: str) -> int | None:
    """Raises `CoordinatorLoading` and `NotAuthorized`."""
    group = GroupId(client_id or DEFAULT_ID)
    session.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    coordination = session.service.broker.coordination
    coordination.require_groups()
    found = coordination.offsets.committed(group, TopicName(topic), Partition(index))
    return None if found is None else found.offset
