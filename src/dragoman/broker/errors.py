"""Reasons for which the broker refuses a request, one class per reason.

They carry no number of any wire; each protocol folder maps the classes it can meet to its own form.
The rule for names: a refusal is named after its reason alone. What ends in `Error` is a family, or
a fault that another layer raises: the client's `UnknownTopicError` is not the broker's
`UnknownTopic`, nor the log's `InvalidProducerEpochError` the coordinator's `InvalidProducerEpoch`.
"""

# ruff: noqa: N818

from __future__ import annotations

from dragoman.errors import BrokerError
from dragoman.replication.errors import ElectionNotNeeded as ElectionNotNeeded
from dragoman.replication.errors import FencedLeaderEpoch as FencedLeaderEpoch
from dragoman.replication.errors import InvalidReplicaAssignment as InvalidReplicaAssignment
from dragoman.replication.errors import NoReassignmentInProgress as NoReassignmentInProgress
from dragoman.replication.errors import NotEnoughReplicas as NotEnoughReplicas
from dragoman.replication.errors import NotLeader as NotLeader
from dragoman.replication.errors import Overloaded as Overloaded
from dragoman.replication.errors import RecordsNotDeletable as RecordsNotDeletable
from dragoman.replication.errors import RequestTimedOut as RequestTimedOut
from dragoman.replication.errors import UnknownLeaderEpoch as UnknownLeaderEpoch
from dragoman.replication.errors import UnknownTopic as UnknownTopic

# ---- topics and partitions


class UnknownTopicId(BrokerError): ...


class TopicExists(BrokerError): ...


class InvalidTopicName(BrokerError): ...


class InvalidPartitions(BrokerError): ...


class TooManyPartitions(InvalidPartitions):
    """More partitions than `max.partitions.per.request` or `max.partitions.per.node` allows."""


class InvalidReplicationFactor(BrokerError): ...


class InvalidConfig(BrokerError): ...


class ReadOnlyConfig(BrokerError):
    """The key can only be set when the node is started."""


class InvalidQuota(BrokerError):
    """An entity or a limit that there cannot be."""


class InvalidFeatureLevel(BrokerError):
    """A feature or a level of it that this node does not have."""


class ThrottlingQuotaExceeded(BrokerError):
    """The client exceeds a quota: nothing was done for the request."""

    #: Not known for a refusal that another node has sent.
    retry_after_s: float = 0.0

    def __init__(self, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        if retry_after_s:
            self.retry_after_s = retry_after_s


class PreferredLeaderNotAvailable(BrokerError):
    """The first replica is not in sync, so it may not lead."""


class LogDirectoryNotFound(BrokerError):
    """The node has one data directory, and it is another one."""


class TopicDeletionDisabled(BrokerError): ...


class NotAuthorized(BrokerError):
    """Root of the refusals of the authorizer, and the one for topics."""


class GroupNotAuthorized(NotAuthorized): ...


class TransactionalIdNotAuthorized(NotAuthorized): ...


class ClusterNotAuthorized(NotAuthorized): ...


# ---- users and access rules


class InvalidRule(BrokerError):
    """An access rule, or a filter of rules, that there cannot be."""


class TooManyRules(BrokerError):
    """More access rules than a request may name, or than a cluster may have."""


class InvalidUser(BrokerError):
    """A name or a credential of a user that there cannot be."""


class UnknownUser(BrokerError):
    """There is no such user, or the user has no such credential."""


class UserExists(BrokerError): ...


class SecurityModeRefused(BrokerError):
    """The change of the mode would lock out every administrator."""


# ---- records


class ReplicaDamaged(BrokerError):
    """This node's copy of the records is damaged, but another node has them and will lead."""


class CorruptMessage(BrokerError): ...


class UnsupportedFormat(BrokerError):
    """Records in a format older than magic 2."""


class MessageTooLarge(BrokerError): ...


class InvalidRecord(BrokerError):
    """`indexes` are the offending records; empty when the batch itself is invalid."""

    def __init__(self, message: str, indexes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.indexes = indexes


class UnsupportedCompression(BrokerError):
    """A codec that the client's version of its protocol may not use, or could not read."""


class InvalidTimestamp(BrokerError): ...


class InvalidAcks(BrokerError): ...


class ShuttingDown(BrokerError):
    """The node is stopping; another node, or this one after its restart, can answer."""


# ---- transactions and producer ids


class TransactionError(BrokerError):
    """Root of the transaction coordinator's refusals. The request has changed nothing."""


class InvalidTransactionalId(TransactionError):
    """Empty, or too long."""


class TransactionTimeoutInvalid(TransactionError): ...


class ProducerFenced(TransactionError):
    """A newer instance of the producer has taken over, or the transaction timed out."""


class InvalidProducerEpoch(TransactionError):
    """An epoch that was never assigned."""


class InvalidProducerIdMapping(TransactionError):
    """The transactional id is unknown or belongs to another producer id."""


class ConcurrentTransactions(TransactionError):
    """Another operation of this transactional id is in progress: retry."""


class InvalidTransactionState(TransactionError):
    """The state of the transaction does not allow the request; a retry would not help."""


class TransactionAbortable(TransactionError):
    """The transaction has failed; the producer may abort it and begin another."""


class TransactionalIdNotFound(TransactionError): ...


class TooManyTransactionalIds(TransactionError):
    """The table of transactional ids is full; idle ones expire."""


class TransactionNotPersisted(TransactionError):
    """The log refused the record of the change; `__cause__` has the reason. Retry."""


class ProducerIdsUnavailable(TransactionError):
    """No producer id could be reserved; `__cause__` has the reason. Retry."""


class TransactionCoordinatorLoading(TransactionError):
    """The coordinator is still loading its state: retry."""


class NotTransactionCoordinator(TransactionError):
    """This coordinator was closed: find the current one. The outcome is unknown."""


# ---- delayed records


class UnknownDelayedRecord(BrokerError):
    """No such record is stored: it never was, or it was delivered or dropped."""


class LabelsDiffer(BrokerError):
    """The record belongs to another owner than the one that releases or drops it."""


# ---- staged writes


class InvalidPublication(BrokerError):
    """The pieces to publish are not what was staged, or exceed a bound of `limits.py`."""


class StagedRecordsGone(BrokerError):
    """The staged records have expired. Nothing was published: write the batch again."""


class PublishedRecordsLost(BrokerError):
    """A partition has lost published records; its next sequence is `expected`."""

    def __init__(self, partition_id: int, expected: int) -> None:
        super().__init__(f"partition {partition_id} expects sequence {expected} next")
        self.partition_id = partition_id
        self.expected = expected


class WriterOfAnotherQuery(BrokerError):
    """The writer id belongs to a query that restarted its batch numbers; some would be dropped."""


# ---- groups and committed offsets


class InvalidGroupId(BrokerError): ...


class GroupNotFound(BrokerError): ...


class NonEmptyGroup(BrokerError):
    """The group still has members."""


class ForeignGroup(BrokerError):
    """The group has live members of another protocol, which `owner` names."""

    def __init__(self, group_id: str, owner: str) -> None:
        super().__init__(f"group {group_id!r} has live members of protocol {owner}")
        self.group_id = group_id
        self.owner = owner


class TooManyGroups(BrokerError): ...


class UnknownMember(BrokerError):
    """No such member: the client must join again without a member id."""


class MemberIdRequired(BrokerError):
    """A new member must join again with this `member_id` (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as member {member_id!r}")
        self.member_id = member_id


class FencedInstance(BrokerError):
    """Another member has taken over this instance id (KIP-345)."""


class IllegalGeneration(BrokerError): ...


class RebalanceInProgress(BrokerError): ...


class InconsistentProtocol(BrokerError):
    """The member's protocols do not fit those of the group."""


class InvalidSessionTimeout(BrokerError): ...


class GroupMaxSizeReached(BrokerError): ...


class GroupRequestTooLarge(BrokerError):
    """The metadata of a member or the assignments of a leader exceed a bound of `limits.py`."""


class InvalidGroupRequest(BrokerError):
    """A required field is missing, or has an impossible value."""


class FencedMemberEpoch(BrokerError):
    """Not the member's current epoch: it must give up its partitions and join again."""


class StaleMemberEpoch(BrokerError):
    """The request has an epoch that the member has left."""


class UnreleasedInstance(BrokerError):
    """A static member that has not left still uses this instance id."""


class UnsupportedAssignor(BrokerError): ...


class InvalidRegularExpression(BrokerError):
    """A pattern for topic names that RE2 rejects."""


class EpochlessRequest(BrokerError):
    """A member of an epoch-based group used a request that has no field for its epoch."""


class CoordinatorLoading(BrokerError):
    """The coordinator is still loading its state: retry."""


class NotCoordinator(BrokerError):
    """Another node coordinates it: `leader`, or -1 when that is unknown."""

    def __init__(self, message: str, leader: int = -1) -> None:
        super().__init__(message)
        self.leader = leader


class Overtaken(BrokerError):
    """A later request of the same node has overtaken this one. Nothing was done."""


class CoordinatorNotAvailable(BrokerError):
    """There is no coordinator at the moment; or, while the request waited, the group was removed or
    the node stopped.
    """


class OffsetMetadataTooLarge(BrokerError): ...


class InvalidCommitOffset(BrokerError):
    """A committed offset must lie in 0 .. 2^63-1."""


class TooManyOffsets(BrokerError): ...


class GroupSubscribedToTopic(BrokerError):
    """The committed offset belongs to a topic that live members read."""


# ---- captures of databases


class UnknownCapture(BrokerError): ...


class CaptureExists(BrokerError):
    """The name, or a required object in the database, is in use."""


class CaptureRefused(BrokerError):
    """The capture does not support the request, or its process has refused it."""


class CaptureNotRunning(BrokerError):
    """The capture has no running process at the moment."""
