"""Produce (2) and ProduceBatch (4): append records.

Every acknowledgement mode gets a reply, because clients wait for one. That includes mode 0, for
which the original appends and then answers with an error. An unknown mode is refused before
anything is appended. Modes 0 and 1 are answered when the records are on the leader's stable
storage, mode 2 when they are committed, or with an error if other replicas take too long.
"""

from __future__ import annotations

from typing import Final

from dragoman.errors import DragomanError
from dragoman.limits import MLOG_BATCH_VALUES_MAX
from dragoman.log.batch import Record
from dragoman.protocols.mlog.codec import encode_produced
from dragoman.protocols.mlog.constants import AckMode
from dragoman.protocols.mlog.errors import VALUE_REQUIRED_TEXT, VALUES_REQUIRED_TEXT, ErrorCode
from dragoman.protocols.mlog.handlers.session import MlogSession, Refused
from dragoman.protocols.mlog.handlers.topics import find, require_topic
from dragoman.protocols.mlog.messages import Produce, ProduceBatch, ProduceBatchResp
from dragoman.protocols.session import Place
from dragoman.replication.replica import Replica
from dragoman.security.access import Operation

# Looked up once, because the lookup of enumeration members is slow.
_WRITE: Final = Operation.WRITE
_ALL: Final = int(AckMode.ALL)
_FEWER: Final = (int(AckMode.NONE), int(AckMode.LEADER))


def handle_produce(session: MlogSession, request: Produce, place: Place) -> None:
    require_topic(request.topic)
    if not request.value:
        raise Refused(ErrorCode.VALUES_REQUIRED, VALUE_REQUIRED_TEXT)
    replica = _partition(session, request.topic, request.acks, place)
    broker, encoding, size = session.service.broker, session.encoding, len(request.value)

    def placed(offset: int, error: DragomanError | None) -> None:
        if error is None:
            session.service.received[replica.metadata.topic.name].add(size, 1)
            place.reply(encode_produced(offset, encoding))
        else:
            session.fail(place, error)

    record = Record(value=request.value, timestamp=broker.clock.wall_ms())
    broker.accumulator.add(replica, record, placed, is_leader_only=request.acks != _ALL)


def handle_produce_batch(session: MlogSession, request: ProduceBatch, place: Place) -> None:
    require_topic(request.topic)
    values = request.values
    if not values:
        raise Refused(ErrorCode.VALUES_REQUIRED, VALUES_REQUIRED_TEXT)
    if len(values) > MLOG_BATCH_VALUES_MAX:
        text = f"{len(values)} values in a batch; at most {MLOG_BATCH_VALUES_MAX}"
        raise Refused(ErrorCode.UNKNOWN, text)
    replica = _partition(session, request.topic, request.acks, place)
    broker = session.service.broker
    count = len(values)

    def placed(offset: int, error: DragomanError | None) -> None:
        if error is None:
            flow = session.service.received[replica.metadata.topic.name]
            flow.add_records(records)
            last = offset + count - 1
            session.reply(
                place, ProduceBatchResp(base_offset=offset, last_offset=last, count=count)
            )
        else:
            session.fail(place, error)

    now = broker.clock.wall_ms()
    records = [Record(value=value, timestamp=now) for value in values]
    broker.accumulator.add_all(replica, records, placed, is_leader_only=request.acks != _ALL)


def _partition(session: MlogSession, topic: str, acks: int, place: Place) -> Replica:
    replica = find(session, topic, _WRITE)
    if acks == _ALL:
        replica.check_in_sync()
        if len(replica.metadata.in_sync) > 1:
            session.service.catch_up.add(session, place)
    elif acks not in _FEWER:
        raise Refused(ErrorCode.INVALID_ACK_MODE, f"invalid ack mode: {acks}: invalid ack mode")
    return replica
