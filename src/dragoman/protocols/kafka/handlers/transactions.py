"""Transactions of producers: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25),
EndTxn (26) and TxnOffsetCommit (28).

The protocol has two generations. Before KIP-890 a producer announces each partition and group
before it writes; from EndTxn 5, TxnOffsetCommit 5 and Produce 12 on, the first write announces it
and every transaction has an epoch of its own. Clients choose by the feature `transaction.version`.
An idempotent producer gets its identity from InitProducerId, versions 0 to 5, as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.broker.errors import UnknownTopic
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.broker.groups.registry import check_group_id
from dragoman.broker.transactions import ProducerIdentity, TransactionCoordinator
from dragoman.errors import DragomanError
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.groups import OWNER, open_groups
from dragoman.protocols.kafka.handlers.refusals import code_for_version
from dragoman.protocols.kafka.handlers.resources import exists
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import Epoch, GroupId, MemberId, Offset, Partition, ProducerId, TopicName

#: First versions that know PRODUCER_FENCED; older clients are told of an old epoch.
_FENCED_SINCE = 2
#: First versions of the second generation (KIP-890).
END_WITH_EPOCH_SINCE = 5
OFFSETS_WITHOUT_ENROLMENT_SINCE = 5


def open_transactions(call: Call, transactional_id: str) -> TransactionCoordinator:
    """The coordinator, if this client may use the id, and here. Raises `BrokerError`."""
    call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    coordination = call.service.broker.coordination
    coordination.transactions.require(transactional_id)
    return coordination.transactions.coordinator


def handle_add_partitions(call: Call) -> None:
    request = call.decode(m.AddPartitionsToTxnRequest)
    requested = [
        (topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions
    ]
    missing = {(name, index) for name, index in requested if not exists(call, name, index)}

    def reply(error: DragomanError | None) -> None:
        if call.is_done:
            return
        fenced = call.version >= _FENCED_SINCE
        code = code_for_version(error, knows_fenced=fenced, knows_abortable=False)
        call.reply(_added(request, missing, code))

    if missing:
        # All or nothing: the others are told that theirs was not tried.
        call.reply(_added(request, missing, ErrorCode.OPERATION_NOT_ATTEMPTED))
        return
    producer = ProducerIdentity(
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    try:
        coordinator = open_transactions(call, request.v3_and_below_transactional_id)
    except DragomanError as error:
        reply(error)
        return
    partitions = [(TopicName(name), Partition(index)) for name, index in requested]
    coordinator.add_partitions(request.v3_and_below_transactional_id, producer, partitions, reply)


def _added(
    request: m.AddPartitionsToTxnRequest, missing: set[tuple[str, int]], code: int
) -> m.AddPartitionsToTxnResponse:
    def one(name: str, index: int) -> int:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if (name, index) in missing else code

    return m.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            m.AddPartitionsToTxnResponseTopic(
                name=topic.name,
                results_by_partition=[
                    m.AddPartitionsToTxnResponsePartition(
                        partition_index=index, partition_error_code=one(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def handle_add_offsets(call: Call) -> None:
    request = call.decode(m.AddOffsetsToTxnRequest)

    def reply(error: DragomanError | None) -> None:
        if call.is_done:
            return
        fenced = call.version >= _FENCED_SINCE
        code = code_for_version(error, knows_fenced=fenced, knows_abortable=call.version >= 4)
        call.reply(m.AddOffsetsToTxnResponse(error_code=code))

    try:
        # The group may be another node's.
        check_group_id(request.group_id)
        call.authorize(Operation.READ, Resource.GROUP, request.group_id)
        coordinator = open_transactions(call, request.transactional_id)
    except DragomanError as error:
        reply(error)
        return
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    coordinator.add_offsets(request.transactional_id, producer, request.group_id, reply)


def handle_end(call: Call) -> None:
    request = call.decode(m.EndTxnRequest)
    with_epoch = call.version >= END_WITH_EPOCH_SINCE

    def reply(result: ProducerIdentity | DragomanError) -> None:
        if call.is_done:
            return
        if isinstance(result, DragomanError):
            fenced = call.version >= _FENCED_SINCE
            code = code_for_version(result, knows_fenced=fenced, knows_abortable=call.version >= 4)
            call.reply(m.EndTxnResponse(error_code=code))
            return
        call.reply(m.EndTxnResponse(producer_id=result.producer_id, producer_epoch=result.epoch))

    try:
        coordinator = open_transactions(call, request.transactional_id)
    except DragomanError as error:
        reply(error)
        return
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    coordinator.end(request.transactional_id, producer, request.committed, with_epoch, reply)


def handle_commit_offsets(call: Call) -> None:
    request = call.decode(m.TxnOffsetCommitRequest)
    _CommitOffsets(call, request).start()


class _CommitOffsets:
    """Offsets that become visible with the transaction they are part of."""

    def __init__(self, call: Call, request: m.TxnOffsetCommitRequest) -> None:
        self._call = call
        self._request = request
        self._producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        self._missing: dict[tuple[str, int], DragomanError] = {}

    def start(self) -> None:
        request = self._request
        try:
            open_groups(self._call, request.group_id)
            name = request.transactional_id
            self._call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)
        except DragomanError as error:
            self._reply(None, error)
            return
        participants = self._call.service.broker.coordination.transactions.participants
        is_check = self._call.version < OFFSETS_WITHOUT_ENROLMENT_SINCE
        enrolment = participants.enrol(name, self._producer, request.group_id, is_check=is_check)
        start(enrolment).then(self._commit)

    def _commit(self, error: DragomanError | None) -> None:
        if error is not None:
            self._reply(None, error)
            return
        request = self._request
        self._call.service.broker.coordination.groups.commit(
            CommitRequest(
                group_id=GroupId(request.group_id),
                offsets=tuple(self._commits()),
                member_id=MemberId(request.member_id),
                generation=request.generation_id,
                instance_id=request.group_instance_id,
                producer_id=ProducerId(request.producer_id),
                takes_negative=True,
                owner=OWNER,
            ),
            self._reply,
        )

    def _commits(self) -> Iterable[OffsetCommit]:
        for topic in self._request.topics:
            for each in topic.partitions:
                index = each.partition_index
                if not exists(self._call, topic.name, index):
                    unknown = UnknownTopic(f"there is no {topic.name}-{index}")
                    self._missing[topic.name, index] = unknown
                    continue
                yield OffsetCommit(
                    topic=TopicName(topic.name),
                    partition=Partition(index),
                    offset=Offset(each.committed_offset),
                    leader_epoch=Epoch(each.committed_leader_epoch),
                    metadata=each.committed_metadata or "",
                )

    def _reply(self, prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
        if self._call.is_done:
            return
        refused = dict(self._missing)
        if prepared is not None:
            refused |= {(str(name), index): each for (name, index), each in prepared.errors.items()}
        self._call.reply(
            m.TxnOffsetCommitResponse(
                topics=[
                    m.TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            m.TxnOffsetCommitResponsePartition(
                                partition_index=each.partition_index,
                                error_code=self._code(
                                    refused.get((topic.name, each.partition_index), error)
                                ),
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in self._request.topics
                ]
            )
        )

    def _code(self, error: DragomanError | None) -> int:
        # This request never knew PRODUCER_FENCED.
        abortable = self._call.version >= 4
        return code_for_version(error, knows_fenced=False, knows_abortable=abortable)


_INIT_FENCED_SINCE = 4


def handle_init_producer_id(call: Call) -> None:
    request = call.decode(m.InitProducerIdRequest)

    def reply(result: ProducerIdentity | DragomanError) -> None:
        if call.is_done:
            return
        if isinstance(result, DragomanError):
            fenced = call.version >= _INIT_FENCED_SINCE
            code = code_for_version(result, knows_fenced=fenced, knows_abortable=call.version >= 5)
            call.reply(m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
            return
        identity = m.InitProducerIdResponse(
            producer_id=result.producer_id, producer_epoch=result.epoch
        )
        call.reply(identity)

    coordination = call.service.broker.coordination
    current = None
    if request.producer_id >= 0 and request.producer_epoch >= 0:
        current = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        transactional_id = request.transactional_id
        call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id or "")
        if transactional_id is not None:
            coordination.transactions.require(transactional_id)
    except DragomanError as error:
        reply(error)
        return
    coordination.transactions.coordinator.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, current, reply
    )
