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


# ---- records


class ReplicaDamaged(BrokerError):
    """This node's copy of the records is damaged, but another node has them and will lead."""


class CorruptMessage(BrokerError): ...


class UnsupportedFormat(BrokerError):
    """Records in a format older than magic 2."""


class MessageTooLarge(BrokerError): ...


class InvalidRecord(BrokerError):
    """`indexes` are the offending records of the batch, empty when it is the batch itself."""

    def __init__(self, message: str, indexes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.indexes = indexes


class UnsupportedCompression(BrokerError):
    """A codec that the client's version of its protocol may not use, or could not read."""


class InvalidTimestamp(BrokerError): ...


class InvalidAcks(BrokerError): ...


class ShuttingDown(BrokerError):
    """The node is stopping; another one, or this one after its restart, will answer."""


# ---- transactions and producer ids


class TransactionError(BrokerError):
    """Root of what the transaction coordinator answers. Nothing was changed by the request."""


class InvalidTransactionalId(TransactionError):
    """Empty, or too long."""


class TransactionTimeoutInvalid(TransactionError): ...


class ProducerFenced(TransactionError):
    """A newer instance of the producer has taken over, or its transaction ran out of time."""


class InvalidProducerEpoch(TransactionError):
    """An epoch that was never handed out."""


class InvalidProducerIdMapping(TransactionError):
    """The transactional id is unknown or belongs to another producer id."""


class ConcurrentTransactions(TransactionError):
    """Another operation of this transactional id is under way: repeat the request."""


class InvalidTransactionState(TransactionError):
    """The state of the transaction does not allow the request, and repeating it will not help."""


class TransactionAbortable(TransactionError):
    """The transaction cannot go on; the producer may abort it and begin another."""


class TransactionalIdNotFound(TransactionError): ...


class TooManyTransactionalIds(TransactionError):
    """The table of transactional ids is full; idle ones expire."""


class TransactionNotPersisted(TransactionError):
    """The log refused the record of the change. `__cause__` says why; repeat the request."""


class ProducerIdsUnavailable(TransactionError):
    """No producer id could be reserved. `__cause__` says why; repeat the request."""


class TransactionCoordinatorLoading(TransactionError):
    """The coordinator still reads its log: repeat the request."""


class NotTransactionCoordinator(TransactionError):
    """This coordinator was closed: find the present one. The outcome of the request is open."""


# ---- delayed records


class UnknownDeferredRecord(BrokerError):
    """No such record is stored: it never was, or has been delivered or dropped."""


class LabelsDiffer(BrokerError):
    """The record belongs to another owner than the one that decides about it."""


# ---- staged writes


class InvalidPublication(BrokerError):
    """What is to be published is not what was staged, or exceeds a bound of `limits.py`."""


class StagedRecordsGone(BrokerError):
    """They waited too long. Nothing was published: the batch has to be written again."""


class PublishedRecordsLost(BrokerError):
    """A partition has lost records that were published; it takes `expected` next."""

    def __init__(self, partition_id: int, expected: int) -> None:
        super().__init__(f"partition {partition_id} expects sequence {expected} next")
        self.partition_id = partition_id
        self.expected = expected


class WriterOfAnotherQuery(BrokerError):
    """The writer id belongs to a query that counts its batches anew: some would be left out."""


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
    """A new member is to join again with the `member_id` it gets here (KIP-394)."""

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
    """A field that the request needs is missing, or one holds what cannot be."""


class FencedMemberEpoch(BrokerError):
    """Not the epoch that the member was given: it must give up its partitions and join again."""


class StaleMemberEpoch(BrokerError):
    """Offsets were named with an epoch that the member has left behind."""


class UnreleasedInstance(BrokerError):
    """A static member that has not left still uses this instance id."""


class UnsupportedAssignor(BrokerError): ...


class InvalidRegularExpression(BrokerError):
    """A pattern for topic names that RE2 does not take."""


class EpochlessRequest(BrokerError):
    """A member whose epoch changes at any time used a request that cannot name it."""


class CoordinatorLoading(BrokerError):
    """What the coordinator knows is still being read back: repeat the request."""


class NotCoordinator(BrokerError):
    """Another node coordinates it now: `leader`, or -1 when that is not known."""

    def __init__(self, message: str, leader: int = -1) -> None:
        super().__init__(message)
        self.leader = leader


class Overtaken(BrokerError):
    """A later request of the same node has come before this one. Nothing was done."""


class CoordinatorNotAvailable(BrokerError):
    """Nobody coordinates it at the moment; or, while the request waited, the group was removed or
    the node stopped.
    """


class OffsetMetadataTooLarge(BrokerError): ...


class InvalidCommitOffset(BrokerError):
    """A committed offset must lie in 0 .. 2^63-1."""


class TooManyOffsets(BrokerError): ...


class GroupSubscribedToTopic(BrokerError):
    """The committed offset of a topic that live members read must stay."""


# ---- captures of databases


class UnknownCapture(BrokerError): ...


class CaptureExists(BrokerError):
    """The name, or what it needs of the database, is taken by another."""


class CaptureRefused(BrokerError):
    """It cannot be done with the capture, or its process said no."""


class CaptureNotRunning(BrokerError):
    """Nobody is there to do it at the moment."""
