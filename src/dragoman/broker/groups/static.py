"""Static members that come back while their group is stable (KIP-345): no rebalance for them.

A member that restarts has forgotten its member id and joins with its instance id alone. It gets a
new member id, which takes over place, lead and assignment of the old one; the old id is fenced. The
group does not notice, but its record must: a restart of the broker would otherwise know the old id
only, and fence the living member. So the record comes first. One is written at a time, because each
holds all member ids and must know what the one before it settled; members that come meanwhile share
the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from dragoman.broker.errors import FencedInstance
from dragoman.broker.groups.messages import Joined, JoinRequest, State
from dragoman.broker.groups.parked import Parked
from dragoman.broker.groups.rebalance import Rebalance
from dragoman.broker.groups.roster import Member
from dragoman.errors import BrokerError, DragomanError


class Rejoin(msgspec.Struct, frozen=True):
    old: Member
    new: Member
    request: JoinRequest
    parked: Parked[Joined]


class StaticRejoins:
    def __init__(
        self, rebalance: Rebalance, join_anew: Callable[[JoinRequest, Parked[Joined]], None]
    ) -> None:
        self._rebalance = rebalance
        #: For members whose group moved on while their record was written.
        self._join_anew = join_anew
        #: By instance id, so that they cannot become more than there are members.
        self._waiting: dict[str, Rejoin] = {}
        self._is_storing = False

    def may_keep_generation(self, old: Member, new: Member) -> bool:
        """The metadata may differ (a client that restarts owns nothing), the choice must not."""
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
                self._join_anew(rejoin.request, rejoin.parked)
        for rejoin in self._take_waiting():
            self._join_anew(rejoin.request, rejoin.parked)
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
            # An older client would assign again if it found itself the leader, so it is told its
            # former id and follows (KIP-814).
            joined = msgspec.structs.replace(joined, leader=rejoin.old.member_id, members=())
        group.outbox.add(rejoin.parked, joined)


def take_over(group: Rebalance, old: Member, new: Member) -> None:
    group.release(old, fenced(old))
    old.session.stop()
    group.roster.replace(old, new)


def fenced(old: Member) -> FencedInstance:
    return FencedInstance(f"instance {old.instance_id!r} has joined anew")
