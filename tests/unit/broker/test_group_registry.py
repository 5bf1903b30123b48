"""Goal: the table of groups keeps its rules: bounds, one owner at a time, loading before service,
groups that are not needed are forgotten. Method: calls on `Groups` with virtual time; the behaviour
of members is in the scripts.
"""

from __future__ import annotations

import random

import pytest

from dragoman import limits
from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    ForeignGroup,
    GroupMaxSizeReached,
    GroupNotFound,
    GroupRequestTooLarge,
    InconsistentProtocol,
    InvalidGroupId,
    InvalidGroupRequest,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    TooManyGroups,
    UnknownMember,
)
from dragoman.broker.groups import (
    GroupDescription,
    Groups,
    GroupSettings,
    Joined,
    JoinRequest,
    LeavingMember,
    Parked,
    State,
    Synced,
    SyncRequest,
)
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, Offsets
from dragoman.broker.groups.records import GroupKey, GroupValue, OffsetKey, record
from dragoman.errors import BrokerError, DragomanError, FormatError
from worlds.group_script import FakeLog, VirtualTime


class World:
    def __init__(self, **settings: int) -> None:
        self.time = VirtualTime()
        self.log = FakeLog()
        self.groups = Groups(
            scheduler=self.time,
            clock=self.time,
            random=random.Random(1),
            persist=self.log.persist,
            settings=GroupSettings(**{"group_initial_rebalance_delay_ms": 0, **settings}),
        )
        self.answers: list[Joined | Synced | DragomanError] = []

    def join(self, group_id: str = "g", **changes: object) -> Parked[Joined] | None:
        fields: dict[str, object] = {
            "protocol_type": "consumer",
            "protocols": (("range", b"m"),),
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
        }
        request = JoinRequest(group_id=group_id, **{**fields, **changes})  # type: ignore[arg-type]
        return self.groups.join(request, self.answers.append)

    def joined(self, **changes: object) -> Joined:
        self.join(**changes)  # type: ignore[arg-type]
        self.time.advance(0)
        answer = self.answers[-1]
        assert isinstance(answer, Joined)
        return answer


class FlatGroup:
    """A membership without phases, as protocols have that assign at once: who is in is a member."""

    kind = "flat"
    protocol_type = "flat"

    def __init__(self, group_id: str, owner: str, generation: int) -> None:
        self.group_id = group_id
        self.owner = owner
        self.generation = generation
        self.since_ms = 0
        self.names: set[str] = set()
        self.ended_with: BrokerError | None = None

    @property
    def state(self) -> State:
        return State.STABLE if self.names else State.EMPTY

    @property
    def has_members(self) -> bool:
        return bool(self.names)

    @property
    def member_count(self) -> int:
        return len(self.names)

    @property
    def is_idle(self) -> bool:
        return not self.names

    def enter(self, name: str) -> None:
        self.names.add(name)
        self.generation += 1

    def describe(self) -> GroupDescription:
        return GroupDescription(
            group_id=self.group_id,
            kind=self.kind,
            owner=self.owner,
            state=self.state,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol="",
            leader=None,
            members=(),
        )

    def subscriptions(self) -> None:
        return None

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool,
    ) -> None:
        if self.names and member_id not in self.names:
            raise UnknownMember(member_id)

    def resume(self) -> None:
        raise AssertionError("flat groups are not stored")

    def stop(self, error: BrokerError) -> None:
        self.ended_with = error


def claim_flat(groups: Groups, owner: str = "cursus") -> FlatGroup:
    return groups.claim("g", owner, FlatGroup, lambda last: FlatGroup("g", owner, last))


# ---- one owner at a time


def test_membership_of_another_protocol_takes_a_free_group_and_keeps_it_while_members_live() -> (
    None
):
    world = World()
    flat = claim_flat(world.groups)
    flat.enter("c1")
    assert claim_flat(world.groups) is flat
    world.join()
    assert isinstance(world.answers[-1], ForeignGroup)
    assert world.answers[-1].owner == "cursus"
    for call in (
        lambda: world.groups.heartbeat("g", "m", 1),
        lambda: world.groups.leave("g", [LeavingMember(member_id="m")]),
        lambda: claim_flat(world.groups, "minibroker"),
    ):
        with pytest.raises(ForeignGroup):
            call()
    world.groups.sync(SyncRequest(group_id="g", member_id="m", generation=1), world.answers.append)
    assert isinstance(world.answers[-1], ForeignGroup)
    assert world.groups.describe("g").kind == "flat"
    assert [(each.owner, each.state) for each in world.groups.listings()] == [
        ("cursus", State.STABLE)
    ]


def test_group_that_is_empty_changes_hands_and_its_generations_go_on() -> None:
    world = World()
    flat = claim_flat(world.groups)
    for name in ("a", "b", "c"):
        flat.enter(name)
    flat.names.clear()
    joined = world.joined()
    assert joined.generation == 4
    assert isinstance(flat.ended_with, UnknownMember)
    with pytest.raises(ForeignGroup):
        claim_flat(world.groups)
    world.groups.leave("g", [LeavingMember(member_id=joined.member_id)])
    assert claim_flat(world.groups).generation == 5


def test_promised_member_finds_its_group_taken() -> None:
    world = World()
    world.join(requires_known_member_id=True)
    promise = world.answers[-1]
    assert isinstance(promise, MemberIdRequired)
    claim_flat(world.groups).enter("c1")
    world.join(member_id=promise.member_id)
    assert isinstance(world.answers[-1], ForeignGroup)


def test_commit_asks_the_membership_whatever_its_kind() -> None:
    world = World()
    offsets = Offsets(world.groups)
    claim_flat(world.groups).enter("c1")
    commit = OffsetCommit(topic="t", partition=0, offset=1)
    with pytest.raises(UnknownMember):
        offsets.prepare_commit(CommitRequest(group_id="g", owner="cursus", offsets=(commit,)))
    prepared = offsets.prepare_commit(
        CommitRequest(group_id="g", owner="cursus", member_id="c1", offsets=(commit,))
    )
    assert len(prepared.records) == 1


def test_group_without_name_cannot_be_claimed() -> None:
    with pytest.raises(InvalidGroupId):
        World().groups.claim("", "cursus", FlatGroup, lambda last: FlatGroup("", "cursus", last))


def test_one_owner_may_have_several_kinds_of_membership_but_not_at_once_in_a_group() -> None:
    world = World()
    joined = world.joined()
    with pytest.raises(InconsistentProtocol):
        claim_flat(world.groups, "kafka")
    world.groups.leave("g", [LeavingMember(member_id=joined.member_id)])
    flat = claim_flat(world.groups, "kafka")
    assert flat.generation == 2
    flat.enter("c1")
    world.join()
    assert isinstance(world.answers[-1], InconsistentProtocol)


# ---- bounds


def test_too_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    world = World()
    offsets = Offsets(world.groups)
    world.join("one")
    world.join("two")
    world.join("three")
    assert isinstance(world.answers[-1], TooManyGroups)
    with pytest.raises(TooManyGroups):
        offsets.prepare_commit(CommitRequest(group_id="three", offsets=()))


@pytest.mark.parametrize(("size", "is_fine"), [(1024, True), (1025, False), (32_767, False)])
def test_length_of_a_group_id(size: int, is_fine: bool) -> None:
    world = World()
    world.join("é" * (size // 2) + "x" * (size % 2))
    assert any(isinstance(answer, InvalidGroupId) for answer in world.answers) is not is_fine


@pytest.mark.parametrize(
    "named", [{"instance_id": "i" * 1025}, {"protocol_type": "p" * 1025}], ids=["instance", "type"]
)
def test_length_of_a_members_other_names(named: dict[str, str]) -> None:
    world = World()
    world.join(**named)
    assert isinstance(world.answers[-1], InvalidGroupRequest | GroupRequestTooLarge)
    assert len(world.groups) == 0


def test_all_groups_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata of members, over many groups; what members take with them is free again."""
    monkeypatch.setattr(limits, "GROUPS_BYTES_MAX", 100_000)
    world = World()
    for at in range(20):
        world.join(f"g{at}", protocols=(("range", bytes(9000)),))
    refused = [each for each in world.answers if isinstance(each, TooManyGroups)]
    assert 8 <= len(refused) <= 12
    world.time.advance(1.5)
    held = [group.group_id for group in world.groups]
    for group_id in held:
        members = [each.member_id for each in world.groups.describe(group_id).members]
        world.groups.leave(group_id, [LeavingMember(member_id=each) for each in members])
    world.time.advance(1.5)
    world.answers.clear()
    world.join("again", protocols=(("range", bytes(9000)),))
    world.time.advance(1.5)
    assert [type(each) for each in world.answers] == [Joined]


def test_assignments_and_offset_metadata_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUPS_BYTES_MAX", 10_000)
    world = World()
    name = world.joined().member_id
    request = SyncRequest(
        group_id="g", member_id=name, generation=1, assignments=((name, bytes(10_000)),)
    )
    world.groups.sync(request, world.answers.append)
    assert isinstance(world.answers[-1], TooManyGroups)
    offsets = Offsets(world.groups)
    commit = OffsetCommit(topic="t", partition=0, offset=1, metadata="m" * 4000)
    with pytest.raises(TooManyGroups):
        offsets.prepare_commit(CommitRequest(group_id="h", offsets=(commit,) * 3))
    offsets.prepare_commit(CommitRequest(group_id="h", offsets=(commit,)))


def test_member_with_too_much_metadata() -> None:
    world = World()
    most = limits.MEMBER_BYTES_MAX - len("range")
    world.join(protocols=(("range", bytes(most + 1)),))
    assert isinstance(world.answers[-1], GroupRequestTooLarge)
    assert len(world.groups) == 0
    assert world.join(protocols=(("range", bytes(most)),)) is not None


def test_member_with_too_many_protocols() -> None:
    world = World()
    names = [f"p{i}" for i in range(limits.MEMBER_PROTOCOLS_MAX + 1)]
    world.join(protocols=tuple((name, b"") for name in names))
    assert isinstance(world.answers[-1], GroupRequestTooLarge)
    assert world.join(protocols=tuple((name, b"") for name in names[1:])) is not None


def test_members_with_too_much_metadata_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_MEMBERS_BYTES_MAX", 1000)
    world = World()
    first = world.joined(protocols=(("range", bytes(600)),))
    world.join(protocols=(("range", bytes(600)),))
    assert isinstance(world.answers[-1], GroupRequestTooLarge)
    again = world.joined(member_id=first.member_id, protocols=(("range", bytes(900)),))
    assert again.generation == 2


def test_too_many_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_PENDING_MEMBERS_MAX", 3)
    world = World()
    for _ in range(4):
        world.join(requires_known_member_id=True)
    kinds = [type(answer) for answer in world.answers]
    assert kinds == [MemberIdRequired] * 3 + [GroupMaxSizeReached]


def test_too_much_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_ASSIGNMENT_BYTES_MAX", 10)
    world = World()
    joined = world.joined()
    name = joined.member_id
    for size in (11, 10):
        world.groups.sync(
            SyncRequest(
                group_id="g", member_id=name, generation=1, assignments=((name, bytes(size)),)
            ),
            world.answers.append,
        )
    assert isinstance(world.answers[-2], GroupRequestTooLarge)
    assert isinstance(world.answers[-1], Synced)


def test_too_many_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_LEAVE_MEMBERS_MAX", 2)
    leaving = [LeavingMember(member_id="m")] * 3
    with pytest.raises(GroupRequestTooLarge):
        World().groups.leave("g", leaving)


def test_group_size_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 1)
    world = World()
    world.join()
    world.join()
    assert isinstance(world.answers[-1], GroupMaxSizeReached)


def test_v0_clients_have_one_timeout_for_both() -> None:
    """A negative rebalance time-out stands for the session time-out."""
    world = World()
    first = world.joined(rebalance_timeout_ms=-1, session_timeout_ms=20_000)
    world.join(rebalance_timeout_ms=-1, session_timeout_ms=20_000)
    world.time.advance(10)
    with pytest.raises(RebalanceInProgress):
        world.groups.heartbeat("g", first.member_id, 1)
    world.time.advance(9.9)
    assert world.groups.describe("g").generation == 1
    world.time.advance(0.1)
    assert world.groups.describe("g").generation == 2


# ---- what is forgotten, and when


def test_refused_join_leaves_no_group_behind() -> None:
    world = World()
    world.join(protocols=())
    world.join(member_id="unknown")
    assert len(world.groups) == 0
    assert world.time.pending == 0


def test_group_without_a_generation_is_removed_with_its_last_pending_member() -> None:
    world = World()
    world.join(requires_known_member_id=True)
    promise = world.answers[-1]
    assert isinstance(promise, MemberIdRequired)
    assert len(world.groups) == 1
    results = world.groups.leave("g", [LeavingMember(member_id=promise.member_id)])
    assert results == [None]
    assert len(world.groups) == 0


def test_unknown_group_is_not_described() -> None:
    with pytest.raises(GroupNotFound):
        World().groups.describe("g")


def test_group_of_offsets_only_is_described_as_empty() -> None:
    world = World()
    commit = OffsetCommit(topic="t", partition=0, offset=1)
    offsets = Offsets(world.groups)
    world.groups.apply(
        offsets.prepare_commit(CommitRequest(group_id="g", offsets=(commit,))).records
    )
    description = world.groups.describe("g")
    assert (description.state, description.owner, description.members) == (State.EMPTY, None, ())
    assert world.groups.listings()[0].protocol_type == ""


def test_close_answers_everybody_and_leaves_no_timer() -> None:
    world = World()
    world.joined()
    world.join()
    world.join("other")
    world.join("third", requires_known_member_id=True)
    world.groups.close()
    assert [type(answer) for answer in world.answers[-2:]] == [CoordinatorNotAvailable] * 2
    assert world.time.pending == 0
    assert len(world.groups) == 0


def test_unloading_answers_with_the_reason_and_writes_nothing() -> None:
    world = World()
    world.joined()
    world.join()
    written = len(world.log.durable)
    world.groups.unload("g", NotCoordinator("moved"))
    world.groups.unload("g", NotCoordinator("moved"))
    assert isinstance(world.answers[-1], NotCoordinator)
    assert len(world.log.durable) == written


# ---- loading


def value(*, kind: str = "classic", generation: int = 3) -> GroupValue:
    return GroupValue(
        kind=kind,
        owner="kafka",
        generation=generation,
        protocol_type="consumer",
        protocol="",
        leader=None,
        since_ms=0,
        members=(),
    )


def test_last_record_counts_and_a_tombstone_removes() -> None:
    groups = World().groups
    key = GroupKey("g")
    groups.apply([record(key, value(generation=3)), record(key, value(generation=5))])
    assert groups.describe("g").generation == 5
    groups.apply([record(key, None)])
    assert len(groups) == 0
    groups.apply([record(key, None), record(OffsetKey("g", "t", 0), None)])
    assert len(groups) == 0


def test_group_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(FormatError, match="'consumer'"):
        World().groups.apply([record(GroupKey("g"), value(kind="consumer"))])


def test_members_cannot_be_loaded_over_a_group_in_service() -> None:
    world = World()
    world.joined()
    with pytest.raises(AssertionError):
        world.groups.apply([record(GroupKey("g"), value())])


def test_sessions_stand_still_until_resumed() -> None:
    world = World()
    joined = world.joined()
    world.groups.sync(
        SyncRequest(group_id="g", member_id=joined.member_id, generation=1), world.answers.append
    )
    again = World()
    for each in world.log.durable:
        again.groups.load(each.key, each.value)
    again.time.advance(1000)
    assert again.groups.describe("g").state is State.STABLE
    again.groups.resume()
    again.time.advance(9)
    again.groups.heartbeat("g", joined.member_id, 1)
    again.groups.resume()
    again.time.advance(10)
    assert again.groups.describe("g").state is State.EMPTY


def test_member_ids_come_from_the_given_randomness() -> None:
    ids = [World().joined(client_id="client").member_id for _ in range(2)]
    assert ids[0] == ids[1]
    assert ids[0].startswith("client-")
    static = World().joined(client_id="client", instance_id="inst").member_id
    assert static.startswith("inst-")
    assert len(static) == len("inst-") + 36
