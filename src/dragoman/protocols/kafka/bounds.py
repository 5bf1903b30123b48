"""Size bounds of a request, in addition to the schema: array elements and frame bytes.

The schema defines the layout of a request, and this table its maximum size. A decoder counts the
elements of all arrays of a request together, tagged fields included, and refuses the first array
that exceeds the bound before it allocates memory for it. The frame size is checked when the API key
is known, before the body is decoded. A request over either bound is answered with INVALID_REQUEST
if the response has a field for an error of the whole request; otherwise its connection is closed.
Both cases are logged with the bound, because clients retry silently.

An element costs a decoder about 0.3 µs and 100 bytes, and a handler 1 to 10 µs. Work that takes
longer than a few milliseconds is sliced (`handlers/slices.py`), so the bounds can be generous:
clients and tools list every topic, partition or group of a large cluster.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dragoman.limits import (
    ACCESS_RULES_PER_REQUEST_MAX,
    GROUP_ASSIGNMENT_BYTES_MAX,
    GROUP_MEMBERS_MAX,
    KAFKA_ITEMS_MAX,
    KAFKA_REQUEST_BYTES_MAX,
    KAFKA_REQUEST_ITEMS_MAX,
    MEMBER_BYTES_MAX,
    PUBLICATION_PIECES_MAX,
)

_MIB: Final = 1 << 20


class Bound(NamedTuple):
    #: Elements of all arrays together.
    items_max: int
    #: Bytes of the frame without its size field; None: as large as `socket.request.max.bytes`
    #: allows.
    bytes_max: int | None = KAFKA_REQUEST_BYTES_MAX


#: The bound of requests without an entry, which name only a few resources.
_USUAL: Final = Bound(KAFKA_REQUEST_ITEMS_MAX)

#: Bounds by message. A topic is one element, each of its partitions another, and so on inwards.
_BOUNDS: Final = {
    # A producer's `max.request.size` of 1 MiB holds some 15,000 batches of one record.
    "ProduceRequest": Bound(20_000, None),
    # 20,000 partitions, each of another topic, because a mirror reads every partition that a node
    # leads. Fetch is not sliced, and such a request takes a quarter of a second.
    "FetchRequest": Bound(40_000, 8 * _MIB),
    "ListOffsetsRequest": Bound(50_000, 4 * _MIB),
    # A consumer of a pattern, or a tool, names every topic it knows.
    "MetadataRequest": Bound(50_000, 8 * _MIB),
    "DescribeTopicPartitionsRequest": Bound(20_000, 8 * _MIB),
    # A mirror commits all these partitions at once. A commit is one batch of the offsets topic.
    "OffsetCommitRequest": Bound(40_000, 8 * _MIB),
    "TxnOffsetCommitRequest": Bound(40_000, 8 * _MIB),
    "OffsetFetchRequest": Bound(50_000, 4 * _MIB),
    "OffsetDeleteRequest": Bound(20_000, 4 * _MIB),
    "OffsetForLeaderEpochRequest": Bound(50_000, 4 * _MIB),
    "FindCoordinatorRequest": Bound(20_000, 4 * _MIB),
    "DescribeGroupsRequest": Bound(20_000, 4 * _MIB),
    "ConsumerGroupDescribeRequest": Bound(20_000, 4 * _MIB),
    "DeleteGroupsRequest": Bound(20_000, 4 * _MIB),
    "JoinGroupRequest": Bound(1_000, MEMBER_BYTES_MAX + _MIB),
    # The group leader sends an assignment for each member.
    "SyncGroupRequest": Bound(GROUP_MEMBERS_MAX, GROUP_ASSIGNMENT_BYTES_MAX + _MIB),
    "LeaveGroupRequest": Bound(20_000, 4 * _MIB),
    # Topics that a member subscribes to, and partitions that it owns: integers, which are cheap.
    "ConsumerGroupHeartbeatRequest": Bound(100_000, 8 * _MIB),
    # With an explicit assignment each partition is a list of nodes.
    "CreateTopicsRequest": Bound(50_000, 8 * _MIB),
    "CreatePartitionsRequest": Bound(50_000, 8 * _MIB),
    "DeleteTopicsRequest": Bound(20_000, 4 * _MIB),
    "DeleteRecordsRequest": Bound(20_000, 4 * _MIB),
    "ElectLeadersRequest": Bound(50_000, 4 * _MIB),
    "AlterPartitionReassignmentsRequest": Bound(50_000, 8 * _MIB),
    "ListPartitionReassignmentsRequest": Bound(50_000, 4 * _MIB),
    "AlterReplicaLogDirsRequest": Bound(20_000, 4 * _MIB),
    "DescribeLogDirsRequest": Bound(50_000, 4 * _MIB),
    "DescribeProducersRequest": Bound(20_000, 4 * _MIB),
    "DescribeTransactionsRequest": Bound(20_000, 4 * _MIB),
    "ListTransactionsRequest": Bound(20_000),
    "AddPartitionsToTxnRequest": Bound(20_000, 4 * _MIB),
    "WriteTxnMarkersRequest": Bound(20_000, 4 * _MIB),
    # Tools that copy topics describe all of them at once.
    "DescribeConfigsRequest": Bound(20_000, 4 * _MIB),
    "AlterConfigsRequest": Bound(20_000, 4 * _MIB),
    "IncrementalAlterConfigsRequest": Bound(20_000, 4 * _MIB),
    # As many as Kafka changes in one request.
    "CreateAclsRequest": Bound(ACCESS_RULES_PER_REQUEST_MAX, 8 * _MIB),
    "DeleteAclsRequest": Bound(ACCESS_RULES_PER_REQUEST_MAX, 8 * _MIB),
    "DescribeUserScramCredentialsRequest": Bound(20_000, 4 * _MIB),
    "AlterUserScramCredentialsRequest": Bound(20_000, 8 * _MIB),
    # The handler answers a request with too large metrics with an error code of its own.
    "PushTelemetryRequest": Bound(KAFKA_REQUEST_ITEMS_MAX, 4 * _MIB),
    # A piece belongs to a partition of a topic.
    "PublishStagedRequest": Bound(2 * PUBLICATION_PIECES_MAX, 16 * _MIB),
    # Structures inside group requests, which may have megabytes per member.
    "ConsumerProtocolSubscription": Bound(100_000),
    "ConsumerProtocolAssignment": Bound(100_000),
}


def bound_of(name: str) -> Bound:
    """The bound of a message. Replies, which Dragoman's own client reads, are bounded in items
    only.
    """
    if name.endswith("Response"):
        return Bound(KAFKA_ITEMS_MAX, None)
    return _BOUNDS.get(name, _USUAL)


def bounded_names() -> frozenset[str]:
    """The messages with an entry, for a test that all of them exist."""
    return frozenset(_BOUNDS)
