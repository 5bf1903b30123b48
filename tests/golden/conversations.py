"""Requests that make sense only one after the other, on one connection.

What a reply gives a client, such as the id of a member, goes into the requests that follow in place
of a text of the same size: frames need no change then.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from dragoman.log.batch import Record, build_batch
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m

_TIME_MS = 1_704_067_200_000
_MEMBER = "golden-00000000-0000-0000-0000-000000000000"
_CURSUS_MEMBER = "m-0000"
_TOPIC = "orders"


class Conversation(NamedTuple):
    listener: str
    #: What is replaced, and what it is replaced with: the last that this has matched in a reply.
    placeholder: str
    pattern: str
    frames: list[tuple[str, bytes]]


def _kafka(*requests: tuple[m.Message, int]) -> Conversation:
    frames = [
        (
            f"{number} {type(message).__name__} v{version}",
            codec.join(codec.encode_request(message, version, number, "golden")),
        )
        for number, (message, version) in enumerate(requests)
    ]
    return Conversation("kafka", _MEMBER, r"golden-[0-9a-f-]{36}", frames)


def _cursus(*commands: str) -> Conversation:
    encoded = [(each, each.encode()) for each in commands]
    frames = [
        (f"{number} {text}", struct.pack(">I", len(data)) + data)
        for number, (text, data) in enumerate(encoded)
    ]
    return Conversation("cursus", _CURSUS_MEMBER, r"(?<=member=)m-\d{4}", frames)


def _create() -> tuple[m.Message, int]:
    topic = m.CreateTopicsRequestTopic(name=_TOPIC, num_partitions=2, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 4


def _join(member: str, version: int) -> tuple[m.Message, int]:
    protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"metadata")
    return m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[protocol],
    ), version


def _produce(batch: bytearray, transactional_id: str | None = None) -> tuple[m.Message, int]:
    part = m.ProduceRequestPartition(index=0, records=batch)
    topic = m.ProduceRequestTopic(name=_TOPIC, partition_data=[part])
    return m.ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic]
    ), 9


def _batch(text: bytes, sequence: int = -1, *, is_transactional: bool = False) -> bytearray:
    return build_batch(
        [Record(key=b"k", value=text, timestamp=_TIME_MS)],
        attributes=0x10 if is_transactional else 0,
        producer_id=0 if sequence >= 0 else -1,
        producer_epoch=0 if sequence >= 0 else -1,
        base_sequence=sequence,
    )


def _fetch(isolation_level: int) -> tuple[m.Message, int]:
    part = m.FetchRequestPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 20
    )
    topic = m.FetchRequestTopic(topic=_TOPIC, partitions=[part])
    return m.FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[topic],
    ), 11


def _offsets() -> tuple[m.Message, int]:
    topic = m.OffsetFetchRequestTopic(name=_TOPIC, partition_indexes=[0, 1])
    return m.OffsetFetchRequest(group_id="g", topics=[topic]), 7


def _classic_group() -> Conversation:
    assigned = m.SyncGroupRequestAssignment(member_id=_MEMBER, assignment=b"assignment")
    part = m.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="noted"
    )
    topic = m.OffsetCommitRequestTopic(name=_TOPIC, partitions=[part])
    leaving = m.LeaveGroupRequestMember(member_id=_MEMBER)
    return _kafka(
        _create(),
        _join("", 6),
        _join(_MEMBER, 6),
        (
            m.SyncGroupRequest(
                group_id="g", generation_id=1, member_id=_MEMBER, assignments=[assigned]
            ),
            4,
        ),
        (m.HeartbeatRequest(group_id="g", generation_id=1, member_id=_MEMBER), 4),
        (m.HeartbeatRequest(group_id="g", generation_id=2, member_id=_MEMBER), 4),
        (
            m.OffsetCommitRequest(
                group_id="g", generation_id_or_member_epoch=1, member_id=_MEMBER, topics=[topic]
            ),
            8,
        ),
        _offsets(),
        (m.DescribeGroupsRequest(groups=["g"]), 5),
        (m.LeaveGroupRequest(group_id="g", members=[leaving]), 4),
        (m.DescribeGroupsRequest(groups=["g"]), 5),
        (m.ListGroupsRequest(), 4),
    )


def _consumer_group() -> Conversation:
    def heartbeat(epoch: int) -> tuple[m.Message, int]:
        return m.ConsumerGroupHeartbeatRequest(
            group_id="n",
            member_id="00000000-0000-0000-0000-000000000001",
            member_epoch=epoch,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[_TOPIC],
            topic_partitions=[] if epoch == 0 else None,
        ), 0

    described = m.ConsumerGroupDescribeRequest(group_ids=["n"])
    return _kafka(
        _create(),
        heartbeat(0),
        heartbeat(1),
        heartbeat(2),
        heartbeat(7),
        (described, 0),
        heartbeat(-1),
        (described, 0),
    )


def _transaction(*, committed: bool) -> Conversation:
    begun = m.InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
    )
    topic = m.AddPartitionsToTxnRequestTopic(name=_TOPIC, partitions=[0])
    enrolled = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )
    part = m.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    offsets = m.TxnOffsetCommitRequestTopic(name=_TOPIC, partitions=[part])
    ended = m.EndTxnRequest(
        transactional_id="x", producer_id=0, producer_epoch=0, committed=committed
    )
    return _kafka(
        _create(),
        _produce(_batch(b"before")),
        (begun, 3),
        _produce(_batch(b"too early", 0, is_transactional=True), "x"),
        (enrolled, 3),
        _produce(_batch(b"staged", 0, is_transactional=True), "x"),
        _produce(_batch(b"staged", 0, is_transactional=True), "x"),
        _produce(_batch(b"out of order", 7, is_transactional=True), "x"),
        (
            m.AddOffsetsToTxnRequest(
                transactional_id="x", producer_id=0, producer_epoch=0, group_id="g"
            ),
            3,
        ),
        (
            m.TxnOffsetCommitRequest(
                transactional_id="x",
                group_id="g",
                producer_id=0,
                producer_epoch=0,
                topics=[offsets],
            ),
            3,
        ),
        _fetch(1),
        _offsets(),
        (ended, 3),
        _fetch(1),
        _fetch(0),
        _offsets(),
        (begun, 3),
        (ended, 3),
    )


def conversations() -> dict[str, Conversation]:
    member = f"topic=t group=g member={_CURSUS_MEMBER} generation=1"
    producer = "transactional_id=x producerId=txn-0000000000000000 epoch=0"
    stream = "topic=e key=k producerId=p epoch=0"
    return {
        "classic group": _classic_group(),
        "consumer group": _consumer_group(),
        "transaction, committed": _transaction(committed=True),
        "transaction, aborted": _transaction(committed=False),
        "cursus group": _cursus(
            "CREATE topic=t partitions=2",
            "JOIN_GROUP topic=t group=g member=m",
            f"SYNC_GROUP {member}",
            f"HEARTBEAT {member}",
            f"COMMIT_OFFSET {member} partition=0 offset=1",
            f"BATCH_COMMIT {member} P0:2,P1:1",
            "FETCH_OFFSET topic=t group=g partition=0",
            "GROUP_STATUS topic=t group=g",
            f"LEAVE_GROUP {member}",
            f"HEARTBEAT {member}",
        ),
        "cursus transaction": _cursus(
            "CREATE topic=t partitions=2",
            "JOIN_GROUP topic=t group=g member=m",
            "INIT_PRODUCER_ID transactional_id=x",
            f"BEGIN_TXN {producer}",
            f"TXN_PUBLISH {producer} topic=t partition=0 seqNum=1 key=k message=hello",
            f"SEND_OFFSETS_TO_TXN {producer} {member} P0:1",
            f"TXN_STATUS {producer}",
            f"END_TXN {producer} result=commit",
            f"TXN_STATUS {producer}",
            "CONSUME topic=t partition=0 offset=0 group=g",
        ),
        "cursus events": _cursus(
            "CREATE topic=e partitions=1 event_sourcing=true",
            f"APPEND_STREAM {stream} version=1 event_type=made schema_version=1 seqNum=1 message=a",
            f"APPEND_STREAM {stream} version=1 event_type=made schema_version=1 seqNum=2 message=a",
            "STREAM_VERSION topic=e key=k",
            "SAVE_SNAPSHOT topic=e key=k version=1 message=state",
            "READ_SNAPSHOT topic=e key=k",
            "READ_STREAM topic=e key=k from_version=0",
        ),
    }
