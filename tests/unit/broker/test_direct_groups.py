"""Goal: direct groups share partitions out at once, tell whom it concerns, and evict the silent.

Method: a broker on virtual time; members that record their callbacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from dragoman.broker.errors import ForeignGroup, IllegalGeneration, UnknownMember
from dragoman.broker.groups.direct import DirectGroup, DirectMember, DirectRules
from dragoman.broker.groups.messages import State
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.outcome import start
from dragoman.types import GroupId, MemberId, Offset, Partition, TopicName
from worlds.broker import Outcome, World

TOPIC = TopicName("t")
GROUP = GroupId("g")


def by_turns(members: Sequence[MemberId], count: int) -> Mapping[MemberId, tuple[int, ...]]:
    return {
        member: tuple(range(index, count, len(members))) for index, member in enumerate(members)
    }


class Member:
    def __init__(self, name: str, topic: TopicName = TOPIC) -> None:
        self.told: list[tuple[int, ...] | str] = []
        self.member = DirectMember(
            MemberId(name),
            topic,
            client_host="127.0.0.1",
            on_assigned=self.told.append,
            on_evicted=lambda: self.told.append("evicted"),
        )


@pytest.fixture
def group(world: World) -> DirectGroup:
    world.create("t", 4)
    world.create("u", 2)
    return claim(world)


def claim(world: World, owner: str = "minibroker") -> DirectGroup:
    coordination = world.broker.coordination
    rules = DirectRules(by_turns, 15, 5, coordination.groups.partition_count)
    return coordination.groups.direct(GROUP, owner, rules)


def test_join_rebalances_at_once_and_notifies_other_members(group: DirectGroup) -> None:
    a, b = Member("a"), Member("b")
    assert group.join(a.member) == (0, 1, 2, 3)
    assert group.join(b.member) == (1, 3)
    assert (a.told, b.told) == ([(0, 2)], [])
    group.leave(MemberId("a"))
    assert b.told == [(0, 1, 2, 3)]
    assert group.generation == 3
    with pytest.raises(UnknownMember):
        group.leave(MemberId("a"))


def test_members_of_other_topics_do_not_share(group: DirectGroup) -> None:
    a, b = Member("a"), Member("b", TopicName("u"))
    group.join(a.member)
    assert group.join(b.member) == (0, 1)
    assert a.told == []
    assert group.subscriptions() == {"t", "u"}


def test_silent_members_are_evicted(world: World, group: DirectGroup) -> None:
    a, b = Member("a"), Member("b")
    group.join(a.member)
    group.join(b.member)
    for _ in range(4):
        world.advance(5)
        group.heartbeat(MemberId("b"))
    assert a.told == [(0, 2), "evicted"]
    assert b.told == [(0, 1, 2, 3)]
    world.advance(30)
    assert b.told[-1] == "evicted"
    assert group.state is State.EMPTY


def test_a_topic_that_grows_is_shared_anew(world: World, group: DirectGroup) -> None:
    a = Member("a")
    group.join(a.member)
    outcome = Outcome()
    start(world.broker.topics.add_partitions("t", 6, None)).then(outcome)
    world.settle()
    assert outcome.error is None
    assert a.told == [(0, 1, 2, 3, 4, 5)]


def test_a_live_group_is_closed_to_other_protocols(world: World, group: DirectGroup) -> None:
    group.join(Member("a").member)
    with pytest.raises(ForeignGroup):
        claim(world, "cursus")
    assert commit(world, "cursus") == "ForeignGroup"
    group.leave(MemberId("a"))
    other = claim(world, "cursus")
    assert other is not group
    assert other.generation == group.generation, "generations go on"
    assert commit(world, "cursus") is None


def test_commit_names_a_member_of_the_current_generation_or_none(
    world: World, group: DirectGroup
) -> None:
    group.join(Member("a").member)
    assert commit(world, "minibroker") is None
    assert commit(world, "minibroker", "a", group.generation) is None
    assert commit(world, "minibroker", "a", group.generation - 1) == IllegalGeneration.__name__
    assert commit(world, "minibroker", "b", group.generation) == UnknownMember.__name__


def test_what_is_shown_of_it(group: DirectGroup, world: World) -> None:
    group.join(Member("a").member)
    described = world.broker.coordination.groups.table.describe(GROUP)
    assert (described.owner, described.state) == ("minibroker", State.STABLE)
    assert [each.member_id for each in described.members] == ["a"]


def test_a_binding_outlives_a_restart_until_another_protocol_takes_the_group(world: World) -> None:
    world.create("t", 4)
    group = claim(world, "cursus")
    group.bind(TOPIC)
    group.join(Member("a").member)
    world.settle()
    again = world.reopened(kill=True)
    restored = claim(again, "cursus")
    assert (restored.bound_to, restored.generation, restored.has_members) == (TOPIC, 1, False)
    assert claim(again).bound_to is None
    assert claim(again).generation == 1


def commit(world: World, owner: str, member: str = "", generation: int = -1) -> str | None:
    """The name of the error, if any."""
    told: list[str | None] = []
    request = CommitRequest(
        group_id=GROUP,
        owner=owner,
        member_id=MemberId(member),
        generation=generation,
        offsets=(OffsetCommit(topic=TOPIC, partition=Partition(0), offset=Offset(3)),),
    )
    world.broker.coordination.groups.commit(
        request, lambda _, error: told.append(type(error).__name__ if error else None)
    )
    world.settle()
    (answer,) = told
    return answer
