"""Requests about groups for callers of the HTTP API on other nodes: the part that coordinates
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from heapq import nsmallest

from dragoman.api.node_requests import (
    DescribeGroup,
    Done,
    FindOffsets,
    GroupRows,
    ListGroups,
    RemovedGroup,
    RemoveGroup,
    RemoveOffsets,
    ResetOffsets,
    StoredOffsets,
)
from dragoman.api.node_rpc import NodeHandlers
from dragoman.api.node_topics import NodeBroker
from dragoman.api.values import (
    GroupAssignment,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupSummary,
)
from dragoman.broker.caller_rights import authorize
from dragoman.broker.errors import ForeignGroup, NonEmptyGroup
from dragoman.broker.groups.messages import GroupDescription as BrokerGroupDescription
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.broker.groups.records import TopicPartition
from dragoman.broker.groups.registry import Groups
from dragoman.outcome import Outcome
from dragoman.plural import plural
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import GroupId, Offset, Partition, TopicName

#: As whom offsets are committed: a group with members of any protocol refuses another owner.
_OWNER = "http"
#: Members that a refusal names.
_MEMBERS_NAMED = 5


class NodeGroups:
    def __init__(self, broker: NodeBroker) -> None:
        self._broker = broker

    def serve(self, handlers: NodeHandlers) -> None:
        handlers.serve(ListGroups, self._list)
        handlers.serve(DescribeGroup, self._describe)
        handlers.serve(FindOffsets, self._find_offsets)
        handlers.serve(ResetOffsets, self._reset)
        handlers.serve(RemoveOffsets, self._remove_offsets)
        handlers.serve(RemoveGroup, self._remove)

    @property
    def _table(self) -> Groups:
        return self._broker.coordination.groups.table

    def _required(self, caller: Caller, operation: Operation, name: str) -> GroupId:
        """The group, after the check of the caller's right and of this node's responsibility."""
        authorize(self._broker.authorizer, caller, operation, Resource.GROUP, name)
        self._broker.coordination.groups.require(name)
        return GroupId(name)

    def _require_topics(
        self, caller: Caller, operations: Sequence[Operation], topics: set[str]
    ) -> None:
        for topic in sorted(topics):
            for each in operations:
                authorize(self._broker.authorizer, caller, each, Resource.TOPIC, topic)

    def _shown(self, caller: Caller, topics: set[str]) -> frozenset[str]:
        allowed_among = self._broker.authorizer.allowed_among
        return allowed_among(caller, Operation.DESCRIBE, Resource.TOPIC, topics)

    # ---- reading

    async def _list(self, request: ListGroups) -> GroupRows:
        listed = {each.group_id: each for each in self._table.listings()}
        allowed_among = self._broker.authorizer.allowed_among
        shown = allowed_among(request.caller, Operation.DESCRIBE, Resource.GROUP, listed)
        names = nsmallest(request.limit, (name for name in shown if name > request.after))
        return GroupRows(
            items=tuple(
                GroupSummary(
                    group=each.group_id,
                    protocol=each.owner or "",
                    state=each.state.value,
                    members=len(self._table.describe(each.group_id).members),
                )
                for each in (listed[GroupId(name)] for name in names)
            )
        )

    async def _describe(self, request: DescribeGroup) -> GroupDescription:
        group_id = self._required(request.caller, Operation.DESCRIBE, request.group)
        described = self._table.describe(group_id)
        assigned = self._table.assignments(group_id)
        committed = self._broker.coordination.groups.offsets.all_committed(group_id)
        topics: set[str] = {topic for topic, _ in committed}
        topics.update(topic for each in assigned.values() for topic, _ in each)
        shown = self._shown(request.caller, topics)
        wanted = (
            each
            for each in committed
            if each[0] in shown and (request.after is None or each > request.after)
        )
        found = nsmallest(request.limit + 1, wanted)
        page = found[: request.limit]
        return GroupDescription(
            group=request.group,
            protocol=described.owner or "",
            state=described.state.value,
            generation=described.generation,
            coordinator=self._broker.node_id,
            members=tuple(
                GroupMember(
                    member_id=each.member_id,
                    client_id=each.client_id,
                    host=each.client_host,
                    assignment=tuple(
                        GroupAssignment(topic=topic, partitions=tuple(partitions))
                        for topic, partitions in assigned.get(each.member_id, ())
                        if topic in shown
                    ),
                )
                for each in described.members
            ),
            offsets=tuple(
                GroupOffset(
                    topic=topic,
                    partition=partition,
                    committed_offset=committed[topic, partition].offset,
                    log_end_offset=None,
                    lag_records=None,
                )
                for topic, partition in page
            ),
            next=f"{page[-1][0]}@{page[-1][1]}" if len(found) > len(page) else None,
        )

    def _stored(self, group_id: GroupId, topics: frozenset[str]) -> StoredOffsets:
        committed = self._broker.coordination.groups.offsets.all_committed(group_id)
        return StoredOffsets(
            items=tuple(
                (topic, partition, each.offset)
                for (topic, partition), each in sorted(committed.items())
                if topic in topics
            )
        )

    async def _find_offsets(self, request: FindOffsets) -> StoredOffsets:
        group_id = self._required(request.caller, Operation.DESCRIBE, request.group)
        self._table.require(group_id)
        wanted = set(request.topics)
        if not wanted:
            found = self._broker.coordination.groups.offsets.all_committed(group_id)
            wanted = {topic for topic, _ in found}
        return self._stored(group_id, self._shown(request.caller, wanted))

    # ---- changes

    async def _reset(self, request: ResetOffsets) -> Done:
        group_id = self._required(request.caller, Operation.READ, request.group)
        topics = {topic for topic, _, _ in request.items}
        self._require_topics(request.caller, (Operation.READ,), topics)
        groups = self._broker.coordination.groups
        commit = CommitRequest(
            group_id=group_id,
            offsets=tuple(
                OffsetCommit(
                    topic=TopicName(topic), partition=Partition(index), offset=Offset(offset)
                )
                for topic, index, offset in request.items
            ),
            owner=_OWNER,
        )
        with self._naming_members(request.caller, group_id):
            prepared = groups.offsets.prepare_commit(commit)
            for error in prepared.errors.values():
                raise error
            if not request.validate_only:
                done: Outcome[None] = Outcome()
                groups.commit(commit, lambda _, error: done.acknowledge(error))
                await done
        return Done()

    @contextmanager
    def _naming_members(self, caller: Caller, group_id: GroupId) -> Iterator[None]:
        """A refusal because of members says who they are, if the caller may know."""
        try:
            yield
        except (ForeignGroup, NonEmptyGroup) as error:
            may = self._broker.authorizer.allowed_among
            if not may(caller, Operation.DESCRIBE, Resource.GROUP, (str(group_id),)):
                raise
            described = self._table.describe(group_id)
            if not described.members:
                raise
            raise NonEmptyGroup(_members_text(described)) from error

    async def _remove_offsets(self, request: RemoveOffsets) -> StoredOffsets:
        group_id = self._required(request.caller, Operation.DELETE, request.group)
        self._require_topics(request.caller, (Operation.READ,), {request.topic})
        groups = self._broker.coordination.groups
        stored = self._stored(group_id, frozenset((request.topic,)))
        partitions: list[TopicPartition] = [
            (TopicName(topic), Partition(index)) for topic, index, _ in stored.items
        ]
        prepared = groups.offsets.prepare_delete(group_id, partitions)
        for error in prepared.errors.values():
            raise error
        if not request.validate_only:
            await groups.delete_offsets(group_id, partitions)
        return stored

    async def _remove(self, request: RemoveGroup) -> RemovedGroup:
        group_id = self._required(request.caller, Operation.DELETE, request.group)
        groups = self._broker.coordination.groups
        count = len(groups.offsets.all_committed(group_id))
        with self._naming_members(request.caller, group_id):
            if request.validate_only:
                groups.table.prepare_delete(group_id)
            else:
                await groups.delete(group_id)
        return RemovedGroup(offsets=count)


def _members_text(group: BrokerGroupDescription) -> str:
    """That a group has members, and the first of them."""
    shown = [
        f"{each.client_id or each.member_id!r} at {each.client_host.lstrip('/')}"
        for each in group.members[:_MEMBERS_NAMED]
    ]
    more = len(group.members) - len(shown)
    count = plural(len(group.members), "member")
    return (
        f"group {group.group_id!r} has {count} of protocol {group.owner}: {', '.join(shown)}"
        f"{f' and {more} more' if more else ''}; stop them first"
    )
