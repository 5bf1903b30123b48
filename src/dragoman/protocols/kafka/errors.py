"""Kafka's error codes: numbers, texts, which of them clients retry, and which domain error becomes
which.

The numbers are those of Apache Kafka 4.3. `code_for` is the one place where an exception of this
package turns into a number on the wire.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from dragoman.errors import (
    CorruptionError,
    DecodeError,
    DiskFullError,
    DragomanError,
    LogStoppedError,
)


class UnsupportedVersionError(DecodeError):
    """A request or response of an API key or version that the schema does not have."""

    code = "unsupported_version"


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


_TEXTS: Final[dict[int, str]] = {
    -1: "The broker met an error it has no code for.",
    0: "No error.",
    1: "The offset lies outside the log of this partition.",
    2: "The batch does not match its checksum or is malformed.",
    3: "This broker does not host the topic or partition.",
    4: "The fetch size is not valid.",
    5: "The partition has no leader at the moment.",
    6: "This broker is not the leader of the partition, nor a follower that may serve it.",
    7: "The request was not completed in its time.",
    8: "The broker is not available.",
    9: "The replica is not available.",
    10: "The batch is larger than the topic allows.",
    11: "The controller's epoch is stale.",
    12: "The metadata of the committed offset is too large.",
    13: "The connection was lost before the answer came.",
    14: "The coordinator is still loading its state.",
    15: "The coordinator is not available.",
    16: "This broker is not the coordinator.",
    17: "The topic's name is not valid, or the topic may not be used like this.",
    18: "The batch is larger than a segment.",
    19: "Fewer replicas are in sync than the topic requires.",
    20: "The batch was written, but to fewer in-sync replicas than the topic requires.",
    21: "The value of acks is not valid.",
    22: "The generation is not the group's current one.",
    23: "The member's protocols do not fit the group's.",
    24: "The group id is not valid.",
    25: "The coordinator does not know this member.",
    26: "The session timeout is outside the range the broker allows.",
    27: "The group is rebalancing: rejoin.",
    28: "The commit does not fit into one batch.",
    29: "Access to the topic is denied.",
    30: "Access to the group is denied.",
    31: "Access to the cluster is denied.",
    32: "A timestamp is outside the range the topic allows.",
    33: "The broker does not offer this SASL mechanism.",
    34: "The request is not valid in this state of SASL.",
    35: "The broker does not support this version of the request.",
    36: "The topic exists already.",
    37: "The number of partitions is not valid.",
    38: "The replication factor is not valid.",
    39: "The replica assignment is not valid.",
    40: "A configuration is not valid.",
    41: "This node is not the controller.",
    42: "The request is not valid.",
    43: "The message format of the broker does not allow this request.",
    44: "The request violates a policy of the broker.",
    45: "The sequence number is not the one expected next.",
    46: "The sequence number was seen before.",
    47: "The producer's epoch is older than the current one.",
    48: "The transaction is not in a state that allows this.",
    49: "The producer id does not belong to the transactional id.",
    50: "The transaction timeout is outside the range the broker allows.",
    51: "Another operation on this transaction is still running.",
    52: "The transaction coordinator was replaced by a newer one.",
    53: "Access to the transactional id is denied.",
    54: "Security is not enabled on this broker.",
    55: "The operation was not attempted, because an earlier one failed.",
    56: "The broker could not read or write its log directory.",
    57: "The broker has no such log directory.",
    58: "Authentication failed.",
    59: "The broker has no state for this producer id.",
    60: "A reassignment of the partition is in progress.",
    61: "Delegation tokens are not enabled.",
    62: "The broker does not know this delegation token.",
    63: "The principal does not own the delegation token.",
    64: "Delegation token requests are not allowed on this connection.",
    65: "The delegation token does not allow this.",
    66: "The delegation token has expired.",
    67: "The type of the principal is not supported.",
    68: "The group still has members.",
    69: "The group does not exist.",
    70: "The broker does not know this fetch session.",
    71: "The epoch of the fetch session is not the one expected.",
    72: "The leader has no listener that matches the one the request came in on.",
    73: "Deleting topics is disabled.",
    74: "The leader epoch of the request is older than the broker's.",
    75: "The leader epoch of the request is newer than the broker's.",
    76: "The version of the request does not allow this compression.",
    77: "The broker's epoch is stale.",
    78: "The leader does not know its high watermark yet.",
    79: "The member has to rejoin with the id given in the answer.",
    80: "The preferred leader is not available.",
    81: "The group has as many members as it may have.",
    82: "Another member with the same group instance id has taken over.",
    83: "No replica that may become leader is available.",
    84: "The partition needs no election.",
    85: "No reassignment of the partition is in progress.",
    86: "The group is subscribed to the topic.",
    87: "A record is not valid.",
    88: "Committed offsets wait for the end of a transaction.",
    89: "The request exceeds its quota.",
    90: "A newer producer with the same transactional id has taken over.",
    91: "The resource does not exist.",
    92: "The resource is named more than once.",
    93: "The credential does not meet the broker's requirements.",
    94: "The voters do not match.",
    95: "The version given for the update is not valid.",
    96: "The features could not be updated.",
    97: "The principal could not be read from the forwarded request.",
    98: "The snapshot does not exist.",
    99: "The position lies outside the snapshot.",
    100: "This broker does not know the topic id.",
    101: "The broker id is registered already.",
    102: "The broker id is not registered.",
    103: "The topic id does not match the one the log was made with.",
    104: "The cluster id is not this cluster's.",
    105: "The transactional id does not exist.",
    106: "The fetch session mixes topic ids and topic names.",
    107: "The replica may not join the in-sync set.",
    108: "A new leader was elected.",
    109: "The offset has moved to tiered storage.",
    110: "The member's epoch is fenced: rejoin.",
    111: "Another member still holds this group instance id.",
    112: "The broker does not offer this assignor.",
    113: "The member's epoch is older than the group's.",
    114: "The request went to the wrong kind of endpoint.",
    115: "The kind of endpoint is not supported.",
    116: "The controller id is not known.",
    117: "The telemetry subscription is not current.",
    118: "The telemetry is larger than the broker takes.",
    119: "The registration is not valid.",
    120: "The transaction cannot continue and has to be aborted.",
    121: "The state of the record does not allow this.",
    122: "The broker does not know this share session.",
    123: "The epoch of the share session is not the one expected.",
    124: "The epoch of the share state is older than the current one.",
    125: "The voter key is not the receiver's.",
    126: "The voter is one already.",
    127: "The voter does not exist.",
    128: "The regular expression is not valid.",
    129: "The client has to start again from its bootstrap servers.",
    130: "The topology is not valid.",
    131: "The topology epoch is not valid.",
    132: "The topology epoch is older than the current one.",
    133: "The broker has as many share sessions as it may have.",
}

#: Codes after which a client tries the same request again, by Kafka's own classification.
RETRIABLE: Final = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    )
)

#: Domain errors and the code clients see. A class without an entry takes that of its nearest base.
CODES_OF_ERRORS: Final[dict[type[DragomanError], ErrorCode]] = {
    DragomanError: ErrorCode.UNKNOWN_SERVER_ERROR,
    UnsupportedVersionError: ErrorCode.UNSUPPORTED_VERSION,
    DecodeError: ErrorCode.INVALID_REQUEST,
    CorruptionError: ErrorCode.KAFKA_STORAGE_ERROR,
    DiskFullError: ErrorCode.KAFKA_STORAGE_ERROR,
    LogStoppedError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def error_text(code: int) -> str:
    """What the code means, for the error message fields of replies and for people."""
    return _TEXTS.get(code, f"Unknown error code {code}.")


def code_for(error: DragomanError) -> ErrorCode:
    """The wire code of a domain error."""
    for kind in type(error).__mro__:
        if kind in CODES_OF_ERRORS:
            return CODES_OF_ERRORS[kind]
    raise AssertionError("DragomanError has an entry")
