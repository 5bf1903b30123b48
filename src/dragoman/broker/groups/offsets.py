"""Committed offsets: which commits are valid, and what they write.

Nothing here changes an offset. Each `prepare_…` checks a request against the group as it is now and
gives records for the internal topic; the caller appends the records of one call as one batch and,
once they are durable, hands them to `Groups.apply`. A failed append therefore changes nothing, and
a commit that was refused has no trace.

A transactional commit is staged under its producer id. The end of the transaction publishes what
was staged, or drops it; in one batch, so that a crash leaves all or nothing. A published offset
keeps the order of its staging: it does not replace one that was committed after it was staged.

Commits may move backwards: a consumer that seeks back means it. A negative offset, which Kafka's
clients may store and read back, means to every other reader that nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from dragoman import limits
from dragoman.broker.errors import (
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidCommitOffset,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    TooManyOffsets,
    UnknownMember,
)
from dragoman.broker.groups.group import Group, Membership
from dragoman.broker.groups.messages import State
from dragoman.broker.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    StagedKey,
    StateRecord,
    TopicPartition,
    record,
)
from dragoman.broker.groups.registry import Groups
from dragoman.errors import BrokerError
from dragoman.types import Epoch, GroupId, MemberId, Offset, Partition, ProducerId, TopicName

_OFFSET_MAX = (1 << 63) - 1
_MS_PER_MINUTE = 60_000


class OffsetCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The next offset to read of one partition."""

    topic: TopicName
    partition: Partition
    offset: Offset
    leader_epoch: Epoch = Epoch(-1)
    metadata: str = ""


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    offsets: tuple[OffsetCommit, ...]
    #: Empty, with generation -1, for a client that is no member.
    member_id: MemberId = MemberId("")
    generation: int = -1
    instance_id: str | None = None
    #: Set when the commit is part of this producer's transaction.
    producer_id: ProducerId | None = None
    #: A retention of its own, counted from now, as old clients ask for.
    retention_ms: int | None = None
    #: Kafka stores any offset; a client withdraws its commit with a negative one.
    takes_negative: bool = False
    owner: str = "kafka"


class PreparedOffsets(msgspec.Struct, frozen=True):
    records: tuple[StateRecord, ...]
    #: Partitions that were refused; the others are in the records.
    errors: Mapping[TopicPartition, BrokerError]


class GroupRecords(msgspec.Struct, frozen=True):
    group_id: GroupId
    records: tuple[StateRecord, ...]


class Offsets:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    # ---- reading

    def committed(
        self, group_id: GroupId, topic: TopicName, partition: Partition
    ) -> CommittedOffset | None:
        """None when nothing was committed, also for a group that does not exist."""
        found = self.all_stored(group_id).get((topic, partition))
        return found if found is not None and found.is_position else None

    def all_committed(self, group_id: GroupId) -> dict[TopicPartition, CommittedOffset]:
        stored = self.all_stored(group_id)
        return {partition: each for partition, each in stored.items() if each.is_position}

    def all_stored(self, group_id: GroupId) -> Mapping[TopicPartition, CommittedOffset]:
        """A live, read-only view, with the negative offsets that Kafka's clients have stored."""
        group = self._groups.get(group_id)
        return {} if group is None else group.ledger.committed

    def has_unstable(self, group_id: GroupId, topic: TopicName, partition: Partition) -> bool:
        """Whether an open transaction holds an offset for this partition."""
        group = self._groups.get(group_id)
        return group is not None and group.ledger.is_unstable((topic, partition))

    # ---- committing

    def prepare_commit(self, request: CommitRequest) -> PreparedOffsets:
        """Raises for faults of the whole request; the result has those of single partitions."""
        self._require_valid(request)
        group = self._groups.get(request.group_id)
        place = limits.GROUP_OFFSETS_MAX - (0 if group is None else len(group.ledger))
        if len(request.offsets) > place:
            raise TooManyOffsets(f"group {request.group_id!r} has no place for more offsets")
        metadata_size = sum(len(commit.metadata) for commit in request.offsets)
        if metadata_size:
            self._groups.take_memory(metadata_size)
        now = self._groups.clock.wall_ms()
        records: list[StateRecord] = []
        errors: dict[TopicPartition, BrokerError] = {}
        for commit in request.offsets:
            error = self._refusal(commit, takes_negative=request.takes_negative)
            if error is not None:
                errors[commit.topic, commit.partition] = error
            else:
                records.append(self._commit_record(request, commit, now))
        return PreparedOffsets(tuple(records), errors)

    def prepare_transaction_end(
        self, group_id: GroupId, producer_id: ProducerId, *, is_commit: bool
    ) -> tuple[StateRecord, ...]:
        """Publish or drop the offsets staged by a transaction. Without any, or when repeated, there
        are no records, so it may be repeated after a crash.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ()
        records: list[StateRecord] = []
        for partition, staged in group.ledger.staged(producer_id).items():
            current = group.ledger.committed.get(partition)
            if is_commit and (current is None or current.sequence < staged.sequence):
                records.append(record(OffsetKey(group_id, *partition), staged))
            records.append(record(StagedKey(group_id, producer_id, *partition), None))
        return tuple(records)

    def _require_valid(self, request: CommitRequest) -> None:
        group_id = request.group_id
        if not group_id and (request.generation >= 0 or request.producer_id is not None):
            raise InvalidGroupId("only simple commits may leave the group without a name")
        group = self._groups.get(group_id)
        if group is None:
            if request.generation >= 0:
                raise IllegalGeneration(f"group {group_id!r} has no generation")
            self._groups.require_place(group_id)
            return
        group.require_owner(request.owner)
        if group.membership is not None:
            group.membership.check_commit(
                request.member_id,
                request.generation,
                request.instance_id,
                is_transactional=request.producer_id is not None,
            )
        elif request.generation >= 0:
            raise UnknownMember(f"group {group_id!r} has no members")

    def _refusal(self, commit: OffsetCommit, *, takes_negative: bool) -> BrokerError | None:
        if commit.offset > _OFFSET_MAX or (commit.offset < 0 and not takes_negative):
            return InvalidCommitOffset(f"offset {commit.offset} is not in 0 .. 2^63-1")
        bytes_max = self._groups.settings.offset_metadata_max_bytes
        # No character takes more than four bytes, so short texts need no encoding to be measured.
        if len(commit.metadata) * 4 > bytes_max and len(commit.metadata.encode()) > bytes_max:
            return OffsetMetadataTooLarge(f"offset metadata has at most {bytes_max} bytes")
        return None

    def _commit_record(self, request: CommitRequest, commit: OffsetCommit, now: int) -> StateRecord:
        value = CommittedOffset(
            commit.offset,
            commit.leader_epoch,
            commit.metadata,
            now,
            self._groups.next_sequence(),
            None if request.retention_ms is None else now + request.retention_ms,
        )
        group_id, topic, partition = request.group_id, commit.topic, commit.partition
        if request.producer_id is None:
            return record(OffsetKey(group_id, topic, partition), value)
        return record(StagedKey(group_id, request.producer_id, topic, partition), value)

    # ---- removing

    def prepare_delete(
        self, group_id: GroupId, partitions: Iterable[TopicPartition]
    ) -> PreparedOffsets:
        """Delete single offsets; in a group with members, only of topics that no member reads."""
        group = self._groups.require(group_id)
        subscribed: frozenset[TopicName] = frozenset()
        if group.owner is not None and group.membership is not None:
            known = group.membership.subscriptions()
            if known is None:
                raise NonEmptyGroup(f"group {group_id!r} has members whose topics are not known")
            subscribed = known
        records: list[StateRecord] = []
        errors: dict[TopicPartition, BrokerError] = {}
        for partition in partitions:
            if partition[0] in subscribed:
                errors[partition] = GroupSubscribedToTopic(
                    f"group {group_id!r} reads {partition[0]}"
                )
            elif partition in group.ledger.committed:
                records.append(record(OffsetKey(group_id, *partition), None))
        return PreparedOffsets(tuple(records), errors)

    def prepare_topic_deletion(self, topic: TopicName) -> list[GroupRecords]:
        """Forget a deleted topic in every group: a new one of the same name must start without."""
        found = []
        for group in self._groups:
            group_id, ledger = group.group_id, group.ledger
            records = [
                record(OffsetKey(group_id, *partition), None)
                for partition in ledger.committed
                if partition[0] == topic
            ]
            records += [
                record(StagedKey(group_id, producer_id, *partition), None)
                for producer_id in ledger.producers
                for partition in ledger.staged(producer_id)
                if partition[0] == topic
            ]
            if records:
                found.append(GroupRecords(group_id, tuple(records)))
        return found

    def prepare_expiry(self) -> list[GroupRecords]:
        """Records that remove expired offsets, and groups with neither offsets nor members.

        Call this every few minutes.
        """
        now = self._groups.clock.wall_ms()
        found = []
        for group in self._groups:
            expired = list(self._expired(group, now))
            records = [record(OffsetKey(group.group_id, *partition), None) for partition in expired]
            is_over = group.is_idle and len(expired) == len(group.ledger)
            if (
                is_over
                and group.membership is not None
                and not self._is_kept(group.membership, now)
            ):
                records.append(record(GroupKey(group.group_id), None))
            if records:
                found.append(GroupRecords(group.group_id, tuple(records)))
        return found

    @property
    def _retention_ms(self) -> int:
        return self._groups.settings.offsets_retention_minutes * _MS_PER_MINUTE

    def _is_kept(self, membership: Membership, now: int) -> bool:
        """A registered group outlives its offsets by their retention time."""
        return membership.is_registered and now < membership.since_ms + self._retention_ms

    def _expired(self, group: Group, now: int) -> Iterator[TopicPartition]:
        membership = group.membership
        empty_since = 0
        subscribed: frozenset[TopicName] | None = frozenset()
        if membership is not None and membership.has_members:
            # Between two assignments it is not certain which topics the group will read.
            subscribed = membership.subscriptions() if membership.state is State.STABLE else None
        elif membership is not None:
            empty_since = membership.since_ms
        if subscribed is None:
            return
        retention_ms = self._retention_ms
        for partition, committed in group.ledger.committed.items():
            end = committed.expires_ms
            if end is None:
                end = max(committed.committed_ms, empty_since) + retention_ms
            is_kept = partition[0] in subscribed or group.ledger.is_unstable(partition)
            if end <= now and not is_kept:
                yield partition
