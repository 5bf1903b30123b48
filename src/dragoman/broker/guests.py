"""Members of this node's groups whose clients are connected to other nodes.

Such a member joins and leaves through its node, which hears of new assignments by watching: it asks
for the one after the last that it knows, and is answered when there is one, or after a while. A
node that has stopped asking is taken for gone, and its members with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from dragoman.broker.errors import NotCoordinator, UnknownMember
from dragoman.broker.groups.direct import DirectGroup, DirectMember, DirectRules, by_turns
from dragoman.broker.neighbours import Assigned, JoinMember, WatchMember
from dragoman.errors import DragomanError
from dragoman.limits import GUEST_LEASE_S, GUEST_WATCH_S
from dragoman.types import GroupId, MemberId, TopicName
from dragoman.world import Handle

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker
    from dragoman.broker.coordination import Coordination

_Answer: TypeAlias = Callable[[Assigned | DragomanError], None]


class _Guest:
    def __init__(self, group: DirectGroup) -> None:
        self.group = group
        #: Set when it has joined.
        self.member: DirectMember | None = None
        #: Of its assignment; each is another.
        self.number = 0
        self.watch: _Answer | None = None
        self.watch_timer: Handle | None = None
        self.lease: Handle | None = None

    def assigned(self, is_evicted: bool = False) -> Assigned:
        assert self.member is not None
        return Assigned(partitions=self.member.assigned, number=self.number, is_evicted=is_evicted)

    def answer(self, answer: Assigned | DragomanError) -> None:
        """To the watch, if somebody watches."""
        watch, self.watch = self.watch, None
        if self.watch_timer is not None:
            self.watch_timer.cancel()
        if watch is not None:
            watch(answer)


class Guests:
    def __init__(self, broker: Broker, coordination: Coordination) -> None:
        self._broker = broker
        self._coordination = coordination
        self._guests: dict[tuple[str, str], _Guest] = {}

    def join(self, request: JoinMember) -> Assigned:
        """Repeated, it changes nothing. Raises what `direct_group` and joining raise."""
        key = (request.group_id, request.member_id)
        guest = self._guests.get(key)
        if guest is None:
            guest = self._seat(key, request)
        self._renew(key, guest)
        return guest.assigned()

    def _seat(self, key: tuple[str, str], request: JoinMember) -> _Guest:
        rules = DirectRules(
            by_turns,
            request.session_timeout_s,
            request.session_timeout_s / 3,
            self._coordination.partition_count,
        )
        group_id = GroupId(request.group_id)
        guest = _Guest(self._coordination.direct_group(group_id, request.owner, rules))

        def assigned(_partitions: tuple[int, ...]) -> None:
            guest.number += 1
            guest.answer(guest.assigned())

        def evicted() -> None:
            self._see_off(key, guest.assigned(is_evicted=True))

        def moved() -> None:
            self._see_off(key, NotCoordinator(f"group {group_id!r} has moved"))

        guest.member = DirectMember(
            MemberId(request.member_id),
            TopicName(request.topic),
            client_host=request.client_host,
            on_assigned=assigned,
            on_evicted=evicted,
            on_moved=moved,
        )
        guest.group.join(guest.member)
        self._guests[key] = guest
        return guest

    def watch(self, request: WatchMember, answer: _Answer) -> None:
        key = (request.group_id, request.member_id)
        guest = self._find(key)
        guest.answer(guest.assigned())
        self._renew(key, guest)
        if guest.number != request.number:
            answer(guest.assigned())
            return
        guest.watch = answer
        guest.watch_timer = self._broker.scheduler.call_later(
            GUEST_WATCH_S, lambda: guest.answer(guest.assigned())
        )

    def heartbeat(self, group_id: str, member_id: str) -> None:
        """Raises `UnknownMember`."""
        self._find((group_id, member_id)).group.heartbeat(MemberId(member_id))

    def leave(self, group_id: str, member_id: str) -> None:
        """Raises `UnknownMember`."""
        key = (group_id, member_id)
        guest = self._find(key)
        self._see_off(key, UnknownMember(f"{member_id!r} has left"))
        guest.group.leave(MemberId(member_id))

    def _find(self, key: tuple[str, str]) -> _Guest:
        guest = self._guests.get(key)
        if guest is None:
            raise UnknownMember(f"group {key[0]!r} has no member {key[1]!r}")
        return guest

    def _renew(self, key: tuple[str, str], guest: _Guest) -> None:
        if guest.lease is not None:
            guest.lease.cancel()
        guest.lease = self._broker.scheduler.call_later(GUEST_LEASE_S, lambda: self.leave(*key))

    def _see_off(self, key: tuple[str, str], answer: Assigned | DragomanError) -> None:
        guest = self._guests.pop(key)
        if guest.lease is not None:
            guest.lease.cancel()
        guest.answer(answer)
