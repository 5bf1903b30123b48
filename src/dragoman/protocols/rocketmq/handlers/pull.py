"""Pulls (11, 361): messages from an offset, with long polling.

A connection keeps its reader of a partition between pulls. The filter is in the pull, or in the
heartbeats of the group's members. A pull scans a bounded number of bytes: if none of these messages
match, the response is the offset after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.broker.errors import NotLeader
from dragoman.broker.grants import Grant
from dragoman.broker.readers import Ends, Reader
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import (
    ROCKETMQ_COPY_WAIT_S,
    ROCKETMQ_HOLD_S_MAX,
    ROCKETMQ_PULL_BYTES_MAX,
    ROCKETMQ_PULL_COUNT_MAX,
    ROCKETMQ_READERS_MAX,
    ROCKETMQ_SCAN_BYTES_MAX,
)
from dragoman.log.batch import Record
from dragoman.outcome import ignore
from dragoman.protocols.rocketmq.constants import (
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    Perm,
    PullFlag,
    Response,
)
from dragoman.protocols.rocketmq.filters import Filter, FilterError, compile_filter
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.names import require_topic, topic_name
from dragoman.protocols.rocketmq.handlers.records import encoded, properties_of, tags_of
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.topics import attributes_of, read_queues
from dragoman.security.access import Operation, Resource
from dragoman.world import Handle

_READ: Final = Operation.READ
_COMMIT: Final = int(PullFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
#: The cost in bytes of scanning a record, in addition to its value.
_RECORD_BYTES: Final = 128


def handle_pull_message(call: Call) -> None:
    spelt = call.text("topic")
    group = call.text("consumerGroup")
    call.authorize_topic(_READ, topic_name(spelt))
    call.authorize(_READ, Resource.GROUP, group)
    topic = require_topic(call.broker.image, spelt)
    if not call.node.group_config(group).consume_enable:
        raise Refused(Response.NO_PERMISSION, f"subscription group no permission, {group}")
    if not attributes_of(topic).perm & Perm.READ or call.node.is_forbidden(group, topic.name):
        raise Refused(Response.NO_PERMISSION, f"the topic[{spelt}] pulling message is forbidden")
    queue = call.number("queueId")
    count = read_queues(topic)
    if not 0 <= queue < count:
        text = f"queueId[{queue}] is illegal, topic:[{spelt}] topicConfig.readQueueNums:[{count}]"
        raise Refused(Response.INVALID_PARAMETER, text)
    sys_flag = call.number("sysFlag", 0)
    chosen = _filter(call, group, spelt, sys_flag)
    if sys_flag & _COMMIT:
        _commit(call, group, topic.name, queue)
    _Pull(call, topic.partitions[queue], spelt, chosen, sys_flag).begin()


handle_lite_pull_message = handle_pull_message


def _filter(call: Call, group: str, spelt: str, sys_flag: int) -> Filter:
    kind: str | None = call.fields.get("expressionType")
    expression = call.fields.get("subscription", call.fields.get("subExpression", ""))
    if not sys_flag & _SUBSCRIPTION and group not in SYSTEM_GROUPS:
        local = call.node.clients.groups.get(group)
        known = None if local is None else local.subscription(call.session, spelt)
        if known is None and spelt != RETRY_PREFIX + group:
            text = f"the consumer's subscription not exist, group {group}, topic {spelt}"
            raise Refused(Response.SUBSCRIPTION_NOT_EXIST, text)
        if known is not None:
            if known.sub_version < call.number("subVersion", 0):
                text = "the consumer's subscription not latest"
                raise Refused(Response.SUBSCRIPTION_NOT_LATEST, text)
            kind, expression = known.expression_type, known.sub_string
    return parsed_filter(kind, expression)


def parsed_filter(kind: str | None, expression: str) -> Filter:
    """Raises `Refused`."""
    try:
        return compile_filter(kind, expression)
    except FilterError as error:
        text = f"parse the consumer's subscription failed: {error}"
        raise Refused(Response.SUBSCRIPTION_PARSE_FAILED, text) from None


def _commit(call: Call, group: str, topic: str, queue: int) -> None:
    offset = call.number("commitOffset", -1)
    if offset >= 0:
        # The result is not reported; the next pull commits again.
        call.node.commits.commit(call.caller, group, topic, {queue: offset}).then(ignore)


class _Pull:
    def __init__(
        self, call: Call, partition: PartitionMetadata, spelt: str, chosen: Filter, sys_flag: int
    ) -> None:
        self._call = call
        self._partition = partition
        self._topic = spelt.encode()
        self._filter = chosen
        self._offset = call.number("queueOffset")
        self._count = min(max(1, call.number("maxMsgNums", 32)), ROCKETMQ_PULL_COUNT_MAX)
        bytes_max = call.number("maxMsgBytes", 0)
        self._bytes = (
            min(bytes_max, ROCKETMQ_PULL_BYTES_MAX) if bytes_max > 0 else ROCKETMQ_PULL_BYTES_MAX
        )
        hold_ms = call.number("suspendTimeoutMillis", 0) if sys_flag & _SUSPEND else 0
        self._hold_s = min(hold_ms / 1000, ROCKETMQ_HOLD_S_MAX)
        self._reader: Reader | None = None
        self._timer: Handle | None = None
        self._grant: Grant | None = None
        self._ends = Ends(0, 0, 0, 0)
        #: Whether the leader's bounds of the partition were requested.
        self._has_asked = False
        #: The number of messages in the response.
        self._given = 0

    # ---- the offset

    def begin(self) -> None:
        broker = self._call.broker
        try:
            log = broker.partitions.held(self._partition).log
        except NotLeader:
            self._has_asked = True
            self._call.after(broker.readers.ends(self._partition), self._check)
            return
        ends = Ends(
            log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
        )
        if self._offset > ends.last_stable_offset and self._partition.leader != broker.node_id:
            # The replica of this node may be behind.
            self._has_asked = True
            self._call.after(broker.readers.ends(self._partition), self._check)
        else:
            self._check(ends)

    def _check(self, ends: Ends) -> None:
        self._ends = ends
        low, high, offset = ends.log_start_offset, ends.last_stable_offset, self._offset
        if self._has_asked and low <= offset < high:
            # The leader has the message, and this node's replica will have it soon.
            self._hold_s = max(self._hold_s, ROCKETMQ_COPY_WAIT_S)
        if low <= offset <= high:
            self._read()
        elif low == high:
            self._finish(Response.PULL_OFFSET_MOVED, b"", low)
        else:
            self._finish(Response.PULL_OFFSET_MOVED, b"", low if offset < low else high)

    def _may_be_behind(self) -> bool:
        """Whether the leader may have messages that this node's replica lacks. True only once."""
        is_asked, self._has_asked = self._has_asked, True
        return not is_asked and self._partition.leader != self._call.broker.node_id

    # ---- messages

    def _read(self) -> None:
        reader = self._open_reader()
        body, next_offset, is_behind = self._scan(reader)
        if body:
            self._finish(Response.SUCCESS, body, next_offset)
        elif is_behind:
            self._finish(Response.PULL_RETRY_IMMEDIATELY, b"", next_offset)
        elif self._may_be_behind():
            ends = self._call.broker.readers.ends(self._partition)
            self._call.after(ends, self._check)
        elif self._hold_s > 0 and not self._call.session.channel.is_ended:
            self._hold(reader)
        elif next_offset > self._offset:
            self._finish(Response.PULL_RETRY_IMMEDIATELY, b"", next_offset)
        else:
            self._finish(Response.PULL_NOT_FOUND, b"", self._offset)

    def _open_reader(self) -> Reader:
        """The connection's reader of the partition, or a new one while that is in use."""
        session = self._call.session
        reader = self._reader or session.readers.pop(self._partition.partition_id, None)
        if reader is None:
            reader = _PullReader(session.service.broker, self._partition, self._offset)
        assert isinstance(reader, _PullReader)
        if reader.offset != self._offset:
            reader.seek(self._offset)
        reader.on_change = self._look
        self._reader = reader
        return reader

    def _scan(self, reader: Reader) -> tuple[bytes, int, bool]:
        """Scan messages. Returns those that match, the next offset, and whether there are more to
        scan.
        """
        session = self._call.session
        store_host = session.store_host
        partition = self._partition
        found: list[bytes] = []
        size = scanned = 0
        while len(found) < self._count and size < self._bytes:
            room = max(1, min(self._bytes - size, session.service.budget.room // 2))
            records = reader.read(room, self._count - len(found))
            if not records:
                return b"".join(found), reader.offset, False
            for record in records:
                scanned += _RECORD_BYTES + len(record.value or b"")
                if self._matches(record):
                    message = encoded(
                        record, self._topic, partition.partition_id, partition.index, store_host
                    )
                    found.append(message)
                    size += len(message)
                    self._given += 1
            if scanned >= ROCKETMQ_SCAN_BYTES_MAX:
                break
        return b"".join(found), reader.offset, True

    def _matches(self, record: Record) -> bool:
        chosen = self._filter
        if chosen.takes_all:
            return True
        if chosen.tags is not None:
            tags = tags_of(record)
            return tags is not None and tags.decode("utf-8", "replace") in chosen.tags
        return chosen.matches(properties_of(record))

    # ---- waiting

    def _hold(self, reader: Reader) -> None:
        call = self._call
        if self._timer is None:
            call.parked()
            self._timer = call.broker.scheduler.call_later(self._hold_s, self._expire)
            call.session.on_gone[self] = self._gone
            self._grant = call.broker.grants.hold(self._authorize, self._revoked)
            call.session.answer_now[self] = self._expire
        reader.wait()

    def _look(self) -> None:
        """Scan again once the client reads its data, because there may be more messages."""
        if self._call.is_done or self._reader is None:
            return
        self._call.session.when_writable(self._look_again)

    def _look_again(self) -> None:
        if not self._call.is_done:
            self._call.guarded(self._scan_again)

    def _scan_again(self) -> None:
        reader = self._reader
        assert reader is not None
        body, next_offset, is_behind = self._scan(reader)
        if body:
            self._finish(Response.SUCCESS, body, next_offset)
        elif is_behind:
            self._finish(Response.PULL_RETRY_IMMEDIATELY, b"", next_offset)
        else:
            reader.wait()

    def _expire(self) -> None:
        reader = self._reader
        moved = reader is not None and reader.offset > self._offset
        if moved and reader is not None:
            self._finish(Response.PULL_RETRY_IMMEDIATELY, b"", reader.offset)
        else:
            self._finish(Response.PULL_NOT_FOUND, b"", self._offset)

    def _authorize(self) -> None:
        """Raises `NotAuthorized`."""
        self._call.authorize_topic(_READ, self._partition.topic.name)
        self._call.authorize(_READ, Resource.GROUP, self._call.fields["consumerGroup"])

    def _revoked(self, error: DragomanError) -> None:
        self._end_wait()
        self._keep_reader()
        self._call.refuse(error)

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._call.session.on_gone.pop(self, None)
            self._call.session.answer_now.pop(self, None)
        if self._grant is not None:
            self._grant.release()

    def _gone(self) -> None:
        self._call.is_done = True
        self._call.counter.dropped += 1
        if self._timer is not None:
            self._timer.cancel()
        if self._grant is not None:
            self._grant.release()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # ---- the answer

    def _finish(self, code: Response, body: bytes, next_offset: int) -> None:
        call = self._call
        self._end_wait()
        ends = self._current_ends()
        self._keep_reader()
        topic = self._partition.topic.name
        call.node.traffic.pulled(call.fields["consumerGroup"], topic, self._given)
        if body:
            call.service.sent[topic].add(len(body), self._given)
        call.reply(
            code,
            _REMARKS[code],
            {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(next_offset),
                "minOffset": str(ends.log_start_offset),
                "maxOffset": str(max(ends.last_stable_offset, next_offset if body else 0)),
            },
            body,
        )

    def _current_ends(self) -> Ends:
        broker = self._call.broker
        try:
            log = broker.partitions.held(self._partition).log
        except NotLeader:
            return self._ends
        return Ends(
            log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
        )

    def _keep_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is None:
            return
        assert isinstance(reader, _PullReader)
        reader.on_change = _nothing
        session = self._call.session
        other = session.readers.pop(self._partition.partition_id, None)
        if other is not None:
            other.close()
        if session.channel.is_closing:
            reader.close()
            return
        session.readers[self._partition.partition_id] = reader
        if len(session.readers) > ROCKETMQ_READERS_MAX:
            _, oldest = session.readers.popitem(last=False)
            oldest.close()


_REMARKS: Final = {
    Response.SUCCESS: "FOUND",
    Response.PULL_NOT_FOUND: "NO_MESSAGE_IN_QUEUE",
    Response.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MESSAGE",
    Response.PULL_OFFSET_MOVED: "OFFSET_OVERFLOW_BADLY",
}


def _nothing() -> None:
    return None


class _PullReader:
    """A reader that several pulls use in sequence, each with its own callback."""

    def __init__(self, broker: Core, partition: PartitionMetadata, offset: int) -> None:
        self.on_change: Callable[[], None] = _nothing
        self._reader = broker.readers.open(partition, offset, self._changed)

    def _changed(self) -> None:
        self.on_change()

    @property
    def offset(self) -> int:
        return self._reader.offset

    @property
    def log_start_offset(self) -> int:
        return self._reader.log_start_offset

    def seek(self, offset: int) -> None:
        self._reader.seek(offset)

    def read(self, bytes_max: int, count_max: int) -> list[Record]:
        return self._reader.read(bytes_max, count_max)

    def wait(self) -> None:
        self._reader.wait()

    def close(self) -> None:
        self._reader.close()
