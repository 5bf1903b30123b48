"""Goal: changes of one thing come one after the other, whatever each of them does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dragoman.broker.errors import Overloaded, UnknownTopic
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.limits import CONFIG_CHANGES_WAITING_MAX
from dragoman.outcome import Outcome, start, succeeded

Change = Callable[[], Awaitable[None]]


class Slow:
    """Changes that finish on the test's command."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Outcome[None]]] = []

    def change(self, name: str) -> Change:
        async def change() -> None:
            finish: Outcome[None] = Outcome()
            self.begun.append((name, finish))
            await finish

        return change

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.begun]


def take(lock: KeyedLock, key: str, change: Change) -> Outcome[None]:
    async def under_lock() -> None:
        async with lock.take(key):
            await change()

    return start(under_lock())


async def at_once() -> None:
    await succeeded(None)


def error_of(outcome: Outcome[None]) -> object:
    errors: list[object] = []
    outcome.then(errors.append)
    return errors[0]


def test_the_second_begins_when_the_first_is_over_and_other_keys_do_not_wait() -> None:
    lock, slow = KeyedLock(), Slow()
    outcomes = [
        take(lock, "a", slow.change("a1")),
        take(lock, "a", slow.change("a2")),
        take(lock, "b", slow.change("b1")),
    ]
    assert slow.names == ["a1", "b1"]
    slow.begun[0][1].succeed(None)
    assert slow.names == ["a1", "b1", "a2"]
    assert [each.is_settled for each in outcomes] == [True, False, False]


def test_a_refused_change_does_not_stop_the_next() -> None:
    lock, slow = KeyedLock(), Slow()

    async def raises() -> None:
        raise UnknownTopic("gone")

    outcomes = [
        take(lock, "a", slow.change("a1")),
        take(lock, "a", raises),
        take(lock, "a", at_once),
    ]
    slow.begun[0][1].fail(UnknownTopic("lost"))
    kinds = [type(error_of(each)) for each in outcomes]
    assert kinds == [UnknownTopic, UnknownTopic, type(None)]


def test_who_was_answered_may_ask_for_the_next_change() -> None:
    lock, order = KeyedLock(), []

    async def two() -> None:
        async with lock.take("a"):
            order.append("first")
        async with lock.take("a"):
            order.append("second")

    assert start(two()).is_settled
    assert order == ["first", "second"]


def test_only_so_many_wait_and_all_of_them_are_answered() -> None:
    lock, slow = KeyedLock(), Slow()
    outcomes = [take(lock, "a", slow.change("first"))]
    outcomes += [take(lock, "a", at_once) for _ in range(CONFIG_CHANGES_WAITING_MAX)]
    assert isinstance(error_of(take(lock, "a", at_once)), Overloaded)
    slow.begun[0][1].succeed(None)
    assert all(error_of(each) is None for each in outcomes)


def test_a_turn_that_waits_again_keeps_those_behind_it_waiting() -> None:
    lock, slow = KeyedLock(), Slow()
    for name in ("a1", "a2", "a3"):
        take(lock, "a", slow.change(name))
    slow.begun[0][1].succeed(None)
    assert slow.names == ["a1", "a2"]
    slow.begun[1][1].succeed(None)
    assert slow.names == ["a1", "a2", "a3"]
