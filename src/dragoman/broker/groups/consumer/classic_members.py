"""Members of a consumer group that still use Kafka's first protocol.

They know neither targets nor epochs. For them the member epoch is the generation, no member is the
leader, and the coordinator's target is the assignment:

    join       takes the subscription, and `owned partitions` as what the member still has; the
               answer is its epoch. A client that gives up everything before it joins owns nothing.
    sync       the assignment of that epoch
    heartbeat  RebalanceInProgress whenever another join would bring the member further

Between a request to join and the join, and between join and sync, a member has its rebalance
time-out; a slower one is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dragoman.broker.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from dragoman.broker.groups.consumer.conversion import MixedGroup, assignment_of, ids_of
from dragoman.broker.groups.consumer.members import ConsumerMember
from dragoman.broker.groups.consumer.messages import MemberState
from dragoman.broker.groups.messages import (
    Joined,
    JoinReply,
    JoinRequest,
    LeavingMember,
    Synced,
    SyncReply,
    SyncRequest,
    new_member_id,
    rebalance_timeout_ms,
)
from dragoman.broker.groups.ports import ClassicSubscription
from dragoman.broker.groups.records import ClassicFacts
from dragoman.errors import BrokerError, DragomanError
from dragoman.outcome import ignore
from dragoman.types import MemberId


class ClassicMembers:
    """Requests are answered as soon as their effect is durable; none waits for another member."""

    def __init__(self, group: MixedGroup) -> None:
        self._group = group

    # ---- join

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        group = self._group
        try:
            subscription = self._read(request)
            member = self._joining(request)
        except BrokerError as error:
            reply(error)
            return
        is_new = group.roster.get(member.member_id) is not member
        if is_new:
            group.roster.add(member)
        if self._update(member, request, subscription) or is_new:
            group.bump()
        group.mark(member)
        group.roster.resize(member)
        if group.should_be_classic:
            # A static member that came back was the last of the second protocol.
            again = RebalanceInProgress(f"group {group.group_id!r} changed its protocol")
            group.become_classic().then(lambda _: reply(again))
            return
        group.advance(member, ids_of(subscription.owned, group.ports.catalog))
        member.touch()
        self._limit(member)
        joined = self._joined(member)

        def stored(error: DragomanError | None) -> None:
            reply(joined if error is None else error)

        group.store().then(stored)

    def _read(self, request: JoinRequest) -> ClassicSubscription:
        """Raises `InconsistentProtocol` for a member that cannot be part of this group."""
        group = self._group
        if request.protocol_type != group.protocol_type or not request.protocols:
            raise InconsistentProtocol(
                f"group {group.group_id!r} is for protocol type {group.protocol_type!r}"
            )
        dialect = group.ports.dialect
        subscription = None
        if dialect is not None:
            subscription = dialect.read_subscription(request.protocols[0][1])
        if subscription is None:
            raise InconsistentProtocol(
                f"group {group.group_id!r} has members of both protocols, and what this one says to"
                " the others cannot be read"
            )
        known = group.roster.get(request.member_id)
        if not group.roster.supports({name for name, _ in request.protocols}, known):
            raise InconsistentProtocol(f"no assignor that all of {group.group_id!r} know")
        return subscription

    def _joining(self, request: JoinRequest) -> ConsumerMember:
        """The member that joins, perhaps a new one that is not in the group yet."""
        if request.instance_id is not None:
            return self._joining_static(request, request.instance_id)
        group = self._group
        if not request.member_id:
            group.require_room()
            member_id = new_member_id(request, self._group.ports.random)
            if request.requires_known_member_id:
                # Member ids are not reserved: here, a join may bring any id.
                raise MemberIdRequired(member_id)
            return group.new_member(member_id, None)
        known = group.roster.get(request.member_id)
        if known is None:
            group.require_room()
            return group.new_member(request.member_id, None)
        if known.classic is None or known.instance_id is not None:
            raise UnknownMember(f"no member {request.member_id!r} that joins this way")
        return known

    def _joining_static(self, request: JoinRequest, instance_id: str) -> ConsumerMember:
        group = self._group
        known = group.roster.static_member(instance_id)
        if request.member_id:
            if known is None:
                raise UnknownMember(f"no instance {instance_id!r} in group {group.group_id!r}")
            if known.member_id != request.member_id:
                raise FencedInstance(f"instance {instance_id!r} is another member now")
            if known.classic is None:
                raise UnknownMember(f"no member {request.member_id!r} that joins this way")
            return known
        new_id = new_member_id(request, self._group.ports.random)
        if known is not None:
            return group.replace(known, new_id)
        group.require_room()
        return group.new_member(new_id, instance_id)

    def _update(
        self, member: ConsumerMember, request: JoinRequest, subscription: ClassicSubscription
    ) -> bool:
        """Returns whether the target assignment has to change."""
        is_changed = (member.topics, member.pattern) != (subscription.topics, None)
        member.topics = subscription.topics
        member.pattern = None
        member.rack_id = subscription.rack_id
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.session_timeout = request.session_timeout_ms / 1000
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)
        member.classic = ClassicFacts(request.session_timeout_ms, request.protocols)
        return is_changed

    def _joined(self, member: ConsumerMember) -> Joined:
        assert member.classic is not None
        return Joined(
            member_id=member.member_id,
            generation=member.epoch,
            protocol_type=self._group.protocol_type,
            protocol=member.classic.protocols[0][0],
            leader=MemberId(""),
        )

    def _limit(self, member: ConsumerMember) -> None:
        expire = partial(self._group.expire, member.member_id)
        member.phase.begin(member.rebalance_timeout_ms / 1000, expire)

    # ---- sync

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        try:
            member = self._require_current(
                request.member_id, request.generation, request.instance_id
            )
            assert member.classic is not None
            protocol = member.classic.protocols[0][0]
            self._require_same_protocol(request, protocol)
            member.touch()
            self._require_no_newer_epoch(member)
        except BrokerError as error:
            reply(error)
            return
        member.phase.end()
        synced = Synced(
            protocol_type=self._group.protocol_type,
            protocol=protocol,
            assignment=assignment_of(self._group, member),
        )

        def stored(error: DragomanError | None) -> None:
            reply(synced if error is None else error)

        self._group.store().then(stored)

    def _require_same_protocol(self, request: SyncRequest, protocol: str) -> None:
        if request.protocol_type not in (None, self._group.protocol_type):
            raise InconsistentProtocol(f"the protocol type is {self._group.protocol_type!r}")
        if request.protocol not in (None, protocol):
            raise InconsistentProtocol(f"the protocol is {protocol!r}")

    def _require_no_newer_epoch(self, member: ConsumerMember) -> None:
        # A member that has to give partitions up has joined already, and must learn which.
        if self._group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._limit_join(member)
            raise RebalanceInProgress(f"group {self._group.group_id!r} has a newer epoch")

    def _limit_join(self, member: ConsumerMember) -> None:
        if not member.phase.is_running:
            self._limit(member)

    # ---- heartbeat

    def heartbeat(self, member_id: MemberId, generation: int, instance_id: str | None) -> None:
        """Raises when the member has to join again, or is not a member."""
        group = self._group
        member = self._require_current(member_id, generation, instance_id)
        member.touch()
        group.notice_topics()
        is_behind = (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED
            or (member.state is MemberState.UNRELEASED and not group.is_waiting_for_others(member))
        )
        if is_behind:
            self._limit_join(member)
            raise RebalanceInProgress(f"member {member_id!r} has to join again")

    # ---- leave

    def leave(self, leaving: Sequence[LeavingMember]) -> list[BrokerError | None]:
        """One result per name, in order; the epoch changes once for all of them."""
        results: list[BrokerError | None] = []
        gone: dict[MemberId, ConsumerMember] = {}
        for identity in leaving:
            try:
                member = self._leaving(identity)
            except BrokerError as error:
                results.append(error.with_traceback(None))
                continue
            repeated = UnknownMember("named twice") if member.member_id in gone else None
            gone[member.member_id] = member
            results.append(repeated)
        if gone:
            self._group.remove(list(gone.values())).then(ignore)
        return results

    def _leaving(self, identity: LeavingMember) -> ConsumerMember:
        if identity.member_id:
            return self._require_member(identity.member_id, identity.instance_id)
        # With only an instance id, an administrator may remove members of either protocol.
        member = None
        if identity.instance_id is not None:
            member = self._group.roster.static_member(identity.instance_id)
        if member is None:
            raise UnknownMember(f"no instance {identity.instance_id!r}")
        return member

    # ---- checks

    def _require_member(self, member_id: MemberId, instance_id: str | None) -> ConsumerMember:
        member = self._group.require_member(member_id, instance_id)
        if member.classic is None:
            raise UnknownMember(f"member {member_id!r} joined by another protocol")
        return member

    def _require_current(
        self, member_id: MemberId, generation: int, instance_id: str | None
    ) -> ConsumerMember:
        member = self._require_member(member_id, instance_id)
        if generation != member.epoch:
            raise IllegalGeneration(
                f"member {member_id!r} is in generation {member.epoch}, not {generation}"
            )
        return member
