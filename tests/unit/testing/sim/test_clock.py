"""The simulated clock follows the scheduler; only its wall clock can be set."""

from __future__ import annotations

from dragoman.testing.sim.scheduler import SimClock, SimScheduler


def test_both_clocks_follow_virtual_time() -> None:
    scheduler = SimScheduler()
    clock = SimClock(scheduler, start_wall_ms=1000)
    scheduler.advance(2.5)
    assert clock.monotonic() == 2.5
    assert clock.wall_ms() == 3500


def test_a_jump_moves_the_wall_clock_only() -> None:
    scheduler = SimScheduler()
    clock = SimClock(scheduler, start_wall_ms=10_000)
    scheduler.advance(1.0)
    clock.jump(-5000)
    assert clock.wall_ms() == 6000
    assert clock.monotonic() == 1.0
