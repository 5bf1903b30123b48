"""Answers what other nodes ask on behalf of their clients (`neighbours.py`).

Nothing is decided here: each request is what a client of this node could have asked for, or what
this node would have told itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, assert_never

from dragoman.broker.deferring import Content, Token
from dragoman.broker.errors import InvalidRecord
from dragoman.broker.neighbours import (
    CheckPieces,
    CommitOffsets,
    CommittedOffsets,
    CopyPieces,
    DecideDeferred,
    DeferRecord,
    Deferred,
    DeferredContent,
    DeliverDeferred,
    Done,
    EndTransaction,
    Enrol,
    HeartbeatMember,
    JoinMember,
    KeepStaged,
    LeaveMember,
    NextSequence,
    Offsets,
    Publish,
    Published,
    ReadDeferred,
    Reply,
    SequenceNumber,
    WatchMember,
    decode_request,
    encode,
    refusal_of,
)
from dragoman.broker.produce import check_produced
from dragoman.broker.publishing.copying import check, next_sequence
from dragoman.errors import DragomanError
from dragoman.log.batch import build_batch, records
from dragoman.types import Buffer, GroupId, TopicName

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

#: Header and pieces of the body.
Send: TypeAlias = Callable[[bytes, Sequence[Buffer]], None]
_Answer: TypeAlias = Callable[[Reply | DragomanError, Sequence[Buffer]], None]


class NeighbourService:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def request(self, node: int, header: memoryview, body: memoryview, send: Send) -> None:
        """Answer what `node` asks, now or later, exactly once. Raises `DecodeError`."""
        request = decode_request(header)

        def answer(reply: Reply | DragomanError, pieces: Sequence[Buffer] = ()) -> None:
            if isinstance(reply, DragomanError):
                reply = refusal_of(reply)
            send(encode(reply), pieces)

        done = partial(_acknowledge, answer)
        coordination = self._broker.coordination
        try:
            match request:
                case Enrol():
                    coordination.transacting.check_order(node, request)
                    coordination.transacting.enrol_here(request, done)
                case EndTransaction():
                    coordination.transacting.check_order(node, request)
                    coordination.transacting.end_here(request, done)
                case CommitOffsets():
                    coordination.commit_here(request.request, done)
                case CommittedOffsets():
                    group, topic = GroupId(request.group_id), TopicName(request.topic)
                    found = coordination.committed_here(group, topic)
                    answer(Offsets(offsets=tuple(found.items())))
                case JoinMember():
                    answer(coordination.guests.join(request))
                case WatchMember():
                    coordination.guests.watch(request, answer)
                case HeartbeatMember():
                    coordination.guests.heartbeat(request.group_id, request.member_id)
                    done(None)
                case LeaveMember():
                    coordination.guests.leave(request.group_id, request.member_id)
                    done(None)
                case Publish():
                    self._publish(request, answer)
                case CheckPieces():
                    check(self._broker, request.destination, done)
                case NextSequence():
                    replica = self._broker.find(request.topic, request.partition)
                    answer(SequenceNumber(number=next_sequence(replica, request.producer_id)))
                case CopyPieces():
                    self._broker.publishing.copy_here(request.target, request.producer_id, done)
                case KeepStaged():
                    self._broker.publishing.staging.keep(node, request)
                    done(None)
                case DeferRecord():
                    self._defer(request, body, answer)
                case DecideDeferred():
                    self._broker.deferring.keeping.decide_here(request, done)
                case ReadDeferred():
                    self._read_deferred(request, answer)
                case DeliverDeferred():
                    batch = bytearray(body)
                    self._broker.deferring.targets.deliver_here(request.partition_id, batch, done)
                case _:
                    assert_never(request)
        except DragomanError as error:
            answer(error)

    def _publish(self, request: Publish, answer: _Answer) -> None:
        def replied(outcome: bool | DragomanError) -> None:
            if isinstance(outcome, DragomanError):
                answer(outcome, ())
            else:
                answer(Published(was_before=outcome), ())

        self._broker.publishing.publisher.publish(request.publication, replied)

    def _defer(self, request: DeferRecord, body: memoryview, answer: _Answer) -> None:
        def deferred(token: Token | DragomanError) -> None:
            if isinstance(token, DragomanError):
                answer(token, ())
            else:
                answer(Deferred(partition_id=token.partition_id, offset=token.offset), ())

        found = records(body, check_produced(body))
        if len(found) != 1:
            raise InvalidRecord(f"{len(found)} records to be deferred, where one is expected")
        self._broker.deferring.keeping.defer_here(request, found[0], deferred)

    def _read_deferred(self, request: ReadDeferred, answer: _Answer) -> None:
        def found(content: Content | DragomanError) -> None:
            if isinstance(content, DragomanError):
                answer(content, ())
                return
            topic, partition = content.target
            reply = DeferredContent(topic=topic, partition=partition, labels=content.labels)
            answer(reply, (build_batch([content.record]),))

        self._broker.deferring.keeping.read_here(Token(request.partition_id, request.offset), found)


def _acknowledge(answer: _Answer, error: DragomanError | None) -> None:
    answer(error or Done(), ())
