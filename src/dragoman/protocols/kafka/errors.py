"""Kafka's error codes: numbers, texts, and whether clients retry them.

The numbers are those of Apache Kafka 4.3.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Self

from dragoman.errors import DecodeError

#: Marks the codes that are retriable according to Kafka.
RETRIED: Final = True


class UnsupportedVersionError(DecodeError):
    """A request or response of an API key or version that the schema does not have."""


class OversizedMessageError(DecodeError):
    """A message with more array elements, or more bytes, than `bounds.py` allows."""


class ErrorCode(IntEnum):
    _value_: int
    #: The meaning of the code, for error messages in replies.
    text: str
    is_retriable: bool

    def __new__(cls, number: int, text: str, is_retriable: bool = False) -> Self:
        code = int.__new__(cls, number)
        code._value_ = number
        code.text = text
        code.is_retriable = is_retriable
        return code

    UNKNOWN_SERVER_ERROR = -1, "The broker met an error it has no code for."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies outside the log of this partition."
    CORRUPT_MESSAGE = 2, "The batch does not match its checksum or is malformed.", RETRIED
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker does not host the topic or partition.", RETRIED
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", RETRIED
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "This broker is not the leader of the partition, nor a follower that may serve it.",
        RETRIED,
    )
    REQUEST_TIMED_OUT = 7, "The request was not completed in its time.", RETRIED
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available.", RETRIED
    MESSAGE_TOO_LARGE = 10, "The batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, "The controller's epoch is stale."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the committed offset is too large."
    NETWORK_EXCEPTION = 13, "The connection was lost before the answer came.", RETRIED
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", RETRIED
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator is not available.", RETRIED
    NOT_COORDINATOR = 16, "This broker is not the coordinator.", RETRIED
    INVALID_TOPIC_EXCEPTION = (
        17,
        "The topic's name is not valid, or the topic may not be used like this.",
    )
    RECORD_LIST_TOO_LARGE = 18, "The batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than the topic requires.", RETRIED
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The batch was written, but to fewer in-sync replicas than the topic requires.",
        RETRIED,
    )
    INVALID_REQUIRED_ACKS = 21, "The value of acks is not valid."
    ILLEGAL_GENERATION = 22, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member's protocols do not fit the group's."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the range the broker allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The commit does not fit into one batch."
    TOPIC_AUTHORIZATION_FAILED = 29, "Access to the topic is denied."
    GROUP_AUTHORIZATION_FAILED = 30, "Access to the group is denied."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Access to the cluster is denied."
    INVALID_TIMESTAMP = 32, "A timestamp is outside the range the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request is not valid in this state of SASL."
    UNSUPPORTED_VERSION = 35, "The broker does not support this version of the request."
    TOPIC_ALREADY_EXISTS = 36, "The topic exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is not valid."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "A configuration is not valid."
    NOT_CONTROLLER = 41, "This node is not the controller.", RETRIED
    INVALID_REQUEST = 42, "The request is not valid."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        "The message format of the broker does not allow this request.",
    )
    POLICY_VIOLATION = 44, "The request violates a policy of the broker."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The sequence number is not the one expected next."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The sequence number was seen before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the current one."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        "The transaction timeout is outside the range the broker allows.",
    )
    CONCURRENT_TRANSACTIONS = 51, "Another operation on this transaction is still running.", RETRIED
    TRANSACTION_COORDINATOR_FENCED = 52, "The transaction coordinator was replaced by a newer one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Access to the transactional id is denied."
    SECURITY_DISABLED = 54, "Security is not enabled on this broker."
    OPERATION_NOT_ATTEMPTED = 55, "The operation was not attempted, because an earlier one failed."
    KAFKA_STORAGE_ERROR = 56, "The broker could not read or write its log directory.", RETRIED
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The broker has no state for this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of the partition is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The broker does not know this delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal does not own the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "Delegation token requests are not allowed on this connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "The delegation token does not allow this."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The type of the principal is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker does not know this fetch session.", RETRIED
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        "The epoch of the fetch session is not the one expected.",
        RETRIED,
    )
    LISTENER_NOT_FOUND = (
        72,
        "The leader has no listener that matches the one the request came in on.",
        RETRIED,
    )
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is disabled."
    FENCED_LEADER_EPOCH = 74, "The leader epoch of the request is older than the broker's.", RETRIED
    UNKNOWN_LEADER_EPOCH = (
        75,
        "The leader epoch of the request is newer than the broker's.",
        RETRIED,
    )
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The version of the request does not allow this compression."
    STALE_BROKER_EPOCH = 77, "The broker's epoch is stale."
    OFFSET_NOT_AVAILABLE = 78, "The leader does not know its high watermark yet.", RETRIED
    MEMBER_ID_REQUIRED = 79, "The member has to rejoin with the id given in the answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", RETRIED
    GROUP_MAX_SIZE_REACHED = 81, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, "Another member with the same group instance id has taken over."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may become leader is available.", RETRIED
    ELECTION_NOT_NEEDED = 84, "The partition needs no election.", RETRIED
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment of the partition is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic."
    INVALID_RECORD = 87, "A record is not valid."
    UNSTABLE_OFFSET_COMMIT = 88, "Committed offsets wait for the end of a transaction.", RETRIED
    THROTTLING_QUOTA_EXCEEDED = 89, "The request exceeds its quota.", RETRIED
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, "The resource is named more than once."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the broker's requirements."
    INCONSISTENT_VOTER_SET = 94, "The voters do not match."
    INVALID_UPDATE_VERSION = 95, "The version given for the update is not valid."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        "The principal could not be read from the forwarded request.",
    )
    SNAPSHOT_NOT_FOUND = 98, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker does not know the topic id.", RETRIED
    DUPLICATE_BROKER_REGISTRATION = 101, "The broker id is registered already."
    BROKER_ID_NOT_REGISTERED = 102, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = (
        103,
        "The topic id does not match the one the log was made with.",
        RETRIED,
    )
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        "The fetch session mixes topic ids and topic names.",
        RETRIED,
    )
    INELIGIBLE_REPLICA = 107, "The replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, "A new leader was elected."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is fenced: rejoin."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this group instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The broker does not offer this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is older than the group's."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is not current."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, "The registration is not valid."
    TRANSACTION_ABORTABLE = 120, "The transaction cannot continue and has to be aborted."
    INVALID_RECORD_STATE = 121, "The state of the record does not allow this."
    SHARE_SESSION_NOT_FOUND = 122, "The broker does not know this share session.", RETRIED
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        "The epoch of the share session is not the one expected.",
        RETRIED,
    )
    FENCED_STATE_EPOCH = 124, "The epoch of the share state is older than the current one."
    INVALID_VOTER_KEY = 125, "The voter key is not the receiver's."
    DUPLICATE_VOTER = 126, "The voter is one already."
    VOTER_NOT_FOUND = 127, "The voter does not exist."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client has to start again from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology epoch is older than the current one."
    SHARE_SESSION_LIMIT_REACHED = (
        133,
        "The broker has as many share sessions as it may have.",
        RETRIED,
    )


KNOWN_CODES: Final = {int(code): code for code in ErrorCode}
RETRIABLE: Final = frozenset(code for code in ErrorCode if code.is_retriable)


def error_text(code: int) -> str:
    """The text of any code, including unknown ones of a newer Kafka."""
    known = KNOWN_CODES.get(code)
    return f"Unknown error code {code}." if known is None else known.text
