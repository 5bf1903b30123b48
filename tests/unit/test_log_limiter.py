"""Goal: what others can cause does not flood the log, and what is held back is counted."""

from __future__ import annotations

import logging

import pytest

from dragoman.limits import LIMITED_LOG_INTERVAL_S, LIMITED_LOG_LINES_MAX
from dragoman.log_limiter import LogLimiter
from dragoman.testing.sim.scheduler import SimScheduler

NAME = "dragoman.test"


@pytest.fixture
def scheduler() -> SimScheduler:
    return SimScheduler()


@pytest.fixture
def limiter(scheduler: SimScheduler, caplog: pytest.LogCaptureFixture) -> LogLimiter:
    caplog.set_level(logging.INFO, NAME)
    return LogLimiter(logging.getLogger(NAME), scheduler)


def test_few_lines_are_logged_as_they_are(
    limiter: LogLimiter, scheduler: SimScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LIMITED_LOG_LINES_MAX):
        limiter.info("line %d", number)
    scheduler.advance(LIMITED_LOG_INTERVAL_S)
    assert caplog.messages == [f"line {number}" for number in range(LIMITED_LOG_LINES_MAX)]


def test_suppressed_lines_are_counted_and_reported_once(
    limiter: LogLimiter, scheduler: SimScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3900 + LIMITED_LOG_LINES_MAX - 1):
        limiter.info("closing")
    limiter.warning("closing")
    assert len(caplog.messages) == LIMITED_LOG_LINES_MAX
    scheduler.advance(LIMITED_LOG_INTERVAL_S)
    last = caplog.records[-1]
    assert last.getMessage() == "... and 3,900 more lines like these in the last 10 s"
    assert last.levelno == logging.WARNING
    scheduler.advance(10 * LIMITED_LOG_INTERVAL_S)
    assert len(caplog.messages) == LIMITED_LOG_LINES_MAX + 1


def test_the_next_interval_has_lines_again(
    limiter: LogLimiter, scheduler: SimScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        caplog.clear()
        for _ in range(2 * LIMITED_LOG_LINES_MAX):
            limiter.info("closing")
        scheduler.advance(LIMITED_LOG_INTERVAL_S)
        assert len(caplog.messages) == LIMITED_LOG_LINES_MAX + 1


def test_lines_that_are_not_wanted_are_not_counted(
    limiter: LogLimiter, scheduler: SimScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, NAME)
    for _ in range(100):
        limiter.warning("closing")
    caplog.set_level(logging.INFO, NAME)
    scheduler.advance(LIMITED_LOG_INTERVAL_S)
    assert not caplog.messages
