"""The rules of `Outcome`: when waiters resume, where errors surface, and what needs no stack.

Each test is one of the rules at the top of the module, in the smallest scene that shows it.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Coroutine

import pytest

from dragoman.errors import BrokerError, DragomanError
from dragoman.outcome import (
    Outcome,
    Retry,
    acknowledge_to,
    acknowledged,
    attempt,
    called_back,
    deadline,
    failed,
    gather,
    ignore,
    pause,
    retried,
    start,
    succeeded,
)

_MANY = 10_000


class _Timer:
    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class _Scheduler:
    """A clock that moves on the test's command."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[_Timer] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: object) -> _Timer:
        return self.call_later(0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> _Timer:
        timer = _Timer(self.now + delay, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [each for each in self.timers if each.due <= until]:
            first = min(due, key=lambda each: each.due)
            self.timers.remove(first)
            self.now = max(self.now, first.due)
            if not first.is_cancelled:
                first.callback()
        self.now = until


async def _value_of(outcome: Outcome[int]) -> int:
    return await outcome


# ---- settled once, one waiter


@pytest.mark.parametrize("again", [lambda each: each.succeed(2), lambda each: each.fail(_error())])
def test_an_outcome_is_settled_once(again: Callable[[Outcome[int]], None]) -> None:
    outcome = succeeded(1)
    with pytest.raises(AssertionError, match="settled once"):
        again(outcome)
    assert outcome.result() == 1


def test_a_second_callback_is_refused() -> None:
    outcome: Outcome[int] = Outcome()
    outcome.then(ignore)
    with pytest.raises(AssertionError, match="one waiter"):
        outcome.then(ignore)


def test_a_second_coroutine_is_refused() -> None:
    outcome: Outcome[int] = Outcome()
    first = start(_value_of(outcome))
    with pytest.raises(AssertionError, match="one waiter"):
        start(_value_of(outcome))
    outcome.succeed(3)
    assert first.result() == 3


def test_the_result_of_an_outcome_that_is_not_settled_cannot_be_asked_for() -> None:
    with pytest.raises(AssertionError, match="not settled"):
        Outcome[int]().result()


# ---- when waiters resume


def test_a_waiter_resumes_inside_the_call_that_settles() -> None:
    outcome: Outcome[int] = Outcome()
    waiting = start(_value_of(outcome))
    assert not waiting.is_settled
    outcome.succeed(7)
    assert waiting.result() == 7


def test_awaiting_a_settled_outcome_does_not_suspend() -> None:
    assert start(_value_of(succeeded(1))).result() == 1


def test_a_callback_on_a_settled_outcome_is_called_at_once() -> None:
    results: list[object] = []
    succeeded(1).then(results.append)
    error = _error()
    failed(error).then(results.append)
    assert results == [1, error]


def test_steps_of_one_coroutine_never_overlap() -> None:
    """An outcome that is settled by the coroutine which is about to wait for it."""
    outcome: Outcome[int] = Outcome()
    steps = []

    async def settle_own() -> int:
        steps.append("before")
        outcome.succeed(1)
        steps.append("settled")
        return await outcome

    assert start(settle_own()).result() == 1
    assert steps == ["before", "settled"]


def test_a_coroutine_that_settles_another_goes_on_after_it() -> None:
    outcome: Outcome[int] = Outcome()
    steps = []

    async def wait() -> None:
        await outcome
        steps.append("waiter")

    async def settle() -> None:
        outcome.succeed(1)
        steps.append("settler")

    waiting = start(wait())
    start(settle())
    assert waiting.is_settled
    assert steps == ["waiter", "settler"]


# ---- without a stack


def test_a_long_chain_of_coroutines_needs_no_stack() -> None:
    first: Outcome[int] = Outcome()
    last = first
    for _ in range(_MANY):
        last = start(_value_of(last))
    assert sys.getrecursionlimit() < _MANY
    first.succeed(5)
    assert last.result() == 5


def test_many_waiters_that_are_settled_in_a_loop_need_no_stack() -> None:
    outcomes: list[Outcome[int]] = [Outcome() for _ in range(_MANY)]
    gathered = gather([start(_value_of(each)) for each in outcomes])
    for index, each in enumerate(outcomes):
        each.succeed(index)
    assert gathered.result() == list(range(_MANY))


def test_a_coroutine_awaits_many_settled_outcomes_without_a_stack() -> None:
    async def add() -> int:
        return sum([await succeeded(1) for _ in range(_MANY)])

    assert start(add()).result() == _MANY


# ---- errors


def test_an_error_of_ours_is_raised_where_the_outcome_is_awaited() -> None:
    outcome: Outcome[int] = Outcome()

    async def recover() -> int:
        try:
            return await outcome
        except BrokerError:
            return -1

    recovered = start(recover())
    outcome.fail(_error())
    assert recovered.result() == -1


def test_an_error_of_ours_that_nothing_catches_settles_the_coroutine() -> None:
    error = _error()
    running = start(_value_of(failed(error)))
    with pytest.raises(BrokerError) as raised:
        running.result()
    assert raised.value is error


def test_any_other_exception_surfaces_where_the_coroutine_is_started() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start(broken())


def test_any_other_exception_surfaces_in_the_settler() -> None:
    outcome: Outcome[int] = Outcome()

    async def broken() -> None:
        raise KeyError(await outcome)

    running = start(broken())
    with pytest.raises(KeyError):
        outcome.succeed(1)
    with pytest.raises(KeyError):
        running.result()


def test_any_other_exception_passes_through_the_coroutines_that_wait() -> None:
    outcome: Outcome[int] = Outcome()
    unwound = []

    async def broken() -> None:
        raise KeyError(await outcome)

    async def outer(inner: Outcome[None]) -> None:
        try:
            await inner
        finally:
            unwound.append("outer")

    running = start(outer(start(broken())))
    with pytest.raises(KeyError):
        outcome.succeed(1)
    assert unwound == ["outer"]
    assert running.is_settled


def test_any_other_exception_is_not_given_to_a_callback() -> None:
    outcome: Outcome[int] = Outcome()

    async def broken() -> None:
        raise KeyError(await outcome)

    results: list[object] = []
    start(broken()).then(results.append)
    with pytest.raises(KeyError):
        outcome.succeed(1)
    assert not results


def test_only_outcomes_are_awaited() -> None:
    class Alien:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield 1

    async def wait() -> None:
        await Alien()

    with pytest.raises(AssertionError, match="not an Outcome"):
        start(wait())


# ---- what is left behind


def test_the_collector_closes_no_suspended_coroutine() -> None:
    finished = []

    async def abandoned() -> None:
        try:
            await Outcome[None]()
        finally:
            finished.append("closed")

    start(abandoned())
    gc.collect()
    assert not finished


# ---- callbacks


def test_functions_that_call_back_become_outcomes() -> None:
    assert called_back(lambda done: done(4)).result() == 4
    assert acknowledged(lambda done: done(None)).result() is None
    with pytest.raises(BrokerError):
        acknowledged(lambda done: done(_error())).result()


def test_an_acknowledgement_drops_the_value() -> None:
    seen: list[DragomanError | None] = []
    succeeded(1).then(acknowledge_to(seen.append))
    error = _error()
    failed(error).then(acknowledge_to(seen.append))
    assert seen == [None, error]


# ---- several


def test_gather_waits_for_all_and_keeps_their_order() -> None:
    first: Outcome[str] = Outcome()
    second: Outcome[str] = Outcome()
    gathered = gather([first, second])
    second.succeed("b")
    assert not gathered.is_settled
    first.succeed("a")
    assert gathered.result() == ["a", "b"]


def test_gather_of_nothing_is_settled() -> None:
    assert gather([]).result() == []


def test_gather_fails_with_the_first_error_when_all_are_settled() -> None:
    first: Outcome[str] = Outcome()
    second: Outcome[str] = Outcome()
    third: Outcome[str] = Outcome()
    gathered = gather([first, second, third])
    error = _error()
    third.fail(error)
    second.fail(BrokerError("later"))
    assert not gathered.is_settled
    first.succeed("a")
    with pytest.raises(BrokerError) as raised:
        gathered.result()
    assert raised.value is error


def test_an_attempt_gives_the_error_as_a_value() -> None:
    error = _error()
    tried = gather([start(attempt(succeeded(1))), start(attempt(failed(error)))])
    assert tried.result() == [1, error]


# ---- time


def test_a_pause_ends_in_a_later_turn() -> None:
    scheduler = _Scheduler()
    short, long = pause(scheduler, 0), pause(scheduler, 2)
    assert not short.is_settled
    scheduler.advance(0)
    assert short.is_settled
    assert not long.is_settled
    scheduler.advance(2)
    assert long.is_settled


def test_a_deadline_passes_on_what_comes_in_time() -> None:
    scheduler = _Scheduler()
    outcome: Outcome[int] = Outcome()
    bounded = deadline(outcome, scheduler, 5, _error)
    outcome.succeed(1)
    assert bounded.result() == 1
    scheduler.advance(10)


def test_a_deadline_fails_what_comes_late() -> None:
    scheduler = _Scheduler()
    outcome: Outcome[int] = Outcome()
    bounded = deadline(outcome, scheduler, 5, _error)
    scheduler.advance(5)
    with pytest.raises(BrokerError):
        bounded.result()
    outcome.succeed(1)


class _Transient(BrokerError): ...


_POLICY = Retry((_Transient,), interval_s=1.0, patience_s=3.0)


def test_transient_errors_are_retried() -> None:
    scheduler = _Scheduler()
    results: list[DragomanError | int] = [_Transient(), _Transient(), 9]

    async def attempts() -> int:
        result = results.pop(0)
        if isinstance(result, DragomanError):
            raise result
        return result

    tried = start(retried(_POLICY, scheduler, attempts))
    assert not tried.is_settled
    scheduler.advance(2)
    assert tried.result() == 9


@pytest.mark.parametrize(("error", "tries"), [(_Transient(), 4), (BrokerError(), 1)])
def test_retries_end_with_patience_or_a_final_error(error: DragomanError, tries: int) -> None:
    scheduler = _Scheduler()
    count = 0

    async def attempts() -> None:
        nonlocal count
        count += 1
        raise error

    tried = start(retried(_POLICY, scheduler, attempts))
    scheduler.advance(60)
    with pytest.raises(type(error)):
        tried.result()
    assert count == tries


def test_retries_end_when_they_are_over() -> None:
    scheduler = _Scheduler()

    async def attempts() -> None:
        raise _Transient

    tried = start(retried(_POLICY, scheduler, attempts, lambda: scheduler.now > 0))
    scheduler.advance(1)
    with pytest.raises(_Transient):
        tried.result()


def _error() -> DragomanError:
    return BrokerError("refused")


# ---- errors


class _Held:
    """What a frame refers to, such as a request with all its bytes."""


async def _refused(_held: _Held) -> None:
    try:
        raise DragomanError("no")
    except DragomanError:
        raise DragomanError("refused") from None


async def _examined(held: _Held) -> None:
    found = await attempt(_refused(held))
    assert isinstance(found, DragomanError)


def _failing(held: _Held) -> Outcome[None]:
    outcome: Outcome[None] = Outcome()
    try:
        raise DragomanError(str(held))
    except DragomanError as error:
        outcome.fail(error)
    return outcome


@pytest.mark.parametrize("work", [_refused, _examined])
def test_error_that_is_kept_keeps_no_frames(
    work: Callable[[_Held], Coroutine[object, None, None]],
) -> None:
    gc.collect()
    gc.disable()
    try:
        held = _Held()
        watched = weakref.ref(held)
        start(work(held)).then(ignore)
        del held
        assert watched() is None
    finally:
        gc.enable()


def test_error_of_a_settled_outcome_keeps_no_frames() -> None:
    held = _Held()
    watched = weakref.ref(held)
    outcome = _failing(held)
    del held
    assert watched() is None
    with pytest.raises(DragomanError):
        outcome.result()
