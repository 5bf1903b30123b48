"""What one request may hold, beside the schema: elements of its arrays, and bytes of its frame.

The schema says how a request looks, this table how large it may be. Decoders count the elements of
all arrays of a request together, tagged fields among them, and refuse the first array that goes
over the bound before they make room for it. The size of a frame is compared when its key is known,
before its body is looked at. Over either bound the request is answered with INVALID_REQUEST where
the response has a place for an error of the whole request; else its connection is closed. Either is
logged with the bound, because clients retry without a word.

An element costs a decoder about 0.3 µs and 100 bytes, and a handler 1 to 10 µs. What takes longer
than a few milliseconds is worked on in slices (`handlers/slices.py`), so the bounds are far above
what clients and tools send: they list every topic, partition or group of a large cluster.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dragoman.limits import (
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
    #: Of the frame without its size; None: as large as `socket.request.max.bytes` allows.
    bytes_max: int | None = KAFKA_REQUEST_BYTES_MAX


#: Requests without an entry: they name a handful of things.
_USUAL: Final = Bound(KAFKA_REQUEST_ITEMS_MAX)

#: By message. One element for each topic, one for each of its partitions, and so on inwards.
_BOUNDS: Final = {
    # A producer's `max.request.size` of 1 MiB holds some 15,000 batches of one record.
    "ProduceRequest": Bound(20_000, None),
    # 20,000 partitions, each of another topic: a mirror reads all that a node leads. It is not
    # sliced, and takes a quarter of a second.
    "FetchRequest": Bound(40_000, 8 * _MIB),
    "ListOffsetsRequest": Bound(50_000, 4 * _MIB),
    # A consumer of a pattern, or a tool, names every topic it knows.
    "MetadataRequest": Bound(50_000, 8 * _MIB),
    "DescribeTopicPartitionsRequest": Bound(20_000, 8 * _MIB),
    # The same reader commits all of them. What is committed at once is one batch of the offsets'
    # topic.
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
    # The leader hands in an assignment for each member.
    "SyncGroupRequest": Bound(GROUP_MEMBERS_MAX, GROUP_ASSIGNMENT_BYTES_MAX + _MIB),
    "LeaveGroupRequest": Bound(20_000, 4 * _MIB),
    # Topics that a member subscribes to, and partitions that it owns: numbers, which cost little.
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
    # One whose metrics are too large has an error code of its own, which its handler answers with.
    "PushTelemetryRequest": Bound(KAFKA_REQUEST_ITEMS_MAX, 4 * _MIB),
    # A piece belongs to a partition of a topic.
    "PublishStagedRequest": Bound(2 * PUBLICATION_PIECES_MAX, 16 * _MIB),
    # Structures inside group requests, of which members have megabytes.
    "ConsumerProtocolSubscription": Bound(100_000),
    "ConsumerProtocolAssignment": Bound(100_000),
}


def bound_of(name: str) -> Bound:
    """What a message may hold; replies, which our own client reads, only have a bound of items."""
    if name.endswith("Response"):
        return Bound(KAFKA_ITEMS_MAX, None)
    return _BOUNDS.get(name, _USUAL)


def bounded_names() -> frozenset[str]:
    """The messages that have an entry of their own, for a test that all of them exist."""
    return frozenset(_BOUNDS)
