"""DescribeProducers (61), DescribeTransactions (65), ListTransactions (66), WriteTxnMarkers (27).

What operators use to find a transaction that hangs, and to end it where its coordinator does not.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.errors import NotAuthorized
from dragoman.broker.transactions import (
    ProducerIdentity,
    TransactionDescription,
    TransactionState,
)
from dragoman.errors import DragomanError
from dragoman.log.batch import Marker
from dragoman.log.producers import InvalidProducerEpochError
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.access import authorize, authorize_cluster, is_allowed
from dragoman.protocols.kafka.handlers.gathering import Gathering
from dragoman.protocols.kafka.handlers.patterns import PatternError, full_match
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponseActiveProducer,
    DescribeProducersResponsePartition,
    DescribeProducersResponseTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopic,
    DescribeTransactionsResponseTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import Partition, TopicName

_STATES = {state.value: state for state in TransactionState}
#: Level of `transaction.version` from which a marker must have a newer epoch than the batches.
_EPOCH_PER_TRANSACTION = 2


# ---- producers of a partition


def handle_describe_producers(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, DescribeProducersRequest)
    call.reply(
        DescribeProducersResponse(
            topics=[
                DescribeProducersResponseTopic(
                    name=topic.name,
                    partitions=[
                        _producers(call, topic.name, index) for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )
    )


def _producers(call: Call, topic: str, index: int) -> DescribeProducersResponsePartition:
    try:
        authorize(call, Operation.READ, Resource.TOPIC, topic)
        states = call.service.broker.find(topic, index).log.producers
    except DragomanError as error:
        return DescribeProducersResponsePartition(
            partition_index=index, error_code=wire_code(error), error_message=str(error)
        )
    return DescribeProducersResponsePartition(
        partition_index=index,
        active_producers=[
            DescribeProducersResponseActiveProducer(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.open_offset,
            )
            for each in (states.describe() if states is not None else ())
        ],
    )


# ---- transactions of the coordinator


def handle_describe(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, DescribeTransactionsRequest)
    call.reply(
        DescribeTransactionsResponse(
            transaction_states=[_describe(call, each) for each in request.transactional_ids]
        )
    )


def _describe(call: Call, transactional_id: str) -> DescribeTransactionsResponseTransaction:
    try:
        authorize(call, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id)
        found = call.service.broker.coordination.transactions.describe(transactional_id)
    except DragomanError as error:
        return DescribeTransactionsResponseTransaction(
            error_code=wire_code(error), transactional_id=transactional_id
        )
    return DescribeTransactionsResponseTransaction(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.identity.producer_id,
        producer_epoch=found.identity.epoch,
        topics=[
            DescribeTransactionsResponseTopic(topic=topic, partitions=partitions)
            for topic, partitions in _enrolled(call, found).items()
        ],
    )


def _enrolled(call: Call, found: TransactionDescription) -> dict[str, list[int]]:
    """Partitions by topic; a group appears as the partition that keeps its offsets."""
    group_partition = call.service.broker.coordination.group_partition
    partitions = {*found.partitions, *map(group_partition, found.groups)}
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        if is_allowed(call, Operation.DESCRIBE, Resource.TOPIC, topic):
            by_topic.setdefault(topic, []).append(index)
    return by_topic


def handle_list(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, ListTransactionsRequest)
    states = {_STATES[each] for each in request.state_filters if each in _STATES}
    unknown = [each for each in request.state_filters if each not in _STATES]
    if request.state_filters and not states:
        # Nothing can be in a state that does not exist.
        call.reply(ListTransactionsResponse(unknown_state_filters=unknown))
        return
    try:
        found = call.service.broker.coordination.transactions.list_transactions(
            states,
            set(request.producer_id_filters),
            request.duration_filter if request.duration_filter >= 0 else None,
            _id_filter(call, request.transactional_id_pattern),
        )
    except PatternError:
        call.reply(ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION))
        return
    except DragomanError as error:
        call.reply(ListTransactionsResponse(error_code=wire_code(error)))
        return
    call.reply(
        ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[
                ListTransactionsResponseTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.value,
                )
                for each in found
            ],
        )
    )


def _id_filter(call: Call, pattern: str | None) -> Callable[[str], bool]:
    matches = full_match(pattern) if pattern else None

    def accepts(transactional_id: str) -> bool:
        return (matches is None or matches(transactional_id)) and is_allowed(
            call, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id
        )

    return accepts


# ---- markers by hand


def handle_write_markers(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, WriteTxnMarkersRequest)
    wanted = [
        (marker, TopicName(topic.name), Partition(index))
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    gathering: Gathering[int] = Gathering(call, len(wanted), lambda codes: _written(request, codes))
    for place, (marker, topic, index) in enumerate(wanted):

        def done(error: DragomanError | None, place: int = place) -> None:
            gathering.set(place, 0 if error is None else wire_code(error))

        try:
            _authorize_markers(call)
            _check_epoch(call, marker, topic, index)
        except DragomanError as error:
            done(error)
            continue
        call.service.broker.coordination.end_by_hand(
            ProducerIdentity(marker.producer_id, marker.producer_epoch),
            Marker(marker.transaction_result, marker.coordinator_epoch),
            (topic, index),
            done,
        )


def _authorize_markers(call: Call) -> None:
    """Nodes may write markers, and so may operators (KIP-664)."""
    try:
        authorize_cluster(call, Operation.CLUSTER_ACTION)
    except NotAuthorized:
        authorize_cluster(call, Operation.ALTER)


def _check_epoch(call: Call, marker: WriteTxnMarkersRequestMarker, topic: str, index: int) -> None:
    if marker.transaction_version < _EPOCH_PER_TRANSACTION:
        return
    states = call.service.broker.find(topic, index).log.producers
    known = states.producers().get(marker.producer_id) if states is not None else None
    if known is not None and marker.producer_epoch <= known.epoch:
        raise InvalidProducerEpochError(marker.producer_id, known.epoch + 1, marker.producer_epoch)


def _written(request: WriteTxnMarkersRequest, codes: list[int]) -> WriteTxnMarkersResponse:
    remaining = iter(codes)
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponseMarker(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersResponseTopic(
                        name=topic.name,
                        partitions=[
                            WriteTxnMarkersResponsePartition(
                                partition_index=index, error_code=next(remaining)
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
