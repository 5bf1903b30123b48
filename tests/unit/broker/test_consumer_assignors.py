"""Goal: assignors give every partition to exactly one member that reads its topic, evenly, and move
little. Method: cases worked out by hand, and properties over generated groups.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Assignee,
    Counts,
    Targets,
    assign_range,
    assign_uniform,
)

PROFILE = settings(max_examples=200, derandomize=True, deadline=None, database=None)


def member(name: str, topics: str, before: str = "") -> Assignee:
    had = frozenset((word[:1].encode(), int(word[1:])) for word in before.split())
    return Assignee(name, name, frozenset(topic.encode() for topic in topics), had)


def told(targets: Targets) -> dict[str, str]:
    return {
        member_id: " ".join(f"{topic.decode()}{index}" for topic, index in sorted(partitions))
        for member_id, partitions in targets.items()
    }


def test_range_cuts_topics_of_equal_size_alike() -> None:
    members = [member("m2", "ab"), member("m1", "ab")]
    assert told(assign_range(members, {b"a": 3, b"b": 3})) == {
        "m1": "a0 a1 b0 b1",
        "m2": "a2 b2",
    }


def test_range_goes_by_subscription() -> None:
    members = [member("m1", "a"), member("m2", "ab"), member("m3", "b")]
    assert told(assign_range(members, {b"a": 2, b"b": 3})) == {
        "m1": "a0",
        "m2": "a1 b0 b1",
        "m3": "b2",
    }


def test_range_sorts_static_members_by_their_instance() -> None:
    static = Assignee("z-new-id", "a-instance", frozenset({b"t"}), frozenset())
    dynamic = Assignee("m", "m", frozenset({b"t"}), frozenset())
    assert told(assign_range([dynamic, static], {b"t": 2})) == {"z-new-id": "t0", "m": "t1"}


def test_uniform_takes_from_who_has_most_and_leaves_the_rest() -> None:
    members = [member("m1", "a", "a0 a1 a2 a3"), member("m2", "a", "a4 a5"), member("m3", "a")]
    assert told(assign_uniform(members, {b"a": 6})) == {
        "m1": "a0 a1",
        "m2": "a4 a5",
        "m3": "a2 a3",
    }


def test_uniform_lets_who_has_one_more_keep_it() -> None:
    members = [member("m1", "a", "a0 a1"), member("m2", "a", "a2 a3 a4")]
    assert told(assign_uniform(members, {b"a": 5})) == {"m1": "a0 a1", "m2": "a2 a3 a4"}


def test_uniform_forgets_partitions_that_are_gone() -> None:
    members = [member("m1", "a", "a0 a9 z1")]
    assert told(assign_uniform(members, {b"a": 1})) == {"m1": "a0"}


def test_uniform_evens_out_where_subscriptions_differ() -> None:
    members = [member("m1", "ab"), member("m2", "a"), member("m3", "b")]
    targets = assign_uniform(members, {b"a": 3, b"b": 3})
    assert {name: len(partitions) for name, partitions in targets.items()} == {
        "m1": 2,
        "m2": 2,
        "m3": 2,
    }


def test_uniform_moves_from_a_full_member_to_an_empty_one_where_subscriptions_differ() -> None:
    members = [member("m1", "ab", "a0 a1 a2 b0"), member("m2", "a")]
    targets = told(assign_uniform(members, {b"a": 3, b"b": 1}))
    assert targets == {"m1": "a0 b0", "m2": "a1 a2"}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_empty_group_and_empty_subscription_get_no_partitions(name: str) -> None:
    assert ASSIGNORS[name]([], {}) == {}
    assert told(ASSIGNORS[name]([member("m", "")], {})) == {"m": ""}


TOPICS = (b"a", b"b", b"c")


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Assignee], Counts]:
    counts = {topic: draw(st.integers(0, 9)) for topic in TOPICS}
    partitions = [(topic, index) for topic in TOPICS for index in range(11)]
    same = draw(st.booleans())
    shared = draw(st.frozensets(st.sampled_from(TOPICS)))
    members = []
    for number in range(draw(st.integers(1, 7))):
        before = draw(st.frozensets(st.sampled_from(partitions), max_size=8))
        partitions = [each for each in partitions if each not in before] or [(b"x", 0)]
        topics = shared if same else draw(st.frozensets(st.sampled_from(TOPICS)))
        members.append(Assignee(f"m{number}", f"m{number}", topics, before - {(b"x", 0)}))
    return members, counts


@PROFILE
@given(situations(), st.sampled_from(sorted(ASSIGNORS)), st.randoms(use_true_random=False))
def test_every_partition_goes_to_one_reader(situation, name, dice) -> None:
    members, counts = situation
    targets = ASSIGNORS[name](members, counts)
    given_out = [partition for each in targets.values() for partition in each]
    read = {topic for each in members for topic in each.topics}
    assert sorted(given_out) == sorted(
        (topic, index) for topic in read for index in range(counts[topic])
    )
    for each in members:
        assert {topic for topic, _ in targets[each.member_id]} <= each.topics
    shuffled = list(members)
    dice.shuffle(shuffled)
    assert ASSIGNORS[name](shuffled, counts) == targets


@PROFILE
@given(situations())
def test_uniform_is_even_and_stays_so(situation) -> None:
    members, counts = situation
    targets = assign_uniform(members, counts)
    for giver in members:
        for taker in members:
            movable = {topic for topic, _ in targets[giver.member_id]} & taker.topics
            if movable:
                spread = len(targets[giver.member_id]) - len(targets[taker.member_id])
                assert spread <= 1
    settled = [
        Assignee(each.member_id, each.name, each.topics, targets[each.member_id])
        for each in members
    ]
    assert assign_uniform(settled, counts) == targets


@PROFILE
@given(st.integers(1, 30), st.integers(1, 8))
def test_uniform_moves_no_more_than_a_newcomers_share(partitions: int, size: int) -> None:
    counts = {b"a": partitions}
    members = [member(f"m{number}", "a") for number in range(size)]
    before = assign_uniform(members, counts)
    settled = [
        Assignee(each.member_id, each.name, each.topics, before[each.member_id]) for each in members
    ]
    after = assign_uniform([*settled, member("new", "a")], counts)
    for each in members:
        assert after[each.member_id] <= before[each.member_id]
    assert len(after["new"]) == partitions // (size + 1)
