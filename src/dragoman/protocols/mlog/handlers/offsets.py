"""CommitOffset (12) and FetchOffset (14): what a client id has read.

An id is a group: committed offsets are shared by all protocols, and while a group has live members
of another protocol, only they may commit. Clients know no coordinators: any node forwards commits
and queries to the coordinator. As in the original, an offset may be committed for a topic that does
not exist, and the offset of an id that has committed nothing is 0.
"""

from __future__ import annotations

from functools import partial

from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.outcome import acknowledged
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


async def handle_commit(session: MlogSession, request: CommitOffset, place: Place) -> None:
    require_topic(request.topic)
    topic, index = split(request.topic)
    group = GroupId(request.id or DEFAULT_ID)
    session.authorize(Operation.READ, Resource.GROUP, group)
    commit = OffsetCommit(
        topic=TopicName(topic), partition=Partition(index), offset=Offset(request.offset)
    )
    groups = session.service.broker.coordination.groups
    commit_request = CommitRequest(group_id=group, offsets=(commit,), owner=OWNER)
    await acknowledged(partial(groups.commit_anywhere, commit_request))
    session.reply(place, CommitOffsetResp(success=True))


async def handle_fetch_offset(session: MlogSession, request: FetchOffset, place: Place) -> None:
    require_topic(request.topic)
    offset = await committed_offset(session, request.topic, request.id)
    session.reply(place, FetchOffsetResp(offset=offset))


async def committed_offset(session: MlogSession, name: str, client_id: str) -> int:
    """The offset that a client id has committed; 0 if there is none. Raises `NotAuthorized`."""
    group = GroupId(client_id or DEFAULT_ID)
    session.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    topic, index = split(name)
    groups = session.service.broker.coordination.groups
    return (await groups.committed(group, TopicName(topic))).get(index, 0)
