"""Quotas of callers over HTTP: those of Kafka's clients, counted together with these.

A client that exceeds a quota cannot be slowed down by leaving its connection unread, since it may
use another connection for each request. Its requests are answered 429 instead, with `Retry-After`,
until its rate is within the quota; a stream of events pauses. Callers over HTTP have no client id.
The administrator's socket has no quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

from dragoman.broker.errors import ThrottlingQuotaExceeded
from dragoman.broker.throttles import Limit, Throttles
from dragoman.security.access import Caller
from dragoman.security.authorizer import OPERATOR_KIND
from dragoman.world import Clock

T = TypeVar("T")
_NO_CLIENT_ID = ""


def throttled(limit: Limit, seconds: float) -> ThrottlingQuotaExceeded:
    text = f"the quota {limit.value} is used up for {seconds:.1f} s"
    return ThrottlingQuotaExceeded(text, seconds)


class QuotaBroker(Protocol):
    """What quotas use of the broker."""

    @property
    def throttles(self) -> Throttles: ...

    @property
    def clock(self) -> Clock: ...


class CallerQuotas:
    def __init__(self, broker: QuotaBroker) -> None:
        self._broker = broker

    def _are_for(self, caller: Caller) -> bool:
        return self._broker.throttles.is_on and caller.principal.kind != OPERATOR_KIND

    def check_bytes(self, limit: Limit, caller: Caller) -> None:
        """Raises `ThrottlingQuotaExceeded` while the caller has exceeded the quota."""
        wait_s = self.count_bytes(limit, caller, 0)
        if wait_s:
            raise throttled(limit, wait_s)

    def count_bytes(self, limit: Limit, caller: Caller, count: int) -> float:
        """Count bytes produced or consumed; for how many seconds the caller should pause."""
        if not self._are_for(caller):
            return 0.0
        return self._broker.throttles.bytes_s(limit, caller, _NO_CLIENT_ID, count)

    def count_mutations(self, caller: Caller, count: int) -> None:
        """Count partitions to be created or deleted. Raises `ThrottlingQuotaExceeded`."""
        if not self._are_for(caller):
            return
        throttles = self._broker.throttles
        may, wait_s = throttles.mutations_s(caller, _NO_CLIENT_ID, count, is_strict=True)
        if not may:
            raise throttled(Limit.MUTATIONS, wait_s)

    async def timed(self, caller: Caller, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run work, and count the time that it takes on the loop. Raises
        `ThrottlingQuotaExceeded`.
        """
        if not self._are_for(caller):
            return await begin()
        throttles = self._broker.throttles
        wait_s = throttles.request_s(caller, _NO_CLIENT_ID, 0)
        if wait_s:
            raise throttled(Limit.REQUESTS, wait_s)
        work = _Timed(begin(), self._broker.clock)
        try:
            return await work
        finally:
            throttles.request_s(caller, _NO_CLIENT_ID, work.seconds)


class _Timed(Generic[T]):
    """Awaits a coroutine, and adds up the time of its steps, without that of its waits."""

    def __init__(self, work: Coroutine[Any, Any, T], clock: Clock) -> None:
        self._work = work
        self._clock = clock
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        answer: Any = None
        while True:
            begun_at = self._clock.monotonic()
            try:
                if error is None:
                    waits_for = self._work.send(answer)
                else:
                    waits_for = self._work.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.seconds += self._clock.monotonic() - begun_at
            error = None
            try:
                answer = yield waits_for
            except BaseException as raised:  # noqa: BLE001 # passed on to the coroutine
                error = raised
