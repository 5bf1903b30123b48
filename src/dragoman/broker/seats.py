"""A member's seat in a group that the broker assigns, wherever the group is coordinated.

For protocols whose clients stay connected to one node and know nothing of coordinators. The seat
joins at the coordinator, here or on another node, and when that changes it joins again by itself:
the client only hears of an assignment that is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from dragoman.broker.coordination import Coordination
from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownMember,
)
from dragoman.broker.groups.direct import DirectGroup, DirectMember, DirectRules, by_turns
from dragoman.broker.kinds import Kind
from dragoman.broker.neighbours import (
    Answer,
    Assigned,
    HeartbeatMember,
    JoinMember,
    LeaveMember,
    Neighbours,
    WatchMember,
)
from dragoman.errors import ClusterError, DragomanError
from dragoman.limits import SEAT_RETRY_S
from dragoman.log.store import LogStore
from dragoman.types import GroupId, MemberId, TopicName
from dragoman.world import Handle, Scheduler

#: Reasons to ask again: the group will be coordinated, or be reached, by and by.
_PASSING = (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator, ClusterError)
#: Told the first assignment, or why there is none.
Seated: TypeAlias = Callable[[tuple[int, ...] | DragomanError], None]


class SeatRequest(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    owner: str
    topic: TopicName
    client_host: str
    #: How long the client may be silent; 0 means for ever.
    session_timeout_s: float


class Occupant(Protocol):
    """Whoever sits there. Told nothing any more once it has left."""

    def assigned(self, partitions: tuple[int, ...]) -> None:
        """The assignment is another one than before."""
        ...

    def evicted(self) -> None:
        """It was silent for too long, and is out."""
        ...

    def turned_away(self, error: DragomanError) -> None:
        """The group has moved and cannot be joined where it is now."""
        ...


class SeatNode(Protocol):
    """What a seat needs of the node that it is on."""

    @property
    def node_id(self) -> int: ...

    @property
    def is_stopping(self) -> bool: ...

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def store(self) -> LogStore: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def neighbours(self) -> Neighbours: ...


class Seat:
    def __init__(self, broker: SeatNode, request: SeatRequest, occupant: Occupant) -> None:
        self._broker = broker
        self._coordination = broker.coordination
        self._request = request
        self._occupant = occupant
        number = self._coordination.next_seat()
        self._name = f"{request.owner}-{number}"
        #: To others the name must be this node's own, in this one of its lives.
        incarnation = broker.store.node.incarnation
        self._name_abroad = f"{self._name}@{broker.node_id}.{incarnation}"
        #: Where the member is now: a group here, or another node.
        self._group: DirectGroup | None = None
        self._node: int | None = None
        self._seated: Seated | None = None
        self._partitions: tuple[int, ...] = ()
        self._timer: Handle | None = None
        self._has_left = False

    def join(self, seated: Seated) -> None:
        """`seated` is called when the group can be joined, or has refused; not after `leave`."""
        self._seated = seated
        self._try()

    def heartbeat(self) -> None:
        """The client has shown that it is there. Raises `UnknownMember`, though not always."""
        if self._group is not None:
            self._group.heartbeat(MemberId(self._name))
        elif self._node is not None:
            request = HeartbeatMember(group_id=self._request.group_id, member_id=self._name_abroad)
            self._broker.neighbours.ask(self._node, request, (), _unheard)

    def leave(self) -> None:
        self._has_left = True
        if self._timer is not None:
            self._timer.cancel()
        if self._group is not None:
            try:
                self._group.leave(MemberId(self._name))
            except UnknownMember:
                # Evicted, or the node stops.
                return
        elif self._node is not None:
            request = LeaveMember(group_id=self._request.group_id, member_id=self._name_abroad)
            self._broker.neighbours.ask(self._node, request, (), _unheard)

    # ---- joining

    def _try(self) -> None:
        if not self._has_left and not self._broker.is_stopping:
            self._coordination.find_coordinator(
                Kind.GROUP, self._request.group_id, self._coordinator_found
            )

    def _coordinator_found(self, node: int | DragomanError) -> None:
        if self._has_left:
            return
        if isinstance(node, DragomanError):
            self._failed(node)
        elif node == self._broker.node_id:
            self._join_here()
        else:
            self._join_there(node)

    def _join_here(self) -> None:
        wanted = self._request
        rules = DirectRules(
            by_turns,
            wanted.session_timeout_s,
            wanted.session_timeout_s / 3,
            self._coordination.partition_count,
        )
        member = DirectMember(
            MemberId(self._name),
            wanted.topic,
            client_host=wanted.client_host,
            on_assigned=self._assigned,
            on_evicted=self._evicted,
            on_moved=self._lost,
        )
        try:
            group = self._coordination.direct_group(wanted.group_id, wanted.owner, rules)
            partitions = group.join(member)
        except DragomanError as error:
            self._failed(error)
            return
        self._group = group
        self._joined(partitions)

    def _join_there(self, node: int) -> None:
        wanted = self._request
        request = JoinMember(
            group_id=wanted.group_id,
            owner=wanted.owner,
            member_id=self._name_abroad,
            topic=wanted.topic,
            client_host=wanted.client_host,
            session_timeout_s=wanted.session_timeout_s,
        )

        def answered(answer: Answer | DragomanError) -> None:
            if not isinstance(answer, DragomanError):
                assert isinstance(answer.reply, Assigned)
                self._node = node
                if self._has_left:
                    self.leave()
                    return
                self._joined(answer.reply.partitions)
                self._watch(answer.reply.number)
            elif not self._has_left:
                self._failed(answer)

        self._broker.neighbours.ask(node, request, (), answered)

    def _watch(self, number: int) -> None:
        """Be told of the assignment after this one."""
        node = self._node
        if self._has_left or node is None:
            return

        def answered(answer: Answer | DragomanError) -> None:
            if self._has_left or self._node != node:
                return
            if isinstance(answer, DragomanError):
                # It may be there and have forgotten us; then joining makes it remember.
                self._lost()
                return
            told = answer.reply
            assert isinstance(told, Assigned)
            if told.is_evicted:
                self._node = None
                self._evicted()
            else:
                self._assigned(told.partitions)
                self._watch(told.number)

        request = WatchMember(
            group_id=self._request.group_id, member_id=self._name_abroad, number=number
        )
        self._broker.neighbours.ask(node, request, (), answered)

    def _joined(self, partitions: tuple[int, ...]) -> None:
        seated, self._seated = self._seated, None
        if seated is None:
            self._assigned(partitions)
        else:
            self._partitions = partitions
            seated(partitions)

    def _failed(self, error: DragomanError) -> None:
        if isinstance(error, _PASSING):
            self._timer = self._broker.scheduler.call_later(SEAT_RETRY_S, self._try)
        elif self._seated is not None:
            self._has_left = True
            self._seated(error)
        else:
            self._has_left = True
            self._occupant.turned_away(error)

    # ---- what happens to a member

    def _assigned(self, partitions: tuple[int, ...]) -> None:
        if partitions != self._partitions and not self._has_left:
            self._partitions = partitions
            self._occupant.assigned(partitions)

    def _evicted(self) -> None:
        self._has_left = True
        self._occupant.evicted()

    def _lost(self) -> None:
        """The group is coordinated elsewhere, or its coordinator cannot be reached."""
        self._group = self._node = None
        if not self._has_left:
            self._timer = self._broker.scheduler.call_later(SEAT_RETRY_S, self._try)


def _unheard(_answer: Answer | DragomanError) -> None:
    """The watch tells what there is to know."""
