"""FindCoordinator (10), versions 0 to 6, DescribeQuorum (55), versions 0 to 2, and DescribeCluster
(60), versions 0 to 2: the nodes of the cluster, their quorum, and the coordinators of groups and
transactional ids.
"""

from __future__ import annotations

from typing import TypeAlias

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import CoordinatorNotAvailable, InvalidGroupRequest
from dragoman.cluster.metadata import METADATA_TOPIC
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.resources import NOT_REQUESTED, cluster_operations
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.protocols.kafka.handlers.slices import gather
from dragoman.security.access import Operation, Resource

_KINDS = {
    0: (CoordinatorKind.GROUP, Resource.GROUP),
    1: (CoordinatorKind.TRANSACTION, Resource.TRANSACTIONAL_ID),
}
#: First version with several keys.
_BATCHED_SINCE = 4
_Node: TypeAlias = tuple[int, str, int]


@awaited
async def handle_find_coordinator(call: Call) -> m.FindCoordinatorResponse:
    request = call.decode(m.FindCoordinatorRequest)
    is_batched = call.version >= _BATCHED_SINCE
    keys = request.coordinator_keys if is_batched else [request.key]

    async def find(key: str) -> _Node:
        known = _KINDS.get(request.key_type)
        if known is None:
            raise InvalidGroupRequest(f"there are no coordinators of type {request.key_type}")
        kind, resource = known
        call.authorize(Operation.DESCRIBE, resource, key)
        find_coordinator = call.service.broker.coordination.find_coordinator
        return _addressed(call, await find_coordinator(kind, key))

    found = await gather(call, keys, find)
    coordinators = [_coordinator(key, each) for key, each in zip(keys, found, strict=True)]
    if is_batched:
        return m.FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return m.FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _addressed(call: Call, node: int) -> _Node:
    address = call.service.address_of(call.session.channel, node)
    if address is None:
        raise CoordinatorNotAvailable(f"node {node} has no listener like this one")
    return node, *address


def _coordinator(key: str, found: _Node | DragomanError) -> m.FindCoordinatorResponseCoordinator:
    if isinstance(found, DragomanError):
        code = wire_code(found)
        return m.FindCoordinatorResponseCoordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=code.text
        )
    node_id, host, port = found
    return m.FindCoordinatorResponseCoordinator(
        key=key, node_id=node_id, host=host, port=port, error_message=None
    )


_BROKERS, _CONTROLLERS = 1, 2


def handle_describe(call: Call) -> None:
    request = call.decode(m.DescribeClusterRequest)
    if request.endpoint_type != _BROKERS:
        # Kafka's controllers have listeners of their own; Dragoman has none.
        is_known = request.endpoint_type == _CONTROLLERS
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        _refuse(call, request, code, code.text)
        return
    broker = call.service.broker
    call.reply(
        m.DescribeClusterResponse(
            cluster_id=broker.image.cluster_id,
            controller_id=broker.quorum.leader,
            brokers=[
                m.DescribeClusterResponseBroker(broker_id=node, host=host, port=port, rack=rack)
                for node, host, port, rack in call.service.nodes(call.session.channel)
            ],
            cluster_authorized_operations=cluster_operations(call)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED,
        )
    )


def _refuse(call: Call, request: m.DescribeClusterRequest, code: int, message: str) -> None:
    call.reply(
        m.DescribeClusterResponse(
            error_code=code, error_message=message, endpoint_type=request.endpoint_type
        )
    )


def handle_quorum(call: Call) -> None:
    request = call.decode(m.DescribeQuorumRequest)
    try:
        call.authorize_cluster(Operation.DESCRIBE)
    except DragomanError as error:
        call.reply(m.DescribeQuorumResponse(error_code=wire_code(error), error_message=str(error)))
        return
    call.reply(
        m.DescribeQuorumResponse(
            error_message=None,
            topics=[
                m.DescribeQuorumResponseTopic(
                    topic_name=topic.topic_name,
                    partitions=[
                        _partition(call, topic.topic_name, each.partition_index)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
            nodes=_nodes(call) if call.version >= 2 else [],
        )
    )


def _partition(call: Call, topic: str, index: int) -> m.DescribeQuorumResponsePartition:
    if (topic, index) != (METADATA_TOPIC, 0):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return m.DescribeQuorumResponsePartition(
            partition_index=index, error_code=code, error_message=code.text
        )
    broker = call.service.broker
    now_ms = broker.clock.wall_ms()
    quorum = broker.quorum
    ends = quorum.ends()

    def replica(node: int) -> m.DescribeQuorumResponseReplica:
        return m.DescribeQuorumResponseReplica(
            replica_id=node,
            log_end_offset=ends.get(node, -1),
            last_fetch_timestamp=now_ms if node in ends else -1,
            last_caught_up_timestamp=now_ms if node == broker.node_id else -1,
        )

    return m.DescribeQuorumResponsePartition(
        partition_index=index,
        error_message=None,
        leader_id=quorum.leader,
        leader_epoch=quorum.term,
        high_watermark=quorum.applied,
        current_voters=[replica(node) for node in quorum.membership.voters],
        observers=[replica(node) for node in quorum.membership.learners],
    )


def _nodes(call: Call) -> list[m.DescribeQuorumResponseNode]:
    return [
        m.DescribeQuorumResponseNode(
            node_id=node,
            listeners=[m.DescribeQuorumResponseListener(name="CONTROLLER", host=host, port=port)],
        )
        for node, host, port, _rack in call.service.nodes(call.session.channel)
    ]
