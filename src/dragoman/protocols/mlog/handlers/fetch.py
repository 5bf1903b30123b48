"""Fetch (6), FetchBatch (8), FetchStream (10), ReplicateStream (0): read committed records.
CommitOffset (12), FetchOffset (14): which ones a client id has read.

Offset 0 of a client, but not of a replica, means its committed offset, if there is one. Below the
log start, reading continues with the oldest remaining record. If there is nothing to read, Fetch
answers with an error and FetchBatch with no entries; replicas get an error from both. The original
only reserves a number for FetchStream: in Dragoman it is a FetchBatch that waits for records, and
answers with no entries if none were appended in time.

The original's nodes send each other ReplicateStream and ApplyIsrUpdateEvent (27), but the original
has no handler for either and never answers. Here a ReplicateStream is answered with one chunk, the
binary batch, of committed records; the caller repeats it until `EndOfStream`. Only nodes that hold
a replica of the topic get an answer. The cluster itself decides which replicas are in sync: an
update from outside is acknowledged and changes nothing.

A client id is a group: committed offsets are shared by all protocols, and while a group has live
members of another protocol, only they may commit. Clients know no coordinators: any node forwards
commits and queries to the coordinator. As in the original, an offset may be committed for a topic
that does not exist, and the offset of an id that has committed nothing is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TypeAlias

from dragoman.broker.grants import Grant
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.broker.local_reader import LocalReader
from dragoman.errors import DragomanError
from dragoman.limits import MLOG_FETCH_BYTES_MAX, MLOG_FETCH_COUNT_MAX, MLOG_FETCH_ONE_BYTES_MAX
from dragoman.log.batch import Record
from dragoman.protocols.mlog.codec import encode_batch
from dragoman.protocols.mlog.constants import DEFAULT_ID
from dragoman.protocols.mlog.errors import ErrorCode, beyond_watermark
from dragoman.protocols.mlog.handlers.session import MlogSession, Refused
from dragoman.protocols.mlog.handlers.topics import (
    find,
    find_to_read,
    node_name,
    require_topic,
    split,
)
from dragoman.protocols.mlog.messages import (
    ApplyIsrUpdateEvent,
    ApplyIsrUpdateEventResp,
    CommitOffset,
    CommitOffsetResp,
    Entry,
    Fetch,
    FetchBatch,
    FetchBatchResp,
    FetchOffset,
    FetchOffsetResp,
    FetchResp,
    FetchStream,
    FetchStreamResp,
    ReplicateResp,
    ReplicateStream,
)
from dragoman.protocols.session import Place
from dragoman.replication.replica import Replica
from dragoman.security.access import Operation, Resource
from dragoman.types import GroupId, Offset, Partition, TopicName
from dragoman.world import Handle

#: The rest of a handler that has not answered yet.
Waiting: TypeAlias = Coroutine[object, None, None] | None


def _nothing() -> None:
    return None


def handle_fetch(session: MlogSession, request: Fetch, place: Place) -> Waiting:
    replica = find_to_read(session, request.topic)
    return _from_first_offset(session, request, replica, partial(_fetch, session, place, replica))


def _fetch(session: MlogSession, place: Place, replica: Replica, offset: int) -> None:
    found = read(session, replica, offset, 1, MLOG_FETCH_ONE_BYTES_MAX)
    if not found:
        last_readable = max(0, replica.log.last_stable_offset - 1)
        raise Refused(ErrorCode.READ_OFFSET, beyond_watermark(offset, last_readable))
    session.reply(place, FetchResp(entry=as_entries(found)[0]))


def handle_fetch_batch(session: MlogSession, request: FetchBatch, place: Place) -> Waiting:
    replica = find_to_read(session, request.topic)
    fetch = partial(_fetch_batch, session, request, place, replica)
    return _from_first_offset(session, request, replica, fetch)


def _fetch_batch(
    session: MlogSession, request: FetchBatch, place: Place, replica: Replica, offset: int
) -> None:
    found = read(session, replica, offset, request.max_count, MLOG_FETCH_BYTES_MAX)
    if not found and request.replica_node_id:
        text = f"no data at offset {offset} (replica caught up)"
        raise Refused(ErrorCode.READ_OFFSET, text)
    session.reply(place, FetchBatchResp(entries=as_entries(found) or None))


def handle_fetch_stream(session: MlogSession, request: FetchStream, place: Place) -> Waiting:
    replica = find_to_read(session, request.topic)
    begin = partial(_begin_stream, session, request, place, replica)
    return _from_first_offset(session, request, replica, begin, is_alone=True)


def _begin_stream(
    session: MlogSession, request: FetchStream, place: Place, replica: Replica, offset: int
) -> None:
    if not session.channel.is_closing:
        _Stream(session, request, place, replica, offset).start()


def _from_first_offset(
    session: MlogSession,
    request: Fetch | FetchBatch,
    replica: Replica,
    fetch: Callable[[int], None],
    *,
    is_alone: bool = False,
) -> Waiting:
    """Call `fetch` with the offset that the request names, or else with the committed one. With
    `is_alone`, later requests do not begin until that is known.
    """
    if request.offset or request.replica_node_id:
        fetch(request.offset)
        return None
    return _from_committed_offset(session, request, replica, fetch, is_alone=is_alone)


async def _from_committed_offset(
    session: MlogSession,
    request: Fetch | FetchBatch,
    replica: Replica,
    fetch: Callable[[int], None],
    *,
    is_alone: bool,
) -> None:
    if is_alone:
        session.wait(_nothing)
    try:
        offset = await committed_offset(session, request.topic, request.id)
    finally:
        if is_alone:
            session.end_wait()
    # The client may have lost the right meanwhile.
    session.authorize(Operation.READ, Resource.TOPIC, replica.metadata.topic.name)
    fetch(offset)


def as_entries(records: list[Record]) -> list[Entry]:
    return [Entry(offset=each.offset, value=each.value) for each in records]


def read(
    session: MlogSession, replica: Replica, offset: int, count: int, bytes_max: int
) -> list[Record]:
    """The records from an offset on. The connection keeps its reader, because most clients
    continue.
    """
    tail = session.reading
    if tail is None or tail.replica is not replica:
        tail = session.reading = LocalReader(replica, offset, _nothing)
    # Whatever the number of stuck readers, one more may read at least its first record.
    bytes_max = max(1, min(bytes_max, session.service.budget.room // 2))
    found = _read(tail, offset, count, bytes_max)
    _count_sent(session, replica, found)
    return found


def _count_sent(session: MlogSession, replica: Replica, found: list[Record]) -> None:
    if found:
        session.service.sent[replica.metadata.topic.name].add_records(found)


def _read(tail: LocalReader, offset: int, count: int, bytes_max: int) -> list[Record]:
    if tail.offset != offset:
        tail.seek(offset)
    if offset < tail.log_start_offset:
        tail.seek(tail.log_start_offset)
    return tail.read(bytes_max, min(max(1, count), MLOG_FETCH_COUNT_MAX))


class _Stream:
    """A FetchStream. It is answered when there are records or it times out, and dropped with its
    connection.
    """

    def __init__(
        self,
        session: MlogSession,
        request: FetchStream,
        place: Place,
        replica: Replica,
        offset: int,
    ) -> None:
        self._session = session
        self._count = request.max_count
        self._place = place
        self._tail = LocalReader(replica, offset, self._look)
        self._timer: Handle | None = None
        self._grant: Grant | None = None

    def start(self) -> None:
        found = _read(self._tail, self._tail.offset, self._count, MLOG_FETCH_BYTES_MAX)
        if found:
            _count_sent(self._session, self._tail.replica, found)
            self._session.reply(self._place, FetchStreamResp(entries=as_entries(found)))
            return
        if self._session.channel.is_ended:
            self._session.reply(self._place, FetchStreamResp())
            return
        broker = self._session.service.broker
        wait_s = broker.settings.mlog_stream_wait_ms / 1000
        self._session.wait(self._stop, self._answer)
        self._place.parked()
        self._grant = broker.grants.hold(self._authorize, self._answer)
        self._timer = broker.scheduler.call_later(wait_s, self._answer)
        try:
            self._tail.wait()
        except DragomanError as error:
            self._answer(error)

    def _authorize(self) -> None:
        topic = self._tail.replica.metadata.topic.name
        self._session.authorize(Operation.READ, Resource.TOPIC, topic)

    def _look(self) -> None:
        try:
            found = _read(self._tail, self._tail.offset, self._count, MLOG_FETCH_BYTES_MAX)
            if not found:
                self._tail.wait()
                return
        except DragomanError as error:
            self._answer(error)
            return
        _count_sent(self._session, self._tail.replica, found)
        self._answer(found)

    def _answer(self, outcome: list[Record] | DragomanError | None = None) -> None:
        self._stop()
        self._session.end_wait()
        if isinstance(outcome, DragomanError):
            self._session.fail(self._place, outcome)
        else:
            entries = as_entries(outcome) if outcome else None
            self._session.reply(self._place, FetchStreamResp(entries=entries))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._grant is not None:
            self._grant.release()
        self._tail.close()


# ---- requests between the original's nodes


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


OWNER = "mlog"


def handle_commit(session: MlogSession, request: CommitOffset, place: Place) -> None:
    require_topic(request.topic)
    topic, index = split(request.topic)
    group = GroupId(request.id or DEFAULT_ID)
    session.authorize(Operation.READ, Resource.GROUP, group)
    session.authorize(Operation.READ, Resource.TOPIC, topic)
    commit = OffsetCommit(
        topic=TopicName(topic), partition=Partition(index), offset=Offset(request.offset)
    )
    commit_request = CommitRequest(group_id=group, offsets=(commit,), owner=OWNER)
    groups = session.service.broker.coordination.groups
    done = partial(_finish_commit, session, place)
    groups.commit_anywhere(commit_request, done, caller=session.caller)


def _finish_commit(session: MlogSession, place: Place, error: DragomanError | None) -> None:
    if error is None:
        session.reply(place, CommitOffsetResp(success=True))
    else:
        session.fail(place, error)


async def handle_fetch_offset(session: MlogSession, request: FetchOffset, place: Place) -> None:
    require_topic(request.topic)
    offset = await committed_offset(session, request.topic, request.id)
    session.reply(place, FetchOffsetResp(offset=offset))


async def committed_offset(session: MlogSession, name: str, client_id: str) -> int:
    """The offset that a client id has committed; 0 if there is none. Raises `NotAuthorized`."""
    group = GroupId(client_id or DEFAULT_ID)
    session.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    topic, index = split(name)
    session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)
    groups = session.service.broker.coordination.groups
    return (await groups.committed(group, TopicName(topic))).get(index, 0)
