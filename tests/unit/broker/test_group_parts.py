"""Goal: the small parts of the group machine keep their own promises. Method: each alone.

The parts: deadlines (timer), requests that wait (parked), member ids not used yet (promises), the
book of members and their vote (roster), the book of offsets (ledger), the place of a group
(placement).
"""

from __future__ import annotations

import pytest

from dragoman.broker.directory import coordinator_partition, java_string_hash
from dragoman.broker.errors import UnknownMember
from dragoman.broker.groups.group import Ledger
from dragoman.broker.groups.rebalance import Member, Roster
from dragoman.broker.groups.records import CommittedOffset, StoredMember
from dragoman.broker.groups.waits import DeadlineTimer, Outbox, Parked, PhaseTimer, Promises
from worlds.group_script import VirtualTime

# ---- deadlines


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_deadline_that_is_put_off_fires_once_and_exactly_then() -> None:
    time, called = VirtualTime(), Counted()
    timer = DeadlineTimer(time, called)
    timer.arm(10)
    for _ in range(5):
        time.advance(7)
        timer.arm(10)
    time.advance(9.999)
    assert (called.calls, timer.is_armed) == (0, True)
    time.advance(0.001)
    assert (called.calls, timer.is_armed) == (1, False)
    time.advance(100)
    assert called.calls == 1


def test_putting_off_a_deadline_makes_no_timer() -> None:
    time = VirtualTime()
    timer = DeadlineTimer(time, Counted())
    for _ in range(100):
        timer.arm(10)
    assert time.pending == 1


def test_deadline_may_come_nearer() -> None:
    time, called = VirtualTime(), Counted()
    timer = DeadlineTimer(time, called)
    timer.arm(300)
    timer.arm(5)
    time.advance(5)
    assert called.calls == 1
    assert time.pending == 0


def test_stopped_deadline_never_fires_and_can_be_armed_again() -> None:
    time, called = VirtualTime(), Counted()
    timer = DeadlineTimer(time, called)
    timer.arm(5)
    timer.stop()
    timer.stop()
    time.advance(10)
    assert (called.calls, time.pending) == (0, 0)
    timer.arm(1)
    time.advance(1)
    assert called.calls == 1


def test_new_phase_replaces_the_one_that_runs() -> None:
    time, first, second = VirtualTime(), Counted(), Counted()
    phase = PhaseTimer(time)
    phase.begin(5, first)
    phase.begin(7, second)
    time.advance(7)
    assert (first.calls, second.calls, phase.is_running) == (0, 1, False)


def test_phase_that_ended_early_does_not_fire() -> None:
    time, called = VirtualTime(), Counted()
    phase = PhaseTimer(time)
    phase.begin(5, called)
    phase.end()
    time.advance(9)
    assert called.calls == 0


# ---- requests that wait


def test_request_cannot_be_answered_twice() -> None:
    parked: Parked[int] = Parked(lambda _result: None)
    parked.decide(1)
    with pytest.raises(AssertionError):
        parked.decide(2)


def test_answers_leave_in_order_and_after_the_decision() -> None:
    answers: list[object] = []
    outbox = Outbox()
    first: Parked[int] = Parked(answers.append)
    second: Parked[int] = Parked(answers.append)
    outbox.add(first, 1)
    outbox.add(second, UnknownMember("gone"))
    assert not answers
    outbox.send()
    assert answers[0] == 1
    assert isinstance(answers[1], UnknownMember)
    outbox.send()
    assert len(answers) == 2


def test_abandoned_request_is_not_answered_even_if_it_was_decided() -> None:
    answers: list[object] = []
    outbox = Outbox()
    parked: Parked[int] = Parked(answers.append)
    outbox.add(parked, 1)
    parked.abandon()
    outbox.send()
    assert not answers


def test_abandoning_tells_the_group_once_and_only_while_the_request_waits() -> None:
    told = Counted()
    parked: Parked[int] = Parked(lambda _result: None)
    parked.when_abandoned(told)
    parked.abandon()
    parked.abandon()
    assert told.calls == 1
    decided: Parked[int] = Parked(lambda _result: None)
    decided.when_abandoned(told)
    decided.decide(1)
    decided.abandon()
    assert told.calls == 1


def test_reply_may_add_an_answer_to_the_same_outbox() -> None:
    answers: list[int] = []
    outbox = Outbox()
    second: Parked[int] = Parked(answers.append)  # type: ignore[arg-type]

    def reply(result: object) -> None:
        answers.append(int(str(result)))
        outbox.add(second, 2)
        outbox.send()

    outbox.add(Parked(reply), 1)
    outbox.send()
    assert answers == [1, 2]


def test_reply_that_fails_does_not_keep_the_others_waiting() -> None:
    answers: list[object] = []
    outbox = Outbox()

    def broken(_result: object) -> None:
        raise OSError("a handler has a bug")

    for reply in (broken, answers.append, broken, answers.append):
        outbox.add(Parked(reply), 1)
    with pytest.raises(OSError, match="bug"):
        outbox.send()
    assert answers == [1, 1]


# ---- member ids not used yet


def test_promise_is_used_once() -> None:
    time, lapsed = VirtualTime(), Counted()
    promises = Promises(time, lapsed)
    promises.give("m", 10)
    assert promises.take("m")
    assert not promises.take("m")
    time.advance(20)
    assert lapsed.calls == 0


def test_promise_lapses_when_it_is_due() -> None:
    time, lapsed = VirtualTime(), Counted()
    promises = Promises(time, lapsed)
    promises.give("m", 10)
    promises.give("n", 30)
    time.advance(10)
    assert (lapsed.calls, len(promises)) == (1, 1)
    promises.clear()
    assert (time.pending, len(promises)) == (0, 0)


# ---- the roster


def member(name: str, *protocols: str, instance_id: str | None = None, size: int = 0) -> Member:
    stored = StoredMember(
        member_id=name,
        instance_id=instance_id,
        client_id="",
        client_host="",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=len(name) * 1000,
        protocols=tuple((protocol, b"m" * size) for protocol in protocols),
        assignment=b"",
    )
    return Member(stored, is_new=True, session=DeadlineTimer(VirtualTime(), Counted()))


def roster(*members: Member) -> Roster:
    made = Roster()
    for each in members:
        made.add(each)
    return made


def test_leader_is_the_first_and_is_followed_by_the_next() -> None:
    first, second = member("a", "x"), member("b", "x")
    book = roster(first, second)
    assert book.leader == "a"
    book.remove(first)
    assert book.leader == "b"
    book.remove(second)
    assert book.leader is None


def test_replacement_takes_over_the_lead_and_the_instance() -> None:
    old, other = member("a", "x", instance_id="i"), member("b", "x")
    new = member("c", "x", "y", instance_id="i")
    book = roster(old, other)
    book.replace(old, new)
    assert book.leader == "c"
    assert book.static_member("i") is new
    assert book.get("a") is None


def test_replaced_follower_does_not_become_leader() -> None:
    old, other = member("a", "x", instance_id="i"), member("b", "x")
    book = roster(other, old)
    book.replace(old, member("c", "x", instance_id="i"))
    assert book.leader == "b"


def test_election_passes_over_members_that_have_not_joined() -> None:
    members = [member(name, "x") for name in "abc"]
    book = roster(*members)
    assert not book.elect_joined_leader()
    book.park_join(members[2], Parked(lambda _result: None))
    assert book.elect_joined_leader()
    assert book.leader == "c"
    book.park_join(members[0], Parked(lambda _result: None))
    assert book.elect_joined_leader()
    assert book.leader == "c"


@pytest.mark.parametrize(
    ("present", "comes", "fits"),
    [
        ([], ("x",), True),
        ([("x", "y")], ("y",), True),
        ([("x", "y")], ("z",), False),
        ([("x", "y"), ("y", "z")], ("x", "z"), False),
        ([("x", "y"), ("y", "z")], ("q", "y"), True),
        ([("x", "x")], ("x",), True),
    ],
)
def test_a_protocol_must_stay_in_common(
    present: list[tuple[str, ...]], comes: tuple[str, ...], fits: bool
) -> None:
    book = roster(*(member(f"m{i}", *names) for i, names in enumerate(present)))
    assert book.supports(tuple((name, b"") for name in comes), None) is fits


def test_a_member_that_changes_does_not_count_against_itself() -> None:
    alone = member("a", "x")
    assert roster(alone).supports((("y", b""),), alone)
    other = member("b", "x")
    assert not roster(alone, other).supports((("y", b""),), alone)


@pytest.mark.parametrize(
    ("ballots", "choice"),
    [
        ([("x",)], "x"),
        ([("x", "y"), ("y", "x"), ("y", "x")], "y"),
        ([("y", "x"), ("x", "y")], "x"),
        ([("x", "y"), ("y",)], "y"),
        ([("z", "x", "y"), ("x", "y"), ("y", "x"), ("y", "x")], "x"),
    ],
)
def test_vote(ballots: list[tuple[str, ...]], choice: str) -> None:
    book = roster(*(member(f"m{i}", *names) for i, names in enumerate(ballots)))
    assert book.choose_protocol() == choice


def test_vote_as_if_a_member_had_other_protocols() -> None:
    first = member("a", "x", "y")
    book = roster(first, member("b", "x", "y"))
    assert book.choose_protocol(first, (("y", b""),)) == "y"
    assert book.choose_protocol() == "x"


def test_books_balance_after_members_came_and_went() -> None:
    members = [member(name, "x", "y", size=10) for name in "abc"]
    book = roster(*members)
    assert book.byte_count == 3 * 2 * 11
    for each in members:
        book.remove(each)
    assert book.byte_count == 0
    assert book.rebalance_timeout == 0
    assert book.supports((("z", b""),), None)


def test_rebalance_takes_as_long_as_the_slowest_member_asks_for() -> None:
    assert roster(member("a", "x"), member("abcd", "x"), member("ab", "x")).rebalance_timeout == 4


def test_parked_member_cannot_be_removed() -> None:
    one = member("a", "x")
    book = roster(one)
    book.park_join(one, Parked(lambda _result: None))
    with pytest.raises(AssertionError):
        book.remove(one)
    assert book.all_joined
    book.take_join(one)
    assert book.take_join(one) is None
    assert book.awaiting_join == 0


# ---- the ledger


def offset(value: int) -> CommittedOffset:
    return CommittedOffset(value, -1, "", 0, value)


def test_partition_is_unstable_while_any_transaction_holds_it() -> None:
    ledger = Ledger()
    partition = ("t", 0)
    ledger.stage(1, partition, offset(1))
    ledger.stage(1, partition, offset(2))
    ledger.stage(2, partition, offset(3))
    assert len(ledger) == 2
    ledger.unstage(1, partition)
    assert ledger.is_unstable(partition)
    ledger.unstage(2, partition)
    assert not ledger.is_unstable(partition)
    assert ledger.producers == ()
    assert len(ledger) == 0


def test_removing_what_is_not_there_does_nothing() -> None:
    ledger = Ledger()
    ledger.forget(("t", 0))
    ledger.unstage(1, ("t", 0))
    assert len(ledger) == 0


def test_views_of_the_ledger_cannot_be_written() -> None:
    ledger = Ledger()
    with pytest.raises(TypeError):
        ledger.committed[("t", 0)] = offset(1)  # type: ignore[index]
    with pytest.raises(TypeError):
        ledger.staged(1)[("t", 0)] = offset(1)  # type: ignore[index]


# ---- placement


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        # Two UTF-16 code units: 31 * 0xD83D + 0xDE00.
        ("\U0001f600", 31 * 0xD83D + 0xDE00),
    ],
)
def test_java_string_hash(text: str, hashed: int) -> None:
    assert java_string_hash(text) == hashed


def test_coordinator_partition_is_in_range_also_for_the_hash_without_a_twin() -> None:
    assert coordinator_partition("polygenelubricants", 50) == 0
    assert coordinator_partition("hello", 50) == 22
    assert coordinator_partition("group", 50) == abs(java_string_hash("group")) % 50
    assert all(0 <= coordinator_partition(f"g{i}", 7) < 7 for i in range(100))
