"""How long a login waits before it is examined, after failures from its address or for its user.

Each failure doubles the wait of the next login, up to a bound; a success, or time, forgets them.
No user is locked out: the right password is accepted after at most the longest wait. Guesses in
parallel all wait, so their rate is bounded by the connections that an address may have before
login.
"""

from __future__ import annotations

from itertools import islice

from dragoman.limits import (
    EVICTION_CANDIDATES_MAX,
    LOGIN_FAILURES_FORGOTTEN_S,
    LOGIN_FAILURES_FREE,
    LOGIN_FAILURES_KEPT_MAX,
    LOGIN_WAIT_ADDRESS_S_MAX,
    LOGIN_WAIT_S_MIN,
    LOGIN_WAIT_USER_S_MAX,
    USER_NAME_BYTES_MAX,
)
from dragoman.security.login_origins import origin_of


class _Failures:
    """Failures by one kind of key, the oldest first."""

    __slots__ = ("_counts", "_wait_max")

    def __init__(self, wait_max: float) -> None:
        self._wait_max = wait_max
        #: Number of failures, and the time of the last one.
        self._counts: dict[str, tuple[int, float]] = {}

    def wait(self, key: str, now: float) -> float:
        count, last = self._counts.get(key, (0, now))
        excess = count - LOGIN_FAILURES_FREE
        if excess <= 0 or now - last >= LOGIN_FAILURES_FORGOTTEN_S:
            return 0.0
        # The exponent is bounded, so that the number stays a small one.
        return float(min(LOGIN_WAIT_S_MIN * 2 ** min(excess - 1, 16), self._wait_max))

    def failed(self, key: str, now: float) -> None:
        count, last = self._counts.pop(key, (0, now))
        if now - last >= LOGIN_FAILURES_FORGOTTEN_S:
            count = 0
        self._counts[key] = (count + 1, now)
        if len(self._counts) > LOGIN_FAILURES_KEPT_MAX:
            # Names and addresses that are made up for it do not push out one with many failures.
            oldest = islice(self._counts, EVICTION_CANDIDATES_MAX)
            del self._counts[min(oldest, key=lambda each: self._counts[each][0])]

    def forget(self, key: str) -> None:
        self._counts.pop(key, None)


class LoginFailures:
    def __init__(self) -> None:
        self._by_address = _Failures(LOGIN_WAIT_ADDRESS_S_MAX)
        self._by_user = _Failures(LOGIN_WAIT_USER_S_MAX)

    def wait(self, user: str, host: str, now: float) -> float:
        """Seconds to wait before a login is examined; `user` is empty if it is not known yet."""
        by_address = self._by_address.wait(origin_of(host), now)
        return max(by_address, self._by_user.wait(_key(user), now))

    def failed(self, user: str, host: str, now: float) -> None:
        self._by_address.failed(origin_of(host), now)
        if user:
            self._by_user.failed(_key(user), now)

    def succeeded(self, user: str) -> None:
        """Forget the user's failures. Those of the address stay: a client that knows one password
        must not guess others at full speed.
        """
        self._by_user.forget(_key(user))


def _key(user: str) -> str:
    """The name, cut to what is kept of it: clients may send any text."""
    return user[:USER_NAME_BYTES_MAX]
