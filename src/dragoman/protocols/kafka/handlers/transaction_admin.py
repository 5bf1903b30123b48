"""DescribeProducers (61), DescribeTransactions (65), ListTransactions (66), WriteTxnMarkers (27).

Operators use these requests to find hanging transactions, and to end those that their coordinator
does not end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import NotAuthorized
from dragoman.broker.patterns import full_match
from dragoman.broker.transactions import ProducerIdentity, TransactionDescription, TransactionState
from dragoman.broker.work_queue import Steps
from dragoman.errors import DragomanError
from dragoman.limits import ID_PATTERN_BYTES_MAX
from dragoman.log.batch import Marker
from dragoman.log.producer import InvalidProducerEpochError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.protocols.kafka.handlers.slices import Elements, answer, answer_array, gather
from dragoman.security.access import Operation, Resource
from dragoman.types import Partition, TopicName

_STATES = {state.value: state for state in TransactionState}
#: Level of `transaction.version` from which a marker must have a newer epoch than the batches.
_EPOCH_PER_TRANSACTION = 2


# ---- producers of a partition


def handle_describe_producers(call: Call) -> None:
    request = call.decode(m.DescribeProducersRequest)
    # A partition that is named twice is described once, because it may have thousands of producers.
    by_topic: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        by_topic.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))

    def steps() -> Steps[m.Message]:
        topics: list[m.DescribeProducersResponseTopic] = []
        for name, indexes in by_topic.items():
            found: list[m.DescribeProducersResponsePartition] = []
            for index in indexes:
                found.append(_producers(call, name, index))
                yield 1 + len(found[-1].active_producers)
            topics.append(m.DescribeProducersResponseTopic(name=name, partitions=found))
        return m.DescribeProducersResponse(topics=topics)

    answer(call, steps())


def _producers(call: Call, topic: str, index: int) -> m.DescribeProducersResponsePartition:
    try:
        call.authorize(Operation.READ, Resource.TOPIC, topic)
        states = call.service.broker.partitions.find(topic, index).log.producers
    except DragomanError as error:
        return m.DescribeProducersResponsePartition(
            partition_index=index, error_code=wire_code(error), error_message=str(error)
        )
    return m.DescribeProducersResponsePartition(
        partition_index=index,
        active_producers=[
            m.DescribeProducersResponseActiveProducer(
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
    request = call.decode(m.DescribeTransactionsRequest)

    def elements() -> Elements:
        # An id that is named twice is described once.
        for transactional_id in dict.fromkeys(request.transactional_ids):
            found = _describe(call, transactional_id)
            yield found, 2 + sum(len(each.partitions) for each in found.topics)

    answer_array(call, m.DescribeTransactionsResponse(), "transaction_states", elements())


def _describe(call: Call, transactional_id: str) -> m.DescribeTransactionsResponseTransaction:
    try:
        call.authorize(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id)
        coordination = call.service.broker.coordination
        coordination.transactions.require(transactional_id)
        found = coordination.transactions.coordinator.describe(transactional_id)
    except DragomanError as error:
        return m.DescribeTransactionsResponseTransaction(
            error_code=wire_code(error), transactional_id=transactional_id
        )
    return m.DescribeTransactionsResponseTransaction(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.identity.producer_id,
        producer_epoch=found.identity.epoch,
        topics=[
            m.DescribeTransactionsResponseTopic(topic=topic, partitions=partitions)
            for topic, partitions in _enrolled(call, found).items()
        ],
    )


def _enrolled(call: Call, found: TransactionDescription) -> dict[str, list[int]]:
    """Enrolled partitions by topic; a group appears as its partition of `__consumer_offsets`."""
    group_partition = call.service.broker.coordination.groups.home_of
    partitions = {*found.partitions, *map(group_partition, found.groups)}
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        if call.may(Operation.DESCRIBE, Resource.TOPIC, topic):
            by_topic.setdefault(topic, []).append(index)
    return by_topic


def handle_list(call: Call) -> None:
    request = call.decode(m.ListTransactionsRequest)
    states = {_STATES[each] for each in request.state_filters if each in _STATES}
    unknown = [each for each in request.state_filters if each not in _STATES]
    if request.state_filters and not states:
        # No transaction matches an unknown state.
        call.reply(m.ListTransactionsResponse(unknown_state_filters=unknown))
        return
    try:
        coordination = call.service.broker.coordination
        coordination.require_loaded(CoordinatorKind.TRANSACTION)
        found = coordination.transactions.coordinator.list_transactions(
            states,
            set(request.producer_id_filters),
            request.duration_filter if request.duration_filter >= 0 else None,
            _id_filter(request.transactional_id_pattern),
        )
    except DragomanError as error:
        call.reply(m.ListTransactionsResponse(error_code=wire_code(error)))
        return
    ids = {each.transactional_id for each in found}
    shown = call.describable(Resource.TRANSACTIONAL_ID, ids)
    elements = (
        (
            m.ListTransactionsResponseTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            ),
            1,
        )
        for each in found
        if each.transactional_id in shown
    )
    rest = m.ListTransactionsResponse(unknown_state_filters=unknown)
    answer_array(call, rest, "transaction_states", elements)


def _id_filter(pattern: str | None) -> Callable[[str], bool] | None:
    return full_match(pattern, ID_PATTERN_BYTES_MAX) if pattern else None


# ---- markers written by operators


@awaited
async def handle_write_markers(call: Call) -> m.WriteTxnMarkersResponse:
    request = call.decode(m.WriteTxnMarkersRequest)
    wanted = [
        (marker, TopicName(topic.name), Partition(index))
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]

    async def end(requested: tuple[m.WriteTxnMarkersRequestMarker, TopicName, Partition]) -> None:
        marker, topic, index = requested
        _authorize_markers(call)
        _check_epoch(call, marker, topic, index)
        await call.service.broker.coordination.transactions.participants.end_by_hand(
            ProducerIdentity(marker.producer_id, marker.producer_epoch),
            Marker(marker.transaction_result, marker.coordinator_epoch),
            (topic, index),
        )

    return _written(request, await gather(call, wanted, end))


def _authorize_markers(call: Call) -> None:
    """Authorize the request: nodes and operators may write markers (KIP-664)."""
    try:
        call.authorize_cluster(Operation.CLUSTER_ACTION)
    except NotAuthorized:
        call.authorize_cluster(Operation.ALTER)


def _check_epoch(
    call: Call, marker: m.WriteTxnMarkersRequestMarker, topic: str, index: int
) -> None:
    if marker.transaction_version < _EPOCH_PER_TRANSACTION:
        return
    states = call.service.broker.partitions.find(topic, index).log.producers
    known = states.producers().get(marker.producer_id) if states is not None else None
    if known is not None and marker.producer_epoch <= known.epoch:
        raise InvalidProducerEpochError(marker.producer_id, known.epoch + 1, marker.producer_epoch)


def _written(
    request: m.WriteTxnMarkersRequest, results: Sequence[DragomanError | None]
) -> m.WriteTxnMarkersResponse:
    codes = map(wire_code, results)
    return m.WriteTxnMarkersResponse(
        markers=[
            m.WriteTxnMarkersResponseMarker(
                producer_id=marker.producer_id,
                topics=[
                    m.WriteTxnMarkersResponseTopic(
                        name=topic.name,
                        partitions=[
                            m.WriteTxnMarkersResponsePartition(
                                partition_index=index, error_code=next(codes)
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
