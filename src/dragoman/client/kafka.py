"""The raw Kafka client: public names.

    from dragoman.client.kafka import KafkaClient, NewRecord, TopicPartition

`KafkaClient` is for asyncio, `BlockingKafkaClient` for blocking code.
"""

from __future__ import annotations

from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    UnreachableError,
)
from dragoman.client_core.tls import TlsSettings
from dragoman.log.compression import Codec
from dragoman.log.isolation import VisibleBatches, visible_records
from dragoman.partitioner import murmur2, partition_for_key
from dragoman.protocols.kafka.client.client import (
    BlockingKafkaClient,
    BlockingProducer,
    BlockingReader,
    KafkaClient,
)
from dragoman.protocols.kafka.client.errors import (
    AccessDeniedError,
    BatchTooLargeError,
    CoordinatorError,
    KafkaError,
    LeadershipError,
    LiveGroupError,
    LoginFailedError,
    OffsetRangeError,
    ProducerFencedError,
    RecordRefusedError,
    SequenceError,
    TopicExistsError,
    UnknownGroupError,
    UnknownTopicError,
    UnsupportedRequestError,
)
from dragoman.protocols.kafka.client.login import SaslLogin, SaslMechanism
from dragoman.protocols.kafka.client.mechanisms import offered_mechanisms
from dragoman.protocols.kafka.client.producer import Delivery, Producer, ProducerOptions
from dragoman.protocols.kafka.client.reader import Reader
from dragoman.protocols.kafka.client.staged_writes import StagedBatch, StagedPiece, StagingPlace
from dragoman.protocols.kafka.client.transactions import TransactionalProducer, TransactionOptions
from dragoman.protocols.kafka.client.values import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_OFFSET,
    AbortedTransaction,
    ActiveProducer,
    BrokerAddress,
    ClientSettings,
    ClusterInfo,
    CommittedOffset,
    ConfigEntry,
    ConsumedRecord,
    Fetched,
    FetchFrom,
    GroupDetails,
    GroupListing,
    GroupMember,
    Isolation,
    LogDirectory,
    NewRecord,
    NewTopic,
    OffsetAt,
    PartitionInfo,
    Produced,
    ProducerIdentity,
    RecordPosition,
    ResourceType,
    TopicInfo,
    TopicPartition,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_OFFSET",
    "AbortedTransaction",
    "AccessDeniedError",
    "ActiveProducer",
    "BatchTooLargeError",
    "BlockingKafkaClient",
    "BlockingProducer",
    "BlockingReader",
    "BrokerAddress",
    "ClientClosedError",
    "ClientError",
    "ClientSettings",
    "ClusterInfo",
    "Codec",
    "CommittedOffset",
    "ConfigEntry",
    "ConnectionLostError",
    "ConsumedRecord",
    "CoordinatorError",
    "Delivery",
    "FetchFrom",
    "Fetched",
    "GroupDetails",
    "GroupListing",
    "GroupMember",
    "Isolation",
    "KafkaClient",
    "KafkaError",
    "LeadershipError",
    "LiveGroupError",
    "LogDirectory",
    "LoginFailedError",
    "NewRecord",
    "NewTopic",
    "OffsetAt",
    "OffsetRangeError",
    "PartitionInfo",
    "Produced",
    "Producer",
    "ProducerFencedError",
    "ProducerIdentity",
    "ProducerOptions",
    "Reader",
    "RecordPosition",
    "RecordRefusedError",
    "RequestTimeoutError",
    "ResourceType",
    "SaslLogin",
    "SaslMechanism",
    "SequenceError",
    "StagedBatch",
    "StagedPiece",
    "StagingPlace",
    "TlsSettings",
    "TopicExistsError",
    "TopicInfo",
    "TopicPartition",
    "TransactionOptions",
    "TransactionalProducer",
    "UnknownGroupError",
    "UnknownTopicError",
    "UnreachableError",
    "UnsupportedRequestError",
    "VisibleBatches",
    "murmur2",
    "offered_mechanisms",
    "partition_for_key",
    "visible_records",
]
