"""Virtual time: callbacks run at their time, in their order, and a run always ends."""

from __future__ import annotations

from random import Random

import pytest

from dragoman.testing.sim.scheduler import SimScheduler


def test_callbacks_of_one_moment_run_in_the_order_they_were_scheduled() -> None:
    scheduler = SimScheduler()
    seen: list[int] = []
    for index in range(5):
        scheduler.call_soon(seen.append, index)
    assert seen == []
    assert scheduler.run_ready() == 5
    assert seen == [0, 1, 2, 3, 4]


def test_timers_run_at_their_time_and_equal_times_in_order() -> None:
    scheduler = SimScheduler()
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, scheduler.time()))

    scheduler.call_later(2.0, note, "c")
    scheduler.call_later(1.0, note, "a")
    scheduler.call_at(1.0, note, "b")
    scheduler.call_later(-1.0, note, "now")
    assert scheduler.run_until_idle() == 4
    assert seen == [("now", 0.0), ("a", 1.0), ("b", 1.0), ("c", 2.0)]


def test_advance_runs_what_comes_due_and_stops_there() -> None:
    scheduler = SimScheduler()
    seen: list[float] = []

    def again() -> None:
        seen.append(scheduler.time())
        scheduler.call_later(1.0, again)

    scheduler.call_later(1.0, again)
    assert scheduler.advance(2.5) == 2
    assert seen == [1.0, 2.0]
    assert scheduler.time() == 2.5
    scheduler.advance(0.5)
    assert seen == [1.0, 2.0, 3.0]


def test_run_ready_does_not_move_time() -> None:
    scheduler = SimScheduler()
    seen: list[str] = []
    scheduler.call_soon(lambda: scheduler.call_soon(seen.append, "nested"))
    scheduler.call_later(0.1, seen.append, "later")
    assert scheduler.run_ready() == 2
    assert seen == ["nested"]
    assert scheduler.time() == 0.0


def test_cancelled_callbacks_do_not_run_and_do_not_move_time() -> None:
    scheduler = SimScheduler()
    seen: list[str] = []
    soon = scheduler.call_soon(seen.append, "soon")
    later = scheduler.call_later(5.0, seen.append, "later")
    soon.cancel()
    later.cancel()
    assert later.cancelled()
    assert later.when() == 5.0
    assert scheduler.run_until_idle() == 0
    assert seen == []
    assert scheduler.time() == 0.0


def test_a_run_that_never_ends_is_stopped() -> None:
    scheduler = SimScheduler()

    def again() -> None:
        scheduler.call_later(1.0, again)

    again()
    with pytest.raises(RuntimeError, match="not idle after 50"):
        scheduler.run_until_idle(steps_max=50)


def test_a_seeded_order_differs_between_seeds_and_not_within_one() -> None:
    def order(seed: int) -> list[int]:
        scheduler = SimScheduler(Random(seed))
        seen: list[int] = []
        for index in range(6):
            scheduler.call_soon(seen.append, index)
            scheduler.call_later(1.0, seen.append, 10 + index)
        scheduler.run_until_idle()
        assert sorted(seen[:6]) == list(range(6))
        assert sorted(seen[6:]) == list(range(10, 16))
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 15


def test_an_exception_of_a_callback_comes_out_and_the_rest_can_still_run() -> None:
    scheduler = SimScheduler()
    seen: list[str] = []
    scheduler.call_soon(lambda: 1 // 0)
    scheduler.call_soon(seen.append, "next")
    with pytest.raises(ZeroDivisionError):
        scheduler.run_ready()
    scheduler.run_ready()
    assert seen == ["next"]
