"""The loop's lag: by how much timers came late, measured often only while clients send."""

from __future__ import annotations

from dragoman.limits import LOOP_LAG_BUSY_S, LOOP_LAG_IDLE_S
from dragoman.net.loop_lag import LoopLag
from dragoman.testing.sim.scheduler import SimClock, SimScheduler


class Late(SimClock):
    """A clock that is ahead of the timers, as after a long turn of the loop."""

    late_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.late_s


def test_delay_of_a_timer_is_measured() -> None:
    scheduler = SimScheduler()
    clock = Late(scheduler)
    lag = LoopLag(scheduler, clock, lambda: 0)
    lag.watch()
    clock.late_s = 0.25
    scheduler.advance(LOOP_LAG_IDLE_S)
    assert lag.seconds.count == 1
    assert lag.seconds.total == 0.25


def test_idle_node_is_measured_rarely() -> None:
    scheduler = SimScheduler()
    lag = LoopLag(scheduler, SimClock(scheduler), lambda: 0)
    lag.watch()
    scheduler.advance(60)
    assert lag.seconds.count == 60 / LOOP_LAG_IDLE_S


def test_busy_node_is_measured_often() -> None:
    scheduler = SimScheduler()
    received = iter(range(1, 1 << 30))
    lag = LoopLag(scheduler, SimClock(scheduler), lambda: next(received))
    lag.watch()
    scheduler.advance(60)
    assert lag.seconds.count == 60 / LOOP_LAG_BUSY_S
    assert lag.seconds.total == 0


def test_nothing_is_measured_after_the_stop() -> None:
    scheduler = SimScheduler()
    lag = LoopLag(scheduler, SimClock(scheduler), lambda: 0)
    lag.watch()
    lag.stop()
    scheduler.advance(60)
    assert lag.seconds.count == 0
