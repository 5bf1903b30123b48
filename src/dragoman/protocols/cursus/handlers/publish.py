"""PUBLISH and binary batches: messages are appended, and acknowledged when they are durable.

`acks` 0 and 1 are acknowledged when the messages are on the leader's stable storage, `-1` and `all`
when all in-sync replicas have them. Batches with `acks` 0 get a reply, too, in the format that all
published clients understand. Sequence numbers are checked if the batch, the topic or the node's
settings require it; see `producers.py`.

As in the original, messages for a partition that another node leads are forwarded to that node.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from dragoman.broker.errors import NotLeader
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.log.batch import Record
from dragoman.outcome import Callback
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.constants import ACKS, ACKS_OF_ALL, OK, PARTIAL
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import policy_of
from dragoman.protocols.cursus.handlers.records import append_records, producer_header, record_of
from dragoman.protocols.cursus.handlers.relayed import RelayedBatch, ask_leader
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import Call, CursusSession
from dragoman.protocols.cursus.messages import Ack, Batch, Message
from dragoman.protocols.session import Place
from dragoman.replication.replica import Replica

_OK: Final = codec.frame(b"OK")
#: The beginning of an acknowledgement with status OK.
_STATUS_OK: Final = b'{"status":"OK"'


class PublishHeader:
    """A PUBLISH without its payload, validated once because successive messages often share it.

    As in the original, the arguments of the command identify its producer. Raises `Refusal`.
    """

    __slots__ = (
        "_acks",
        "_answer_end",
        "_epoch",
        "_headers",
        "_key",
        "_partition",
        "_producer_id",
        "_seq_num",
        "_topic",
        "arguments",
    )

    def __init__(self, call: Call) -> None:
        # Messages with keys do not share the header, so this is on the hot path.
        arguments = self.arguments = call.command.arguments
        self._topic = arguments.get("topic") or call.require("topic")
        producer_id = arguments.get("producerId")
        if not producer_id:
            call.message()
            producer_id = call.require("producerId")
        self._producer_id = producer_id
        acks = self._acks = arguments.get("acks", "1")
        if acks not in ACKS:
            raise Refusal(f"invalid_acks value={acks}")
        seq_num = self._seq_num = call.number("seqNum") if "seqNum" in arguments else 0
        epoch = call.number("epoch") if "epoch" in arguments else 0
        epoch = self._epoch = epoch & (1 << 63) - 1
        self._key = arguments["key"].encode() if "key" in arguments else b""
        self._partition = named_partition(call) if "partition" in arguments else None
        self._headers = producer_header(producer_id, epoch, seq_num)
        self._answer_end = codec.ack_end(epoch, producer_id, seq_num, seq_num)

    def publish(self, session: CursusSession, payload: bytes, place: Place) -> None:
        service, key = session.service, self._key
        topic = session.topic_to_write(self._topic)
        partition = self._partition
        if partition is None:
            partition = route(session, topic, key)
        led = service.partition(topic, partition)
        is_requested = self.arguments.get("isIdempotent", "").lower() == "true"
        if self._seq_num and is_checked(session, topic, is_requested):
            batch = self._as_batch(partition, payload)
            reply = partial(self._acknowledged, session, place)
            request = RelayedBatch(batch, is_counted=True, caller=session.caller)
            _publish(session, led, request, reply)
            return
        broker = service.broker
        record = Record(
            key=key or None,
            value=payload,
            headers=self._headers,
            timestamp=broker.clock.wall_ms(),
        )
        is_leader_only = self._acks not in ACKS_OF_ALL
        broker.leader_queues.add(
            led,
            record,
            partial(self._placed, session, place, len(payload)),
            is_leader_only=is_leader_only,
            in_leader_queue=session.in_leader_queue(is_leader_only),
            caller=session.caller,
        )

    def _placed(
        self,
        session: CursusSession,
        place: Place,
        size: int,
        offset: int,
        error: DragomanError | None,
    ) -> None:
        if error is not None:
            session.refuse(place, error)
            return
        session.service.received[self._topic].add(len(self._key) + size, 1)
        if self._acks == "0":
            place.reply(_OK)
        else:
            place.reply(codec.ack_frame(offset, self._answer_end))

    def _acknowledged(
        self, session: CursusSession, place: Place, outcome: bytes | DragomanError
    ) -> None:
        is_ok = isinstance(outcome, bytes) and outcome.startswith(_STATUS_OK)
        if self._acks == "0" and is_ok:
            place.reply(_OK)
        else:
            answer(session, place, outcome)

    def _as_batch(self, partition: int, payload: bytes) -> Batch:
        message = Message(
            producer_id=self._producer_id,
            key=self._key,
            payload=payload,
            seq_num=self._seq_num,
            epoch=self._epoch,
        )
        return Batch(
            topic=self._topic,
            partition=partition,
            messages=[message],
            acks=self._acks,
            seq_start=self._seq_num,
            seq_end=self._seq_num,
        )


def handle_publish(call: Call) -> None:
    session, payload = call.session, call.command.message
    header = session.publish_header
    if header is None or header.arguments is not call.command.arguments:
        header = session.publish_header = PublishHeader(call)
    if not payload:
        raise Refusal("missing_message command=PUBLISH")
    header.publish(session, payload, call.place)


def named_partition(call: Call) -> int | None:
    if "partition" not in call.command.arguments:
        return None
    return call.number(
        "partition", refusal=f"partition_not_found partition={call.get('partition')}"
    )


def route(session: CursusSession, topic: TopicMetadata, key: bytes) -> int:
    """The partition for a message that names none, by the topic's partitioner."""
    count = len(topic.partitions)
    if key and policy_of(topic).is_hashed:
        return codec.fnv1a_64(key) % count
    return session.service.next_turn(topic.name, count)


def is_checked(session: CursusSession, topic: TopicMetadata, is_requested: bool) -> bool:
    return (
        is_requested
        or policy_of(topic).is_idempotent
        or session.service.broker.settings.cursus_idempotence_enable
    )


def publish_batch(session: CursusSession, batch: Batch, place: Place) -> None:
    service = session.service
    topic = session.topic_to_write(batch.topic)
    if batch.acks not in ACKS:
        raise Refusal(f"invalid_acks value={batch.acks}")
    partition = service.partition(topic, batch.partition)
    messages = batch.messages
    if not messages:
        raise Refusal('broker_error reason="empty batch messages"')
    is_counted = messages[0].seq_num > 0 and is_checked(session, topic, batch.idempotent)
    request = RelayedBatch(batch, is_counted=is_counted, caller=session.caller)
    _publish(session, partition, request, partial(answer, session, place))


def _publish(
    session: CursusSession,
    partition: PartitionMetadata,
    request: RelayedBatch,
    reply: Callback[bytes],
) -> None:
    """Append on this node, or forward to the partition's leader. Raises `DragomanError`."""
    service = session.service
    reply = partial(_count_published, service, request.batch, reply)
    in_leader_queue = session.in_leader_queue(request.batch.acks not in ACKS_OF_ALL)
    if not service.broker.leader_queues.is_busy(partition, in_leader_queue=in_leader_queue):
        try:
            replica = service.broker.partitions.replica(partition)
        except NotLeader:
            pass
        else:
            append_batch(service, request, replica, reply)
            return
    ask_leader(service, partition, request, reply, in_leader_queue=in_leader_queue)


def _count_published(
    service: CursusService, batch: Batch, reply: Callback[bytes], outcome: bytes | DragomanError
) -> None:
    if isinstance(outcome, bytes) and outcome.startswith(_STATUS_OK):
        size = sum(len(each.key) + len(each.payload) for each in batch.messages)
        service.received[batch.topic].add(size, len(batch.messages))
    reply(outcome)


def append_batch(
    service: CursusService, request: RelayedBatch, replica: Replica, reply: Callback[bytes]
) -> None:
    """Append on the leader of the partition. Raises `DragomanError`."""
    batch = request.batch
    if batch.acks in ACKS_OF_ALL:
        replica.check_in_sync()
    # Messages published by text earlier in this turn come first.
    service.broker.accumulator.flush(replica)
    if request.is_counted:
        service.producers.publish(batch, replica, partial(_acknowledge, reply, batch), reply)
        return
    now_ms = service.broker.clock.wall_ms()
    appended = append_records(replica, [record_of(each, now_ms) for each in batch.messages], now_ms)
    if not appended.count:
        assert appended.error is not None
        raise appended.error
    last = batch.messages[appended.count - 1]

    def acknowledged(error: DragomanError | None) -> None:
        if error is not None:
            reply(error)
        else:
            is_whole, reason = appended.error is None, str(appended.error or "")
            status = OK if is_whole else PARTIAL
            _acknowledge(reply, batch, last, appended.next_offset - 1, status, reason)

    if batch.acks in ACKS_OF_ALL:
        replica.when_committed(appended.next_offset, acknowledged)
    else:
        replica.when_stable(appended.next_offset, acknowledged)


def _acknowledge(
    reply: Callback[bytes], batch: Batch, last: Message, offset: int, status: str, error: str
) -> None:
    """Reply with an acknowledgement. `last` is the last message that it covers."""
    ack = Ack(
        status=status,
        last_offset=offset,
        producer_epoch=last.epoch,
        producer_id=last.producer_id,
        seq_start=batch.seq_start,
        seq_end=last.seq_num if status == PARTIAL else batch.seq_end,
        error=error,
    )
    reply(codec.encode_ack(ack))


def answer(session: CursusSession, place: Place, outcome: bytes | DragomanError) -> None:
    if isinstance(outcome, DragomanError):
        session.refuse(place, outcome)
    else:
        place.reply(codec.frame(outcome))
