"""Members of groups whose clients are connected to other nodes than the group's coordinator.

For protocols whose clients stay connected to one node and know nothing of coordinators. A
`GroupMember` is such a client's membership, on the client's node. It joins at the coordinator, on
this node or on another, and joins again by itself when the coordinator changes: the client is only
notified of an assignment that differs from the previous one.

The coordinator keeps the members of other nodes in `RemoteMembers`. A member's node joins and
leaves on its behalf, and watches for new assignments: it requests the assignment after the last one
that it knows, and is answered when there is one, or after a while. The members of a node that has
stopped watching are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from dragoman.broker.caller_rights import authorize, caller_of
from dragoman.broker.context import NodeContext
from dragoman.broker.directory import Directory
from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownMember,
)
from dragoman.broker.groups.coordinator import GroupCoordinator
from dragoman.broker.groups.direct import DirectGroup, DirectMember, DirectRules, by_turns
from dragoman.broker.groups.records import OFFSETS_TOPIC
from dragoman.errors import ClusterError, DragomanError
from dragoman.limits import MEMBER_JOIN_RETRY_S, REMOTE_MEMBER_LEASE_S, REMOTE_MEMBER_WATCH_S
from dragoman.outcome import Outcome, ignore, start
from dragoman.rpc import Answer, Call, Coordinator, Done, Node, Registry, Request, Rpc
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import GroupId, MemberId, TopicName
from dragoman.world import Handle

#: Errors after which a join is retried: the group will soon have a reachable coordinator.
_TRANSIENT = (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator, ClusterError)
#: Receives the first assignment, or an error.
FirstAssigned: TypeAlias = Callable[[tuple[int, ...] | DragomanError], None]


class Assigned(Answer, frozen=True, kw_only=True, tag="Assigned"):
    partitions: tuple[int, ...] = ()
    #: Number of the assignment, unique within the member.
    number: int = 0
    #: The member was removed for its silence.
    is_evicted: bool = False


class JoinMember(Request[Assigned], frozen=True, kw_only=True, tag="JoinMember"):
    """A client of the calling node joins a group whose partitions are assigned round-robin.
    Idempotent.
    """

    group_id: str
    owner: str
    member_id: str
    topic: str
    client_host: str = ""
    session_timeout_s: float = 0.0
    #: None only from nodes below `SECURITY_LEVEL`; see `caller_rights`.
    caller: Caller | None = None


class WatchMember(Request[Assigned], frozen=True, kw_only=True, tag="WatchMember"):
    """Answered when the assignment has a new number, or after a while."""

    group_id: str
    member_id: str
    number: int


class HeartbeatMember(Request[Done], frozen=True, kw_only=True, tag="HeartbeatMember"):
    group_id: str
    member_id: str


class LeaveMember(Request[Done], frozen=True, kw_only=True, tag="LeaveMember"):
    group_id: str
    member_id: str


# ---- at the coordinator


class _RemoteMember:
    def __init__(self, group: DirectGroup) -> None:
        self.group = group
        #: Set when the member has joined.
        self.member: DirectMember | None = None
        #: Number of its assignment.
        self.number = 0
        self.watch: Outcome[Assigned] | None = None
        self.watch_timer: Handle | None = None
        self.lease: Handle | None = None

    def assigned(self, is_evicted: bool = False) -> Assigned:
        assert self.member is not None
        return Assigned(partitions=self.member.assigned, number=self.number, is_evicted=is_evicted)

    def answer(self, answer: Assigned | DragomanError) -> None:
        """Answer the watch, if one is parked."""
        watch, self.watch = self.watch, None
        if self.watch_timer is not None:
            self.watch_timer.cancel()
        if watch is not None:
            watch.settle(answer)


class RemoteMembers:
    """Members of this node's groups whose clients are connected to other nodes."""

    def __init__(self, context: NodeContext, groups: GroupCoordinator) -> None:
        self._context = context
        self._scheduler = context.scheduler
        self._groups = groups
        self._members: dict[tuple[str, str], _RemoteMember] = {}

    def serve(self, registry: Registry) -> None:
        registry.serve(JoinMember, self._join)
        registry.serve(WatchMember, self._watch)
        registry.serve(HeartbeatMember, self._heartbeat)
        registry.serve(LeaveMember, self._leave)

    async def _join(self, call: Call[JoinMember]) -> Assigned:
        """Raises what `GroupCoordinator.direct` and joining raise."""
        request = call.request
        caller = caller_of(self._context.image, request.caller)
        authorize(
            self._context.authorizer, caller, Operation.READ, Resource.GROUP, request.group_id
        )
        key = (request.group_id, request.member_id)
        remote = self._members.get(key)
        if remote is None:
            remote = self._add(key, request)
        self._renew(key, remote)
        return remote.assigned()

    def _add(self, key: tuple[str, str], request: JoinMember) -> _RemoteMember:
        group_id = GroupId(request.group_id)
        rules = _rules(self._groups, request.session_timeout_s)
        remote = _RemoteMember(self._groups.direct(group_id, request.owner, rules))

        def assigned(_partitions: tuple[int, ...]) -> None:
            remote.number += 1
            remote.answer(remote.assigned())

        def evicted() -> None:
            self._remove(key, remote.assigned(is_evicted=True))

        def moved() -> None:
            self._remove(key, NotCoordinator(f"group {group_id!r} has moved"))

        remote.member = DirectMember(
            MemberId(request.member_id),
            TopicName(request.topic),
            client_host=request.client_host,
            on_assigned=assigned,
            on_evicted=evicted,
            on_moved=moved,
        )
        remote.group.join(remote.member)
        self._members[key] = remote
        return remote

    async def _watch(self, call: Call[WatchMember]) -> Assigned:
        request = call.request
        key = (request.group_id, request.member_id)
        remote = self._find(key)
        remote.answer(remote.assigned())
        self._renew(key, remote)
        if remote.number != request.number:
            return remote.assigned()
        watch: Outcome[Assigned] = Outcome()
        remote.watch = watch
        remote.watch_timer = self._scheduler.call_later(
            REMOTE_MEMBER_WATCH_S, lambda: remote.answer(remote.assigned())
        )
        return await watch

    async def _heartbeat(self, call: Call[HeartbeatMember]) -> Done:
        """Raises `UnknownMember`."""
        member_id = call.request.member_id
        self._find((call.request.group_id, member_id)).group.heartbeat(MemberId(member_id))
        return Done()

    async def _leave(self, call: Call[LeaveMember]) -> Done:
        """Raises `UnknownMember`."""
        self._end_membership((call.request.group_id, call.request.member_id))
        return Done()

    def _end_membership(self, key: tuple[str, str]) -> None:
        remote = self._find(key)
        member_id = key[1]
        self._remove(key, UnknownMember(f"{member_id!r} has left"))
        remote.group.leave(MemberId(member_id))

    def _find(self, key: tuple[str, str]) -> _RemoteMember:
        remote = self._members.get(key)
        if remote is None:
            raise UnknownMember(f"group {key[0]!r} has no member {key[1]!r}")
        return remote

    def _renew(self, key: tuple[str, str], remote: _RemoteMember) -> None:
        if remote.lease is not None:
            remote.lease.cancel()
        remote.lease = self._scheduler.call_later(
            REMOTE_MEMBER_LEASE_S, lambda: self._end_membership(key)
        )

    def _remove(self, key: tuple[str, str], answer: Assigned | DragomanError) -> None:
        remote = self._members.pop(key)
        if remote.lease is not None:
            remote.lease.cancel()
        remote.answer(answer)


def _rules(groups: GroupCoordinator, session_timeout_s: float) -> DirectRules:
    return DirectRules(by_turns, session_timeout_s, session_timeout_s / 3, groups.partition_count)


# ---- at the client's node


class MemberSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The group that a client joins, and its member id."""

    group_id: GroupId
    owner: str
    topic: TopicName
    client_host: str
    #: Session time-out of the client; 0 means none.
    session_timeout_s: float
    caller: Caller


class MemberListener(Protocol):
    """Events of a membership. Not called after the member has left."""

    def assigned(self, partitions: tuple[int, ...]) -> None:
        """The assignment differs from the previous one."""
        ...

    def evicted(self) -> None:
        """The member was removed for its silence."""
        ...

    def turned_away(self, error: DragomanError) -> None:
        """The group has moved and cannot be joined at its new coordinator."""
        ...


class GroupMembers:
    """Opens memberships for the clients of this node."""

    def __init__(
        self,
        context: NodeContext,
        directory: Directory,
        rpc: Rpc,
        groups: GroupCoordinator,
        incarnation: Callable[[], int],
    ) -> None:
        """`incarnation` of this node; it rises with every start."""
        self.context = context
        self.directory = directory
        self.rpc = rpc
        self.groups = groups
        self._incarnation = incarnation
        self._opened = 0

    def open(self, spec: MemberSpec, listener: MemberListener) -> GroupMember:
        self._opened += 1
        name = f"{spec.owner}-{self._opened}"
        # Member ids must be unique to this node and this start of it.
        remote_name = f"{name}@{self.context.node_id}.{self._incarnation()}"
        return GroupMember(self, spec, listener, MemberId(name), MemberId(remote_name))


class GroupMember:
    """A client's membership in a group that the broker assigns, wherever it is coordinated."""

    def __init__(
        self,
        members: GroupMembers,
        spec: MemberSpec,
        listener: MemberListener,
        name: MemberId,
        remote_name: MemberId,
    ) -> None:
        """See `GroupMembers.open`."""
        self._context = members.context
        self._directory = members.directory
        self._rpc = members.rpc
        self._groups = members.groups
        self._spec = spec
        self._listener = listener
        self._name = name
        self._remote_name = remote_name
        #: The location of the member: in a group of this node, or on another node.
        self._group: DirectGroup | None = None
        self._node: int | None = None
        self._first_assigned: FirstAssigned | None = None
        self._partitions: tuple[int, ...] = ()
        self._timer: Handle | None = None
        self._has_left = False

    def join(self, first_assigned: FirstAssigned) -> None:
        """`first_assigned` is called when the group can be joined, or has refused, but not after
        `leave`.
        """
        self._first_assigned = first_assigned
        self._try()

    def heartbeat(self) -> None:
        """The client has shown that it is alive. Raises `UnknownMember`, though not always."""
        if self._group is not None:
            self._group.heartbeat(self._name)
        elif self._node is not None:
            self._notify(
                self._node,
                HeartbeatMember(group_id=self._spec.group_id, member_id=self._remote_name),
            )

    def leave(self) -> None:
        self._has_left = True
        if self._timer is not None:
            self._timer.cancel()
        if self._group is not None:
            try:
                self._group.leave(self._name)
            except UnknownMember:
                # Evicted, or the node stops.
                return
        elif self._node is not None:
            self._notify(
                self._node, LeaveMember(group_id=self._spec.group_id, member_id=self._remote_name)
            )

    def _notify(self, node_id: int, request: Request[Done]) -> None:
        """Send a request whose answer is ignored: the watch reports what matters."""
        self._rpc.begin(request, Node(node_id)).then(ignore)

    # ---- joining

    def _try(self) -> None:
        if not self._has_left and not self._context.is_stopping:
            start(self._join()).then(ignore)

    async def _join(self) -> None:
        try:
            node_id = await self._directory.locate(Coordinator(OFFSETS_TOPIC, self._spec.group_id))
            if self._has_left:
                return
            if node_id == self._context.node_id:
                partitions, number = self._join_here(), 0
            else:
                assigned = await self._join_at(node_id)
                partitions, number = assigned.partitions, assigned.number
        except DragomanError as error:
            if not self._has_left:
                self._failed(error)
            return
        self._joined(partitions, number)

    def _join_here(self) -> tuple[int, ...]:
        spec = self._spec
        member = DirectMember(
            self._name,
            spec.topic,
            client_host=spec.client_host,
            on_assigned=self._assigned,
            on_evicted=self._evicted,
            on_moved=self._lost,
        )
        rules = _rules(self._groups, spec.session_timeout_s)
        group = self._groups.direct(spec.group_id, spec.owner, rules)
        partitions = group.join(member)
        self._group = group
        return partitions

    async def _join_at(self, node_id: int) -> Assigned:
        spec = self._spec
        request = JoinMember(
            group_id=spec.group_id,
            owner=spec.owner,
            member_id=self._remote_name,
            topic=spec.topic,
            client_host=spec.client_host,
            session_timeout_s=spec.session_timeout_s,
            caller=spec.caller,
        )
        assigned = await self._rpc.call(request, Node(node_id))
        self._node = node_id
        return assigned

    async def _watch(self, node_id: int, number: int) -> None:
        """Watch for the assignments after this one."""
        while not self._has_left and self._node == node_id:
            request = WatchMember(
                group_id=self._spec.group_id, member_id=self._remote_name, number=number
            )
            try:
                assigned = await self._rpc.call(request, Node(node_id))
            except DragomanError:
                if not self._has_left and self._node == node_id:
                    # The coordinator may be reachable and have forgotten the member, which then
                    # joins again.
                    self._lost()
                return
            if self._has_left or self._node != node_id:
                return
            if assigned.is_evicted:
                self._node = None
                self._evicted()
                return
            self._assigned(assigned.partitions)
            number = assigned.number

    def _joined(self, partitions: tuple[int, ...], number: int) -> None:
        """`number`: of the assignment, on another node."""
        if self._has_left:
            self.leave()
            return
        first_assigned, self._first_assigned = self._first_assigned, None
        if first_assigned is None:
            self._assigned(partitions)
        else:
            self._partitions = partitions
            first_assigned(partitions)
        if self._node is not None:
            start(self._watch(self._node, number)).then(ignore)

    def _failed(self, error: DragomanError) -> None:
        if isinstance(error, _TRANSIENT):
            self._timer = self._context.scheduler.call_later(MEMBER_JOIN_RETRY_S, self._try)
        elif self._first_assigned is not None:
            self._has_left = True
            self._first_assigned(error)
        else:
            self._has_left = True
            self._listener.turned_away(error)

    # ---- events

    def _assigned(self, partitions: tuple[int, ...]) -> None:
        if partitions != self._partitions and not self._has_left:
            self._partitions = partitions
            self._listener.assigned(partitions)

    def _evicted(self) -> None:
        self._has_left = True
        self._listener.evicted()

    def _lost(self) -> None:
        """The group is coordinated on another node, or its coordinator cannot be reached."""
        self._group = self._node = None
        if not self._has_left:
            self._timer = self._context.scheduler.call_later(MEMBER_JOIN_RETRY_S, self._try)
