"""Goal: changes of one thing come one after the other, whatever each of them does."""

from __future__ import annotations

from dragoman.broker.errors import Overloaded, UnknownTopic
from dragoman.broker.turns import Done, Turns
from dragoman.limits import CONFIG_CHANGES_WAITING_MAX
from worlds.broker import Outcome


class Slow:
    """Changes that finish when the test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Done]] = []

    def change(self, name: str):
        return lambda finish: self.begun.append((name, finish))


def test_the_second_begins_when_the_first_is_over_and_other_keys_do_not_wait() -> None:
    turns, slow, outcomes = Turns(), Slow(), [Outcome() for _ in range(3)]
    turns.take("a", slow.change("a1"), outcomes[0])
    turns.take("a", slow.change("a2"), outcomes[1])
    turns.take("b", slow.change("b1"), outcomes[2])
    assert [name for name, _ in slow.begun] == ["a1", "b1"]
    slow.begun[0][1](None)
    assert [name for name, _ in slow.begun] == ["a1", "b1", "a2"]
    assert outcomes[0].is_known
    assert not outcomes[1].is_known


def test_a_refused_change_does_not_stop_the_next() -> None:
    turns, slow, outcomes = Turns(), Slow(), [Outcome() for _ in range(3)]

    def raises(_: Done) -> None:
        raise UnknownTopic("gone")

    turns.take("a", slow.change("a1"), outcomes[0])
    turns.take("a", raises, outcomes[1])
    turns.take("a", lambda finish: finish(None), outcomes[2])
    slow.begun[0][1](UnknownTopic("lost"))
    assert [type(each.error) for each in outcomes] == [UnknownTopic, UnknownTopic, type(None)]


def test_an_answer_may_ask_for_the_next_change() -> None:
    turns, order = Turns(), []

    def again(_: object) -> None:
        order.append("first")
        turns.take("a", lambda finish: finish(None), lambda _: order.append("second"))

    turns.take("a", lambda finish: finish(None), again)
    assert order == ["first", "second"]


def test_only_so_many_wait_and_all_of_them_are_answered() -> None:
    turns, slow, answers = Turns(), Slow(), []
    turns.take("a", slow.change("first"), answers.append)
    for _ in range(CONFIG_CHANGES_WAITING_MAX):
        turns.take("a", lambda finish: finish(None), answers.append)
    turned_away = Outcome()
    turns.take("a", lambda finish: finish(None), turned_away)
    assert isinstance(turned_away.error, Overloaded)
    slow.begun[0][1](None)
    assert answers == [None] * (CONFIG_CHANGES_WAITING_MAX + 1)
