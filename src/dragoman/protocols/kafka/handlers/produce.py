"""Produce (0), versions 3 to 13: append record batches.

One batch per partition. A request with acks=0 has no reply; if it fails, the connection is closed
as the only signal to the client. acks=1 is answered when the records are stable, acks=all when they
are committed; on a single node both are the same.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.broker.errors import (
    CoordinatorLoading,
    InvalidAcks,
    InvalidRecord,
    NotEnoughReplicas,
    UnsupportedCompression,
)
from dragoman.broker.produce import check_produced, place
from dragoman.broker.staged_writes.staging_topic import check_writable
from dragoman.broker.transactions import ProducerIdentity
from dragoman.errors import DragomanError
from dragoman.log.batch import CODEC_MASK, BatchHeader
from dragoman.log.compression import Codec
from dragoman.outcome import start
from dragoman.protocols.kafka.handlers.refusals import refused_partition
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from dragoman.replication.replica import Replica
from dragoman.security.access import Operation, Resource
from dragoman.types import Partition, TopicName

#: From this version on, the first write to a partition adds it to the transaction (KIP-890).
_IMPLICIT_ENROLMENT_SINCE = 12


def handle(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, ProduceRequest)
    _Produce(call, request).start()


class _Write(NamedTuple):
    """One partition's batch, and the position of its reply."""

    replica: Replica
    batch: memoryview
    header: BatchHeader
    replies: list[ProduceResponsePartition]
    at: int


def _pair(producer: ProducerIdentity) -> tuple[int, int]:
    return producer.producer_id, producer.epoch


class _Produce:
    """One request. Its batches are appended at once and acknowledged as they become stable."""

    __slots__ = ("_call", "_is_usual", "_now_ms", "_replies", "_request", "_waiting")

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._call = call
        self._request = request
        self._now_ms = call.service.broker.clock.wall_ms()
        #: By topic, the partitions' replies in request order.
        self._replies: list[list[ProduceResponsePartition]] = []
        self._waiting = 1
        #: Whether the request names one partition and has a reply, so that the express can learn
        #: it.
        self._is_usual = (
            request.acks != 0
            and len(request.topic_data) == 1
            and len(request.topic_data[0].partition_data) == 1
        )

    def start(self) -> None:
        for topic in self._request.topic_data:
            replies: list[ProduceResponsePartition] = []
            self._replies.append(replies)
            for partition in topic.partition_data:
                self._append(topic, partition, replies)
        self._one_less()

    def _append(
        self,
        topic: ProduceRequestTopic,
        partition: ProduceRequestPartition,
        replies: list[ProduceResponsePartition],
    ) -> None:
        try:
            if self._request.acks not in (-1, 0, 1):
                raise InvalidAcks(f"acks is {self._request.acks}; -1, 0 or 1")
            replica = self._find(topic, partition.index)
            if self._request.acks == -1:
                replica.check_in_sync()
            records = partition.records
            header = check_produced(memoryview(records) if records is not None else None)
            check_writable(
                self._call.service.broker.topics,
                replica.metadata.topic,
                header,
                self._request.transactional_id,
            )
            if header.attributes & CODEC_MASK == Codec.ZSTD and self._call.version < 7:
                raise UnsupportedCompression("zstd needs version 7 of Produce")
            assert records is not None
            write = _Write(replica, memoryview(records), header, replies, len(replies))
            replies.append(ProduceResponsePartition(index=partition.index, base_offset=-1))
            if header.is_transactional:
                self._enrol(write)
            else:
                self._place(write)
        except DragomanError as error:
            replies.append(self._refusal(partition.index, error))

    def _enrol(self, write: _Write) -> None:
        """Append a transactional batch once its partition has been added to the transaction."""
        transactional_id = self._request.transactional_id
        if transactional_id is None:
            self._refuse(write, InvalidRecord("transactional records need a transactional id"))
            return
        producer = ProducerIdentity(write.header.producer_id, write.header.producer_epoch)
        try:
            # Even while the transaction is open: the right may have been taken since it began.
            self._call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
        except DragomanError as error:
            self._refuse(write, error)
            return
        states = write.replica.log.producers
        if states is not None and states.has_open_transaction(*_pair(producer)):
            self._place(write)
            return
        metadata = write.replica.metadata
        where = (TopicName(metadata.topic.name), Partition(metadata.index))

        def enrolled(error: DragomanError | None) -> None:
            if error is None:
                self._place(write)
            elif isinstance(error, CoordinatorLoading):
                # As in Kafka: producers retry this error, but do not expect coordinator errors in
                # this response.
                self._refuse(write, NotEnoughReplicas(str(error)))
            else:
                self._refuse(write, error)
            self._one_less()

        self._waiting += 1
        participants = self._call.service.broker.coordination.transactions.participants
        is_check = self._call.version < _IMPLICIT_ENROLMENT_SINCE
        enrolment = participants.enrol(transactional_id, producer, where, is_check=is_check)
        start(enrolment).then(enrolled)

    def _place(self, write: _Write) -> None:
        replica, replies, at = write.replica, write.replies, write.at
        try:
            appended = place(replica, write.batch, write.header, self._now_ms)
        except DragomanError as error:
            self._refuse(write, error)
            return
        if not appended.is_duplicate:
            flow = self._call.service.received[replica.metadata.topic.name]
            flow.size += len(write.batch)
            flow.records += write.header.last_offset_delta + 1
        append_time_ms = -1
        if replica.config.message_timestamp_type == "LogAppendTime":
            append_time_ms = appended.timestamp if appended.is_duplicate else self._now_ms
        elif (
            self._is_usual
            and not (write.header.is_transactional or replica.metadata.topic.is_internal)
            and (self._request.acks == -1 or replica.role is None)
        ):
            self._call.session.learn(self._call.request, write.batch, replica)
        replies[at] = ProduceResponsePartition(
            index=replies[at].index,
            base_offset=appended.base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=replica.log.log_start_offset,
        )
        if self._request.acks == 0:
            return

        def acknowledged(error: DragomanError | None) -> None:
            if error is not None:
                self._refuse(write, error)
            self._one_less()

        self._waiting += 1
        if self._request.acks == 1:
            replica.when_stable(appended.next_offset, acknowledged)
        else:
            replica.when_committed(appended.next_offset, acknowledged)

    def _refuse(self, write: _Write, error: DragomanError) -> None:
        index = write.replies[write.at].index
        write.replies[write.at] = self._refusal(index, error)

    def _refusal(self, index: int, error: DragomanError) -> ProduceResponsePartition:
        refused = refused_partition(index, error, self._call.version)
        self._call.failed(refused.error_code)
        return refused

    def _find(self, topic: ProduceRequestTopic, index: int) -> Replica:
        call, partitions = self._call, self._call.service.broker.partitions
        if call.version >= 13:
            call.authorize_by_id(Operation.WRITE, topic.topic_id)
            return partitions.find_by_id(topic.topic_id, index)
        call.authorize(Operation.WRITE, Resource.TOPIC, topic.name)
        return partitions.find(topic.name, index)

    def _one_less(self) -> None:
        self._waiting -= 1
        if self._waiting or self._call.is_done:
            return
        if self._request.acks == 0:
            if any(each.error_code for replies in self._replies for each in replies):
                self._call.session.channel.close()
            self._call.finish_silently()
            return
        self._call.reply(
            ProduceResponse(
                responses=[
                    ProduceResponseTopic(
                        name=topic.name, topic_id=topic.topic_id, partition_responses=replies
                    )
                    for topic, replies in zip(self._request.topic_data, self._replies, strict=True)
                ]
            )
        )
