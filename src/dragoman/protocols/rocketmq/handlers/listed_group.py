"""A RocketMQ group at its coordinator: the list of its members, and locks on queues.

Members assign queues to themselves, by the same rule and from the same list, so the broker only
keeps the list and notifies members of changes. Each node announces the members that are connected
to it (`clients.py`), and has a lease on its announcement. A queue that is consumed in order is
locked for one member at a time.
"""

from __future__ import annotations

from dragoman.broker.errors import GroupMaxSizeReached, NotCoordinator
from dragoman.broker.groups.messages import GroupDescription, MemberDescription, State
from dragoman.errors import BrokerError, DragomanError
from dragoman.limits import (
    GROUP_MEMBERS_MAX,
    ROCKETMQ_LISTING_LEASE_S,
    ROCKETMQ_LISTING_WAIT_S,
    ROCKETMQ_LOCK_S,
)
from dragoman.outcome import Outcome, succeeded
from dragoman.protocols.rocketmq.handlers.rpc import Listed, Listing
from dragoman.types import GroupId, MemberId, TopicName
from dragoman.world import Clock, Handle, Scheduler

OWNER = "rocketmq"


class _Announced:
    """The members that a node has announced, and the answer that the node is waiting for, if
    any.
    """

    def __init__(self) -> None:
        self.members: tuple[Listed, ...] = ()
        self.lease: Handle | None = None
        self.answer: Outcome[Listing] | None = None
        self.timer: Handle | None = None

    def respond(self, outcome: Listing | DragomanError) -> None:
        answer, self.answer = self.answer, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if answer is not None:
            answer.settle(outcome)


class ListedGroup:
    kind = "listed"
    owner = OWNER

    def __init__(
        self, group_id: GroupId, generation: int, scheduler: Scheduler, clock: Clock
    ) -> None:
        self.group_id = group_id
        self._scheduler = scheduler
        self._clock = clock
        self._nodes: dict[int, _Announced] = {}
        self.generation = generation
        self.since_ms = clock.wall_ms()
        #: The number of the list. It grows with each change, and differs between coordinators.
        self._number = self.since_ms << 10
        #: The holder of each lock and when it expires, by topic and queue.
        self._locks: dict[tuple[str, int], tuple[str, float]] = {}

    # ---- the list

    @property
    def members(self) -> list[Listed]:
        return [each for node in self._nodes.values() for each in node.members]

    def listing(self) -> Listing:
        return Listing(number=self._number, members=tuple(self.members))

    def announce(self, node: int, members: tuple[Listed, ...], number: int) -> Outcome[Listing]:
        """Replace the members of a node. The answer is held while the list has this number, or for
        `ROCKETMQ_LISTING_WAIT_S`.

        Raises `GroupMaxSizeReached`.
        """
        announced = self._nodes.get(node)
        others = len(self.members) - (len(announced.members) if announced is not None else 0)
        if others + len(members) > GROUP_MEMBERS_MAX:
            raise GroupMaxSizeReached(f"group {self.group_id!r} has {GROUP_MEMBERS_MAX} members")
        if announced is None:
            announced = self._nodes[node] = _Announced()
        announced.respond(self.listing())
        if announced.lease is not None:
            announced.lease.cancel()
        if members != announced.members:
            announced.members = members
            self._changed()
        if not members:
            del self._nodes[node]
            return succeeded(self.listing())
        announced.lease = self._scheduler.call_later(ROCKETMQ_LISTING_LEASE_S, self._lapsed, node)
        if number != self._number:
            return succeeded(self.listing())
        answer = announced.answer = Outcome()
        announced.timer = self._scheduler.call_later(
            ROCKETMQ_LISTING_WAIT_S, lambda: announced.respond(self.listing())
        )
        return answer

    def _lapsed(self, node: int) -> None:
        announced = self._nodes.pop(node)
        self._changed()
        announced.respond(self.listing())

    def _changed(self) -> None:
        self._number += 1
        self.generation += 1
        self.since_ms = self._clock.wall_ms()
        ids = {each.client_id for each in self.members}
        self._locks = {key: lock for key, lock in self._locks.items() if lock[0] in ids}
        for announced in list(self._nodes.values()):
            announced.respond(self.listing())

    # ---- locks

    def lock(self, client_id: str, queues: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
        """Lock queues for a client. Returns those that it now holds."""
        now = self._clock.monotonic()
        held = []
        for queue in queues:
            holder, until = self._locks.get(queue, (client_id, 0.0))
            if holder == client_id or until <= now:
                self._locks[queue] = (client_id, now + ROCKETMQ_LOCK_S)
                held.append(queue)
        return held

    def unlock(self, client_id: str, queues: tuple[tuple[str, int], ...]) -> None:
        for queue in queues:
            if queue in self._locks and self._locks[queue][0] == client_id:
                del self._locks[queue]

    # ---- for the registry of groups

    @property
    def state(self) -> State:
        return State.STABLE if self._nodes else State.EMPTY

    @property
    def protocol_type(self) -> str:
        return self.owner

    @property
    def held_bytes(self) -> int:
        return sum(
            len(member.client_id)
            + sum(
                len(each.topic) + len(each.sub_string) for each in member.data.subscription_data_set
            )
            for member in self.members
        )

    @property
    def has_members(self) -> bool:
        return bool(self._nodes)

    @property
    def member_count(self) -> int:
        return len(self._nodes)

    @property
    def is_idle(self) -> bool:
        return not self._nodes

    @property
    def is_registered(self) -> bool:
        return False

    def describe(self) -> GroupDescription:
        return GroupDescription(
            group_id=self.group_id,
            kind=self.kind,
            owner=self.owner if self._nodes else None,
            state=self.state,
            generation=self.generation,
            protocol_type=self.owner,
            protocol="",
            leader=None,
            members=tuple(
                MemberDescription(
                    member_id=MemberId(each.client_id),
                    instance_id=None,
                    client_id=each.client_id,
                    client_host=each.address,
                    metadata=b"",
                    assignment=b"",
                )
                for each in self.members
            ),
        )

    def subscriptions(self) -> frozenset[TopicName] | None:
        return frozenset(
            TopicName(subscription.topic)
            for each in self.members
            for subscription in each.data.subscription_data_set
        )

    def check_commit(
        self,
        member_id: MemberId,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool,
    ) -> None:
        """Allow every commit, because RocketMQ's commits name no member."""

    def resume(self) -> None:
        """Do nothing, because members are not stored."""

    def stop(self, error: BrokerError) -> None:  # noqa: ARG002
        nodes, self._nodes = self._nodes, {}
        self._locks.clear()
        for announced in nodes.values():
            if announced.lease is not None:
                announced.lease.cancel()
            announced.respond(NotCoordinator(f"group {self.group_id!r} has moved"))
