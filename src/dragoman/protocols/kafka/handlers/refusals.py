"""The table of Kafka's error codes for exceptions."""

from __future__ import annotations

from typing import Final

from dragoman.broker import errors as broker
from dragoman.errors import (
    CorruptionError,
    DecodeError,
    DiskFullError,
    DragomanError,
    LogStoppedError,
    NotControllerError,
    OffsetGapError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
)
from dragoman.log import producer
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode, UnsupportedVersionError
from dragoman.protocols.kafka.notation import message, name_of

_CODES: Final[dict[type[DragomanError], ErrorCode]] = {
    DragomanError: ErrorCode.UNKNOWN_SERVER_ERROR,
    UnsupportedVersionError: ErrorCode.UNSUPPORTED_VERSION,
    DecodeError: ErrorCode.INVALID_REQUEST,
    # Clients retry a storage error silently forever, but report this one to their callers.
    CorruptionError: ErrorCode.CORRUPT_MESSAGE,
    broker.ReplicaDamaged: ErrorCode.KAFKA_STORAGE_ERROR,
    DiskFullError: ErrorCode.KAFKA_STORAGE_ERROR,
    LogStoppedError: ErrorCode.KAFKA_STORAGE_ERROR,
    OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    NotControllerError: ErrorCode.NOT_CONTROLLER,
    OutcomeUnknownError: ErrorCode.REQUEST_TIMED_OUT,
    OffsetGapError: ErrorCode.INVALID_RECORD,
    broker.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    broker.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    broker.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    broker.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    # Kafka's code for too many partitions.
    broker.TooManyPartitions: ErrorCode.POLICY_VIOLATION,
    broker.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    broker.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    broker.InvalidConfig: ErrorCode.INVALID_CONFIG,
    broker.TopicDeletionDisabled: ErrorCode.TOPIC_DELETION_DISABLED,
    # The request is invalid, not the value.
    broker.ReadOnlyConfig: ErrorCode.INVALID_REQUEST,
    broker.InvalidQuota: ErrorCode.INVALID_REQUEST,
    broker.ThrottlingQuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    broker.InvalidFeatureLevel: ErrorCode.INVALID_UPDATE_VERSION,
    broker.RecordsNotDeletable: ErrorCode.POLICY_VIOLATION,
    broker.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    broker.PreferredLeaderNotAvailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    broker.NoReassignmentInProgress: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    broker.LogDirectoryNotFound: ErrorCode.LOG_DIR_NOT_FOUND,
    broker.NotAuthorized: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    broker.GroupNotAuthorized: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    broker.TransactionalIdNotAuthorized: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    broker.ClusterNotAuthorized: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    broker.InvalidRule: ErrorCode.INVALID_REQUEST,
    # Kafka's code for a request that changes too much.
    broker.TooManyRules: ErrorCode.POLICY_VIOLATION,
    broker.InvalidUser: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    broker.UnknownUser: ErrorCode.RESOURCE_NOT_FOUND,
    broker.UserExists: ErrorCode.DUPLICATE_RESOURCE,
    broker.SecurityModeRefused: ErrorCode.INVALID_REQUEST,
    broker.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    broker.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    broker.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    broker.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    broker.CorruptMessage: ErrorCode.CORRUPT_MESSAGE,
    broker.UnsupportedFormat: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    broker.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    broker.InvalidRecord: ErrorCode.INVALID_RECORD,
    broker.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    broker.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    broker.InvalidAcks: ErrorCode.INVALID_REQUIRED_ACKS,
    broker.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    # Every client retries this code without dropping its state.
    broker.Overloaded: ErrorCode.REQUEST_TIMED_OUT,
    broker.ShuttingDown: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    broker.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    broker.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    broker.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    broker.NonEmptyGroup: ErrorCode.NON_EMPTY_GROUP,
    # To a Kafka client, a group of another protocol looks like a group with other assignors.
    broker.ForeignGroup: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    broker.TooManyGroups: ErrorCode.GROUP_MAX_SIZE_REACHED,
    broker.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    broker.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    broker.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    broker.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    broker.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    broker.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    broker.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    broker.GroupMaxSizeReached: ErrorCode.GROUP_MAX_SIZE_REACHED,
    broker.GroupRequestTooLarge: ErrorCode.INVALID_REQUEST,
    broker.InvalidGroupRequest: ErrorCode.INVALID_REQUEST,
    broker.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    broker.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    broker.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    broker.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    broker.InvalidRegularExpression: ErrorCode.INVALID_REGULAR_EXPRESSION,
    broker.EpochlessRequest: ErrorCode.UNSUPPORTED_VERSION,
    broker.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    # Raised only between nodes; clients retry the code.
    broker.Overtaken: ErrorCode.REQUEST_TIMED_OUT,
    broker.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    broker.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    broker.InvalidCommitOffset: ErrorCode.INVALID_REQUEST,
    broker.TooManyOffsets: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    broker.GroupSubscribedToTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    # Kafka's clients cannot cause errors of delayed records or captures.
    broker.UnknownDelayedRecord: ErrorCode.INVALID_REQUEST,
    broker.LabelsDiffer: ErrorCode.INVALID_REQUEST,
    broker.UnknownCapture: ErrorCode.INVALID_REQUEST,
    broker.CaptureExists: ErrorCode.INVALID_REQUEST,
    broker.CaptureRefused: ErrorCode.INVALID_REQUEST,
    broker.CaptureNotRunning: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    broker.InvalidPublication: ErrorCode.INVALID_REQUEST,
    broker.StagedRecordsGone: ErrorCode.OFFSET_OUT_OF_RANGE,
    broker.PublishedRecordsLost: ErrorCode.KAFKA_STORAGE_ERROR,
    broker.WriterOfAnotherQuery: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    broker.TransactionError: ErrorCode.INVALID_TXN_STATE,
    broker.InvalidTransactionalId: ErrorCode.INVALID_REQUEST,
    broker.TransactionTimeoutInvalid: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    broker.ProducerFenced: ErrorCode.PRODUCER_FENCED,
    broker.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    broker.InvalidProducerIdMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    broker.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    broker.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    broker.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
    broker.TransactionalIdNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    broker.TooManyTransactionalIds: ErrorCode.POLICY_VIOLATION,
    broker.TransactionNotPersisted: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    broker.ProducerIdsUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    broker.TransactionCoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    broker.NotTransactionCoordinator: ErrorCode.NOT_COORDINATOR,
    producer.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    producer.DuplicateSequenceError: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    producer.InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    producer.TransactionExpectedError: ErrorCode.INVALID_TXN_STATE,
    producer.CoordinatorFencedError: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
}


def wire_code(error: DragomanError | None) -> ErrorCode:
    """The code of an error; a class without an entry has the code of its nearest base."""
    if error is None:
        return ErrorCode.NONE
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def wire_text(error: DragomanError | None) -> str | None:
    """The error message, for replies that have a field for it."""
    return None if error is None else str(error)


def code_for_version(
    error: DragomanError | None, *, knows_fenced: bool, knows_abortable: bool
) -> int:
    """The code of an error, or an older code if the client does not know it."""
    if isinstance(error, broker.ProducerFenced) and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, broker.TransactionAbortable) and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return wire_code(error)


def refused_partition(index: int, error: DragomanError, version: int) -> m.ProduceResponsePartition:
    """The entry of a Produce response for a partition whose records were refused."""
    details: list[m.ProduceResponseRecordError] = []
    if isinstance(error, broker.InvalidRecord):
        details = [
            m.ProduceResponseRecordError(batch_index=each, batch_index_error_message=str(error))
            for each in error.indexes
        ]
    return m.ProduceResponsePartition(
        index=index,
        # Produce responses never have PRODUCER_FENCED.
        error_code=code_for_version(error, knows_fenced=False, knows_abortable=version >= 11),
        base_offset=-1,
        record_errors=details,
        error_message=str(error),
    )


def refusal_of(api_key: int, version: int, error: DragomanError) -> m.Message | None:
    """A response that refuses the whole request; None if the version has no field for such an
    error.
    """
    name = name_of(api_key, "Response")
    assert name is not None, api_key
    fields = {
        field.name
        for field in message(name).struct.fields
        if field.tag is None and version in field.versions
    }
    if "error_code" not in fields:
        return None
    values: dict[str, object] = {"error_code": wire_code(error)}
    if "error_message" in fields:
        values["error_message"] = str(error)
    kind: type[m.Message] = getattr(m, name)
    return kind(**values)
