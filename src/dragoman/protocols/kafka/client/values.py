"""The settings of a client, and the values that its calls take and return."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from dragoman.client_core.connection import RetrySettings
from dragoman.errors import ConfigError
from dragoman.limits import KAFKA_CLIENT_FETCH_PARTITION_BYTES, KAFKA_IN_FLIGHT_MAX
from dragoman.protocols.kafka.client.login import SaslLogin

DEFAULT_PORT = 9092


class ClientSettings(RetrySettings, frozen=True, kw_only=True):
    """Times are in seconds. `request_timeout_s` excludes the time that the broker may park a fetch.

    Pauses before retries have a random jitter of a fifth.
    """

    client_id: str = "dragoman"
    #: From opening a connection to the broker's list of versions.
    connect_timeout_s: float = 10.0
    in_flight_max: int = 5
    #: How to log in; None: not at all.
    login: SaslLogin | None = None
    #: Metadata older than this is fetched again before it is used.
    metadata_age_max_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("connect_timeout_s", "request_timeout_s", "operation_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: expected a positive time, got {getattr(self, name)}")
        if not 0 <= self.backoff_first_s <= self.backoff_max_s:
            raise ConfigError("backoff_first_s: expected 0 to backoff_max_s")
        if not 1 <= self.in_flight_max <= KAFKA_IN_FLIGHT_MAX:
            raise ConfigError(f"in_flight_max: expected 1 to {KAFKA_IN_FLIGHT_MAX}")


#: For `list_offsets`, in place of a time in milliseconds.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

#: A missing or unknown offset.
NO_OFFSET: Final = -1

Acks: TypeAlias = Literal[-1, 0, 1]


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# ---- the cluster


class BrokerAddress(msgspec.Struct, frozen=True):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    #: -1 while there is none.
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


class TopicInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: 16 bytes; zeros from brokers older than Kafka 2.8.
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]

    def all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in sorted(self.partitions)]


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerAddress]
    topics: dict[str, TopicInfo]


# ---- records and batches


class FetchFrom(msgspec.Struct, frozen=True):
    """Where to start reading a partition, and the maximum size to read.

    The batch that contains `offset` is returned whole: it may begin before `offset`, and the first
    one of a reply may exceed `max_bytes`.
    """

    offset: int
    max_bytes: int = KAFKA_CLIENT_FETCH_PARTITION_BYTES


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of one partition from an offset on."""

    #: Consecutive whole batches. A view of the reply: copy batches that are kept for long.
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: For read-committed fetches, aborted transactions, whose records must be skipped; else empty.
    aborted: tuple[AbortedTransaction, ...]


class Produced(msgspec.Struct, frozen=True):
    """Where a batch was written. Offsets are -1 when the broker does not report them (acks=0)."""

    base_offset: int
    #: -1 unless the topic's timestamp type is LogAppendTime.
    log_append_time_ms: int
    log_start_offset: int


class OffsetAt(msgspec.Struct, frozen=True):
    """A result of `list_offsets`; the offset is -1 if no record is at or after the time."""

    offset: int
    timestamp: int
    leader_epoch: int


class ProducerIdentity(msgspec.Struct, frozen=True):
    producer_id: int
    producer_epoch: int


class ConsumedRecord(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class NewRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A record to write. Without a partition the key determines it, as in Java clients."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    #: Milliseconds since 1970; None: now.
    timestamp: int | None = None


class RecordPosition(NamedTuple):
    """Where a record was written; the offset is -1 when the broker does not report it."""

    topic: str
    partition: int
    offset: int


# ---- administration


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create. A count of -1 means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: dict[str, str] = {}


class ResourceType(IntEnum):
    """The type of resource that a configuration belongs to."""

    TOPIC = 2
    BROKER = 4


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


class LogDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """A directory on a broker's machine, and the bytes of each partition in it."""

    path: str
    sizes: dict[TopicPartition, int]


class ActiveProducer(msgspec.Struct, frozen=True, kw_only=True):
    """A producer that a partition remembers."""

    producer_id: int
    epoch: int
    last_sequence: int
    #: Of its last batch, in ms; -1: none.
    last_timestamp: int
    #: The first offset of its open transaction; None: none is open.
    open_offset: int | None


class CommittedOffset(msgspec.Struct, frozen=True):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupListing(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    protocol_type: str
    #: Empty if the broker does not report it.
    state: str
    #: `classic`, `consumer`, or empty if the broker does not report it.
    kind: str


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupDetails(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
