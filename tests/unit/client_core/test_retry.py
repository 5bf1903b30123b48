"""Retries: how long pauses are, when they end, which errors are final, which callbacks run."""

from __future__ import annotations

import random

import pytest

from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    UnreachableError,
)
from dragoman.client_core.retry import Retry, RetryPolicy

POLICY = RetryPolicy(timeout_s=10.0, first_pause_s=1.0, pause_max_s=4.0)


class Failing:
    """Fails with these errors, one after the other, and then succeeds."""

    def __init__(self, *errors: ClientError) -> None:
        self.errors = list(errors)

    async def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def failures(count: int) -> list[ClientError]:
    return [UnreachableError(str(number)) for number in range(count)]


def test_pause_doubles_to_its_maximum() -> None:
    assert [POLICY.pause_s(number) for number in (1, 2, 3, 4, 10_000)] == [1, 2, 4, 4, 4]


def test_pause_is_spread_by_a_fifth_where_there_is_randomness() -> None:
    dice = random.Random(7)
    pauses = [POLICY.pause_s(2, dice) for _ in range(200)]
    assert 1.6 <= min(pauses) < 1.8
    assert 2.2 < max(pauses) <= 2.4


async def test_call_is_repeated_until_it_succeeds(slept: list[float]) -> None:
    assert await Retry(POLICY).call(Failing(*failures(3))) == "done"
    assert slept == [1, 2, 4]


async def test_last_error_is_raised_when_the_next_retry_would_come_too_late(
    slept: list[float],
) -> None:
    # 1 + 2 + 4 seconds are over: the next pause would end after 11.
    with pytest.raises(UnreachableError, match="3"):
        await Retry(POLICY).call(Failing(*failures(9)))
    assert slept == [1, 2, 4]


async def test_error_that_no_retry_can_cure_is_raised_at_once(slept: list[float]) -> None:
    with pytest.raises(ClientClosedError):
        await Retry(POLICY).call(Failing(ClientClosedError("closed")))
    assert slept == []


async def test_caller_says_which_errors_are_repeated(slept: list[float]) -> None:
    attempt = Failing(UnreachableError(""), ConnectionLostError("lost"))
    with pytest.raises(ConnectionLostError):
        await Retry(POLICY).call(attempt, may_retry=lambda error: not error.is_ambiguous)
    assert slept == [1]


async def test_an_error_may_have_a_time_out_of_its_own(slept: list[float]) -> None:
    with pytest.raises(UnreachableError):
        await Retry(POLICY).call(Failing(*failures(9)), timeout_s=lambda _error: 3.0)
    assert slept == [1, 2]


async def test_every_failure_is_reported_also_the_last(slept: list[float]) -> None:
    noted: list[str] = []
    retry = Retry(POLICY, on_failure=lambda error: noted.append(str(error)))
    with pytest.raises(ClientClosedError):
        await retry.call(Failing(*failures(2), ClientClosedError("2")))
    assert noted == ["0", "1", "2"]
    assert len(slept) == 2
