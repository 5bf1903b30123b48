"""ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dragoman.broker.administration import Act, note_each
from dragoman.broker.errors import ElectionNotNeeded
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text
from dragoman.protocols.kafka.handlers.resources import partition_of
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.protocols.kafka.handlers.slices import gather
from dragoman.security.access import Operation

_PREFERRED, _UNCLEAN = 0, 1


# ---- elections


@awaited
async def handle_elect(call: Call) -> m.ElectLeadersResponse:
    request = call.decode(m.ElectLeadersRequest)
    try:
        call.authorize_cluster(Operation.ALTER)
        if request.election_type not in (_PREFERRED, _UNCLEAN):
            raise DecodeError(f"election type {request.election_type} is not known")
    except DragomanError as error:
        return _refused_election(call, request, error)
    wanted = list(_candidates(call, request))
    leadership = call.service.broker.leadership

    async def elect(requested: tuple[str, int]) -> None:
        partition = partition_of(call, *requested)
        if request.election_type != _PREFERRED:
            raise leadership.refuse_election(partition)
        await leadership.elect_preferred(partition)

    results = await gather(call, wanted, elect)
    acts = [
        Act(f"topic:{topic}", f"partition {index}", error)
        for (topic, index), error in zip(wanted, results, strict=True)
        if not isinstance(error, ElectionNotNeeded)
    ]
    note_each(call.service.broker.audit, "leader.elect", call.actor, acts)
    return _elected(request, wanted, results)


def _candidates(call: Call, request: m.ElectLeadersRequest) -> Iterable[tuple[str, int]]:
    if request.topic_partitions is not None:
        for requested in request.topic_partitions:
            for index in dict.fromkeys(requested.partitions):
                yield requested.topic, index
        return
    for topic in call.service.broker.image.topics.values():
        for partition in topic.partitions:
            yield topic.name, partition.index


def _refused_election(
    call: Call, request: m.ElectLeadersRequest, error: DragomanError
) -> m.ElectLeadersResponse:
    if call.version >= 1:
        return m.ElectLeadersResponse(error_code=wire_code(error))
    # Version 0 has no error field for the request: every partition that it names carries the error.
    wanted = [] if request.topic_partitions is None else list(_candidates(call, request))
    return _elected(request, wanted, [error] * len(wanted))


def _elected(
    request: m.ElectLeadersRequest,
    wanted: list[tuple[str, int]],
    results: Sequence[DragomanError | None],
) -> m.ElectLeadersResponse:
    by_topic: dict[str, list[m.ElectLeadersResponsePartition]] = {}
    for (topic, index), error in zip(wanted, results, strict=True):
        code = wire_code(error)
        # A request for all partitions is answered with those that changed their leader.
        if request.topic_partitions is None and code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        by_topic.setdefault(topic, []).append(
            m.ElectLeadersResponsePartition(
                partition_id=index,
                error_code=code,
                error_message=wire_text(error),
            )
        )
    return m.ElectLeadersResponse(
        replica_election_results=[
            m.ElectLeadersResponseTopic(topic=topic, partition_result=found)
            for topic, found in by_topic.items()
        ]
    )


# ---- replicas on other nodes


@awaited
async def handle_reassign(call: Call) -> m.AlterPartitionReassignmentsResponse:
    request = call.decode(m.AlterPartitionReassignmentsRequest)
    try:
        call.authorize_cluster(Operation.ALTER)
    except DragomanError as error:
        return m.AlterPartitionReassignmentsResponse(
            error_code=wire_code(error), error_message=str(error)
        )
    may_resize = request.allow_replication_factor_change
    leadership = call.service.broker.leadership
    requested = [(topic.name, each) for topic in request.topics for each in topic.partitions]

    async def move(wanted: tuple[str, m.AlterPartitionReassignmentsRequestPartition]) -> None:
        topic, each = wanted
        partition = partition_of(call, topic, each.partition_index)
        # Without replicas the reassignment in progress is cancelled.
        if each.replicas is None:
            await leadership.cancel_move(partition)
        else:
            await leadership.move(partition, each.replicas, may_resize=may_resize)

    results = await gather(call, requested, move)
    for action, is_move in (("replicas.move", True), ("replicas.cancel", False)):
        acts = [
            Act(f"topic:{topic}", _moved(each), error)
            for (topic, each), error in zip(requested, results, strict=True)
            if (each.replicas is not None) is is_move
        ]
        note_each(call.service.broker.audit, action, call.actor, acts)
    by_topic: dict[str, list[m.AlterPartitionReassignmentsResponsePartition]] = {
        topic.name: [] for topic in request.topics
    }
    for (topic, each), refusal in zip(requested, results, strict=True):
        by_topic[topic].append(
            m.AlterPartitionReassignmentsResponsePartition(
                partition_index=each.partition_index,
                error_code=wire_code(refusal),
                error_message=wire_text(refusal),
            )
        )
    return m.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize,
        error_message=None,
        responses=[
            m.AlterPartitionReassignmentsResponseTopic(name=name, partitions=found)
            for name, found in by_topic.items()
        ],
    )


def _moved(requested: m.AlterPartitionReassignmentsRequestPartition) -> str:
    where = f"partition {requested.partition_index}"
    if requested.replicas is None:
        return where
    return f"{where}: to nodes {', '.join(map(str, requested.replicas))}"


def handle_list_reassignments(call: Call) -> None:
    request = call.decode(m.ListPartitionReassignmentsRequest)
    try:
        call.authorize_cluster(Operation.DESCRIBE)
    except DragomanError as error:
        call.reply(
            m.ListPartitionReassignmentsResponse(
                error_code=wire_code(error), error_message=str(error)
            )
        )
        return
    wanted = None
    if request.topics is not None:
        wanted = {
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        }
    by_topic: dict[str, list[m.ListPartitionReassignmentsResponsePartition]] = {}
    for partition in call.service.broker.image.moving.values():
        where = (partition.topic.name, partition.index)
        if wanted is None or where in wanted:
            by_topic.setdefault(partition.topic.name, []).append(_moving(partition))
    call.reply(
        m.ListPartitionReassignmentsResponse(
            error_message=None,
            topics=[
                m.ListPartitionReassignmentsResponseTopic(name=name, partitions=found)
                for name, found in by_topic.items()
            ],
        )
    )


def _moving(partition: PartitionMetadata) -> m.ListPartitionReassignmentsResponsePartition:
    target = partition.target
    return m.ListPartitionReassignmentsResponsePartition(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=[each for each in target if each not in partition.in_sync],
        removing_replicas=[each for each in partition.replicas if each not in target],
    )
