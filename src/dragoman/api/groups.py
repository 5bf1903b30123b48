"""Groups that this node coordinates: their members, committed offsets and lag."""

from __future__ import annotations

from typing import Protocol

from dragoman.api.access import Access
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.topics import page_of
from dragoman.api.values import (
    GroupAssignment,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupPage,
    GroupSummary,
)
from dragoman.broker.groups.coordinator import GroupCoordinator
from dragoman.broker.partitions import Partitions
from dragoman.errors import DragomanError
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import Authorizer
from dragoman.types import GroupId


class Coordination(Protocol):
    @property
    def groups(self) -> GroupCoordinator: ...


class GroupBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def node_id(self) -> int: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def authorizer(self) -> Authorizer: ...


class GroupService:
    def __init__(self, broker: GroupBroker) -> None:
        self._broker = broker
        self._access = Access(broker)

    def list_groups(self, caller: Caller, after: str, limit: PageLimit) -> GroupPage:
        groups = self._broker.coordination.groups.table
        listed = {each.group_id: each for each in groups.listings()}
        names, following = page_of(self._access.shown(caller, Resource.GROUP, listed), after, limit)
        items = tuple(
            GroupSummary(
                group=each.group_id,
                protocol=each.owner or "",
                state=each.state.value,
                members=len(groups.describe(each.group_id).members),
            )
            for each in (listed[GroupId(name)] for name in names)
        )
        return GroupPage(items=items, next=following)

    def describe_group(self, caller: Caller, name: str) -> GroupDescription:
        """Topics that the caller may not describe are left out."""
        self._access.require(caller, Operation.DESCRIBE, Resource.GROUP, name)
        is_shown = self._access.sees(caller, Resource.TOPIC)
        coordination = self._broker.coordination
        group_id = GroupId(name)
        if coordination.groups.table.get(group_id) is None:
            raise ApiError(404, "unknown_group", f"there is no group {name!r}")
        described = coordination.groups.table.describe(group_id)
        assigned = coordination.groups.table.assignments(group_id)
        return GroupDescription(
            group=name,
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
                        if is_shown(topic)
                    ),
                )
                for each in described.members
            ),
            offsets=tuple(
                self._offset(topic, partition, committed.offset)
                for (topic, partition), committed in sorted(
                    coordination.groups.offsets.all_committed(group_id).items()
                )
                if is_shown(topic)
            ),
        )

    def _offset(self, topic: str, partition: int, committed: int) -> GroupOffset:
        try:
            end: int | None = self._broker.partitions.find(topic, partition).log.high_watermark
        except DragomanError:
            end = None
        return GroupOffset(
            topic=topic,
            partition=partition,
            committed_offset=committed,
            log_end_offset=end,
            lag_records=None if end is None else max(0, end - committed),
        )
