"""Goal: slow syncs are logged at once, and few lines tell of many.

Method: virtual time.
"""

from __future__ import annotations

import pytest

from dragoman.limits import LIMITED_LOG_INTERVAL_S, SLOW_SYNC_S
from dragoman.log.slow_syncs import SlowSyncs
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from worlds.log import World


def test_slow_syncs_are_counted_with_the_longest(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = SimScheduler()
    syncs = SlowSyncs(SimClock(scheduler), scheduler)
    for seconds in (SLOW_SYNC_S / 2, SLOW_SYNC_S, 3.0, 7.0, 2.0):
        syncs.note(seconds, 4096)
    (first,) = map(vars, caplog.records)
    assert (first["ms"], first["bytes"]) == (SLOW_SYNC_S * 1000, 4096)
    caplog.clear()
    scheduler.advance(LIMITED_LOG_INTERVAL_S)
    (rest,) = map(vars, caplog.records)
    assert (rest["count"], rest["longest_ms"]) == (3, 7000)
    caplog.clear()
    scheduler.advance(LIMITED_LOG_INTERVAL_S)
    assert caplog.records == []


def test_recent_slow_sync_is_forgotten_after_its_time() -> None:
    scheduler = SimScheduler()
    syncs = SlowSyncs(SimClock(scheduler), scheduler)
    assert syncs.recent_s(60) == 0
    syncs.note(2.0, 1)
    assert syncs.recent_s(60) == 2.0
    scheduler.advance(61)
    assert syncs.recent_s(60) == 0


def test_store_notes_a_slow_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    times = iter([0.0, 5.0])
    monkeypatch.setattr(world.clock, "monotonic", lambda: next(times, 9.0))
    world.append(b"x")
    world.commit()
    assert world.store.commits.slow_syncs.last_s == 5.0
