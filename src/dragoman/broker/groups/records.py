"""Records of the internal compacted topic `__consumer_offsets`: layout, encoding, decoding.

Keys and values are MessagePack arrays, written by msgspec, which encodes equal values as equal
bytes (a compacted topic needs that of its keys). The first element of a key says what it names; the
first element of a value is the version of its layout. Fields may be appended to a value with a
default; any other change takes a new number, which an older release refuses instead of misreading.

    key [1, group]                                 value [1, kind, owner, generation, ...]
    key [2, group, topic, partition]               value [1, offset, leader epoch, ...]
    key [3, group, producer id, topic, partition]  value the same, staged and not published yet

A group of Kafka's second protocol (KIP-848) changes member by member, so each has records of its
own. `origin` is the epoch in which the group took that protocol; records of another origin are
left-overs and do not count.

    key [1, group]                                 value [2, owner, origin, epoch, ...]
    key [4, group, member]                         value [1, origin, instance, ...]
    key [5, group, member]                         value [1, origin, target assignment]

A record without value removes what its key names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from dragoman.broker.groups.messages import Protocols
from dragoman.errors import MALFORMED, FormatError
from dragoman.types import Epoch, GroupId, MemberId, Offset, Partition, ProducerId, TopicName

#: The internal topic these records belong in, all of one group in the same partition.
OFFSETS_TOPIC = TopicName("__consumer_offsets")

Decoded = TypeVar("Decoded")
TopicPartition: TypeAlias = tuple[TopicName, Partition]


class StateRecord(msgspec.Struct, frozen=True, gc=False):
    key: bytes
    value: bytes | None


class GroupKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    group_id: GroupId


class OffsetKey(msgspec.Struct, frozen=True, array_like=True, tag=2):
    group_id: GroupId
    topic: TopicName
    partition: Partition


class StagedKey(msgspec.Struct, frozen=True, array_like=True, tag=3):
    group_id: GroupId
    producer_id: ProducerId
    topic: TopicName
    partition: Partition


class ConsumerMemberKey(msgspec.Struct, frozen=True, array_like=True, tag=4):
    group_id: GroupId
    member_id: MemberId


class ConsumerTargetKey(msgspec.Struct, frozen=True, array_like=True, tag=5):
    group_id: GroupId
    member_id: MemberId


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The next offset to read; a negative one only says that nothing is committed."""

    offset: Offset
    #: Epoch of the leader the member read from; -1 without one.
    leader_epoch: Epoch
    metadata: str
    committed_ms: int
    #: Order of the commits over all groups. A transaction that ends late must not replace the
    #: offset of a later commit.
    sequence: int
    #: Set only when the client asked for a retention of its own.
    expires_ms: int | None = None

    @property
    def is_position(self) -> bool:
        """Whether it is a position to read from."""
        return self.offset >= 0


class StoredMember(msgspec.Struct, frozen=True, array_like=True):
    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes


class GroupValue(msgspec.Struct, frozen=True, array_like=True, tag=1, kw_only=True):
    """A group at the end of a rebalance, so that a restart causes no other rebalance."""

    kind: str
    owner: str
    generation: int
    protocol_type: str
    protocol: str
    leader: MemberId | None
    #: When the group came into its state, for the retention of its offsets.
    since_ms: int
    members: tuple[StoredMember, ...]


class ConsumerGroupValue(msgspec.Struct, frozen=True, array_like=True, tag=2, kw_only=True):
    """A group of Kafka's second protocol, without its members."""

    owner: str
    origin: int
    epoch: int
    assignment_epoch: int
    #: Hash of the topics that the target assignment was made for, to detect their change.
    fingerprint: bytes
    since_ms: int


#: Topic id and indexes, both in order.
StoredPartitions: TypeAlias = tuple[tuple[bytes, tuple[int, ...]], ...]


class ClassicFacts(msgspec.Struct, frozen=True, array_like=True):
    """The additional state of members of Kafka's first protocol in a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


class StoredConsumerMember(msgspec.Struct, frozen=True, array_like=True, tag=1, kw_only=True):
    origin: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[TopicName, ...]
    pattern: str | None
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: int
    assigned: StoredPartitions
    revoking: StoredPartitions
    classic: ClassicFacts | None


class StoredTarget(msgspec.Struct, frozen=True, array_like=True, tag=1, kw_only=True):
    origin: int
    partitions: StoredPartitions


Key: TypeAlias = GroupKey | OffsetKey | StagedKey | ConsumerMemberKey | ConsumerTargetKey
Value: TypeAlias = (
    GroupValue | ConsumerGroupValue | CommittedOffset | StoredConsumerMember | StoredTarget
)

_encode = msgspec.msgpack.Encoder().encode
_key_decoder: msgspec.msgpack.Decoder[Key] = msgspec.msgpack.Decoder(Key)
_group_decoder: msgspec.msgpack.Decoder[GroupValue | ConsumerGroupValue] = msgspec.msgpack.Decoder(
    GroupValue | ConsumerGroupValue
)
_decode_offset = msgspec.msgpack.Decoder(CommittedOffset).decode
_decode_member = msgspec.msgpack.Decoder(StoredConsumerMember).decode
_decode_target = msgspec.msgpack.Decoder(StoredTarget).decode


def record(key: Key, value: Value | None) -> StateRecord:
    return StateRecord(_encode(key), None if value is None else _encode(value))


def decode_key(data: bytes) -> Key:
    """Raises `FormatError` for a key that this release does not know, as the others do."""
    return _decoded(_key_decoder.decode, data, "key of a record in {}", OFFSETS_TOPIC)


def decode_group(data: bytes, group_id: GroupId) -> GroupValue | ConsumerGroupValue:
    return _decoded(_group_decoder.decode, data, "record of group {!r}", group_id)


def decode_offset(data: bytes, key: OffsetKey | StagedKey) -> CommittedOffset:
    what = "offset of group {0.group_id!r} for {0.topic}-{0.partition}"
    return _decoded(_decode_offset, data, what, key)


def decode_member(data: bytes, key: ConsumerMemberKey) -> StoredConsumerMember:
    what = "record of member {0.member_id!r} of group {0.group_id!r}"
    return _decoded(_decode_member, data, what, key)


def decode_target(data: bytes, key: ConsumerTargetKey) -> StoredTarget:
    what = "target of member {0.member_id!r} of group {0.group_id!r}"
    return _decoded(_decode_target, data, what, key)


def _decoded(decode: Callable[[bytes], Decoded], data: bytes, what: str, name: object) -> Decoded:
    try:
        return decode(data)
    except MALFORMED as error:
        raise FormatError(f"{what.format(name)}: {error}") from None
