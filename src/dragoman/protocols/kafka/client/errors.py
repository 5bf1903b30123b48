"""Errors of the client: a class for each error that a caller may want to handle.

    ClientError
      UnreachableError          no connection could be made            retriable
      ConnectionLostError       the connection broke before the reply  retriable
      RequestTimeoutError       no reply within the timeout            retriable
      UnsupportedRequestError   the broker serves no known version of this request
      ClientClosedError         the client was closed
      KafkaError                the broker answered with an error code
        UnknownTopicError       LeadershipError      CoordinatorError     OffsetRangeError
        TopicExistsError        UnknownGroupError    LiveGroupError       AccessDeniedError
        RecordRefusedError      BatchTooLargeError   ProducerFencedError  SequenceError
        LoginFailedError

`retriable` says whether the same call may succeed later. The client retries such errors until the
operation times out, and then raises the last one. After a lost connection or a timeout the outcome
of the request is unknown (`is_ambiguous`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.client_core.errors import ClientError
from dragoman.protocols.kafka.errors import KNOWN_CODES, RETRIABLE, ErrorCode, error_text


class UnsupportedRequestError(ClientError): ...


#: Error codes after which the records may have been written nevertheless.
_AMBIGUOUS: Final = frozenset(
    (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )
)


class KafkaError(ClientError):
    """An error code in a reply, with its number and Kafka's name for it."""

    def __init__(
        self,
        error_code: int,
        message: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        retriable: bool | None = None,
    ) -> None:
        self.error_code = error_code
        self.name = _name(error_code)
        self.message = message or error_text(error_code)
        self.topic = topic
        self.partition = partition
        self.group = group
        self.retriable = error_code in RETRIABLE if retriable is None else retriable
        self.is_ambiguous = error_code in _AMBIGUOUS
        where = _where(topic, partition, group)
        super().__init__(f"{where}{self.message.rstrip('.')} ({self.name})")


class LoginFailedError(KafkaError):
    """The broker has refused the login, or does not take one."""


class UnknownTopicError(KafkaError): ...


class LeadershipError(KafkaError):
    """The partition has no leader, or another one. A retry fetches the metadata first."""


class CoordinatorError(KafkaError):
    """The group has no coordinator, or another one. A retry looks the coordinator up first."""


class OffsetRangeError(KafkaError):
    code = "offset_out_of_range"


class TopicExistsError(KafkaError): ...


class UnknownGroupError(KafkaError): ...


class LiveGroupError(KafkaError):
    """The group has members, so only they may commit, and the group cannot be deleted."""


class AccessDeniedError(KafkaError): ...


class RecordRefusedError(KafkaError): ...


class BatchTooLargeError(KafkaError): ...


class ProducerFencedError(KafkaError): ...


class SequenceError(KafkaError):
    """The broker expected another sequence number, because it has lost this producer's state."""


_CLASSES: Final[dict[type[KafkaError], tuple[ErrorCode, ...]]] = {
    UnknownTopicError: (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ),
    LeadershipError: (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
    ),
    CoordinatorError: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ),
    OffsetRangeError: (ErrorCode.OFFSET_OUT_OF_RANGE,),
    TopicExistsError: (ErrorCode.TOPIC_ALREADY_EXISTS,),
    UnknownGroupError: (ErrorCode.GROUP_ID_NOT_FOUND,),
    LiveGroupError: (
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    AccessDeniedError: (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    RecordRefusedError: (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ),
    BatchTooLargeError: (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
    ProducerFencedError: (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED),
    SequenceError: (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID),
}
_CLASS_OF_CODE: Final = {int(code): kind for kind, codes in _CLASSES.items() for code in codes}


def kafka_error(
    error_code: int,
    message: str | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
    retriable: bool | None = None,
) -> KafkaError:
    """The exception for an error code, in its most specific class."""
    kind = _CLASS_OF_CODE.get(error_code, KafkaError)
    return kind(
        error_code, message, topic=topic, partition=partition, group=group, retriable=retriable
    )


def raise_first(errors: Iterable[KafkaError | None]) -> None:
    for error in errors:
        if error is not None:
            raise error


def _name(error_code: int) -> str:
    known = KNOWN_CODES.get(error_code)
    return f"code {error_code}" if known is None else known.name


def _where(topic: str | None, partition: int | None, group: str | None) -> str:
    if topic is not None:
        name = f"topic {topic!r}"
        return f"{name}: " if partition is None else f"{name} partition {partition}: "
    return "" if group is None else f"group {group!r}: "
