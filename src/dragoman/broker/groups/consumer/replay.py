"""Members of consumer groups while the records of a partition are read back.

A compacted log may have members before their group. They are kept here until the partition is
loaded, and then handed to their groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from dragoman.broker.groups.records import (
    ConsumerMemberKey,
    ConsumerTargetKey,
    StoredConsumerMember,
    StoredTarget,
    decode_member,
    decode_target,
)
from dragoman.types import GroupId, MemberId


class ReplayedMembers:
    """The members and targets of one group."""

    __slots__ = ("members", "targets")

    def __init__(self) -> None:
        self.members: dict[MemberId, StoredConsumerMember] = {}
        self.targets: dict[MemberId, StoredTarget] = {}


class MemberReplay:
    def __init__(self, partition_of: Callable[[GroupId], int]) -> None:
        self._partition_of = partition_of
        self._groups: dict[GroupId, ReplayedMembers] = {}

    def load(self, key: ConsumerMemberKey | ConsumerTargetKey, value: bytes | None) -> None:
        """Take in one record, in log order."""
        if value is None and key.group_id not in self._groups:
            return
        found = self._groups.setdefault(key.group_id, ReplayedMembers())
        match key:
            case ConsumerMemberKey():
                found.members.pop(key.member_id, None)
                if value is not None:
                    found.members[key.member_id] = decode_member(value, key)
            case ConsumerTargetKey():
                found.targets.pop(key.member_id, None)
                if value is not None:
                    found.targets[key.member_id] = decode_target(value, key)
            case _:
                assert_never(key)

    def take(self, partition: int) -> dict[GroupId, ReplayedMembers]:
        """Hand over the members of a partition's groups, also of groups whose record is gone."""
        names = [each for each in self._groups if self._partition_of(each) == partition]
        return {name: self._groups.pop(name) for name in names}
