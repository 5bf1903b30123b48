"""Goal: the pattern of a member matches only topics that the member may describe, whatever other
members may, as soon as rights change, and after a fail-over. Method: a table of groups on virtual
time and a catalog whose rights the test changes.
"""

from __future__ import annotations

import random

import pytest

from dragoman.broker.groups import Groups, HeartbeatReply, HeartbeatRequest
from dragoman.errors import DragomanError
from dragoman.security.access import Caller, Principal
from worlds.consumer_clients import DIALECT, FakeCatalog
from worlds.group_script import FakeLog, VirtualTime


class Member:
    """A client that follows the coordinator, as the principal of its name."""

    def __init__(self, world: World, name: str, **more: object) -> None:
        self._world = world
        self.name = name
        self.caller = Caller(Principal("User", name), "10.0.0.1")
        self.epoch = 0
        self.owned: frozenset[tuple[bytes, int]] = frozenset()
        self.reported: frozenset[tuple[bytes, int]] | None = None
        self._send(rebalance_timeout_ms=30_000, **{"topics": frozenset(), "pattern": "t.*", **more})

    def _send(self, **more: object) -> None:
        owned = None if self.owned == self.reported else self.owned
        request = HeartbeatRequest(
            group_id="g",
            member_id=self.name,
            epoch=self.epoch,
            owned=owned,
            caller=self.caller,
            **more,  # type: ignore[arg-type]
        )
        answers: list[HeartbeatReply | DragomanError] = []
        self._world.groups.consumer_heartbeat(request, answers.append)
        (answer,) = answers
        assert isinstance(answer, HeartbeatReply), answer
        self.reported, self.epoch = self.owned, answer.epoch
        if answer.assignment is not None:
            self.owned = answer.assignment

    def beat(self) -> str:
        """A bare heartbeat, unless there is news; returns what the member has then."""
        self._send()
        return self.has

    @property
    def has(self) -> str:
        return self._world.catalog.named(self.owned)


class World:
    def __init__(self) -> None:
        self.time = VirtualTime()
        self.log = FakeLog()
        self.catalog = FakeCatalog()
        self.catalog.create("t1", 2)
        self.catalog.create("t2", 2)
        self.groups = self._start()

    def _start(self) -> Groups:
        return Groups(
            scheduler=self.time,
            clock=self.time,
            random=random.Random(1),
            persist=self.log.persist,
            catalog=self.catalog,
            dialect=DIALECT,
        )

    def fail_over(self) -> None:
        """Another node takes over the group."""
        self.groups.close()
        self.groups = self._start()
        for each in self.log.durable:
            self.groups.load(each.key, each.value)
        self.groups.resume()

    @property
    def epoch(self) -> int:
        return self.groups.describe_consumer("g").epoch

    def settle(self, *members: Member) -> list[str]:
        for _ in range(4):
            for each in members:
                each.beat()
        return [each.has for each in members]


@pytest.fixture
def world() -> World:
    return World()


def test_pattern_matches_only_topics_that_the_member_may_describe(world: World) -> None:
    world.catalog.hide("a", "t2")
    assert Member(world, "a").has == "t1-0 t1-1"
    group = world.groups.consumer_group("g")
    assert group is not None
    assert group.subscriptions() == {"t1"}


def test_named_topics_are_not_the_business_of_patterns(world: World) -> None:
    """The request that names a topic was refused if its sender may not describe it."""
    world.catalog.hide("a", "t2")
    member = Member(world, "a", pattern=None, topics=frozenset({"t2"}))
    assert member.has == "t2-0 t2-1"


def test_members_with_the_same_pattern_have_each_their_own_rights(world: World) -> None:
    world.catalog.hide("a", "t2")
    a, b = Member(world, "a"), Member(world, "b")
    assert world.settle(a, b) == ["t1-0 t1-1", "t2-0 t2-1"]
    world.catalog.hide("b", "t2")
    assert world.settle(a, b) == ["t1-0", "t1-1"]


def test_lost_right_takes_topics_away_with_the_next_heartbeat_of_the_member(world: World) -> None:
    a = Member(world, "a")
    assert a.has == "t1-0 t1-1 t2-0 t2-1"
    world.catalog.hide("a", "t1")
    assert a.beat() == "t2-0 t2-1"


def test_right_of_one_member_among_others_counts(world: World) -> None:
    """The topics of all members together do not change."""
    a, b = Member(world, "a"), Member(world, "b")
    world.settle(a, b)
    world.catalog.hide("a", "t2")
    assert world.settle(a, b) == ["t1-0 t1-1", "t2-0 t2-1"]
    world.catalog.hide("a")
    before = world.epoch
    world.settle(a, b)
    assert world.epoch > before, "a is a reader of t2 again"


def test_new_topic_reaches_only_members_that_may_describe_it(world: World) -> None:
    world.catalog.hide("a", "t3")
    a, b = Member(world, "a"), Member(world, "b")
    world.settle(a, b)
    world.catalog.create("t3", 2)
    had = world.settle(a, b)
    assert "t3" not in had[0]
    assert "t3-0 t3-1" in had[1]


def test_fail_over_neither_reveals_nor_moves_anything(world: World) -> None:
    world.catalog.hide("a", "t2")
    a, b, c = (Member(world, each) for each in "abc")
    had = world.settle(a, b, c)
    before = world.epoch
    world.fail_over()
    assert world.settle(b) == had[1:2]
    assert world.settle(a, b, c) == had
    assert world.epoch == before


def test_right_that_is_lost_during_a_fail_over_counts_with_the_next_heartbeat(world: World) -> None:
    a, b = Member(world, "a"), Member(world, "b")
    world.settle(a, b)
    world.fail_over()
    world.catalog.hide("a", "t2")
    assert world.settle(a, b)[0] == "t1-0 t1-1"


def test_new_topics_are_not_given_to_members_whose_rights_are_unknown(world: World) -> None:
    world.catalog.hide("a", "t3")
    a, b = Member(world, "a"), Member(world, "b")
    world.settle(a, b)
    world.fail_over()
    world.catalog.create("t3", 4)
    # The join needs a target before the others have sent a heartbeat.
    c = Member(world, "c")
    for member in world.groups.describe_consumer("g").members:
        if member.member_id != "c":
            assert "t3" not in world.catalog.named(member.target)
    assert "t3" in c.has
    had = world.settle(a, b, c)
    assert "t3" not in had[0]
    assert "t3" in had[1]


def test_member_has_the_rights_of_the_sender_of_its_last_heartbeat(world: World) -> None:
    world.catalog.hide("other", "t2")
    a = Member(world, "a")
    assert a.has == "t1-0 t1-1 t2-0 t2-1"
    a.caller = Caller(Principal("User", "other"), "10.0.0.2")
    assert a.beat() == "t1-0 t1-1"


def test_rights_do_not_matter_until_rules_are_enforced(world: World) -> None:
    world.catalog.hide("a", "t2")
    world.catalog.is_limited = False
    a = Member(world, "a")
    assert a.has == "t1-0 t1-1 t2-0 t2-1"
    world.fail_over()
    world.catalog.create("t3", 1)
    assert a.beat() == "t1-0 t1-1 t2-0 t2-1 t3-0"
    world.catalog.is_limited = True
    world.catalog.revision += 1
    assert a.beat() == "t1-0 t1-1 t3-0"
