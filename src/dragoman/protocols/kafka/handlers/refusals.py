"""Which of Kafka's error codes a refusal of the broker becomes."""

from __future__ import annotations

from typing import Final

from dragoman.broker import errors as broker
from dragoman.errors import DragomanError, OffsetGapError, OffsetOutOfRangeError
from dragoman.log import producers
from dragoman.protocols.kafka.errors import ErrorCode, code_for

_CODES: Final[dict[type[DragomanError], ErrorCode]] = {
    OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    OffsetGapError: ErrorCode.INVALID_RECORD,
    broker.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    broker.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    broker.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    broker.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    broker.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    broker.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    broker.InvalidConfig: ErrorCode.INVALID_CONFIG,
    broker.TopicDeletionDisabled: ErrorCode.TOPIC_DELETION_DISABLED,
    broker.NotAuthorized: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    broker.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    broker.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    broker.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    broker.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    broker.CorruptMessage: ErrorCode.CORRUPT_MESSAGE,
    broker.UnsupportedFormat: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    broker.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    broker.InvalidRecord: ErrorCode.INVALID_RECORD,
    broker.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    broker.InvalidAcks: ErrorCode.INVALID_REQUIRED_ACKS,
    broker.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    # Told to come back: the code that every client retries without giving up its state.
    broker.Overloaded: ErrorCode.REQUEST_TIMED_OUT,
    broker.ShuttingDown: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    producers.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    producers.DuplicateSequenceError: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    producers.InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    producers.TransactionExpectedError: ErrorCode.INVALID_TXN_STATE,
    producers.CoordinatorFencedError: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
}


def wire_code(error: DragomanError) -> int:
    """The number for an error; a class without an entry takes that of its nearest base."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return code_for(error)
