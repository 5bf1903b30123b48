"""Reasons for which the broker refuses a request, one class per reason.

They carry no number of any wire; each protocol folder maps the classes it can meet to its own form.
The classes are named after the reason, as the protocols name theirs, hence without the suffix
`Error`.
"""

# ruff: noqa: N818

from __future__ import annotations

from dragoman.errors import BrokerError

# ---- topics and partitions


class CoordinatorLoading(BrokerError):
    """What the coordinator knows is still being read back: repeat the request."""

    code = "coordinator_loading"


class UnknownTopic(BrokerError):
    code = "unknown_topic"


class UnknownTopicId(BrokerError):
    code = "unknown_topic_id"


class TopicExists(BrokerError):
    code = "topic_exists"


class InvalidTopicName(BrokerError):
    code = "invalid_topic_name"


class InvalidPartitions(BrokerError):
    code = "invalid_partitions"


class InvalidReplicationFactor(BrokerError):
    code = "invalid_replication_factor"


class InvalidReplicaAssignment(BrokerError):
    code = "invalid_replica_assignment"


class InvalidConfig(BrokerError):
    code = "invalid_config"


class ReadOnlyConfig(BrokerError):
    """The key can only be set when the node is started."""

    code = "read_only_config"


class InvalidQuota(BrokerError):
    """An entity or a limit that there cannot be."""

    code = "invalid_quota"


class InvalidFeatureLevel(BrokerError):
    """A feature or a level of it that this node does not have."""

    code = "invalid_feature_level"


class RecordsNotDeletable(BrokerError):
    """The topic keeps the last record of each key, whatever its age."""

    code = "records_not_deletable"


class ElectionNotNeeded(BrokerError):
    """The partition has the leader it should have."""

    code = "election_not_needed"


class PreferredLeaderNotAvailable(BrokerError):
    """The first replica is not in sync, so it may not lead."""

    code = "preferred_leader_not_available"


class NoReassignmentInProgress(BrokerError):
    code = "no_reassignment_in_progress"


class LogDirectoryNotFound(BrokerError):
    """The node has one data directory, and it is another one."""

    code = "log_directory_not_found"


class TopicDeletionDisabled(BrokerError):
    code = "topic_deletion_disabled"


class NotAuthorized(BrokerError):
    """Root of the refusals of the authorizer, and the one for topics."""

    code = "not_authorized"


class GroupNotAuthorized(NotAuthorized):
    code = "group_not_authorized"


class TransactionalIdNotAuthorized(NotAuthorized):
    code = "transactional_id_not_authorized"


class ClusterNotAuthorized(NotAuthorized):
    code = "cluster_not_authorized"


# ---- records


class NotLeader(BrokerError):
    """Another node leads the partition now."""

    code = "not_leader"


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for. Nothing was appended."""

    code = "not_enough_replicas"


class FencedLeaderEpoch(BrokerError):
    """The client knows an older leadership than this one."""

    code = "fenced_leader_epoch"


class UnknownLeaderEpoch(BrokerError):
    """The client knows a newer leadership than this node does."""

    code = "unknown_leader_epoch"


class CorruptMessage(BrokerError):
    code = "corrupt_message"


class UnsupportedFormat(BrokerError):
    """Records in a format older than magic 2."""

    code = "unsupported_format"


class MessageTooLarge(BrokerError):
    code = "message_too_large"


class InvalidRecord(BrokerError):
    """`indexes` are the offending records of the batch, empty when it is the batch itself."""

    code = "invalid_record"

    def __init__(self, message: str, indexes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.indexes = indexes


class UnsupportedCompression(BrokerError):
    """A codec that the client's version of its protocol may not use, or could not read."""

    code = "unsupported_compression"


class InvalidTimestamp(BrokerError):
    code = "invalid_timestamp"


class InvalidAcks(BrokerError):
    code = "invalid_acks"


class RequestTimedOut(BrokerError):
    """The outcome is unknown: it may still take effect."""

    code = "request_timed_out"


class Overloaded(BrokerError):
    """A bound was reached; the same request may succeed later."""

    code = "overloaded"


class ShuttingDown(BrokerError):
    """The node is stopping; another one, or this one after its restart, will answer."""

    code = "shutting_down"


# ---- transactions and producer ids


class TransactionError(BrokerError):
    """Root of what the transaction coordinator answers. Nothing was changed by the request."""

    code = "transaction"


class InvalidTransactionalId(TransactionError):
    """Empty, or too long."""

    code = "invalid_transactional_id"


class TransactionTimeoutInvalid(TransactionError):
    code = "transaction_timeout_invalid"


class ProducerFenced(TransactionError):
    """A newer instance of the producer has taken over, or its transaction ran out of time."""

    code = "producer_fenced"


class InvalidProducerEpoch(TransactionError):
    """An epoch that was never handed out."""

    code = "invalid_producer_epoch"


class InvalidProducerIdMapping(TransactionError):
    """The transactional id is unknown or belongs to another producer id."""

    code = "invalid_producer_id_mapping"


class ConcurrentTransactions(TransactionError):
    """Another operation of this transactional id is under way: repeat the request."""

    code = "concurrent_transactions"


class InvalidTransactionState(TransactionError):
    """The state of the transaction does not allow the request, and repeating it will not help."""

    code = "invalid_transaction_state"


class TransactionAbortable(TransactionError):
    """The transaction cannot go on; the producer may abort it and begin another."""

    code = "transaction_abortable"


class TransactionalIdNotFound(TransactionError):
    code = "transactional_id_not_found"


class TooManyTransactionalIds(TransactionError):
    """The table of transactional ids is full; idle ones expire."""

    code = "too_many_transactional_ids"


class TransactionNotPersisted(TransactionError):
    """The log refused the record of the change. `__cause__` says why; repeat the request."""

    code = "transaction_not_persisted"


class ProducerIdsUnavailable(TransactionError):
    """No producer id could be reserved. `__cause__` says why; repeat the request."""

    code = "producer_ids_unavailable"


class TransactionCoordinatorLoading(TransactionError):
    """The coordinator still reads its log: repeat the request."""

    code = "transaction_coordinator_loading"


class NotTransactionCoordinator(TransactionError):
    """This coordinator was closed: find the present one. The outcome of the request is open."""

    code = "not_transaction_coordinator"


# ---- groups and committed offsets


class InvalidGroupId(BrokerError):
    code = "invalid_group_id"


class GroupNotFound(BrokerError):
    code = "group_not_found"


class NonEmptyGroup(BrokerError):
    """The group still has members."""

    code = "non_empty_group"


class ForeignGroup(BrokerError):
    """The group has live members of another protocol, which `owner` names."""

    code = "foreign_group"

    def __init__(self, group_id: str, owner: str) -> None:
        super().__init__(f"group {group_id!r} has live members of protocol {owner}")
        self.group_id = group_id
        self.owner = owner


class TooManyGroups(BrokerError):
    code = "too_many_groups"


class UnknownMember(BrokerError):
    """No such member: the client must join again without a member id."""

    code = "unknown_member"


class MemberIdRequired(BrokerError):
    """A new member is to join again with the `member_id` it gets here (KIP-394)."""

    code = "member_id_required"

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as member {member_id!r}")
        self.member_id = member_id


class FencedInstance(BrokerError):
    """Another member has taken over this instance id (KIP-345)."""

    code = "fenced_instance"


class IllegalGeneration(BrokerError):
    code = "illegal_generation"


class RebalanceInProgress(BrokerError):
    code = "rebalance_in_progress"


class InconsistentProtocol(BrokerError):
    """The member's protocols do not fit those of the group."""

    code = "inconsistent_protocol"


class InvalidSessionTimeout(BrokerError):
    code = "invalid_session_timeout"


class GroupMaxSizeReached(BrokerError):
    code = "group_max_size_reached"


class GroupRequestTooLarge(BrokerError):
    """The metadata of a member or the assignments of a leader exceed a bound of `limits.py`."""

    code = "group_request_too_large"


class InvalidGroupRequest(BrokerError):
    """A field that the request needs is missing, or one holds what cannot be."""

    code = "invalid_group_request"


class FencedMemberEpoch(BrokerError):
    """Not the epoch that the member was given: it must give up its partitions and join again."""

    code = "fenced_member_epoch"


class StaleMemberEpoch(BrokerError):
    """Offsets were named with an epoch that the member has left behind."""

    code = "stale_member_epoch"


class UnreleasedInstance(BrokerError):
    """A static member that has not left still uses this instance id."""

    code = "unreleased_instance"


class UnsupportedAssignor(BrokerError):
    code = "unsupported_assignor"


class InvalidRegularExpression(BrokerError):
    """A pattern for topic names that RE2 does not take."""

    code = "invalid_regular_expression"


class EpochlessRequest(BrokerError):
    """A member whose epoch changes at any time used a request that cannot name it."""

    code = "epochless_request"


class NotCoordinator(BrokerError):
    """The group has moved to another node."""

    code = "not_coordinator"


class CoordinatorNotAvailable(BrokerError):
    """The group was removed, or the node stops, while the request waited."""

    code = "coordinator_not_available"


class OffsetMetadataTooLarge(BrokerError):
    code = "offset_metadata_too_large"


class InvalidCommitOffset(BrokerError):
    """A committed offset must lie in 0 .. 2^63-1."""

    code = "invalid_commit_offset"


class TooManyOffsets(BrokerError):
    code = "too_many_offsets"


class GroupSubscribedToTopic(BrokerError):
    """The committed offset of a topic that live members read must stay."""

    code = "group_subscribed_to_topic"
