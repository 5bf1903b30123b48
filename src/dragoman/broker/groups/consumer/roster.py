"""The members of one consumer group, and which of them has each partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dragoman.broker.groups.consumer.member import ConsumerMember
from dragoman.broker.groups.consumer.messages import MemberState, PartitionOf, Partitions
from dragoman.broker.groups.consumer.reconcile import Position
from dragoman.types import MemberId


class ConsumerRoster:
    __slots__ = ("_holders", "_members", "_sizes", "_static", "byte_count", "get")

    def __init__(self) -> None:
        self._members: dict[MemberId, ConsumerMember] = {}
        #: The dictionary's own method, which saves a call per heartbeat.
        self.get = self._members.get
        self._static: dict[str, ConsumerMember] = {}
        self._holders: dict[PartitionOf, MemberId] = {}
        self._sizes: dict[MemberId, int] = {}
        #: Roughly what all members take together.
        self.byte_count = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._members.values())

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return self._static.get(instance_id)

    def holder(self, partition: PartitionOf) -> MemberId | None:
        return self._holders.get(partition)

    def held(self, partitions: Partitions) -> Partitions:
        """Those of the partitions that some member has.

        Not by `&` with the keys of a dictionary: whatever its left side is, that gives a set, which
        can be changed and has no hash, under the name of a frozen one.
        """
        return frozenset(filter(self._holders.__contains__, partitions))

    def add(self, member: ConsumerMember) -> None:
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member
        self.resize(member)
        self._hold(member)

    def add_restored(self, member: ConsumerMember) -> None:
        """As its record tells it; to be called in the order in which the records were written.

        After a failed write the log may say of two members that they have one partition: the
        later record was built on a release that is not there. Its member was not told, so the
        partition is still the other's. Of two members with one instance id the later counts.
        """
        rival = self._static.get(member.instance_id or "")
        if rival is not None:
            self.remove(rival)
        taken = self.held(member.holds)
        if taken:
            now = member.position
            revoking = now.revoking - taken
            state = MemberState.UNREVOKED if revoking else MemberState.UNRELEASED
            member.position = Position(now.epoch, state, now.assigned - taken, revoking)
        self.add(member)

    def resize(self, member: ConsumerMember) -> None:
        """To be called when what the member says of itself has changed."""
        size = member.byte_count
        self.byte_count += size - self._sizes.get(member.member_id, 0)
        self._sizes[member.member_id] = size

    def remove(self, member: ConsumerMember) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self.byte_count -= self._sizes.pop(member.member_id)
        self._release(member)

    def move(self, member: ConsumerMember, position: Position) -> None:
        """The member goes on to `position`, which nobody else may be in the way of."""
        self._release(member)
        if position.epoch != member.epoch:
            member.previous_epoch = member.epoch
        member.position = position
        self._hold(member)

    def _hold(self, member: ConsumerMember) -> None:
        for partition in member.holds:
            assert partition not in self._holders, f"{partition} is owned already"
            self._holders[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for partition in member.holds:
            del self._holders[partition]

    # ---- the members of Kafka's first protocol among them

    @property
    def is_all_classic(self) -> bool:
        return all(member.classic is not None for member in self)

    def supports(self, names: set[str], instead_of: ConsumerMember | None) -> bool:
        """Would all that speak the first protocol have one in common with one that has these?"""
        support: Counter[str] = Counter()
        count = 0
        for member in self:
            if member.classic is not None and member is not instead_of:
                count += 1
                support.update({name for name, _ in member.classic.protocols})
        return any(support[name] == count for name in names)
