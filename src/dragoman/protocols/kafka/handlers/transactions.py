"""Transactions of producers: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25),
EndTxn (26) and TxnOffsetCommit (28).

The protocol has two generations. Before KIP-890 a producer adds each partition and group to the
transaction before it writes; from EndTxn 5, TxnOffsetCommit 5 and Produce 12 on, the first write
adds it, and every transaction has its own epoch. Clients choose by the feature
`transaction.version`. Idempotent producers also get their producer id from InitProducerId, versions
0 to 5.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.broker.errors import ClusterNotAuthorized
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.broker.groups.registry import check_group_id
from dragoman.broker.transactions import ProducerIdentity, TransactionCoordinator
from dragoman.errors import DragomanError
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.groups import OWNER, open_groups
from dragoman.protocols.kafka.handlers.refusals import code_for_version
from dragoman.protocols.kafka.handlers.resources import exists, partition_of
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.security.access import CLUSTER_NAME, Operation, Resource
from dragoman.types import Epoch, GroupId, MemberId, Offset, Partition, ProducerId, TopicName

#: First versions that know PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH.
_FENCED_SINCE = 2
_INIT_FENCED_SINCE = 4
#: First versions of the second generation (KIP-890).
END_WITH_EPOCH_SINCE = 5
OFFSETS_WITHOUT_ENROLMENT_SINCE = 5


def open_transactions(call: Call, transactional_id: str) -> TransactionCoordinator:
    """The coordinator of the id. Raises `BrokerError` when the client may not use the id, or
    another node coordinates it.
    """
    call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    coordination = call.service.broker.coordination
    coordination.transactions.require(transactional_id)
    return coordination.transactions.coordinator


# ---- requests to the transaction coordinator


@awaited
async def handle_init_producer_id(call: Call) -> m.InitProducerIdResponse:
    request = call.decode(m.InitProducerIdRequest)
    current = None
    if request.producer_id >= 0 and request.producer_epoch >= 0:
        current = ProducerIdentity(request.producer_id, request.producer_epoch)
    transactions = call.service.broker.coordination.transactions
    name = request.transactional_id
    try:
        if name is None:
            _authorize_idempotence(call)
        else:
            call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)
            transactions.require(name)
        timeout_ms = request.transaction_timeout_ms
        identity = await transactions.coordinator.init_producer_id(name, timeout_ms, current)
    except DragomanError as error:
        code = code_for_version(
            error,
            knows_fenced=call.version >= _INIT_FENCED_SINCE,
            knows_abortable=call.version >= 5,
        )
        return m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return m.InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _authorize_idempotence(call: Call) -> None:
    """Authorize a producer without transactions: it must be allowed to write to some topic, or to
    write idempotently, which Kafka required of producers before version 3.
    """
    if call.may(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME):
        return
    authorizer = call.service.broker.authorizer
    if not authorizer.is_allowed_on_any(call.caller, Operation.WRITE, Resource.TOPIC):
        raise ClusterNotAuthorized(f"{call.caller.name} may not write to any topic")


@awaited
async def handle_add_partitions(call: Call) -> m.AddPartitionsToTxnResponse:
    request = call.decode(m.AddPartitionsToTxnRequest)
    requested = [
        (topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions
    ]
    name = request.v3_and_below_transactional_id
    try:
        call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)
    except DragomanError as error:
        return _added(request, {}, _code(call, error, knows_abortable=False))
    refused: dict[tuple[str, int], int] = {}
    for topic, index in requested:
        if not call.is_allowed(Operation.WRITE, Resource.TOPIC, topic):
            refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not exists(call, topic, index):
            refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        # The request is all or nothing, so the other partitions are not added either.
        return _added(request, refused, ErrorCode.OPERATION_NOT_ATTEMPTED)
    producer = ProducerIdentity(
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    partitions = [(TopicName(topic), Partition(index)) for topic, index in requested]
    try:
        coordinator = open_transactions(call, name)
        await coordinator.add_partitions(name, producer, partitions)
    except DragomanError as error:
        return _added(request, refused, _code(call, error, knows_abortable=False))
    return _added(request, refused, ErrorCode.NONE)


def _added(
    request: m.AddPartitionsToTxnRequest, refused: dict[tuple[str, int], int], code: int
) -> m.AddPartitionsToTxnResponse:
    """The response, with `code` for the partitions that were not refused."""
    return m.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            m.AddPartitionsToTxnResponseTopic(
                name=topic.name,
                results_by_partition=[
                    m.AddPartitionsToTxnResponsePartition(
                        partition_index=index,
                        partition_error_code=refused.get((topic.name, index), code),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


@awaited
async def handle_add_offsets(call: Call) -> m.AddOffsetsToTxnResponse:
    request = call.decode(m.AddOffsetsToTxnRequest)
    name, group = request.transactional_id, request.group_id
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)
        # Another node may coordinate the group.
        check_group_id(group)
        call.authorize(Operation.READ, Resource.GROUP, group)
        coordinator = open_transactions(call, name)
        await coordinator.add_offsets(name, producer, group)
    except DragomanError as error:
        code = _code(call, error, knows_abortable=call.version >= 4)
        return m.AddOffsetsToTxnResponse(error_code=code)
    return m.AddOffsetsToTxnResponse()


@awaited
async def handle_end(call: Call) -> m.EndTxnResponse:
    request = call.decode(m.EndTxnRequest)
    name = request.transactional_id
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    with_epoch = call.version >= END_WITH_EPOCH_SINCE
    try:
        coordinator = open_transactions(call, name)
        identity = await coordinator.end(name, producer, request.committed, with_epoch)
    except DragomanError as error:
        code = _code(call, error, knows_abortable=call.version >= 4)
        return m.EndTxnResponse(error_code=code)
    return m.EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _code(call: Call, error: DragomanError, *, knows_abortable: bool) -> int:
    fenced = call.version >= _FENCED_SINCE
    return code_for_version(error, knows_fenced=fenced, knows_abortable=knows_abortable)


# ---- requests to the group coordinator


def handle_commit_offsets(call: Call) -> None:
    request = call.decode(m.TxnOffsetCommitRequest)
    _CommitOffsets(call, request).start()


class _CommitOffsets:
    """Commits offsets that become visible with their transaction."""

    def __init__(self, call: Call, request: m.TxnOffsetCommitRequest) -> None:
        self._call = call
        self._request = request
        self._producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        self._refused: dict[tuple[str, int], DragomanError] = {}
        self._offsets: tuple[OffsetCommit, ...] = ()

    def start(self) -> None:
        request = self._request
        try:
            name = request.transactional_id
            self._call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)
            open_groups(self._call, request.group_id)
        except DragomanError as error:
            self._reply(None, error)
            return
        self._offsets = tuple(self._allowed_offsets())
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
                offsets=self._offsets,
                member_id=MemberId(request.member_id),
                generation=request.generation_id,
                instance_id=request.group_instance_id,
                producer_id=ProducerId(request.producer_id),
                takes_negative=True,
                owner=OWNER,
            ),
            self._reply,
        )

    def _allowed_offsets(self) -> Iterable[OffsetCommit]:
        for topic in self._request.topics:
            for each in topic.partitions:
                index = each.partition_index
                try:
                    self._call.authorize(Operation.READ, Resource.TOPIC, topic.name)
                    partition_of(self._call, topic.name, index)
                except DragomanError as error:
                    self._refused[topic.name, index] = error.with_traceback(None)
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
        refused = dict(self._refused)
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
