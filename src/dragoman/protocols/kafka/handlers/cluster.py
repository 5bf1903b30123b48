"""DescribeCluster (60), versions 0 to 2, and DescribeQuorum (55), versions 0 to 2."""

from __future__ import annotations

from dragoman.broker.broker import METADATA_TOPIC
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.access import (
    CLUSTER_NAME,
    NOT_ASKED,
    allowed_operations,
    authorize_cluster,
)
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

_BROKERS, _CONTROLLERS = 1, 2
#: The metadata log is written in one epoch as long as its quorum is one voter.
_METADATA_EPOCH = 0


def handle_describe(call: Call) -> None:
    request = call.decode(m.DescribeClusterRequest)
    try:
        authorize_cluster(call, Operation.DESCRIBE)
    except DragomanError as error:
        _refuse(call, request, wire_code(error), str(error))
        return
    if request.endpoint_type != _BROKERS:
        # Controllers are reached over a listener of their own in Kafka; there is none here.
        is_known = request.endpoint_type == _CONTROLLERS
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        _refuse(call, request, code, code.text)
        return
    broker = call.service.broker
    host, port = call.service.advertised(call.session.channel)
    call.reply(
        m.DescribeClusterResponse(
            cluster_id=broker.image.cluster_id,
            controller_id=broker.quorum.leader,
            brokers=[
                m.DescribeClusterResponseBroker(broker_id=broker.node_id, host=host, port=port)
            ],
            cluster_authorized_operations=allowed_operations(call, Resource.CLUSTER, CLUSTER_NAME)
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
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
        authorize_cluster(call, Operation.DESCRIBE)
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
            nodes=[_node(call)] if call.version >= 2 else [],
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
    voter = m.DescribeQuorumResponseReplica(
        replica_id=broker.node_id,
        log_end_offset=broker.metadata_log.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return m.DescribeQuorumResponsePartition(
        partition_index=index,
        error_message=None,
        leader_id=broker.quorum.leader,
        leader_epoch=_METADATA_EPOCH,
        high_watermark=broker.metadata_log.high_watermark,
        current_voters=[voter],
    )


def _node(call: Call) -> m.DescribeQuorumResponseNode:
    host, port = call.service.advertised(call.session.channel)
    listener = m.DescribeQuorumResponseListener(name="CONTROLLER", host=host, port=port)
    return m.DescribeQuorumResponseNode(node_id=call.service.broker.node_id, listeners=[listener])
