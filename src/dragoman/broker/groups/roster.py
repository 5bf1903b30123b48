"""The members of a group: who they are, who leads, and which protocol they agree on.

Owns the books (members in the order in which they joined, instance ids, how many members know each
protocol, how many wait for the end of a join) and keeps them consistent. Knows nothing of states,
time or replies. Everything that happens once per request costs the same in a group of two and of
ten thousand.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from dragoman.broker.groups.messages import Joined, JoinRequest, Protocols, Synced
from dragoman.broker.groups.parked import Parked
from dragoman.broker.groups.records import StoredMember
from dragoman.broker.groups.timer import DeadlineTimer
from dragoman.types import MemberId
from dragoman.world import Random


class Member:
    __slots__ = (
        "assignment",
        "byte_count",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout",
        "sync",
    )

    def __init__(
        self,
        stored: StoredMember,
        *,
        is_new: bool,
        session: DeadlineTimer,
    ) -> None:
        self.member_id = stored.member_id
        self.instance_id = stored.instance_id
        self.client_id = stored.client_id
        self.client_host = stored.client_host
        self.session_timeout = stored.session_timeout_ms / 1000
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.protocols = stored.protocols
        self.assignment = stored.assignment
        self.byte_count = _member_bytes(stored.client_id, stored.client_host, stored.protocols)
        #: It has not been part of a generation yet.
        self.is_new = is_new
        self.session = session
        self.join: Parked[Joined] | None = None
        self.sync: Parked[Synced] | None = None

    @property
    def is_parked(self) -> bool:
        return self.join is not None or self.sync is not None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def touch(self) -> None:
        """A sign of life: the session starts anew, unless it stands still while a join waits."""
        if self.join is None:
            self.session.arm(self.session_timeout)

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def stored(self, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=round(self.session_timeout * 1000),
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
        )


class Roster:
    __slots__ = ("_members", "_static", "_support", "awaiting_join", "byte_count", "get", "leader")

    def __init__(self) -> None:
        self._members: dict[MemberId, Member] = {}
        #: The dictionary's own method, which saves a call per heartbeat.
        self.get: Callable[[MemberId], Member | None] = self._members.get
        self._static: dict[str, Member] = {}
        self._support: Counter[str] = Counter()
        self.leader: MemberId | None = None
        #: Members whose join is parked.
        self.awaiting_join = 0
        self.byte_count = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def static_member(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self._static.get(instance_id)

    def is_leader(self, member: Member) -> bool:
        return self.leader == member.member_id

    # ---- membership

    def add(self, member: Member) -> None:
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member
        if self.leader is None:
            self.leader = member.member_id
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """The member must not be parked. A leader is followed by the longest-standing member."""
        assert not member.is_parked
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._count(member, -1)
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, old: Member, new: Member) -> None:
        """A new incarnation of a static member takes its place, and its lead."""
        assert old.instance_id == new.instance_id
        was_leader = self.is_leader(old)
        self.remove(old)
        self.add(new)
        if was_leader:
            self.leader = new.member_id

    def update(self, member: Member, request: JoinRequest) -> None:
        self._count(member, -1)
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.protocols = request.protocols
        member.session_timeout = request.session_timeout_ms / 1000
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)
        member.byte_count = request_bytes(request)
        self._count(member, 1)

    def _count(self, member: Member, change: int) -> None:
        self.byte_count += change * member.byte_count
        for name in {name for name, _ in member.protocols}:
            self._support[name] += change
            if not self._support[name]:
                del self._support[name]

    # ---- waiting

    def park_join(self, member: Member, parked: Parked[Joined]) -> None:
        assert member.join is None
        member.join = parked
        self.awaiting_join += 1

    def take_join(self, member: Member) -> Parked[Joined] | None:
        parked = member.join
        if parked is not None:
            member.join = None
            self.awaiting_join -= 1
        return parked

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self._members)

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, else take the first that has. False when none has."""
        current = None if self.leader is None else self._members[self.leader]
        if current is None or current.join is None:
            current = next((member for member in self if member.join is not None), None)
            if current is None:
                return False
            self.leader = current.member_id
        return True

    # ---- agreement

    @property
    def rebalance_timeout(self) -> float:
        """Seconds; the longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self), default=0) / 1000

    def supports(self, protocols: Protocols, instead_of: Member | None) -> bool:
        """Would there still be a protocol that all know, if one with these joined?"""
        if instead_of is None:
            return not self._members or any(
                self._support[name] == len(self._members) for name, _ in protocols
            )
        own = {name for name, _ in instead_of.protocols}
        others = len(self._members) - 1
        return any(self._support[name] - (name in own) == others for name, _ in protocols)

    def choose_protocol(self, instead_of: Member | None = None, by: Protocols = ()) -> str:
        """The vote: of the protocols all know, each member names its first; ties go by name.

        With `instead_of`, as if that member had the protocols `by`.
        """
        ballots = [by if member is instead_of else member.protocols for member in self]
        names = [[name for name, _ in ballot] for ballot in ballots]
        common = set(names[0]).intersection(*names[1:])
        assert common, "a join that leaves nothing in common is refused"
        if len(common) == 1:
            return next(iter(common))
        votes = Counter(_first(ballot, common) for ballot in names)
        return min(votes, key=lambda name: (-votes[name], name))


def new_member_id(request: JoinRequest, random: Random) -> MemberId:
    name = request.client_id if request.instance_id is None else request.instance_id
    return MemberId(f"{name}-{uuid.UUID(int=random.getrandbits(128), version=4)}")


def rebalance_timeout_ms(request: JoinRequest) -> int:
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def request_bytes(request: JoinRequest) -> int:
    return _member_bytes(request.client_id, request.client_host, request.protocols)


def _member_bytes(client_id: str, client_host: str, protocols: Protocols) -> int:
    """Roughly what a member takes: characters stand for bytes, which is near enough for a bound."""
    size = len(client_id) + len(client_host)
    return size + sum(len(name) + len(metadata) for name, metadata in protocols)


def _first(names: Iterable[str], wanted: set[str]) -> str:
    return next(name for name in names if name in wanted)
