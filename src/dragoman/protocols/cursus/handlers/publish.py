"""PUBLISH and binary batches: messages into the log, acknowledged when they are durable.

An acknowledgement says the same whatever `acks` asks for: on one node nothing is acknowledged
before it is stable. Batches with `acks` 0 are answered too, in the form that all published clients
understand. Sequence numbers are checked when the batch, the topic or the node's settings ask for
it; see `producers.py`.
"""

from __future__ import annotations

from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.net.framed import Place
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.constants import ACKS, OK, PARTIAL
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import policy_of
from dragoman.protocols.cursus.handlers.records import append_records, record_of
from dragoman.protocols.cursus.handlers.session import Call, CursusSession
from dragoman.protocols.cursus.messages import Ack, Batch, Message
from dragoman.security.authorizer import Operation, Resource


def handle_publish(call: Call) -> None:
    """One message. As in the original, the command's own arguments say who sends it."""
    topic_name = call.require("topic", "missing_topic command=PUBLISH")
    payload = call.command.message
    if not payload:
        raise Refusal("missing_message command=PUBLISH")
    message = Message(
        producer_id=call.require("producerId", "missing_producer_id command=PUBLISH"),
        key=call.get("key").encode(),
        payload=payload,
        seq_num=call.number("seqNum", 0),
        epoch=call.number("epoch", 0) & (1 << 63) - 1,
    )
    acks = call.get("acks", "1")
    if acks not in ACKS:
        raise Refusal(f"invalid_acks value={acks}")
    session, service = call.session, call.service
    topic = writable(session, topic_name)
    partition = route(call, topic, message.key)
    if message.seq_num and _is_checked(session, topic, call.get("isIdempotent") == "true"):
        batch = Batch(
            topic=topic_name,
            partition=partition,
            messages=[message],
            acks=acks,
            seq_start=message.seq_num,
            seq_end=message.seq_num,
        )
        service.producers.publish(session, batch, service.replica(topic, partition), call.place)
        return
    broker = service.broker

    def placed(offset: int, error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(error)
        elif acks == "0":
            call.ok()
        else:
            number = message.seq_num
            acknowledge(call.place, message, offset, number, number)

    record = record_of(message, broker.clock.wall_ms())
    broker.gatherer.add(service.replica(topic, partition), record, placed)


def route(call: Call, topic: TopicMetadata, key: bytes) -> int:
    """The partition that is named, or the one that the topic's rule gives."""
    if "partition" in call.command.arguments:
        refusal = f"partition_not_found partition={call.get('partition')}"
        return call.number("partition", refusal=refusal)
    count = len(topic.partitions)
    if key and policy_of(topic).is_hashed:
        return codec.fnv1a_64(key) % count
    return call.service.next_turn(topic.name, count)


def writable(session: CursusSession, name: str) -> TopicMetadata:
    """Raises `Refusal`."""
    topic = session.service.topic(name)
    if topic.is_internal:
        raise Refusal(f"internal_topic_write_forbidden topic={name}")
    principal = session.principal
    if not policy_of(topic).allows(Operation.WRITE, principal.name) or not (
        session.service.broker.authorizer.is_allowed(
            principal, Operation.WRITE, Resource.TOPIC, name
        )
    ):
        raise Refusal(f"NOT_AUTHORIZED_FOR_TOPIC operation=write topic={name}")
    return topic


def _is_checked(session: CursusSession, topic: TopicMetadata, is_asked: bool) -> bool:
    return (
        is_asked
        or policy_of(topic).is_idempotent
        or session.service.broker.settings.cursus_idempotence_enable
    )


def publish_batch(session: CursusSession, batch: Batch, place: Place) -> None:
    service = session.service
    topic = writable(session, batch.topic)
    if batch.acks not in ACKS:
        raise Refusal(f"invalid_acks value={batch.acks}")
    replica = service.replica(topic, batch.partition)
    messages = batch.messages
    if not messages:
        raise Refusal('broker_error reason="empty batch messages"')
    # What was published by text before, in this turn, comes first.
    service.broker.gatherer.flush(replica)
    if messages[0].seq_num and _is_checked(session, topic, batch.idempotent):
        service.producers.publish(session, batch, replica, place)
        return
    now_ms = service.broker.clock.wall_ms()
    appended = append_records(replica, [record_of(each, now_ms) for each in messages], now_ms)
    if not appended.count:
        assert appended.error is not None
        raise appended.error
    last = messages[appended.count - 1]

    def committed(error: DragomanError | None) -> None:
        if error is not None:
            session.refuse(place, error)
            return
        offset = appended.next_offset - 1
        if appended.error is None:
            acknowledge(place, last, offset, batch.seq_start, batch.seq_end)
        else:
            reason = str(appended.error)
            acknowledge(place, last, offset, batch.seq_start, last.seq_num, PARTIAL, reason)

    replica.when_committed(appended.next_offset, committed)


def acknowledge(
    place: Place,
    last: Message,
    offset: int,
    seq_start: int,
    seq_end: int,
    status: str = OK,
    error: str = "",
) -> None:
    """Producer and epoch are those of the last message."""
    ack = Ack(
        status=status,
        last_offset=offset,
        producer_epoch=last.epoch,
        producer_id=last.producer_id,
        seq_start=seq_start,
        seq_end=seq_end,
        error=error,
    )
    place.reply(codec.frame(codec.encode_ack(ack)))
