"""The classic group protocol: members join, one of them assigns, all of them sync.

What each request meets in each state (the states themselves are in `rebalance.py`):

    state                join                     sync                  heartbeat       commit
    Empty                starts a rebalance       UnknownMember         UnknownMember   no member
    PreparingRebalance   waits                    RebalanceInProgress   the same        generation
    CompletingRebalance  same metadata: answer    waits for the         fine            Rebalance-
                         again; else rebalance    leader's                              InProgress
    Stable               same metadata and not    the assignment        fine            generation
                         the leader: answer
                         again; else rebalance
    Dead                 CoordinatorNotAvailable  UnknownMember         UnknownMember   the same

A commit with `generation` counts when it names a member and the current generation; one with `no
member` names neither, as clients do that assign their partitions themselves.

Written after the behaviour of Kafka's coordinator: KIP-345 (static members), KIP-394 (member id
required), KIP-814 (skip assignment). Knows no wire, no log and no other group.

Static members that come back while their group is stable (KIP-345) cause no rebalance. A member
that restarts has forgotten its member id and joins with its instance id alone. It gets a new member
id, which takes over place, lead and assignment of the old one; the old id is fenced. The group does
not notice, but its record must: a restart of the broker would otherwise know the old id only, and
fence the living member. So the record comes first. One is written at a time, because each holds all
member ids and must know what the one before it settled; members that come meanwhile share the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from dragoman import limits
from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupMaxSizeReached,
    GroupRequestTooLarge,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupId,
    InvalidGroupRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from dragoman.broker.groups.messages import (
    GroupDescription,
    Joined,
    JoinReply,
    JoinRequest,
    LeavingMember,
    MemberDescription,
    State,
    Synced,
    SyncReply,
    SyncRequest,
    new_member_id,
    rebalance_timeout_ms,
    request_bytes,
)
from dragoman.broker.groups.ports import GroupPorts, GroupSettings
from dragoman.broker.groups.rebalance import KIND, Member, Rebalance
from dragoman.broker.groups.records import GroupValue, StoredMember
from dragoman.broker.groups.waits import Parked
from dragoman.errors import BrokerError, DragomanError
from dragoman.types import GroupId, MemberId, TopicName

# ---- static members that come back


class Rejoin(msgspec.Struct, frozen=True):
    old: Member
    new: Member
    request: JoinRequest
    parked: Parked[Joined]


class StaticRejoins:
    def __init__(
        self, rebalance: Rebalance, join_again: Callable[[JoinRequest, Parked[Joined]], None]
    ) -> None:
        self._rebalance = rebalance
        #: Joins of members whose group changed while their record was written.
        self._join_again = join_again
        #: By instance id, which bounds their number by that of the members.
        self._waiting: dict[str, Rejoin] = {}
        self._is_storing = False

    def may_keep_generation(self, old: Member, new: Member) -> bool:
        """The metadata may differ (a restarted client owns nothing); the chosen protocol must
        not.
        """
        group = self._rebalance
        if group.state is not State.STABLE:
            return False
        if [name for name, _ in old.protocols] == [name for name, _ in new.protocols]:
            return True
        return group.roster.choose_protocol(old, new.protocols) == group.protocol

    def add(self, rejoin: Rejoin) -> None:
        assert rejoin.old.instance_id is not None
        earlier = self._waiting.get(rejoin.old.instance_id)
        if earlier is not None and earlier.parked.is_waiting:
            self._rebalance.outbox.add(earlier.parked, fenced(rejoin.old))
        self._waiting[rejoin.old.instance_id] = rejoin
        if not self._is_storing:
            self._store()

    def stop(self, error: BrokerError) -> None:
        for rejoin in self._take_waiting():
            self._rebalance.outbox.add(rejoin.parked, error)

    def _store(self) -> None:
        group = self._rebalance
        rejoins, self._waiting = self._waiting, {}
        new_members = {rejoin.old.member_id: rejoin.new for rejoin in rejoins.values()}
        members = [
            new_members.get(member.member_id, member).stored(member.assignment)
            for member in group.roster
        ]
        leader = group.roster.leader
        assert leader is not None
        if leader in new_members:
            leader = new_members[leader].member_id
        self._is_storing = True
        group.store(members, leader, partial(self._stored, rejoins.values(), group.generation))

    def _stored(
        self, rejoins: Iterable[Rejoin], generation: int, error: DragomanError | None
    ) -> None:
        self._is_storing = False
        for rejoin in rejoins:
            if error is not None:
                self._refuse(rejoin, error)
            elif self._is_current(rejoin, generation):
                self._finish(rejoin)
            elif rejoin.parked.is_waiting:
                self._join_again(rejoin.request, rejoin.parked)
        for rejoin in self._take_waiting():
            self._join_again(rejoin.request, rejoin.parked)
        self._rebalance.outbox.send()

    def _take_waiting(self) -> list[Rejoin]:
        waiting, self._waiting = self._waiting, {}
        return [rejoin for rejoin in waiting.values() if rejoin.parked.is_waiting]

    def _refuse(self, rejoin: Rejoin, error: DragomanError) -> None:
        if rejoin.parked.is_waiting:
            self._rebalance.outbox.add(rejoin.parked, error)

    def _is_current(self, rejoin: Rejoin, generation: int) -> bool:
        group = self._rebalance
        if group.state is not State.STABLE or group.generation != generation:
            return False
        return group.roster.get(rejoin.old.member_id) is rejoin.old

    def _finish(self, rejoin: Rejoin) -> None:
        group = self._rebalance
        was_leader = group.roster.is_leader(rejoin.old)
        take_over(group, rejoin.old, rejoin.new)
        group.note_synced(rejoin.old)
        rejoin.new.touch()
        if not rejoin.parked.is_waiting:
            return
        joined = group.joined(rejoin.new)
        if rejoin.request.supports_skip_assignment:
            joined = msgspec.structs.replace(joined, skip_assignment=was_leader)
        elif was_leader:
            # An older client that found itself the leader would assign again, so it gets its former
            # id as leader and follows (KIP-814).
            joined = msgspec.structs.replace(joined, leader=rejoin.old.member_id, members=())
        group.outbox.add(rejoin.parked, joined)


def take_over(group: Rebalance, old: Member, new: Member) -> None:
    group.release(old, fenced(old))
    old.session.stop()
    group.roster.replace(old, new)


def fenced(old: Member) -> FencedInstance:
    return FencedInstance(f"instance {old.instance_id!r} has joined again")


# ---- the group


class ClassicGroup:
    kind = KIND
    is_registered = False

    def __init__(
        self, group_id: GroupId, owner: str, ports: GroupPorts, generation: int = 0
    ) -> None:
        self.group_id = group_id
        self.owner = owner
        self._ports = ports
        self._rebalance = Rebalance(group_id, owner, ports, generation)
        self._roster = self._rebalance.roster
        self._outbox = self._rebalance.outbox
        self._rejoins = StaticRejoins(self._rebalance, self._try_join)

    # ---- what others may know

    @property
    def state(self) -> State:
        return self._rebalance.state

    @property
    def since_ms(self) -> int:
        """Time of the group's last change of state."""
        return self._rebalance.since_ms

    @property
    def generation(self) -> int:
        return self._rebalance.generation

    @property
    def protocol_type(self) -> str:
        return self._rebalance.protocol_type

    @property
    def held_bytes(self) -> int:
        return self._roster.byte_count + sum(len(each.assignment) for each in self._roster)

    @property
    def has_members(self) -> bool:
        return len(self._roster) > 0

    @property
    def member_count(self) -> int:
        return len(self._roster)

    @property
    def is_idle(self) -> bool:
        return not self._roster and not self._rebalance.promises

    def describe(self) -> GroupDescription:
        group = self._rebalance
        is_stable = group.state is State.STABLE
        return GroupDescription(
            group_id=self.group_id,
            kind=self.kind,
            owner=self.owner if self.has_members else None,
            state=group.state,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol if is_stable else "",
            leader=self._roster.leader,
            members=tuple(
                MemberDescription(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(group.protocol) if is_stable else b"",
                    assignment=member.assignment if is_stable else b"",
                )
                for member in self._roster
            ),
        )

    def subscriptions(self) -> frozenset[TopicName] | None:
        """Topics that the members want to read, or None when one member's metadata is
        unreadable.
        """
        topics: set[TopicName] = set()
        for member in self._roster:
            metadata = member.metadata(self._rebalance.protocol) or member.protocols[0][1]
            wanted = self._ports.read_subscription(self.protocol_type, metadata)
            if wanted is None:
                return None
            topics |= wanted
        return frozenset(topics)

    # ---- requests

    def join(self, request: JoinRequest, reply: JoinReply) -> Parked[Joined] | None:
        """Answers through `reply`, now or later. Returns the request while it waits."""
        parked: Parked[Joined] = Parked(reply)
        self._try_join(request, parked)
        self._outbox.send()
        return parked if parked.is_waiting else None

    def sync(self, request: SyncRequest, reply: SyncReply) -> Parked[Synced] | None:
        """Answers through `reply`, now or later. Returns the request while it waits."""
        parked: Parked[Synced] = Parked(reply)
        try:
            self._sync(request, parked)
        except BrokerError as error:
            self._outbox.add(parked, error)
        self._outbox.send()
        return parked if parked.is_waiting else None

    def heartbeat(self, member_id: MemberId, generation: int, instance_id: str | None) -> None:
        """Raises unless the member is current and need not join again."""
        member = self._roster.get(member_id)
        # The checks of `_require_current`, inlined: most requests of a broker end here.
        if member is None or instance_id is not None or generation != self._rebalance.generation:
            member = self._require_current(member_id, generation, instance_id)
        member.touch()
        if self._rebalance.state is State.PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {self.group_id!r} waits for its members to join")

    def leave(self, leaving: Sequence[LeavingMember]) -> list[BrokerError | None]:
        """One result per name, in order; the group rebalances once for all of them."""
        size = len(self._roster)
        results = [self._try_leave(identity) for identity in leaving]
        if len(self._roster) < size:
            self._rebalance.after_departure()
        else:
            self._rebalance.after_promise()
        self._outbox.send()
        return results

    def check_commit(
        self,
        member_id: MemberId,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool,
    ) -> None:
        """Raises unless this member may commit offsets now."""
        if generation < 0 and not self.has_members:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._require_current(member_id, generation, instance_id).touch()
        elif not is_transactional:
            raise UnknownMember(f"group {self.group_id!r} has members; a commit must name its own")
        # Transactional producers older than KIP-447 name no member; their own epoch fences them.
        # And a transaction commits what its member read before the rebalance, so it need not wait.
        if self.state is State.COMPLETING_REBALANCE and not is_transactional:
            raise RebalanceInProgress(f"group {self.group_id!r} waits for its assignment")

    # ---- life and death of the machine

    @classmethod
    def restore(cls, group_id: GroupId, value: GroupValue, ports: GroupPorts) -> ClassicGroup:
        """Restore a group from its last record. Sessions are stopped until `resume`."""
        group = cls(group_id, value.owner, ports, value.generation)
        group._rebalance.restore(value)
        return group

    def snapshot(self) -> GroupValue:
        """The state of the group, without members that were in no generation yet."""
        group = self._rebalance
        members = (each.stored(each.assignment) for each in self._roster if not each.is_new)
        return group.value(members, self._roster.leader)

    def ask_all_to_join(self) -> None:
        """Begin a rebalance, for a group that has just become a classic one."""
        self._rebalance.after_departure()
        self._outbox.send()

    def resume(self) -> None:
        """Every member gets a full session time-out to find the coordinator again."""
        for member in self._roster:
            member.touch()

    def stop(self, error: BrokerError) -> None:
        """The group is removed or moves away: fail the waiting requests."""
        self._rejoins.stop(error)
        self._rebalance.stop(error)
        self._outbox.send()

    # ---- join

    def _try_join(self, request: JoinRequest, parked: Parked[Joined]) -> None:
        try:
            self._join(request, parked)
        except BrokerError as error:
            self._outbox.add(parked, error)

    def _join(self, request: JoinRequest, parked: Parked[Joined]) -> None:
        if self.state is State.DEAD:
            raise CoordinatorNotAvailable(f"group {self.group_id!r} was removed")
        if request.member_id:
            known = self._roster.get(request.member_id)
        else:
            known = self._roster.static_member(request.instance_id)
        self._require_room(request, known)
        self._require_protocols(request, known)
        if request.member_id:
            self._join_with_id(request, parked)
        elif known is not None:
            self._join_again_static(known, request, parked)
        elif request.requires_known_member_id and request.instance_id is None:
            raise MemberIdRequired(self._promise_member_id(request))
        else:
            self._add(request, new_member_id(request, self._ports.random), parked)

    def _require_room(self, request: JoinRequest, known: Member | None) -> None:
        byte_count = self._roster.byte_count + request_bytes(request)
        byte_count -= 0 if known is None else known.byte_count
        if byte_count > limits.GROUP_MEMBERS_BYTES_MAX:
            raise GroupRequestTooLarge(f"metadata of all members of {self.group_id!r} is too large")
        size_max = min(self._ports.settings.group_max_size, limits.GROUP_MEMBERS_MAX)
        if self.state is not State.PREPARING_REBALANCE:
            has_place = known is not None or len(self._roster) < size_max
        else:
            # Places are counted again in each rebalance: first come, first served. This is how a
            # group shrinks when its maximum was lowered.
            has_joined = known is not None and known.join is not None
            has_place = has_joined or self._roster.awaiting_join < size_max
        if has_place:
            return
        full = GroupMaxSizeReached(f"group {self.group_id!r} has its {size_max} members")
        if known is not None:
            self._rebalance.drop(known, full)
            self._rebalance.after_departure()
        raise full

    def _require_protocols(self, request: JoinRequest, known: Member | None) -> None:
        if not request.protocol_type or not request.protocols:
            raise InconsistentProtocol("a member must name a protocol type and a protocol")
        if not self.has_members:
            return
        if request.protocol_type != self.protocol_type:
            raise InconsistentProtocol(
                f"group {self.group_id!r} has protocol type {self.protocol_type!r}, "
                f"not {request.protocol_type!r}"
            )
        if not self._roster.supports(request.protocols, known):
            names = ", ".join(name for name, _ in request.protocols)
            raise InconsistentProtocol(
                f"not every member of {self.group_id!r} knows any of: {names}"
            )

    def _join_with_id(self, request: JoinRequest, parked: Parked[Joined]) -> None:
        if request.instance_id is None and self._rebalance.promises.take(request.member_id):
            self._add(request, request.member_id, parked)
            return
        member = self._require_member(request.member_id, request.instance_id)
        if member.protocols == request.protocols and self._may_repeat_answer(member):
            member.touch()
            self._outbox.add(parked, self._rebalance.joined(member))
            return
        self._roster.update(member, request)
        self._rebalance.await_generation(member, parked)

    def _may_repeat_answer(self, member: Member) -> bool:
        """Repeat the answer for a client that missed it; but a rejoining leader gets a
        rebalance.
        """
        if self.state is State.COMPLETING_REBALANCE:
            return True
        return self.state is State.STABLE and not self._roster.is_leader(member)

    def _promise_member_id(self, request: JoinRequest) -> MemberId:
        promises = self._rebalance.promises
        if len(promises) >= limits.GROUP_PENDING_MEMBERS_MAX:
            raise GroupMaxSizeReached(f"too many clients are about to join {self.group_id!r}")
        member_id = new_member_id(request, self._ports.random)
        promises.give(member_id, request.session_timeout_ms / 1000)
        return member_id

    def _add(self, request: JoinRequest, member_id: MemberId, parked: Parked[Joined]) -> None:
        if not self.has_members:
            self._rebalance.protocol_type = request.protocol_type
        member = self._rebalance.member(_stored(request, member_id), is_new=True)
        self._rebalance.add(member, parked)

    def _join_again_static(self, old: Member, request: JoinRequest, parked: Parked[Joined]) -> None:
        stored = _stored(request, new_member_id(request, self._ports.random), old.assignment)
        new = self._rebalance.member(stored, is_new=old.is_new)
        if self._rejoins.may_keep_generation(old, new):
            self._rejoins.add(Rejoin(old, new, request, parked))
            return
        # A leader that assigns right now knows the old member id, so its assignment would miss the
        # new one: only another rebalance helps.
        take_over(self._rebalance, old, new)
        self._rebalance.await_generation(new, parked)

    # ---- sync and leave

    def _sync(self, request: SyncRequest, parked: Parked[Synced]) -> None:
        member = self._require_current(request.member_id, request.generation, request.instance_id)
        self._require_same_protocol(request)
        size = sum(len(assignment) for _, assignment in request.assignments)
        if size > limits.GROUP_ASSIGNMENT_BYTES_MAX:
            raise GroupRequestTooLarge(f"{size} bytes of assignments")
        member.touch()
        if self.state is State.PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {self.group_id!r} waits for its members to join")
        if self.state is State.COMPLETING_REBALANCE:
            self._rebalance.await_assignment(member, parked, dict(request.assignments))
        else:
            self._rebalance.note_synced(member)
            self._outbox.add(parked, self._rebalance.synced(member))

    def _require_same_protocol(self, request: SyncRequest) -> None:
        if request.protocol_type not in (None, self.protocol_type):
            raise InconsistentProtocol(f"the protocol type is {self.protocol_type!r}")
        if request.protocol not in (None, self._rebalance.protocol):
            raise InconsistentProtocol(f"the protocol is {self._rebalance.protocol!r}")

    def _try_leave(self, identity: LeavingMember) -> BrokerError | None:
        try:
            self._leave(identity)
        except BrokerError as error:
            return error.with_traceback(None)
        return None

    def _leave(self, identity: LeavingMember) -> None:
        if identity.instance_id is None and self._rebalance.promises.take(identity.member_id):
            return
        member: Member | None
        if identity.member_id:
            member = self._require_member(identity.member_id, identity.instance_id)
        else:
            member = self._roster.static_member(identity.instance_id)
            if member is None:
                raise UnknownMember(f"no instance {identity.instance_id!r} in {self.group_id!r}")
        self._rebalance.drop(member, UnknownMember("left the group"))

    # ---- checks

    def _require_member(self, member_id: MemberId, instance_id: str | None) -> Member:
        if instance_id is not None:
            current = self._roster.static_member(instance_id)
            if current is None:
                raise UnknownMember(f"no instance {instance_id!r} in group {self.group_id!r}")
            if current.member_id != member_id:
                raise FencedInstance(f"instance {instance_id!r} is another member now")
        member = self._roster.get(member_id)
        if member is None:
            raise UnknownMember(f"no member {member_id!r} in group {self.group_id!r}")
        return member

    def _require_current(
        self, member_id: MemberId, generation: int, instance_id: str | None
    ) -> Member:
        member = self._require_member(member_id, instance_id)
        if generation != self._rebalance.generation:
            raise IllegalGeneration(
                f"group {self.group_id!r} is in generation {self.generation}, not {generation}"
            )
        return member


def _stored(request: JoinRequest, member_id: MemberId, assignment: bytes = b"") -> StoredMember:
    return StoredMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        protocols=request.protocols,
        assignment=assignment,
    )


def check_join(request: JoinRequest, settings: GroupSettings) -> int:
    """Raises for a request that no group can take. Returns roughly the bytes that it brings."""
    least = settings.group_min_session_timeout_ms
    most = settings.group_max_session_timeout_ms
    if not request.group_id:
        raise InvalidGroupId("a group with members needs a name")
    if not least <= request.session_timeout_ms <= most:
        raise InvalidSessionTimeout(
            f"session time-out {request.session_timeout_ms} ms is not in {least} .. {most}"
        )
    if len(request.protocols) > limits.MEMBER_PROTOCOLS_MAX:
        raise GroupRequestTooLarge(f"{len(request.protocols)} protocols")
    instance_id = request.instance_id or ""
    if len(instance_id.encode()) > limits.INSTANCE_ID_BYTES_MAX:
        raise InvalidGroupRequest(
            f"an instance id has at most {limits.INSTANCE_ID_BYTES_MAX} bytes"
        )
    if len(request.protocol_type) > limits.GROUP_ID_BYTES_MAX:
        raise GroupRequestTooLarge(f"protocol type of {len(request.protocol_type)} characters")
    size = request_bytes(request) + len(instance_id)
    if size > limits.MEMBER_BYTES_MAX:
        raise GroupRequestTooLarge(f"{size} bytes of member metadata")
    return size
