"""CommitOffset (12) and FetchOffset (14): what a client id has read.

An id is a group: committed offsets are those of all protocols, and a group with live members of
another protocol is theirs to commit. Clients know of no coordinator: any node passes a commit on to
it, and asks it. As in the original, an offset may be committed for a topic
that does not exist, and what was never committed is 0.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.errors import DragomanError
from dragoman.outcome import start
from dragoman.protocols.mlog.constants import DEFAULT_ID
from dragoman.protocols.mlog.handlers.session import MlogSession
from dragoman.protocols.mlog.handlers.topics import require_topic, split
from dragoman.protocols.mlog.messages import (
    CommitOffset,
    CommitOffsetResp,
    FetchOffset,
    FetchOffsetResp,
)
from dragoman.protocols.session import Place
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

    def done(error: DragomanError | None) -> None:
        if error is not None:
            session.fail(place, error)
        else:
            session.reply(place, CommitOffsetResp(success=True))

    commit_request = CommitRequest(group_id=group, offsets=(commit,), owner=OWNER)
    groups = session.service.broker.coordination.groups
    groups.commit_anywhere(commit_request, done)


def handle_fetch_offset(session: MlogSession, request: FetchOffset, place: Place) -> None:
    require_topic(request.topic)

    def answer(offset: int) -> None:
        session.reply(place, FetchOffsetResp(offset=offset))

    with_committed(session, place, request.topic, request.id, answer)


def with_committed(
    session: MlogSession,
    place: Place,
    name: str,
    client_id: str,
    use: Callable[[int], None],
    asked: Callable[[], None] = lambda: None,
) -> None:
    """Have `use` called with what the client has committed, or 0; what it raises is answered.
    Whatever comes of it, `asked` is called before. Raises `NotAuthorized`.
    """
    group = GroupId(client_id or DEFAULT_ID)
    session.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    topic, index = split(name)

    def found(offsets: dict[int, int] | DragomanError) -> None:
        asked()
        try:
            if isinstance(offsets, DragomanError):
                raise offsets
            use(offsets.get(index, 0))
        except DragomanError as error:
            session.fail(place, error)

    coordination = session.service.broker.coordination
    start(coordination.groups.committed(group, TopicName(topic))).then(found)
