"""Kafka's messages as values. Made from `schema.py` by `generate.py`: change those, not this.

One class per structure, for all versions. A comment gives the versions that have a field, where
that is not all of those that have its structure. In others it keeps its default when decoded, and a
value that is not the default cannot be encoded, unless the comment says `else dropped`. Fields are
in wire order and best given by keyword.

`records` is never copied. Decoded, it is a view of the frame. To be encoded, a response's may also
be a tuple of buffers, sent one after the other.
"""

import msgspec

from dragoman.protocols.kafka.notation import NO_ID as NO_ID
from dragoman.types import Buffer

class Message(msgspec.Struct, frozen=True, gc=False): ...

class RequestHeader(Message, frozen=True):
    """No key, versions 1-2."""

    request_api_key: int = 0
    request_api_version: int = 0
    correlation_id: int = 0
    client_id: str | None = ""

class ResponseHeader(Message, frozen=True):
    """No key, versions 0-1."""

    correlation_id: int = 0

class ConsumerProtocolSubscriptionTopic(Message, frozen=True):
    topic: str = ""
    partitions: list[int] = []

class ConsumerProtocolSubscription(Message, frozen=True):
    """No key, versions 0-3."""

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: list[ConsumerProtocolSubscriptionTopic] = []  # 1+, else dropped
    generation_id: int = -1  # 2+, else dropped
    rack_id: str | None = None  # 3+, else dropped

class ConsumerProtocolAssignmentTopic(Message, frozen=True):
    topic: str = ""
    partitions: list[int] = []

class ConsumerProtocolAssignment(Message, frozen=True):
    """No key, versions 0-3."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopic] = []
    user_data: bytes | None = None

class ProduceRequestPartition(Message, frozen=True):
    index: int = 0
    records: Buffer | None = None

class ProduceRequestTopic(Message, frozen=True):
    name: str = ""  # 3-12, else dropped
    topic_id: bytes = ...  # 13+, else dropped
    partition_data: list[ProduceRequestPartition] = []

class ProduceRequest(Message, frozen=True):
    """Key 0, versions 3-13."""

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[ProduceRequestTopic] = []

class ProduceResponseRecordError(Message, frozen=True):
    batch_index: int = 0
    batch_index_error_message: str | None = None

class ProduceResponseCurrentLeader(Message, frozen=True):
    leader_id: int = -1
    leader_epoch: int = -1

class ProduceResponsePartition(Message, frozen=True):
    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1  # 5+, else dropped
    record_errors: list[ProduceResponseRecordError] = []  # 8+, else dropped
    error_message: str | None = None  # 8+, else dropped
    current_leader: ProduceResponseCurrentLeader = ...  # 10+

class ProduceResponseTopic(Message, frozen=True):
    name: str = ""  # 3-12, else dropped
    topic_id: bytes = ...  # 13+, else dropped
    partition_responses: list[ProduceResponsePartition] = []

class ProduceResponseNodeEndpoint(Message, frozen=True):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None

class ProduceResponse(Message, frozen=True):
    """Key 0, versions 3-13."""

    responses: list[ProduceResponseTopic] = []
    throttle_time_ms: int = 0
    node_endpoints: list[ProduceResponseNodeEndpoint] = []  # 10+

class FetchRequestReplicaState(Message, frozen=True):
    replica_id: int = -1
    replica_epoch: int = -1

class FetchRequestPartition(Message, frozen=True):
    partition: int = 0
    current_leader_epoch: int = -1  # 9+, else dropped
    fetch_offset: int = 0
    last_fetched_epoch: int = -1  # 12+
    log_start_offset: int = -1  # 5+, else dropped
    partition_max_bytes: int = 0
    replica_directory_id: bytes = ...  # 17+, else dropped
    high_watermark: int = 9223372036854775807  # 18+, else dropped

class FetchRequestTopic(Message, frozen=True):
    topic: str = ""  # 4-12, else dropped
    topic_id: bytes = ...  # 13+, else dropped
    partitions: list[FetchRequestPartition] = []

class FetchRequestForgottenTopic(Message, frozen=True):
    topic: str = ""  # 7-12, else dropped
    topic_id: bytes = ...  # 13+, else dropped
    partitions: list[int] = []

class FetchRequest(Message, frozen=True):
    """Key 1, versions 4-18."""

    cluster_id: str | None = None  # 12+, else dropped
    replica_id: int = -1  # 4-14
    replica_state: FetchRequestReplicaState = ...  # 15+
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0  # 7+, else dropped
    session_epoch: int = -1  # 7+, else dropped
    topics: list[FetchRequestTopic] = []
    forgotten_topics_data: list[FetchRequestForgottenTopic] = []  # 7+
    rack_id: str = ""  # 11+, else dropped

class FetchResponseDivergingEpoch(Message, frozen=True):
    epoch: int = -1
    end_offset: int = -1

class FetchResponseCurrentLeader(Message, frozen=True):
    leader_id: int = -1
    leader_epoch: int = -1

class FetchResponseSnapshotId(Message, frozen=True):
    end_offset: int = -1
    epoch: int = -1

class FetchResponseAbortedTransaction(Message, frozen=True):
    producer_id: int = 0
    first_offset: int = 0

class FetchResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1  # 5+, else dropped
    diverging_epoch: FetchResponseDivergingEpoch = ...  # 12+
    current_leader: FetchResponseCurrentLeader = ...  # 12+
    snapshot_id: FetchResponseSnapshotId = ...  # 12+
    aborted_transactions: list[FetchResponseAbortedTransaction] | None = []
    preferred_read_replica: int = -1  # 11+
    records: Buffer | tuple[Buffer, ...] | None = None

class FetchResponseTopic(Message, frozen=True):
    topic: str = ""  # 4-12, else dropped
    topic_id: bytes = ...  # 13+, else dropped
    partitions: list[FetchResponsePartition] = []

class FetchResponseNodeEndpoint(Message, frozen=True):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None

class FetchResponse(Message, frozen=True):
    """Key 1, versions 4-18."""

    throttle_time_ms: int = 0
    error_code: int = 0  # 7+, else dropped
    session_id: int = 0  # 7+
    responses: list[FetchResponseTopic] = []
    node_endpoints: list[FetchResponseNodeEndpoint] = []  # 16+

class ListOffsetsRequestPartition(Message, frozen=True):
    partition_index: int = 0
    current_leader_epoch: int = -1  # 4+, else dropped
    timestamp: int = 0

class ListOffsetsRequestTopic(Message, frozen=True):
    name: str = ""
    partitions: list[ListOffsetsRequestPartition] = []

class ListOffsetsRequest(Message, frozen=True):
    """Key 2, versions 1-11."""

    replica_id: int = 0
    isolation_level: int = 0  # 2+
    topics: list[ListOffsetsRequestTopic] = []
    timeout_ms: int = 0  # 10+, else dropped

class ListOffsetsResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1  # 4+

class ListOffsetsResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[ListOffsetsResponsePartition] = []

class ListOffsetsResponse(Message, frozen=True):
    """Key 2, versions 1-11."""

    throttle_time_ms: int = 0  # 2+, else dropped
    topics: list[ListOffsetsResponseTopic] = []

class MetadataRequestTopic(Message, frozen=True):
    topic_id: bytes = ...  # 10+, else dropped
    name: str | None = ""

class MetadataRequest(Message, frozen=True):
    """Key 3, versions 0-13."""

    topics: list[MetadataRequestTopic] | None = []
    allow_auto_topic_creation: bool = True  # 4+
    include_cluster_authorized_operations: bool = False  # 8-10
    include_topic_authorized_operations: bool = False  # 8+

class MetadataResponseBroker(Message, frozen=True):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None  # 1+, else dropped

class MetadataResponsePartition(Message, frozen=True):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1  # 7+, else dropped
    replica_nodes: list[int] = []
    isr_nodes: list[int] = []
    offline_replicas: list[int] = []  # 5+, else dropped

class MetadataResponseTopic(Message, frozen=True):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ...  # 10+, else dropped
    is_internal: bool = False  # 1+, else dropped
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: int = -2147483648  # 8+

class MetadataResponse(Message, frozen=True):
    """Key 3, versions 0-13."""

    throttle_time_ms: int = 0  # 3+, else dropped
    brokers: list[MetadataResponseBroker] = []
    cluster_id: str | None = None  # 2+, else dropped
    controller_id: int = -1  # 1+, else dropped
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: int = -2147483648  # 8-10
    error_code: int = 0  # 13+, else dropped

class OffsetCommitRequestPartition(Message, frozen=True):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # 6+, else dropped
    committed_metadata: str | None = ""

class OffsetCommitRequestTopic(Message, frozen=True):
    name: str = ""  # 2-9, else dropped
    topic_id: bytes = ...  # 10+, else dropped
    partitions: list[OffsetCommitRequestPartition] = []

class OffsetCommitRequest(Message, frozen=True):
    """Key 8, versions 2-10."""

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None  # 7+
    retention_time_ms: int = -1  # 2-4, else dropped
    topics: list[OffsetCommitRequestTopic] = []

class OffsetCommitResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0

class OffsetCommitResponseTopic(Message, frozen=True):
    name: str = ""  # 2-9, else dropped
    topic_id: bytes = ...  # 10+, else dropped
    partitions: list[OffsetCommitResponsePartition] = []

class OffsetCommitResponse(Message, frozen=True):
    """Key 8, versions 2-10."""

    throttle_time_ms: int = 0  # 3+, else dropped
    topics: list[OffsetCommitResponseTopic] = []

class OffsetFetchRequestTopic(Message, frozen=True):
    name: str = ""
    partition_indexes: list[int] = []

class OffsetFetchRequestGroupTopic(Message, frozen=True):
    name: str = ""  # 8-9, else dropped
    topic_id: bytes = ...  # 10+, else dropped
    partition_indexes: list[int] = []

class OffsetFetchRequestGroup(Message, frozen=True):
    group_id: str = ""
    member_id: str | None = None  # 9+, else dropped
    member_epoch: int = -1  # 9+, else dropped
    topics: list[OffsetFetchRequestGroupTopic] | None = []

class OffsetFetchRequest(Message, frozen=True):
    """Key 9, versions 1-10."""

    group_id: str = ""  # 1-7
    topics: list[OffsetFetchRequestTopic] | None = []  # 1-7
    groups: list[OffsetFetchRequestGroup] = []  # 8+
    require_stable: bool = False  # 7+

class OffsetFetchResponsePartition(Message, frozen=True):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # 5+, else dropped
    metadata: str | None = ""
    error_code: int = 0

class OffsetFetchResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []

class OffsetFetchResponseGroupPartition(Message, frozen=True):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0

class OffsetFetchResponseGroupTopic(Message, frozen=True):
    name: str = ""  # 8-9, else dropped
    topic_id: bytes = ...  # 10+, else dropped
    partitions: list[OffsetFetchResponseGroupPartition] = []

class OffsetFetchResponseGroup(Message, frozen=True):
    group_id: str = ""
    topics: list[OffsetFetchResponseGroupTopic] = []
    error_code: int = 0

class OffsetFetchResponse(Message, frozen=True):
    """Key 9, versions 1-10."""

    throttle_time_ms: int = 0  # 3+, else dropped
    topics: list[OffsetFetchResponseTopic] = []  # 1-7
    error_code: int = 0  # 2-7, else dropped
    groups: list[OffsetFetchResponseGroup] = []  # 8+

class FindCoordinatorRequest(Message, frozen=True):
    """Key 10, versions 0-6."""

    key: str = ""  # 0-3
    key_type: int = 0  # 1+
    coordinator_keys: list[str] = []  # 4+

class FindCoordinatorResponseCoordinator(Message, frozen=True):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""

class FindCoordinatorResponse(Message, frozen=True):
    """Key 10, versions 0-6."""

    throttle_time_ms: int = 0  # 1+, else dropped
    error_code: int = 0  # 0-3
    error_message: str | None = ""  # 1-3, else dropped
    node_id: int = 0  # 0-3
    host: str = ""  # 0-3
    port: int = 0  # 0-3
    coordinators: list[FindCoordinatorResponseCoordinator] = []  # 4+

class JoinGroupRequestProtocol(Message, frozen=True):
    name: str = ""
    metadata: bytes = b""

class JoinGroupRequest(Message, frozen=True):
    """Key 11, versions 0-9."""

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1  # 1+, else dropped
    member_id: str = ""
    group_instance_id: str | None = None  # 5+
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: str | None = None  # 8+, else dropped

class JoinGroupResponseMember(Message, frozen=True):
    member_id: str = ""
    group_instance_id: str | None = None  # 5+, else dropped
    metadata: bytes = b""

class JoinGroupResponse(Message, frozen=True):
    """Key 11, versions 0-9."""

    throttle_time_ms: int = 0  # 2+, else dropped
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None  # 7+, else dropped
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False  # 9+
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []

class HeartbeatRequest(Message, frozen=True):
    """Key 12, versions 0-4."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # 3+

class HeartbeatResponse(Message, frozen=True):
    """Key 12, versions 0-4."""

    throttle_time_ms: int = 0  # 1+, else dropped
    error_code: int = 0

class LeaveGroupRequestMember(Message, frozen=True):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None  # 5+, else dropped

class LeaveGroupRequest(Message, frozen=True):
    """Key 13, versions 0-5."""

    group_id: str = ""
    member_id: str = ""  # 0-2
    members: list[LeaveGroupRequestMember] = []  # 3+

class LeaveGroupResponseMember(Message, frozen=True):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0

class LeaveGroupResponse(Message, frozen=True):
    """Key 13, versions 0-5."""

    throttle_time_ms: int = 0  # 1+, else dropped
    error_code: int = 0
    members: list[LeaveGroupResponseMember] = []  # 3+

class SyncGroupRequestAssignment(Message, frozen=True):
    member_id: str = ""
    assignment: bytes = b""

class SyncGroupRequest(Message, frozen=True):
    """Key 14, versions 0-5."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # 3+
    protocol_type: str | None = None  # 5+, else dropped
    protocol_name: str | None = None  # 5+, else dropped
    assignments: list[SyncGroupRequestAssignment] = []

class SyncGroupResponse(Message, frozen=True):
    """Key 14, versions 0-5."""

    throttle_time_ms: int = 0  # 1+, else dropped
    error_code: int = 0
    protocol_type: str | None = None  # 5+, else dropped
    protocol_name: str | None = None  # 5+, else dropped
    assignment: bytes = b""

class DescribeGroupsRequest(Message, frozen=True):
    """Key 15, versions 0-6."""

    groups: list[str] = []
    include_authorized_operations: bool = False  # 3+

class DescribeGroupsResponseMember(Message, frozen=True):
    member_id: str = ""
    group_instance_id: str | None = None  # 4+, else dropped
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""

class DescribeGroupsResponseGroup(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = None  # 6+
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribeGroupsResponseMember] = []
    authorized_operations: int = -2147483648  # 3+

class DescribeGroupsResponse(Message, frozen=True):
    """Key 15, versions 0-6."""

    throttle_time_ms: int = 0  # 1+, else dropped
    groups: list[DescribeGroupsResponseGroup] = []

class ListGroupsRequest(Message, frozen=True):
    """Key 16, versions 0-5."""

    states_filter: list[str] = []  # 4+
    types_filter: list[str] = []  # 5+

class ListGroupsResponseGroup(Message, frozen=True):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""  # 4+, else dropped
    group_type: str = ""  # 5+, else dropped

class ListGroupsResponse(Message, frozen=True):
    """Key 16, versions 0-5."""

    throttle_time_ms: int = 0  # 1+, else dropped
    error_code: int = 0
    groups: list[ListGroupsResponseGroup] = []

class SaslHandshakeRequest(Message, frozen=True):
    """Key 17, versions 0-1."""

    mechanism: str = ""

class SaslHandshakeResponse(Message, frozen=True):
    """Key 17, versions 0-1."""

    error_code: int = 0
    mechanisms: list[str] = []

class ApiVersionsRequest(Message, frozen=True):
    """Key 18, versions 0-4."""

    client_software_name: str = ""  # 3+, else dropped
    client_software_version: str = ""  # 3+, else dropped

class ApiVersionsResponseApiKey(Message, frozen=True):
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0

class ApiVersionsResponseSupportedFeature(Message, frozen=True):
    name: str = ""
    min_version: int = 0
    max_version: int = 0

class ApiVersionsResponseFinalizedFeature(Message, frozen=True):
    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0

class ApiVersionsResponse(Message, frozen=True):
    """Key 18, versions 0-4."""

    error_code: int = 0
    api_keys: list[ApiVersionsResponseApiKey] = []
    throttle_time_ms: int = 0  # 1+, else dropped
    supported_features: list[ApiVersionsResponseSupportedFeature] = []  # 3+, else dropped
    finalized_features_epoch: int = -1  # 3+, else dropped
    finalized_features: list[ApiVersionsResponseFinalizedFeature] = []  # 3+, else dropped
    zk_migration_ready: bool = False  # 3+, else dropped

class CreateTopicsRequestAssignment(Message, frozen=True):
    partition_index: int = 0
    broker_ids: list[int] = []

class CreateTopicsRequestConfig(Message, frozen=True):
    name: str = ""
    value: str | None = ""

class CreateTopicsRequestTopic(Message, frozen=True):
    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreateTopicsRequestAssignment] = []
    configs: list[CreateTopicsRequestConfig] = []

class CreateTopicsRequest(Message, frozen=True):
    """Key 19, versions 2-7."""

    topics: list[CreateTopicsRequestTopic] = []
    timeout_ms: int = 60000
    validate_only: bool = False

class CreateTopicsResponseConfig(Message, frozen=True):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False

class CreateTopicsResponseTopic(Message, frozen=True):
    name: str = ""
    topic_id: bytes = ...  # 7+, else dropped
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0  # 5+, else dropped
    num_partitions: int = -1  # 5+, else dropped
    replication_factor: int = -1  # 5+, else dropped
    configs: list[CreateTopicsResponseConfig] | None = []  # 5+, else dropped

class CreateTopicsResponse(Message, frozen=True):
    """Key 19, versions 2-7."""

    throttle_time_ms: int = 0
    topics: list[CreateTopicsResponseTopic] = []

class DeleteTopicsRequestTopic(Message, frozen=True):
    name: str | None = None
    topic_id: bytes = ...

class DeleteTopicsRequest(Message, frozen=True):
    """Key 20, versions 1-6."""

    topics: list[DeleteTopicsRequestTopic] = []  # 6+
    topic_names: list[str] = []  # 1-5, else dropped
    timeout_ms: int = 0

class DeleteTopicsResponseTopic(Message, frozen=True):
    name: str | None = ""
    topic_id: bytes = ...  # 6+, else dropped
    error_code: int = 0
    error_message: str | None = None  # 5+, else dropped

class DeleteTopicsResponse(Message, frozen=True):
    """Key 20, versions 1-6."""

    throttle_time_ms: int = 0
    responses: list[DeleteTopicsResponseTopic] = []

class DeleteRecordsRequestPartition(Message, frozen=True):
    partition_index: int = 0
    offset: int = 0

class DeleteRecordsRequestTopic(Message, frozen=True):
    name: str = ""
    partitions: list[DeleteRecordsRequestPartition] = []

class DeleteRecordsRequest(Message, frozen=True):
    """Key 21, versions 0-2."""

    topics: list[DeleteRecordsRequestTopic] = []
    timeout_ms: int = 0

class DeleteRecordsResponsePartition(Message, frozen=True):
    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0

class DeleteRecordsResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[DeleteRecordsResponsePartition] = []

class DeleteRecordsResponse(Message, frozen=True):
    """Key 21, versions 0-2."""

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsResponseTopic] = []

class InitProducerIdRequest(Message, frozen=True):
    """Key 22, versions 0-6."""

    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1  # 3+
    producer_epoch: int = -1  # 3+
    enable2_pc: bool = False  # 6+
    keep_prepared_txn: bool = False  # 6+

class InitProducerIdResponse(Message, frozen=True):
    """Key 22, versions 0-6."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1  # 6+
    ongoing_txn_producer_epoch: int = -1  # 6+

class OffsetForLeaderEpochRequestPartition(Message, frozen=True):
    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0

class OffsetForLeaderEpochRequestTopic(Message, frozen=True):
    topic: str = ""
    partitions: list[OffsetForLeaderEpochRequestPartition] = []

class OffsetForLeaderEpochRequest(Message, frozen=True):
    """Key 23, versions 2-4."""

    replica_id: int = -2  # 3+, else dropped
    topics: list[OffsetForLeaderEpochRequestTopic] = []

class OffsetForLeaderEpochResponsePartition(Message, frozen=True):
    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1

class OffsetForLeaderEpochResponseTopic(Message, frozen=True):
    topic: str = ""
    partitions: list[OffsetForLeaderEpochResponsePartition] = []

class OffsetForLeaderEpochResponse(Message, frozen=True):
    """Key 23, versions 2-4."""

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderEpochResponseTopic] = []

class AddPartitionsToTxnRequestTopic(Message, frozen=True):
    name: str = ""
    partitions: list[int] = []

class AddPartitionsToTxnRequestTransaction(Message, frozen=True):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnRequestTopic] = []

class AddPartitionsToTxnRequest(Message, frozen=True):
    """Key 24, versions 0-5."""

    transactions: list[AddPartitionsToTxnRequestTransaction] = []  # 4+
    v3_and_below_transactional_id: str = ""  # 0-3
    v3_and_below_producer_id: int = 0  # 0-3
    v3_and_below_producer_epoch: int = 0  # 0-3
    v3_and_below_topics: list[AddPartitionsToTxnRequestTopic] = []  # 0-3

class AddPartitionsToTxnResponsePartition(Message, frozen=True):
    partition_index: int = 0
    partition_error_code: int = 0

class AddPartitionsToTxnResponseTopic(Message, frozen=True):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnResponsePartition] = []

class AddPartitionsToTxnResponseTransaction(Message, frozen=True):
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnResponseTopic] = []

class AddPartitionsToTxnResponse(Message, frozen=True):
    """Key 24, versions 0-5."""

    throttle_time_ms: int = 0
    error_code: int = 0  # 4+, else dropped
    results_by_transaction: list[AddPartitionsToTxnResponseTransaction] = []  # 4+
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseTopic] = []  # 0-3

class AddOffsetsToTxnRequest(Message, frozen=True):
    """Key 25, versions 0-4."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""

class AddOffsetsToTxnResponse(Message, frozen=True):
    """Key 25, versions 0-4."""

    throttle_time_ms: int = 0
    error_code: int = 0

class EndTxnRequest(Message, frozen=True):
    """Key 26, versions 0-5."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False

class EndTxnResponse(Message, frozen=True):
    """Key 26, versions 0-5."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1  # 5+, else dropped
    producer_epoch: int = -1  # 5+, else dropped

class WriteTxnMarkersRequestTopic(Message, frozen=True):
    name: str = ""
    partition_indexes: list[int] = []

class WriteTxnMarkersRequestMarker(Message, frozen=True):
    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: list[WriteTxnMarkersRequestTopic] = []
    coordinator_epoch: int = 0
    transaction_version: int = 0  # 2+, else dropped

class WriteTxnMarkersRequest(Message, frozen=True):
    """Key 27, versions 1-2."""

    markers: list[WriteTxnMarkersRequestMarker] = []

class WriteTxnMarkersResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0

class WriteTxnMarkersResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[WriteTxnMarkersResponsePartition] = []

class WriteTxnMarkersResponseMarker(Message, frozen=True):
    producer_id: int = 0
    topics: list[WriteTxnMarkersResponseTopic] = []

class WriteTxnMarkersResponse(Message, frozen=True):
    """Key 27, versions 1-2."""

    markers: list[WriteTxnMarkersResponseMarker] = []

class TxnOffsetCommitRequestPartition(Message, frozen=True):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # 2+, else dropped
    committed_metadata: str | None = ""

class TxnOffsetCommitRequestTopic(Message, frozen=True):
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []

class TxnOffsetCommitRequest(Message, frozen=True):
    """Key 28, versions 0-5."""

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1  # 3+
    member_id: str = ""  # 3+
    group_instance_id: str | None = None  # 3+
    topics: list[TxnOffsetCommitRequestTopic] = []

class TxnOffsetCommitResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0

class TxnOffsetCommitResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []

class TxnOffsetCommitResponse(Message, frozen=True):
    """Key 28, versions 0-5."""

    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = []

class DescribeAclsRequest(Message, frozen=True):
    """Key 29, versions 1-3."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0

class DescribeAclsResponseAcl(Message, frozen=True):
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

class DescribeAclsResponseResource(Message, frozen=True):
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: list[DescribeAclsResponseAcl] = []

class DescribeAclsResponse(Message, frozen=True):
    """Key 29, versions 1-3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResponseResource] = []

class CreateAclsRequestCreation(Message, frozen=True):
    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

class CreateAclsRequest(Message, frozen=True):
    """Key 30, versions 1-3."""

    creations: list[CreateAclsRequestCreation] = []

class CreateAclsResponseResult(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = ""

class CreateAclsResponse(Message, frozen=True):
    """Key 30, versions 1-3."""

    throttle_time_ms: int = 0
    results: list[CreateAclsResponseResult] = []

class DeleteAclsRequestFilter(Message, frozen=True):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0

class DeleteAclsRequest(Message, frozen=True):
    """Key 31, versions 1-3."""

    filters: list[DeleteAclsRequestFilter] = []

class DeleteAclsResponseMatchingAcl(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

class DeleteAclsResponseFilterResult(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsResponseMatchingAcl] = []

class DeleteAclsResponse(Message, frozen=True):
    """Key 31, versions 1-3."""

    throttle_time_ms: int = 0
    filter_results: list[DeleteAclsResponseFilterResult] = []

class DescribeConfigsRequestResource(Message, frozen=True):
    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = []

class DescribeConfigsRequest(Message, frozen=True):
    """Key 32, versions 1-4."""

    resources: list[DescribeConfigsRequestResource] = []
    include_synonyms: bool = False
    include_documentation: bool = False  # 3+

class DescribeConfigsResponseSynonym(Message, frozen=True):
    name: str = ""
    value: str | None = ""
    source: int = 0

class DescribeConfigsResponseConfig(Message, frozen=True):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsResponseSynonym] = []
    config_type: int = 0  # 3+, else dropped
    documentation: str | None = ""  # 3+, else dropped

class DescribeConfigsResponseResource(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResponseConfig] = []

class DescribeConfigsResponse(Message, frozen=True):
    """Key 32, versions 1-4."""

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResponseResource] = []

class AlterConfigsRequestConfig(Message, frozen=True):
    name: str = ""
    value: str | None = ""

class AlterConfigsRequestResource(Message, frozen=True):
    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterConfigsRequestConfig] = []

class AlterConfigsRequest(Message, frozen=True):
    """Key 33, versions 0-2."""

    resources: list[AlterConfigsRequestResource] = []
    validate_only: bool = False

class AlterConfigsResponseResource(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""

class AlterConfigsResponse(Message, frozen=True):
    """Key 33, versions 0-2."""

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResponseResource] = []

class AlterReplicaLogDirsRequestTopic(Message, frozen=True):
    name: str = ""
    partitions: list[int] = []

class AlterReplicaLogDirsRequestDir(Message, frozen=True):
    path: str = ""
    topics: list[AlterReplicaLogDirsRequestTopic] = []

class AlterReplicaLogDirsRequest(Message, frozen=True):
    """Key 34, versions 1-2."""

    dirs: list[AlterReplicaLogDirsRequestDir] = []

class AlterReplicaLogDirsResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0

class AlterReplicaLogDirsResponseTopic(Message, frozen=True):
    topic_name: str = ""
    partitions: list[AlterReplicaLogDirsResponsePartition] = []

class AlterReplicaLogDirsResponse(Message, frozen=True):
    """Key 34, versions 1-2."""

    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirsResponseTopic] = []

class DescribeLogDirsRequestTopic(Message, frozen=True):
    topic: str = ""
    partitions: list[int] = []

class DescribeLogDirsRequest(Message, frozen=True):
    """Key 35, versions 1-5."""

    topics: list[DescribeLogDirsRequestTopic] | None = []

class DescribeLogDirsResponsePartition(Message, frozen=True):
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False

class DescribeLogDirsResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[DescribeLogDirsResponsePartition] = []

class DescribeLogDirsResponseDir(Message, frozen=True):
    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsResponseTopic] = []
    total_bytes: int = -1  # 4+, else dropped
    usable_bytes: int = -1  # 4+, else dropped
    is_cordoned: bool = False  # 5+, else dropped

class DescribeLogDirsResponse(Message, frozen=True):
    """Key 35, versions 1-5."""

    throttle_time_ms: int = 0
    error_code: int = 0  # 3+, else dropped
    results: list[DescribeLogDirsResponseDir] = []

class SaslAuthenticateRequest(Message, frozen=True):
    """Key 36, versions 0-2."""

    auth_bytes: bytes = b""

class SaslAuthenticateResponse(Message, frozen=True):
    """Key 36, versions 0-2."""

    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0  # 1+, else dropped

class CreatePartitionsRequestAssignment(Message, frozen=True):
    broker_ids: list[int] = []

class CreatePartitionsRequestTopic(Message, frozen=True):
    name: str = ""
    count: int = 0
    assignments: list[CreatePartitionsRequestAssignment] | None = []

class CreatePartitionsRequest(Message, frozen=True):
    """Key 37, versions 0-3."""

    topics: list[CreatePartitionsRequestTopic] = []
    timeout_ms: int = 0
    validate_only: bool = False

class CreatePartitionsResponseTopic(Message, frozen=True):
    name: str = ""
    error_code: int = 0
    error_message: str | None = None

class CreatePartitionsResponse(Message, frozen=True):
    """Key 37, versions 0-3."""

    throttle_time_ms: int = 0
    results: list[CreatePartitionsResponseTopic] = []

class DeleteGroupsRequest(Message, frozen=True):
    """Key 42, versions 0-2."""

    groups_names: list[str] = []

class DeleteGroupsResponseGroup(Message, frozen=True):
    group_id: str = ""
    error_code: int = 0

class DeleteGroupsResponse(Message, frozen=True):
    """Key 42, versions 0-2."""

    throttle_time_ms: int = 0
    results: list[DeleteGroupsResponseGroup] = []

class ElectLeadersRequestTopic(Message, frozen=True):
    topic: str = ""
    partitions: list[int] = []

class ElectLeadersRequest(Message, frozen=True):
    """Key 43, versions 0-2."""

    election_type: int = 0  # 1+
    topic_partitions: list[ElectLeadersRequestTopic] | None = []
    timeout_ms: int = 60000

class ElectLeadersResponsePartition(Message, frozen=True):
    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""

class ElectLeadersResponseTopic(Message, frozen=True):
    topic: str = ""
    partition_result: list[ElectLeadersResponsePartition] = []

class ElectLeadersResponse(Message, frozen=True):
    """Key 43, versions 0-2."""

    throttle_time_ms: int = 0
    error_code: int = 0  # 1+
    replica_election_results: list[ElectLeadersResponseTopic] = []

class IncrementalAlterConfigsRequestConfig(Message, frozen=True):
    name: str = ""
    config_operation: int = 0
    value: str | None = ""

class IncrementalAlterConfigsRequestResource(Message, frozen=True):
    resource_type: int = 0
    resource_name: str = ""
    configs: list[IncrementalAlterConfigsRequestConfig] = []

class IncrementalAlterConfigsRequest(Message, frozen=True):
    """Key 44, versions 0-1."""

    resources: list[IncrementalAlterConfigsRequestResource] = []
    validate_only: bool = False

class IncrementalAlterConfigsResponseResource(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""

class IncrementalAlterConfigsResponse(Message, frozen=True):
    """Key 44, versions 0-1."""

    throttle_time_ms: int = 0
    responses: list[IncrementalAlterConfigsResponseResource] = []

class AlterPartitionReassignmentsRequestPartition(Message, frozen=True):
    partition_index: int = 0
    replicas: list[int] | None = None

class AlterPartitionReassignmentsRequestTopic(Message, frozen=True):
    name: str = ""
    partitions: list[AlterPartitionReassignmentsRequestPartition] = []

class AlterPartitionReassignmentsRequest(Message, frozen=True):
    """Key 45, versions 0-1."""

    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True  # 1+
    topics: list[AlterPartitionReassignmentsRequestTopic] = []

class AlterPartitionReassignmentsResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""

class AlterPartitionReassignmentsResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[AlterPartitionReassignmentsResponsePartition] = []

class AlterPartitionReassignmentsResponse(Message, frozen=True):
    """Key 45, versions 0-1."""

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True  # 1+, else dropped
    error_code: int = 0
    error_message: str | None = ""
    responses: list[AlterPartitionReassignmentsResponseTopic] = []

class ListPartitionReassignmentsRequestTopic(Message, frozen=True):
    name: str = ""
    partition_indexes: list[int] = []

class ListPartitionReassignmentsRequest(Message, frozen=True):
    """Key 46, version 0."""

    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsRequestTopic] | None = None

class ListPartitionReassignmentsResponsePartition(Message, frozen=True):
    partition_index: int = 0
    replicas: list[int] = []
    adding_replicas: list[int] = []
    removing_replicas: list[int] = []

class ListPartitionReassignmentsResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[ListPartitionReassignmentsResponsePartition] = []

class ListPartitionReassignmentsResponse(Message, frozen=True):
    """Key 46, version 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[ListPartitionReassignmentsResponseTopic] = []

class OffsetDeleteRequestPartition(Message, frozen=True):
    partition_index: int = 0

class OffsetDeleteRequestTopic(Message, frozen=True):
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = []

class OffsetDeleteRequest(Message, frozen=True):
    """Key 47, version 0."""

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []

class OffsetDeleteResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0

class OffsetDeleteResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []

class OffsetDeleteResponse(Message, frozen=True):
    """Key 47, version 0."""

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = []

class DescribeClientQuotasRequestComponent(Message, frozen=True):
    entity_type: str = ""
    match_type: int = 0
    match: str | None = ""

class DescribeClientQuotasRequest(Message, frozen=True):
    """Key 48, versions 0-1."""

    components: list[DescribeClientQuotasRequestComponent] = []
    strict: bool = False

class DescribeClientQuotasResponseEntity(Message, frozen=True):
    entity_type: str = ""
    entity_name: str | None = ""

class DescribeClientQuotasResponseValue(Message, frozen=True):
    key: str = ""
    value: float = 0.0

class DescribeClientQuotasResponseEntry(Message, frozen=True):
    entity: list[DescribeClientQuotasResponseEntity] = []
    values: list[DescribeClientQuotasResponseValue] = []

class DescribeClientQuotasResponse(Message, frozen=True):
    """Key 48, versions 0-1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: list[DescribeClientQuotasResponseEntry] | None = []

class AlterClientQuotasRequestEntity(Message, frozen=True):
    entity_type: str = ""
    entity_name: str | None = ""

class AlterClientQuotasRequestOp(Message, frozen=True):
    key: str = ""
    value: float = 0.0
    remove: bool = False

class AlterClientQuotasRequestEntry(Message, frozen=True):
    entity: list[AlterClientQuotasRequestEntity] = []
    ops: list[AlterClientQuotasRequestOp] = []

class AlterClientQuotasRequest(Message, frozen=True):
    """Key 49, versions 0-1."""

    entries: list[AlterClientQuotasRequestEntry] = []
    validate_only: bool = False

class AlterClientQuotasResponseEntity(Message, frozen=True):
    entity_type: str = ""
    entity_name: str | None = ""

class AlterClientQuotasResponseEntry(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = ""
    entity: list[AlterClientQuotasResponseEntity] = []

class AlterClientQuotasResponse(Message, frozen=True):
    """Key 49, versions 0-1."""

    throttle_time_ms: int = 0
    entries: list[AlterClientQuotasResponseEntry] = []

class DescribeUserScramCredentialsRequestUser(Message, frozen=True):
    name: str = ""

class DescribeUserScramCredentialsRequest(Message, frozen=True):
    """Key 50, version 0."""

    users: list[DescribeUserScramCredentialsRequestUser] | None = []

class DescribeUserScramCredentialsResponseCredentialInfo(Message, frozen=True):
    mechanism: int = 0
    iterations: int = 0

class DescribeUserScramCredentialsResponseUser(Message, frozen=True):
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    credential_infos: list[DescribeUserScramCredentialsResponseCredentialInfo] = []

class DescribeUserScramCredentialsResponse(Message, frozen=True):
    """Key 50, version 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResponseUser] = []

class AlterUserScramCredentialsRequestDeletion(Message, frozen=True):
    name: str = ""
    mechanism: int = 0

class AlterUserScramCredentialsRequestUpsertion(Message, frozen=True):
    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""

class AlterUserScramCredentialsRequest(Message, frozen=True):
    """Key 51, version 0."""

    deletions: list[AlterUserScramCredentialsRequestDeletion] = []
    upsertions: list[AlterUserScramCredentialsRequestUpsertion] = []

class AlterUserScramCredentialsResponseUser(Message, frozen=True):
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""

class AlterUserScramCredentialsResponse(Message, frozen=True):
    """Key 51, version 0."""

    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResponseUser] = []

class DescribeQuorumRequestPartition(Message, frozen=True):
    partition_index: int = 0

class DescribeQuorumRequestTopic(Message, frozen=True):
    topic_name: str = ""
    partitions: list[DescribeQuorumRequestPartition] = []

class DescribeQuorumRequest(Message, frozen=True):
    """Key 55, versions 0-2."""

    topics: list[DescribeQuorumRequestTopic] = []

class DescribeQuorumResponseReplica(Message, frozen=True):
    replica_id: int = 0
    replica_directory_id: bytes = ...  # 2+
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1  # 1+, else dropped
    last_caught_up_timestamp: int = -1  # 1+, else dropped

class DescribeQuorumResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""  # 2+, else dropped
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: list[DescribeQuorumResponseReplica] = []
    observers: list[DescribeQuorumResponseReplica] = []

class DescribeQuorumResponseTopic(Message, frozen=True):
    topic_name: str = ""
    partitions: list[DescribeQuorumResponsePartition] = []

class DescribeQuorumResponseListener(Message, frozen=True):
    name: str = ""
    host: str = ""
    port: int = 0

class DescribeQuorumResponseNode(Message, frozen=True):
    node_id: int = 0
    listeners: list[DescribeQuorumResponseListener] = []

class DescribeQuorumResponse(Message, frozen=True):
    """Key 55, versions 0-2."""

    error_code: int = 0
    error_message: str | None = ""  # 2+, else dropped
    topics: list[DescribeQuorumResponseTopic] = []
    nodes: list[DescribeQuorumResponseNode] = []  # 2+

class UpdateFeaturesRequestFeatureUpdate(Message, frozen=True):
    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False  # 0
    upgrade_type: int = 1  # 1+

class UpdateFeaturesRequest(Message, frozen=True):
    """Key 57, versions 0-2."""

    timeout_ms: int = 60000
    feature_updates: list[UpdateFeaturesRequestFeatureUpdate] = []
    validate_only: bool = False  # 1+

class UpdateFeaturesResponseFeature(Message, frozen=True):
    feature: str = ""
    error_code: int = 0
    error_message: str | None = ""

class UpdateFeaturesResponse(Message, frozen=True):
    """Key 57, versions 0-2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[UpdateFeaturesResponseFeature] = []  # 0-1, else dropped

class DescribeClusterRequest(Message, frozen=True):
    """Key 60, versions 0-2."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # 1+
    include_fenced_brokers: bool = False  # 2+

class DescribeClusterResponseBroker(Message, frozen=True):
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False  # 2+

class DescribeClusterResponse(Message, frozen=True):
    """Key 60, versions 0-2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1  # 1+
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterResponseBroker] = []
    cluster_authorized_operations: int = -2147483648

class DescribeProducersRequestTopic(Message, frozen=True):
    name: str = ""
    partition_indexes: list[int] = []

class DescribeProducersRequest(Message, frozen=True):
    """Key 61, version 0."""

    topics: list[DescribeProducersRequestTopic] = []

class DescribeProducersResponseActiveProducer(Message, frozen=True):
    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1

class DescribeProducersResponsePartition(Message, frozen=True):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: list[DescribeProducersResponseActiveProducer] = []

class DescribeProducersResponseTopic(Message, frozen=True):
    name: str = ""
    partitions: list[DescribeProducersResponsePartition] = []

class DescribeProducersResponse(Message, frozen=True):
    """Key 61, version 0."""

    throttle_time_ms: int = 0
    topics: list[DescribeProducersResponseTopic] = []

class DescribeTransactionsRequest(Message, frozen=True):
    """Key 65, version 0."""

    transactional_ids: list[str] = []

class DescribeTransactionsResponseTopic(Message, frozen=True):
    topic: str = ""
    partitions: list[int] = []

class DescribeTransactionsResponseTransaction(Message, frozen=True):
    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[DescribeTransactionsResponseTopic] = []

class DescribeTransactionsResponse(Message, frozen=True):
    """Key 65, version 0."""

    throttle_time_ms: int = 0
    transaction_states: list[DescribeTransactionsResponseTransaction] = []

class ListTransactionsRequest(Message, frozen=True):
    """Key 66, versions 0-2."""

    state_filters: list[str] = []
    producer_id_filters: list[int] = []
    duration_filter: int = -1  # 1+
    transactional_id_pattern: str | None = None  # 2+

class ListTransactionsResponseTransaction(Message, frozen=True):
    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""

class ListTransactionsResponse(Message, frozen=True):
    """Key 66, versions 0-2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[ListTransactionsResponseTransaction] = []

class ConsumerGroupHeartbeatRequestTopic(Message, frozen=True):
    topic_id: bytes = ...
    partitions: list[int] = []

class ConsumerGroupHeartbeatRequest(Message, frozen=True):
    """Key 68, versions 0-1."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None  # 1+
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopic] | None = None

class ConsumerGroupHeartbeatResponseTopic(Message, frozen=True):
    topic_id: bytes = ...
    partitions: list[int] = []

class ConsumerGroupHeartbeatResponseAssignment(Message, frozen=True):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopic] = []

class ConsumerGroupHeartbeatResponse(Message, frozen=True):
    """Key 68, versions 0-1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = None

class ConsumerGroupDescribeRequest(Message, frozen=True):
    """Key 69, versions 0-1."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False

class ConsumerGroupDescribeResponseTopic(Message, frozen=True):
    topic_id: bytes = ...
    topic_name: str = ""
    partitions: list[int] = []

class ConsumerGroupDescribeResponseAssignment(Message, frozen=True):
    topic_partitions: list[ConsumerGroupDescribeResponseTopic] = []

class ConsumerGroupDescribeResponseMember(Message, frozen=True):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeResponseAssignment = ...
    target_assignment: ConsumerGroupDescribeResponseAssignment = ...
    member_type: int = -1  # 1+, else dropped

class ConsumerGroupDescribeResponseGroup(Message, frozen=True):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[ConsumerGroupDescribeResponseMember] = []
    authorized_operations: int = -2147483648

class ConsumerGroupDescribeResponse(Message, frozen=True):
    """Key 69, versions 0-1."""

    throttle_time_ms: int = 0
    groups: list[ConsumerGroupDescribeResponseGroup] = []

class GetTelemetrySubscriptionsRequest(Message, frozen=True):
    """Key 71, version 0."""

    client_instance_id: bytes = ...

class GetTelemetrySubscriptionsResponse(Message, frozen=True):
    """Key 71, version 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: bytes = ...
    subscription_id: int = 0
    accepted_compression_types: list[int] = []
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []

class PushTelemetryRequest(Message, frozen=True):
    """Key 72, version 0."""

    client_instance_id: bytes = ...
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = b""

class PushTelemetryResponse(Message, frozen=True):
    """Key 72, version 0."""

    throttle_time_ms: int = 0
    error_code: int = 0

class ListConfigResourcesRequest(Message, frozen=True):
    """Key 74, versions 0-1."""

    resource_types: list[int] = []  # 1+

class ListConfigResourcesResponseResource(Message, frozen=True):
    resource_name: str = ""
    resource_type: int = 16  # 1+, else dropped

class ListConfigResourcesResponse(Message, frozen=True):
    """Key 74, versions 0-1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ListConfigResourcesResponseResource] = []

class DescribeTopicPartitionsRequestTopic(Message, frozen=True):
    name: str = ""

class DescribeTopicPartitionsRequestCursor(Message, frozen=True):
    topic_name: str = ""
    partition_index: int = 0

class DescribeTopicPartitionsRequest(Message, frozen=True):
    """Key 75, version 0."""

    topics: list[DescribeTopicPartitionsRequestTopic] = []
    response_partition_limit: int = 2000
    cursor: DescribeTopicPartitionsRequestCursor | None = None

class DescribeTopicPartitionsResponsePartition(Message, frozen=True):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = []
    isr_nodes: list[int] = []
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline_replicas: list[int] = []

class DescribeTopicPartitionsResponseTopic(Message, frozen=True):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ...
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: int = -2147483648

class DescribeTopicPartitionsResponseCursor(Message, frozen=True):
    topic_name: str = ""
    partition_index: int = 0

class DescribeTopicPartitionsResponse(Message, frozen=True):
    """Key 75, version 0."""

    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None

class OpenStagingRequest(Message, frozen=True):
    """Key 32000, version 0."""

    writer_id: str = ""

class OpenStagingResponse(Message, frozen=True):
    """Key 32000, version 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    topic: str = ""
    partition: int = -1
    producer_id: int = -1
    producer_epoch: int = -1

class PublishStagedRequestPiece(Message, frozen=True):
    staging_partition: int = 0
    first_offset: int = 0
    next_offset: int = 0
    record_count: int = 0
    checksum: int = 0

class PublishStagedRequestPartition(Message, frozen=True):
    index: int = 0
    pieces: list[PublishStagedRequestPiece] = []

class PublishStagedRequestTopic(Message, frozen=True):
    name: str = ""
    partitions: list[PublishStagedRequestPartition] = []

class PublishStagedRequest(Message, frozen=True):
    """Key 32001, version 0."""

    writer_id: str = ""
    query_id: str = ""
    batch_id: int = 0
    is_single: bool = False
    topics: list[PublishStagedRequestTopic] = []

class PublishStagedResponse(Message, frozen=True):
    """Key 32001, version 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    was_published_before: bool = False
