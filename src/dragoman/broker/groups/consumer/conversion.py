"""Conversion of a group with members from one of Kafka's protocols to the other (KIP-848).

The first member that joins by the second protocol makes a classic group a consumer group; when the
last such member leaves, the group becomes classic again. Members of the first protocol stay: they
get an error, join again, and find the other kind of group.

In a conversion to a consumer group, every member counts as the owner of its last assignment, even
during a rebalance: a member that has given it up reports that when it joins again, and a partition
that another member may still read is not assigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from dragoman.broker.errors import GroupNotFound
from dragoman.broker.groups.consumer.members import ConsumerMember, ConsumerRoster, Position
from dragoman.broker.groups.consumer.messages import (
    NOTHING,
    MemberState,
    PartitionOf,
    Partitions,
    by_topic,
)
from dragoman.broker.groups.messages import Protocols
from dragoman.broker.groups.ports import (
    Catalog,
    ClassicSubscription,
    Dialect,
    GroupPorts,
    NamedPartitions,
)
from dragoman.broker.groups.records import ClassicFacts, GroupValue, StoredMember
from dragoman.outcome import Outcome
from dragoman.types import GroupId, MemberId, TopicName


class MixedGroup(Protocol):
    """A consumer group, as its members of the first protocol use it."""

    group_id: GroupId
    owner: str
    ports: GroupPorts
    epoch: int
    roster: ConsumerRoster

    @property
    def protocol_type(self) -> str: ...

    @property
    def should_be_classic(self) -> bool:
        """Whether only members of the first protocol are left, and the group may change."""
        ...

    def become_classic(self) -> Outcome[None]: ...

    def require_room(self) -> None: ...

    def require_member(self, member_id: MemberId, instance_id: str | None, /) -> ConsumerMember: ...

    def new_member(self, member_id: MemberId, instance_id: str | None, /) -> ConsumerMember: ...

    def replace(self, old: ConsumerMember, new_id: MemberId, /) -> ConsumerMember: ...

    def remove(self, members: Sequence[ConsumerMember], /) -> Outcome[None]: ...

    def expire(self, member_id: MemberId, /) -> None: ...

    def mark(self, member: ConsumerMember, /) -> None: ...

    def mark_all(self) -> None: ...

    def bump(self) -> None: ...

    def advance(self, member: ConsumerMember, owned: Partitions | None, /) -> None: ...

    def is_waiting_for_others(self, member: ConsumerMember, /) -> bool: ...

    def notice_topics(self) -> None: ...

    def store(self) -> Outcome[None]: ...


class Carried(msgspec.Struct, frozen=True):
    """A member of a classic group, with its metadata decoded."""

    stored: StoredMember
    subscription: ClassicSubscription
    assigned: Partitions


def read_members(value: GroupValue, dialect: Dialect, catalog: Catalog) -> tuple[Carried, ...]:
    """Raises `GroupNotFound`, as Kafka does, for a group that cannot become a consumer group."""
    carried = []
    taken: set[PartitionOf] = set()
    for stored in value.members:
        metadata = _metadata(stored.protocols, value.protocol)
        subscription = dialect.read_subscription(metadata)
        assignment = dialect.read_assignment(stored.assignment) if stored.assignment else ()
        if subscription is None or assignment is None:
            raise GroupNotFound(
                f"what member {stored.member_id!r} says to the others cannot be read, so its group"
                " cannot become a consumer group"
            )
        # The leader may have given one partition to two members; here only one can have it.
        assigned = ids_of(assignment, catalog) - taken
        taken |= assigned
        carried.append(Carried(stored, subscription, assigned))
    return tuple(carried)


def take_in(group: MixedGroup, carried: tuple[Carried, ...]) -> None:
    """Fill a new consumer group with the members of a classic one."""
    for each in carried:
        stored = each.stored
        member = group.new_member(stored.member_id, stored.instance_id)
        member.client_id = stored.client_id
        member.client_host = stored.client_host
        member.rebalance_timeout_ms = stored.rebalance_timeout_ms
        member.session_timeout = stored.session_timeout_ms / 1000
        member.rack_id = each.subscription.rack_id
        member.topics = each.subscription.topics
        member.classic = ClassicFacts(stored.session_timeout_ms, stored.protocols)
        member.position = Position(group.epoch, MemberState.STABLE, each.assigned, NOTHING)
        member.previous_epoch = group.epoch
        member.target = each.assigned
        group.roster.add(member)
        member.touch()
    group.mark_all()


def to_classic(group: MixedGroup) -> GroupValue:
    """The group as a classic one; all its members must speak the first protocol."""
    members = list(group.roster)
    return GroupValue(
        kind="classic",
        owner=group.owner,
        generation=group.epoch,
        protocol_type=group.protocol_type,
        protocol=_common_protocol(members),
        leader=members[0].member_id,
        since_ms=group.ports.clock.wall_ms(),
        members=tuple(_stored(group, member) for member in members),
    )


def _stored(group: MixedGroup, member: ConsumerMember) -> StoredMember:
    assert member.classic is not None
    return StoredMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.classic.protocols,
        assignment=assignment_of(group, member),
    )


def assignment_of(group: MixedGroup, member: ConsumerMember) -> bytes:
    """The member's current assignment, encoded for members of the first protocol."""
    dialect = group.ports.dialect
    assert dialect is not None, "without one no member joins by the first protocol"
    assert member.classic is not None
    names = names_of(member.position.assigned, group.ports.catalog)
    return dialect.write_assignment(member.classic.protocols[0][1], names)


def ids_of(partitions: NamedPartitions, catalog: Catalog) -> Partitions:
    """Deleted topics are left out."""
    found = [(catalog.find(name), indexes) for name, indexes in partitions]
    return frozenset(
        (topic.topic_id, index)
        for topic, indexes in found
        if topic is not None
        for index in indexes
    )


def names_of(partitions: Partitions, catalog: Catalog) -> list[tuple[TopicName, tuple[int, ...]]]:
    found = [(catalog.find_by_id(topic_id), indexes) for topic_id, indexes in by_topic(partitions)]
    return [(topic.name, indexes) for topic, indexes in found if topic is not None]


def _common_protocol(members: list[ConsumerMember]) -> str:
    """The first protocol that all members support, in the order of the first member."""
    known = [
        [name for name, _ in member.classic.protocols]
        for member in members
        if member.classic is not None
    ]
    assert len(known) == len(members), "a member of the second protocol is left"
    common = set(known[0]).intersection(*known[1:])
    return next(name for name in known[0] if name in common)


def _metadata(protocols: Protocols, protocol: str) -> bytes:
    return next((data for name, data in protocols if name == protocol), protocols[0][1])
