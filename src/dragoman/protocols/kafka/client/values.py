"""The settings of a client, and the values that its callers give and get."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from dragoman.client_core.connection import RetrySettings
from dragoman.errors import ConfigError
from dragoman.limits import KAFKA_CLIENT_FETCH_PARTITION_BYTES, KAFKA_IN_FLIGHT_MAX

DEFAULT_PORT = 9092


class ClientSettings(RetrySettings, frozen=True, kw_only=True):
    """Times are in seconds. A fetch gets its own waiting time on top of `request_timeout_s`.

    Pauses before retries are spread by a fifth.
    """

    client_id: str = "dragoman"
    #: From the start of a connection to the broker's list of versions.
    connect_timeout_s: float = 10.0
    in_flight_max: int = 5
    #: Metadata older than this is asked for again before it is used.
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

#: Stands for an offset that does not exist or is unknown.
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
    """Where to read a partition, and how much of it at most.

    The batch that holds `offset` comes whole, so it may begin before `offset` and, as the first
    one of a reply, be larger than `max_bytes`.
    """

    offset: int
    max_bytes: int = KAFKA_CLIENT_FETCH_PARTITION_BYTES


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker has of one partition from an offset on."""

    #: Whole batches, one after the other. A view of the reply: copy what is kept for long.
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: Transactions that a reader of committed records has to leave out; empty when reading all.
    aborted: tuple[AbortedTransaction, ...]


class Produced(msgspec.Struct, frozen=True):
    """Where a batch was written. Offsets are -1 when the broker does not say (acks=0)."""

    base_offset: int
    #: -1 unless the topic stamps records with the time of the append.
    log_append_time_ms: int
    log_start_offset: int


class OffsetAt(msgspec.Struct, frozen=True):
    """An answer of `list_offsets`; the offset is -1 when no record is that young."""

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
    """A record to be written. Without a partition the key decides, as it does for Java clients."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    #: Milliseconds since 1970; None: now.
    timestamp: int | None = None


class RecordPosition(NamedTuple):
    """Where a record was written; the offset is -1 when the broker does not say."""

    topic: str
    partition: int
    offset: int


# ---- administration


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """-1: the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: dict[str, str] = {}


class ResourceType(IntEnum):
    """What a configuration belongs to."""

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


class CommittedOffset(msgspec.Struct, frozen=True):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupListing(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    protocol_type: str
    #: Empty from brokers that do not say.
    state: str
    #: `classic`, `consumer`, or empty from brokers that do not say.
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
