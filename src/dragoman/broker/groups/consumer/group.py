"""A consumer group (KIP-848): the coordinator assigns, and every member follows at its own pace.

Theory of operation
===================

    epoch              changes with every change of members, subscriptions or their topics
    target assignment  made by an assignor for one epoch, the assignment epoch
    member epoch       the target that a member has reached; see `members.py`

Each heartbeat advances the group as far as possible: a change bumps the epoch, an epoch without
target gets one, and the member that sent the heartbeat takes its next step. Members wait for others
only when those still own their partitions.

    Empty        no members
    Assigning    the epoch has no target yet: a member left, and no heartbeat came since
    Reconciling  some member has not reached the target
    Stable       all have

A member is removed when it leaves, when its session ends, or when it takes longer than its
rebalance time-out to give partitions up. A static member may leave for a while: it keeps its
partitions until its session ends, and another member id with its instance id takes them over.

Changes are kept in memory and in records at the same time: see `unstored.py`. Members of
Kafka's first protocol are in `classic_members.py`, conversions from and to groups of that protocol
in `conversion.py`. Written after the behaviour of Kafka's coordinator. Knows no wire, no log and no
other group.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from dragoman import limits
from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    GroupRequestTooLarge,
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)
from dragoman.broker.groups.consumer.classic_members import ClassicMembers
from dragoman.broker.groups.consumer.conversion import to_classic
from dragoman.broker.groups.consumer.members import (
    ConsumerMember,
    ConsumerRoster,
    Position,
    Target,
    reconcile,
)
from dragoman.broker.groups.consumer.messages import (
    JOIN,
    LEAVE_FOR_NOW,
    NOTHING,
    ConsumerGroupDescription,
    HeartbeatReply,
    HeartbeatRequest,
    MemberState,
    PartitionOf,
    Partitions,
    Reply,
    by_topic,
    flattened,
)
from dragoman.broker.groups.consumer.targets import UNKNOWN, TargetAssignment
from dragoman.broker.groups.consumer.unstored import Unstored
from dragoman.broker.groups.messages import (
    GroupDescription,
    State,
)
from dragoman.broker.groups.ports import CONSUMER_PROTOCOL_TYPE, GroupPorts
from dragoman.broker.groups.records import (
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerTargetKey,
    GroupKey,
    Key,
    StateRecord,
    StoredConsumerMember,
    StoredTarget,
    record,
)
from dragoman.broker.groups.waits import DeadlineTimer, PhaseTimer
from dragoman.config.overrides import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from dragoman.errors import BrokerError, DragomanError
from dragoman.outcome import Outcome, acknowledged, ignore
from dragoman.types import GroupId, MemberId, TopicName

log = logging.getLogger("dragoman.coordination")


class ConsumerGroup:
    kind = "consumer"
    is_registered = False

    def __init__(self, group_id: GroupId, owner: str, ports: GroupPorts, epoch: int = 0) -> None:
        self.group_id = group_id
        self.owner = owner
        self.ports = ports
        self.epoch = epoch
        self.assignment_epoch = epoch
        self.roster = ConsumerRoster()
        self.since_ms = ports.clock.wall_ms()
        self.origin = epoch
        self._is_dead = False
        self._targets = TargetAssignment(ports)
        self._unstored = Unstored(partial(ports.persist, group_id), self._record)
        #: Handles requests of members that use Kafka's first protocol.
        self.classic = ClassicMembers(self)

    # ---- what others may know

    @property
    def state(self) -> State:
        if self._is_dead:
            return State.DEAD
        if not self.roster:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        if all(member.is_settled(self.assignment_epoch) for member in self.roster):
            return State.STABLE
        return State.RECONCILING

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def held_bytes(self) -> int:
        return self.roster.byte_count

    @property
    def has_members(self) -> bool:
        return len(self.roster) > 0

    @property
    def member_count(self) -> int:
        return len(self.roster)

    @property
    def is_idle(self) -> bool:
        return not self.has_members

    def subscriptions(self) -> frozenset[TopicName] | None:
        """Topics that the members want to read."""
        return self._targets.topic_names(self.roster)

    def describe(self) -> GroupDescription:
        return GroupDescription(
            group_id=self.group_id,
            kind=self.kind,
            owner=self.owner if self.has_members else None,
            state=self.state,
            generation=self.epoch,
            protocol_type=self.protocol_type,
            protocol=self._targets.assignor(self.roster) if self.has_members else "",
            leader=None,
            members=tuple(member.as_member_of_any_group() for member in self.roster),
        )

    def describe_members(self) -> ConsumerGroupDescription:
        return ConsumerGroupDescription(
            group_id=self.group_id,
            state=self.state,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self._targets.assignor(self.roster),
            members=tuple(member.describe() for member in self.roster),
        )

    # ---- heartbeats

    def heartbeat(self, request: HeartbeatRequest, reply: Reply) -> None:
        """Join, stay or leave; answers through `reply` once the change is durable.

        The registry has checked what can be checked without the group.
        """
        try:
            if request.epoch < JOIN:
                self._leave(request, reply)
                return
            member = self._find(request)
            if member.identify(request.caller):
                self._targets.revision = UNKNOWN
            if not self._is_quiet(member, request):
                self._drive(member, request)
        except BrokerError as error:
            reply(error)
            return
        # The session time-out may have been changed since the last heartbeat.
        member.session_timeout = self._session_timeout_s()
        member.touch()
        self._answer(member, request, reply)

    def _is_quiet(self, member: ConsumerMember, request: HeartbeatRequest) -> bool:
        """Whether the heartbeat has nothing to do, which is true of nearly all."""
        return (
            request.is_bare
            and self.epoch == self.assignment_epoch
            and member.is_settled(self.assignment_epoch)
            and self._targets.revision == self.ports.catalog.revision
        )

    def _drive(self, member: ConsumerMember, request: HeartbeatRequest) -> None:
        is_new = self.roster.get(member.member_id) is not member
        if is_new:
            self.roster.add(member)
            self.mark(member)
        if self._update(member, request) or is_new:
            self.bump()
        self.advance(member, request.owned)

    def _answer(self, member: ConsumerMember, request: HeartbeatRequest, reply: Reply) -> None:
        assigned = member.position.assigned
        is_news = request.is_full or member.last_sent != assigned
        answer = HeartbeatReply(
            member_id=member.member_id,
            epoch=member.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(),
            assignment=assigned if is_news else None,
        )
        if not is_news and self._unstored.is_empty:
            reply(answer)
            return

        def stored(error: DragomanError | None) -> None:
            if error is None and is_news:
                member.last_sent = assigned
            reply(answer if error is None else error)

        self._unstored.store().then(stored)

    # ---- who sent it

    def _find(self, request: HeartbeatRequest) -> ConsumerMember:
        """The sender, which for a join may be new and not in the group yet."""
        if request.instance_id is not None:
            return self._find_static(request, request.instance_id)
        member = self.roster.get(request.member_id)
        if member is not None:
            if member.classic is not None:
                raise UnknownMember(f"{request.member_id!r} joined by another protocol")
            self._check_epoch(member, request)
            return member
        if request.epoch != JOIN:
            raise UnknownMember(f"no member {request.member_id!r} in group {self.group_id!r}")
        self.require_room()
        return self.new_member(request.member_id or self._new_member_id(), None)

    def _find_static(self, request: HeartbeatRequest, instance_id: str) -> ConsumerMember:
        member = self.roster.static_member(instance_id)
        if member is not None and member.member_id == request.member_id and not member.classic:
            self._check_epoch(member, request)
            return member
        if request.epoch != JOIN:
            if member is None:
                raise UnknownMember(f"no instance {instance_id!r} in group {self.group_id!r}")
            raise FencedInstance(f"instance {instance_id!r} is another member now")
        if self.roster.get(request.member_id) is not None:
            raise FencedInstance(f"member {request.member_id!r} has another instance id")
        new_id = request.member_id or self._new_member_id()
        if member is None:
            self.require_room()
            return self.new_member(new_id, instance_id)
        # Static members of the first protocol never leave when they restart.
        if not member.is_away and member.classic is None:
            raise UnreleasedInstance(f"member {member.member_id!r} uses instance {instance_id!r}")
        return self.replace(member, new_id)

    def _check_epoch(self, member: ConsumerMember, request: HeartbeatRequest) -> None:
        if request.epoch == member.epoch:
            return
        if request.epoch == JOIN:
            # The member has given up all partitions, as a client does after it was fenced.
            self.roster.move(member, Position(JOIN, MemberState.STABLE, NOTHING, NOTHING))
            self.mark(member)
            return
        if not member.has_missed_reply(request):
            raise FencedMemberEpoch(
                f"member {member.member_id!r} is in epoch {member.epoch}, not {request.epoch}"
            )

    def require_room(self) -> None:
        size_max = min(self.ports.settings.group_consumer_max_size, limits.GROUP_MEMBERS_MAX)
        if len(self.roster) >= size_max:
            raise GroupMaxSizeReached(f"group {self.group_id!r} has its {size_max} members")
        if self.roster.byte_count > limits.GROUP_MEMBERS_BYTES_MAX:
            raise GroupRequestTooLarge(f"members of {self.group_id!r} take too much memory")

    def new_member(self, member_id: MemberId, instance_id: str | None) -> ConsumerMember:
        scheduler = self.ports.scheduler
        ended = partial(self.expire, member_id)
        session = DeadlineTimer(scheduler, ended)
        timeout = self._session_timeout_s()
        return ConsumerMember(member_id, instance_id, session, PhaseTimer(scheduler), timeout)

    def _session_timeout_s(self) -> float:
        own = self.ports.own_config(self.group_id).get(SESSION_TIMEOUT)
        for_all = self.ports.settings.group_consumer_session_timeout_ms
        return (for_all if own is None else int(own)) / 1000

    def _heartbeat_interval_ms(self) -> int:
        own = self.ports.own_config(self.group_id).get(HEARTBEAT_INTERVAL)
        for_all = self.ports.settings.group_consumer_heartbeat_interval_ms
        return for_all if own is None else int(own)

    def _new_member_id(self) -> MemberId:
        raw = self.ports.random.getrandbits(128).to_bytes(16, "big")
        return MemberId(base64.urlsafe_b64encode(raw).decode().rstrip("="))

    def replace(self, old: ConsumerMember, new_id: MemberId) -> ConsumerMember:
        """The instance comes back under a new member id; the old one is fenced."""
        new = self.new_member(new_id, old.instance_id)
        new.take_over(old)
        self._forget(old)
        self.roster.add(new)
        self.mark(new)
        self._unstored.mark(ConsumerTargetKey(self.group_id, new.member_id))
        return new

    def _update(self, member: ConsumerMember, request: HeartbeatRequest) -> bool:
        """Apply the member's own data. Returns whether the target assignment has to change."""
        is_changed = member.update(request)
        # The rest is written when something else changes or the member joins.
        if is_changed or request.epoch == JOIN:
            self.mark(member)
            self.roster.resize(member)
        return is_changed

    # ---- reconciliation

    def mark(self, member: ConsumerMember) -> None:
        self._unstored.mark(ConsumerMemberKey(self.group_id, member.member_id))

    def bump(self) -> None:
        self.epoch += 1
        if log.isEnabledFor(logging.DEBUG):
            fields = {"group": self.group_id, "epoch": self.epoch}
            log.debug("group has a new epoch", extra=fields)
        self._unstored.mark(GroupKey(self.group_id))

    def advance(self, member: ConsumerMember, owned: Partitions | None) -> None:
        """Bring the target up to date and let this member take its next step."""
        self._notice_topics()
        if self.epoch > self.assignment_epoch:
            self._assign()
        position = reconcile(
            member.position,
            owned,
            Target(self.assignment_epoch, member.target),
            partial(self._is_free_for, member.member_id),
        )
        if position == member.position:
            return
        self.roster.move(member, position)
        self.mark(member)
        if member.classic is not None:
            return
        if position.state is MemberState.UNREVOKED:
            expire = partial(self.expire, member.member_id)
            member.phase.begin(member.rebalance_timeout_ms / 1000, expire)
        else:
            member.phase.end()

    def _is_free_for(self, member_id: MemberId, partition: PartitionOf) -> bool:
        return self.roster.holder(partition) in (None, member_id)

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether other members own every partition that the target still owes this member."""
        missing = member.target - member.position.assigned
        return not any(self._is_free_for(member.member_id, each) for each in missing)

    def notice_topics(self) -> None:
        """A heartbeat checks the topics, which may have changed since the last epoch."""
        self._notice_topics()
        self._unstored.write()

    def _notice_topics(self) -> None:
        is_changed = self._targets.have_topics_changed(self.roster)
        if is_changed and self.epoch == self.assignment_epoch:
            self.bump()

    def _assign(self) -> None:
        for member in self._targets.assign(self.roster):
            self._unstored.mark(ConsumerTargetKey(self.group_id, member.member_id))
        self.assignment_epoch = self.epoch
        self._unstored.mark(GroupKey(self.group_id))

    # ---- members go

    def _leave(self, request: HeartbeatRequest, reply: Reply) -> None:
        member = self.require_member(request.member_id, request.instance_id)
        if member.classic is not None:
            raise UnknownMember(f"{request.member_id!r} joined by another protocol")
        answer = HeartbeatReply(
            member_id=member.member_id,
            epoch=request.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(),
        )

        def stored(error: DragomanError | None) -> None:
            reply(answer if error is None else error)

        if request.epoch == LEAVE_FOR_NOW:
            away = Position(LEAVE_FOR_NOW, MemberState.STABLE, member.position.assigned, NOTHING)
            self.roster.move(member, away)
            self.mark(member)
            member.phase.end()
            self._unstored.store().then(stored)
        else:
            self.remove([member]).then(stored)

    def require_member(self, member_id: MemberId, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            static = self.roster.static_member(instance_id)
            if static is None:
                raise UnknownMember(f"no instance {instance_id!r} in group {self.group_id!r}")
            if static.member_id != member_id:
                raise FencedInstance(f"instance {instance_id!r} is another member now")
        member = self.roster.get(member_id)
        if member is None:
            raise UnknownMember(f"no member {member_id!r} in group {self.group_id!r}")
        return member

    def expire(self, member_id: MemberId) -> None:
        """A member has timed out."""
        member = self.roster.get(member_id)
        assert member is not None, "a member that goes takes its timers along"
        self.remove([member]).then(ignore)

    def remove(self, members: Sequence[ConsumerMember]) -> Outcome[None]:
        """Settled when the departure is durable. The group may be of another kind afterwards."""
        for member in members:
            self._forget(member)
        self.bump()
        if not self.roster:
            self.since_ms = self.ports.clock.wall_ms()
        if self.should_be_classic:
            return self.become_classic()
        return self._unstored.store()

    def _forget(self, member: ConsumerMember) -> None:
        member.stop()
        self.roster.remove(member)
        self.mark(member)
        self._unstored.mark(ConsumerTargetKey(self.group_id, member.member_id))

    # ---- members that use Kafka's first protocol

    @property
    def should_be_classic(self) -> bool:
        settings = self.ports.settings
        return (
            self.has_members
            and self.roster.is_all_classic
            and settings.group_consumer_migration_policy in ("downgrade", "bidirectional")
            and self.ports.dialect is not None
            and len(self.roster) <= settings.group_max_size
        )

    def become_classic(self) -> Outcome[None]:
        """Only members of the first protocol are left: the group continues in it."""
        value = to_classic(self)
        group_key = GroupKey(self.group_id)
        self.mark_all()
        records = self.left_overs()
        self.stop(CoordinatorNotAvailable(f"group {self.group_id!r} changed its protocol"))
        self.ports.became_classic(self.group_id, value)
        # If these are lost, a restart finds the group as it was, and comes here again.
        records.append(record(group_key, value))
        return acknowledged(partial(self.ports.persist, self.group_id, records))

    # ---- offsets

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
        # Transactional producers older than KIP-447 name no member; their own epoch fences them.
        if is_transactional and generation < 0 and not member_id and instance_id is None:
            return
        member = self.require_member(member_id, instance_id)
        if member.classic is not None:
            member.touch()
        if generation == member.epoch:
            return
        text = f"member {member_id!r} is in epoch {member.epoch}, not {generation}"
        if is_transactional or member.classic is not None:
            raise IllegalGeneration(text)
        raise StaleMemberEpoch(text)

    def check_fetch(self, member_id: MemberId, epoch: int) -> None:
        """Raises unless this member may read committed offsets under this epoch."""
        member = self.require_member(member_id, None)
        if epoch != member.epoch:
            raise StaleMemberEpoch(f"member {member_id!r} is in epoch {member.epoch}, not {epoch}")

    def needs_epochs(self, member_id: MemberId) -> bool:
        """Must this member use requests that can name its epoch?"""
        member = self.roster.get(member_id)
        return member is not None and member.classic is None

    # ---- records, life and death

    def store(self) -> Outcome[None]:
        return self._unstored.store()

    def mark_all(self) -> None:
        """Write everything, as for a group that was of another kind before."""
        self._unstored.mark(GroupKey(self.group_id))
        for member in self.roster:
            self.mark(member)
            self._unstored.mark(ConsumerTargetKey(self.group_id, member.member_id))

    def left_overs(self) -> list[StateRecord]:
        """Pending removals of members, for the deletion of the group."""
        keys = [key for key in self._unstored.changed if not isinstance(key, GroupKey)]
        return [record(key, None) for key in keys]

    def _record(self, key: Key) -> StateRecord:
        match key:
            case ConsumerMemberKey():
                member = self.roster.get(key.member_id)
                return record(key, None if member is None else member.stored(self.origin))
            case ConsumerTargetKey():
                member = self.roster.get(key.member_id)
                if member is None:
                    return record(key, None)
                return record(
                    key, StoredTarget(origin=self.origin, partitions=by_topic(member.target))
                )
            case _:
                return record(key, self._value())

    def _value(self) -> ConsumerGroupValue:
        return ConsumerGroupValue(
            owner=self.owner,
            origin=self.origin,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            fingerprint=self._targets.fingerprint,
            since_ms=self.since_ms,
        )

    @classmethod
    def restore(
        cls, group_id: GroupId, value: ConsumerGroupValue, ports: GroupPorts
    ) -> ConsumerGroup:
        """Restore a group from its last record; its members follow by `restore_members`."""
        group = cls(group_id, value.owner, ports, value.epoch)
        group.origin = value.origin
        group.assignment_epoch = value.assignment_epoch
        group.since_ms = value.since_ms
        group._targets.fingerprint = value.fingerprint
        return group

    def restore_members(
        self,
        members: Mapping[MemberId, StoredConsumerMember],
        targets: Mapping[MemberId, StoredTarget],
    ) -> None:
        """`members` in the order in which their last records were written."""
        for member_id, stored in members.items():
            if stored.origin != self.origin:
                continue
            member = self.new_member(member_id, stored.instance_id)
            member.restore(stored)
            if stored.classic is not None:
                member.session_timeout = stored.classic.session_timeout_ms / 1000
            target = targets.get(member_id)
            if target is not None and target.origin == self.origin:
                member.target = flattened(target.partitions)
            self.roster.add_restored(member)

    def resume(self) -> None:
        """Every member gets a full session time-out, and a full rebalance time-out."""
        for member in self.roster:
            member.touch()
            if member.state is MemberState.UNREVOKED and member.classic is None:
                expire = partial(self.expire, member.member_id)
                member.phase.begin(member.rebalance_timeout_ms / 1000, expire)

    def stop(self, error: BrokerError) -> None:
        """The group is removed, moved or converted: fail the waiting requests."""
        self._is_dead = True
        for member in list(self.roster):
            member.stop()
            self.roster.remove(member)
        self._unstored.abandon(error)
