"""Retries of failed calls: their pauses, and the time after which a call fails.

The pause doubles with every failure, up to a maximum. With a source of randomness, it is spread by
a fifth, so that clients of a restarted server do not all reconnect at the same moment. The caller
gets the error of the last attempt: it says what was wrong, and not merely that time has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from dragoman.client_core.errors import ClientError

if TYPE_CHECKING:
    # Only the type checker needs it; most clients start faster without the ports.
    from dragoman.world import Random

Result = TypeVar("Result")

_SPREAD: Final = 0.2
#: The exponent is capped before it makes a float overflow.
_DOUBLINGS_MAX: Final = 30


class RetryPolicy(msgspec.Struct, frozen=True):
    #: Between the start of a call and its last retry.
    timeout_s: float
    first_pause_s: float
    pause_max_s: float

    def pause_s(self, failures: int, random: Random | None = None) -> float:
        """How long to wait after this many failures in a row (1: the first)."""
        assert failures > 0
        doubled = self.first_pause_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
        pause = min(self.pause_max_s, doubled)
        return pause if random is None else pause * random.uniform(1 - _SPREAD, 1 + _SPREAD)


def is_retriable(error: ClientError) -> bool:
    return error.retriable


class Retry:
    """Repeats the calls of a client until they succeed.

    `on_failure` receives the error of every failed attempt, including the last. It discards cached
    state that the error shows to be outdated, or selects another server.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        random: Random | None = None,
        on_failure: Callable[[ClientError], None] = lambda _error: None,
    ) -> None:
        self.policy = policy
        self._random = random
        self._on_failure = on_failure

    async def call(
        self,
        attempt: Callable[[], Awaitable[Result]],
        *,
        may_retry: Callable[[ClientError], bool] = is_retriable,
        timeout_s: Callable[[ClientError], float] | None = None,
        since: float | None = None,
    ) -> Result:
        """The result of the first attempt that succeeds.

        Raises the first error that `may_retry` declines, or the error whose retry would begin after
        the policy's time-out. `timeout_s` may give a time-out of its own for an error. The time
        counts from `since`, by the loop's clock, or from now.
        """
        loop = asyncio.get_running_loop()
        started = loop.time() if since is None else since
        failures = 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                self._on_failure(error)
                failures += 1
                pause = self.pause_s(failures)
                limit_s = self.policy.timeout_s if timeout_s is None else timeout_s(error)
                if not may_retry(error) or loop.time() + pause > started + limit_s:
                    raise
            await asyncio.sleep(pause)

    def pause_s(self, failures: int) -> float:
        return self.policy.pause_s(failures, self._random)
