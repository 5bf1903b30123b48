"""CONSUME: one batch of what is there, or of what comes within `wait_ms`.

Where reading begins: where the last CONSUME of the partition on this connection left off; else at
the group's committed offset; else at `offset`. The topic may be a pattern with `*` and `?`: then
the named partition of all topics that match is read, in order of their names, into one batch.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial

from dragoman.broker.tailing import Tail
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.limits import (
    CURSUS_CONSUME_BYTES_MAX,
    CURSUS_WAIT_MS_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from dragoman.log.batch import Record
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import check_access, is_expressible
from dragoman.protocols.cursus.handlers.records import sent_batch
from dragoman.protocols.cursus.handlers.session import Call, batch_frame
from dragoman.security.authorizer import Operation
from dragoman.types import GroupId, Partition, TopicName
from dragoman.world import Handle

_BATCH_MESSAGES = 8192
_DEFAULT_GROUP = "default-group"


def is_pattern(topic: str) -> bool:
    return "*" in topic or "?" in topic


def matching(topics: dict[str, TopicMetadata], pattern: str) -> list[TopicMetadata]:
    """Topics that a pattern names, in order; internal ones are nobody's to read by accident."""
    if len(pattern) > TOPIC_NAME_BYTES_MAX:
        return []
    # The standard library's patterns know brackets, too; Cursus's do not.
    plain = pattern.replace("[", "[[]")
    return [
        topic
        for name, topic in sorted(topics.items())
        if not topic.is_internal and is_expressible(name) and fnmatchcase(name, plain)
    ]


def handle_consume(call: Call) -> None:
    needed = ["topic", "partition", "offset"]
    if not call.command.is_positional:
        needed.append("member")
    if not all(call.get(name) for name in needed):
        raise Refusal("invalid_consume_syntax")
    partition = call.number("partition", refusal="invalid_consume_syntax")
    _Consume(call, partition, call.number("offset", refusal="invalid_consume_syntax")).start()


def is_committed_only(call: Call) -> bool:
    """Published clients call the argument by either name."""
    isolation = call.get("isolation") or call.get("isolation_level") or "read_committed"
    if isolation.lower() not in ("read_committed", "read_uncommitted"):
        raise Refusal(f"invalid_isolation isolation={isolation}")
    return isolation.lower() == "read_committed"


def topics_of(call: Call, name: str) -> list[TopicMetadata]:
    """The topic, or all that match a pattern. Raises `Refusal`."""
    topics = call.service.broker.image.topics
    if is_pattern(name):
        found = matching(topics, name)
    else:
        found = [topics[name]] if name in topics and is_expressible(name) else []
    if not found:
        reason = quoted(f"topic '{name}' does not exist")
        raise Refusal(f"command_failed reason={reason}")
    for topic in found:
        check_access(call, Operation.READ, topic)
    return found


def check_partition(topic: TopicMetadata, partition: int) -> None:
    count = len(topic.partitions)
    if partition >= count:
        reason = f"partition {partition} out of range for topic '{topic.name}' (0-{count - 1})"
        raise Refusal(f"command_failed reason={quoted(reason)}")


def committed_offset(call: Call, group: str, topic: str, partition: int) -> int | None:
    coordination = call.service.broker.coordination
    coordination.require_groups()
    found = coordination.offsets.committed(GroupId(group), TopicName(topic), Partition(partition))
    return None if found is None else found.offset


def out_of_range(tail: Tail) -> str:
    return f"requested={tail.offset} earliest={tail.log_start_offset} latest={tail.end_offset}"


class _Consume:
    """One CONSUME under way."""

    def __init__(self, call: Call, partition: int, offset: int) -> None:
        self._call = call
        self._partition = partition
        self._offset = offset
        self._name = call.get("topic")
        self._count_max = min(call.number("batch", _BATCH_MESSAGES), 100_000) or 1
        self._wait_ms = min(call.number("wait_ms", 0), CURSUS_WAIT_MS_MAX)
        self._tails: list[tuple[TopicMetadata, Tail]] = []
        #: Where reading goes on, once what was read has been sent.
        self._moved: dict[tuple[str, int], int] = {}
        self._timer: Handle | None = None

    def start(self) -> None:
        call = self._call
        committed_only = is_committed_only(call)
        topics = topics_of(call, self._name)
        if is_pattern(self._name):
            topics = [each for each in topics if self._partition < len(each.partitions)]
        for topic in topics:
            check_partition(topic, self._partition)
            replica = call.service.replica(topic, self._partition)
            tail = Tail(replica, 0, self._look_again, committed_only=committed_only)
            tail.seek(self._begin_at(topic, tail))
            self._tails.append((topic, tail))
        found = self._read()
        if found or not self._wait_ms:
            self._answer(found)
            return
        self._timer = call.service.scheduler.call_later(
            self._wait_ms / 1000, partial(self._answer, found)
        )
        self._wait()

    def _wait(self) -> None:
        for _, tail in self._tails:
            # One of them may have found something already.
            if not self._call.place.is_done:
                tail.wait()

    def _begin_at(self, topic: TopicMetadata, tail: Tail) -> int:
        call = self._call
        place = (topic.name, self._partition)
        remembered = call.session.positions.get(place)
        # A position past the end is that of an earlier topic of the same name.
        if remembered is not None and remembered <= tail.replica.log.log_end_offset:
            return max(remembered, tail.log_start_offset)
        committed = committed_offset(call, call.get("group", _DEFAULT_GROUP), *place)
        start = self._offset if committed is None else committed
        if tail.log_start_offset <= start <= tail.replica.log.log_end_offset:
            return start
        match call.get("autoOffsetReset").lower():
            case "earliest":
                return tail.log_start_offset
            case "latest":
                return tail.end_offset
        tail.offset = start
        raise Refusal(f"OFFSET_OUT_OF_RANGE {out_of_range(tail)}")

    def _read(self) -> list[Record]:
        """What there is now."""
        found: list[Record] = []
        room = CURSUS_CONSUME_BYTES_MAX
        for topic, tail in self._tails:
            if room <= 0 or len(found) >= self._count_max:
                break
            try:
                records = tail.read(room, self._count_max - len(found))
            except OffsetOutOfRangeError:
                raise Refusal(f"OFFSET_OUT_OF_RANGE {out_of_range(tail)}") from None
            if records:
                self._moved[topic.name, self._partition] = tail.offset
                room -= sum(len(each.key or b"") + len(each.value or b"") for each in records)
                found += records
        return found

    def _look_again(self) -> None:
        if self._call.place.is_done:
            self._end()
            return
        try:
            found = self._read()
            if found:
                self._answer(found)
            else:
                self._wait()
        except DragomanError as error:
            self._end()
            self._call.refuse(error)

    def _answer(self, found: list[Record]) -> None:
        self._end()
        try:
            frame = batch_frame(sent_batch(self._name, self._partition, found))
        except DragomanError as error:
            self._call.refuse(error)
        else:
            self._call.session.positions |= self._moved
            self._call.place.reply(frame)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for _, tail in self._tails:
            tail.close()
