"""CONSUME, which returns one batch, and STREAM, which pushes records as they are appended.

CONSUME starts where the connection's last CONSUME of the partition stopped; else at the group's
committed offset; else at `offset`. It waits up to `wait_ms` for records. The topic may be a pattern
with `*` and `?`: then one batch contains the named partition of all matching topics, in name order.

After STREAM a connection only pushes the records of one partition. Nothing is acknowledged, and
delivery does not commit. An empty frame every five seconds is a keep-alive, sent even between
records. There is one stream per topic, partition and group: a new one ends the old one. The last
frame gives the reason, and the offset at which the stream would continue. No more records are
pushed while the reader does not read (back-pressure).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import NamedTuple

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import UnknownTopic
from dragoman.broker.grants import Grant
from dragoman.broker.local_reader import LocalReader
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.limits import (
    CURSUS_CONSUME_BYTES_MAX,
    CURSUS_PUSH_BYTES,
    CURSUS_TURN_BYTES_MAX,
    CURSUS_WAIT_MS_MAX,
)
from dragoman.log.batch import Record
from dragoman.outcome import start
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.constants import BATCH_MESSAGES_MAX, STREAM_CONTROL
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import is_pattern, topics_named
from dragoman.protocols.cursus.handlers.records import sent_batch
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import Call, CursusSession, batch_frame
from dragoman.security.access import Operation, Resource
from dragoman.types import GroupId, Partition, TopicName
from dragoman.world import Handle

DEFAULT_GROUP = "default-group"
_BATCH_MESSAGES = 8192


class ReadRequest(NamedTuple):
    """The arguments of CONSUME and STREAM."""

    #: The topics that match the name or pattern and have the partition.
    topics: list[TopicMetadata]
    partition: int
    offset: int
    group: str
    count_max: int
    committed_only: bool


def _read_request(
    call: Call, refusal: str, needed: tuple[str, ...], default_group: str
) -> ReadRequest:
    """The arguments of a command. Raises `Refusal`, with the given text for an argument that is
    missing or not a number.
    """
    if not all(map(call.get, needed)):
        raise Refusal(refusal)
    partition = call.number("partition", refusal=refusal)
    offset = call.number("offset", 0, refusal=refusal)
    count = call.number("batch", _BATCH_MESSAGES, refusal=refusal)
    # Published clients use either name.
    isolation = call.get("isolation") or call.get("isolation_level") or "read_committed"
    if isolation.lower() not in ("read_committed", "read_uncommitted"):
        raise Refusal(f"invalid_isolation isolation={isolation}")
    group = call.get("group") or default_group
    if group:
        # The reader begins where the group has stopped.
        call.authorize(Operation.READ, Resource.GROUP, group)
    return ReadRequest(
        topics=_readable(call, partition),
        partition=partition,
        offset=offset,
        group=group,
        count_max=min(count, BATCH_MESSAGES_MAX) or 1,
        committed_only=isolation.lower() == "read_committed",
    )


def _readable(call: Call, partition: int) -> list[TopicMetadata]:
    name, session = call.get("topic"), call.session
    if not is_pattern(name):
        session.authorize_topic(Operation.READ, name)
    found = topics_named(call.service.broker.image.topics, name)
    if is_pattern(name):
        # As if there were no others.
        found = [each for each in found if session.may_access(Operation.READ, each)]
    if not found:
        raise _failed(f"topic '{name}' does not exist")
    for topic in found:
        session.check_access(Operation.READ, topic)
    having = [each for each in found if partition < len(each.partitions)]
    if not having and not is_pattern(name):
        last = len(found[0].partitions) - 1
        raise _failed(f"partition {partition} out of range for topic '{name}' (0-{last})")
    return having


def authorize_reading(session: CursusSession, request: ReadRequest) -> None:
    """Authorize a CONSUME or STREAM that has begun. Raises `Refusal`."""
    for topic in request.topics:
        session.check_access(Operation.READ, topic)
    if request.group and not session.is_allowed(Operation.READ, Resource.GROUP, request.group):
        raise Refusal("NOT_AUTHORIZED_FOR_OPERATION command=CONSUME permission=group")


def _failed(reason: str) -> Refusal:
    return Refusal(f"command_failed reason={quoted(reason)}")


async def committed_offsets(
    service: CursusService, group: str, topics: list[str], partition: int
) -> dict[str, int]:
    """By topic, the offset of this partition that a group has committed, requested from the group's
    coordinator. Topics without a committed offset are absent.
    """
    look_up = service.broker.coordination.groups.committed
    # All lookups run concurrently.
    found = [start(look_up(GroupId(group), TopicName(each))) for each in topics]
    return _of_partition(partition, topics, [await each for each in found])


def _committed_here(
    service: CursusService, group: str, topics: list[str], partition: int
) -> dict[str, int] | None:
    """`committed_offsets` without waiting, for a group that this node coordinates; else None."""
    coordination = service.broker.coordination
    node_id = coordination.coordinator_of(CoordinatorKind.GROUP, group)
    if node_id != service.broker.node_id:
        return None
    look_up = coordination.groups.committed_here
    found = [look_up(GroupId(group), TopicName(each)) for each in topics]
    return _of_partition(partition, topics, found)


def _of_partition(partition: int, topics: list[str], found: list[dict[int, int]]) -> dict[str, int]:
    return {
        topic: offsets[partition]
        for topic, offsets in zip(topics, found, strict=True)
        if partition in offsets
    }


def committed_offset(service: CursusService, group: str, topic: str, partition: int) -> int | None:
    """A committed offset of a group that this node coordinates."""
    coordination = service.broker.coordination
    coordination.groups.require(group)
    found = coordination.groups.offsets.committed(
        GroupId(group), TopicName(topic), Partition(partition)
    )
    return None if found is None else found.offset


def out_of_range(tail: LocalReader) -> str:
    return f"requested={tail.offset} earliest={tail.log_start_offset} latest={tail.end_offset}"


def handle_consume(call: Call) -> Coroutine[object, None, None] | None:
    member = () if call.command.is_positional else ("member",)
    needed = ("topic", "partition", "offset", *member)
    return _Consume(
        call, _read_request(call, "invalid_consume_syntax", needed, DEFAULT_GROUP)
    ).start()


class _Consume:
    """A CONSUME in progress."""

    def __init__(self, call: Call, request: ReadRequest) -> None:
        self._call = call
        self._request = request
        self._tails: list[tuple[tuple[str, int], LocalReader]] = []
        #: Positions for the next CONSUME, which take effect when the records are sent.
        self._moved: dict[tuple[str, int], int] = {}
        self._timer: Handle | None = None
        self._grant: Grant | None = None

    def start(self) -> Coroutine[object, None, None] | None:
        call, partition = self._call, self._request.partition
        new = []
        for topic in self._request.topics:
            replica = call.service.replica(topic, partition)
            tail = LocalReader(replica, 0, self._woken, committed_only=self._request.committed_only)
            place = (topic.name, partition)
            self._tails.append((place, tail))
            if self._remembered(place, tail) is None:
                new.append(topic.name)
        committed = (
            _committed_here(call.service, self._request.group, new, partition) if new else {}
        )
        if committed is None:
            return self._begin_at_committed(new)
        self._begin(committed)
        return None

    async def _begin_at_committed(self, topics: list[str]) -> None:
        call, request = self._call, self._request
        committed = await committed_offsets(call.service, request.group, topics, request.partition)
        # The client may have lost the right in the meantime.
        self._authorize()
        if not call.is_closed:
            self._begin(committed)

    def _begin(self, committed: dict[str, int]) -> None:
        call = self._call
        for place, tail in self._tails:
            tail.seek(self._begin_at(place, tail, committed.get(place[0])))
        wait_ms = min(call.number("wait_ms", 0), CURSUS_WAIT_MS_MAX)
        if wait_ms and not call.session.channel.is_ended:
            self._timer = call.service.scheduler.call_later(wait_ms / 1000, self._time_is_up)
            call.session.release = self._end
            call.session.answer_now = self._time_is_up
            call.place.parked()
            self._grant = call.service.broker.grants.hold(self._authorize, self._revoked)
        self._look()

    def _remembered(self, place: tuple[str, int], tail: LocalReader) -> int | None:
        remembered = self._call.session.positions.get(place)
        # A position past the end belongs to a deleted topic of the same name.
        if remembered is None or remembered > tail.replica.log.log_end_offset:
            return None
        return max(remembered, tail.log_start_offset)

    def _begin_at(self, place: tuple[str, int], tail: LocalReader, committed: int | None) -> int:
        call = self._call
        remembered = self._remembered(place, tail)
        if remembered is not None:
            return remembered
        start = self._request.offset if committed is None else committed
        if start >= tail.log_start_offset:
            # Past the end there are no records yet; like the original, the command waits, as
            # clients expect.
            return start
        match call.get("autoOffsetReset").lower():
            case "earliest":
                return tail.log_start_offset
            case "latest":
                return tail.end_offset
        tail.offset = start
        raise Refusal(f"OFFSET_OUT_OF_RANGE {out_of_range(tail)}")

    def _look(self) -> None:
        """Reply with the available records, or wait for some."""
        found = self._read()
        if found or self._timer is None:
            self._answer(found)
            return
        for _, tail in self._tails:
            # The wait may have found records at once, and replied.
            if not self._call.place.is_done:
                tail.wait()

    def _authorize(self) -> None:
        """Raises `Refusal`."""
        authorize_reading(self._call.session, self._request)

    def _revoked(self, error: DragomanError) -> None:
        self._end()
        self._call.refuse(error)

    def _woken(self) -> None:
        try:
            self._look()
        except DragomanError as error:
            self._end()
            self._call.refuse(error)

    def _read(self) -> list[Record]:
        """The records that are available now."""
        found: list[Record] = []
        # Whatever the number of stuck readers, one more may read at least its first record.
        room = max(1, min(CURSUS_CONSUME_BYTES_MAX, self._call.service.budget.room // 2))
        for place, tail in self._tails:
            left = self._request.count_max - len(found)
            if room <= 0 or left <= 0:
                break
            try:
                records = tail.read(room, left)
            except OffsetOutOfRangeError:
                raise Refusal(f"OFFSET_OUT_OF_RANGE {out_of_range(tail)}") from None
            if records:
                self._moved[place] = tail.offset
                self._call.service.sent[place[0]].add_records(records)
                room -= sum(len(each.key or b"") + len(each.value or b"") for each in records)
                found += records
        return found

    def _time_is_up(self) -> None:
        try:
            self._answer([])
        except DragomanError as error:
            self._call.refuse(error)

    def _answer(self, found: list[Record]) -> None:
        self._end()
        call = self._call
        frame = batch_frame(sent_batch(call.get("topic"), self._request.partition, found))
        call.session.positions |= self._moved
        call.place.reply(frame)

    def _end(self) -> None:
        self._call.session.release = self._call.session.answer_now = None
        if self._timer is not None:
            self._timer.cancel()
        if self._grant is not None:
            self._grant.release()
        for _, tail in self._tails:
            tail.close()


KEEP_ALIVE_S = 5.0


async def handle_stream(call: Call) -> None:
    service, default = call.service, DEFAULT_GROUP if call.command.is_positional else ""
    request = _read_request(call, "invalid_stream_syntax", ("topic", "partition"), default)
    if not request.group or is_pattern(call.get("topic")):
        raise Refusal("invalid_stream_syntax")
    if len(service.streams) >= service.broker.settings.cursus_streams_max:
        raise Refusal('command_failed reason="too many streams"')
    (topic,) = request.topics
    # A node that does not lead the partition refuses before it queries other nodes.
    service.replica(topic, request.partition)
    committed = await committed_offsets(service, request.group, [topic.name], request.partition)
    # The client may have lost the right in the meantime.
    authorize_reading(call.session, request)
    if not call.is_closed:
        _begin(call, request, committed.get(topic.name, request.offset))


def _begin(call: Call, request: ReadRequest, offset: int) -> None:
    service = call.service
    (topic,) = request.topics
    tail = LocalReader(
        service.replica(topic, request.partition),
        offset,
        lambda: stream.pump(),
        committed_only=request.committed_only,
    )
    name = (topic.name, request.partition, request.group)
    stream = Stream(call.session, name, request, tail)
    call.session.stream = stream
    call.session.release = stream.stop
    call.place.reply()
    service.streams.add(stream)
    stream.start()
    if call.session.channel.is_ended:
        stream.close("stopped")


class Stream:
    def __init__(
        self,
        session: CursusSession,
        name: tuple[str, int, str],
        request: ReadRequest,
        tail: LocalReader,
    ) -> None:
        #: Topic, partition, group.
        self.name = name
        self._session = session
        self._service = session.service
        self._count_max = request.count_max
        self._grant = session.service.broker.grants.hold(
            partial(authorize_reading, session, request), lambda _: self.close("error")
        )
        self._tail = tail
        self._timer: Handle | None = None
        self._next_turn: Handle | None = None
        self._is_over = False
        self._sent_at = session.service.scheduler.time()

    def start(self) -> None:
        self._timer = self._service.scheduler.call_later(KEEP_ALIVE_S, self._keep_alive)
        self.pump()

    def pump(self) -> None:
        """Push available records while the peer accepts them, then wait for records or for the
        peer.
        """
        self._next_turn = None
        pushed = 0
        try:
            while self._session.can_send and not self._is_over:
                records = self._tail.read(CURSUS_PUSH_BYTES, self._count_max)
                if not records:
                    self._tail.wait()
                    return
                try:
                    frame = batch_frame(sent_batch(self.name[0], self.name[1], records))
                except Refusal:
                    self._tail.seek(records[0].offset)
                    raise
                self._session.push(frame)
                self._service.sent[self.name[0]].add_records(records)
                self._sent_at = self._service.scheduler.time()
                pushed += len(frame)
                if pushed >= CURSUS_TURN_BYTES_MAX:
                    # Continue in the next loop turn, so that other connections are served.
                    self._next_turn = self._service.scheduler.call_soon(self.pump)
                    return
        except OffsetOutOfRangeError:
            self.close("offset_out_of_range", " " + out_of_range(self._tail))
        except UnknownTopic:
            self.close("removed")
        except DragomanError:
            self.close("error")

    def _keep_alive(self) -> None:
        scheduler = self._service.scheduler
        limit_s = self._service.broker.settings.cursus_stream_timeout_ms / 1000
        if scheduler.time() - self._sent_at >= limit_s:
            self.close("timeout")
            return
        if self._session.can_send:
            self._session.push(codec.frame(b""))
        self._timer = scheduler.call_later(KEEP_ALIVE_S, self._keep_alive)

    def close(self, reason: str, more: str = "") -> None:
        """Push the reason, then close the connection."""
        if self._is_over:
            return
        self.stop()
        text = f"{STREAM_CONTROL} type=CLOSE reason={reason} offset={self._tail.offset}{more}"
        self._session.push(codec.frame(text.encode()))
        self._session.close()

    def stop(self) -> None:
        self._is_over = True
        self._grant.release()
        self._tail.close()
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()
        self._service.streams.remove(self)
