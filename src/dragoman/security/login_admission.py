"""How many connections may be open that have not logged in yet, per address and in all.

A part is kept for addresses from which a login has succeeded lately (`login_origins.py`). The same
numbers bound how many an address, and all addresses, may open in a second. A connection
above a bound is closed as soon as it is accepted. Connections that have logged in, or need not, do
not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from dragoman.limits import LOGIN_ORIGINS_SHARE
from dragoman.security.login_origins import KnownOrigins, origin_of


class LoginCaps(NamedTuple):
    """The current values of the settings."""

    in_all: int
    per_address: int


class LoginAdmission:
    def __init__(
        self, caps: Callable[[], LoginCaps], now: Callable[[], float], known: KnownOrigins
    ) -> None:
        self._known = known
        self._caps = caps
        self._now = now
        #: Connections at the moment, by origin (`origin_of`).
        self._open: Counter[str] = Counter()
        self.in_all = 0
        #: Connections that were admitted in the current second, by origin (`origin_of`).
        self._lately: Counter[str] = Counter()
        self._lately_in_all = 0
        self._second = 0

    def refusal(self, address: str) -> str:
        """The reason for refusing a connection; empty: it is admitted, and counted until it has
        `left`.
        """
        caps, address = self._caps(), origin_of(address)
        second = int(self._now())
        if second != self._second:
            self._second = second
            self._lately.clear()
            self._lately_in_all = 0
        reserved = 0 if address in self._known else caps.in_all // LOGIN_ORIGINS_SHARE
        if max(self.in_all, self._lately_in_all) >= caps.in_all - reserved:
            return f"max.connections.before.login is {caps.in_all}"
        if max(self._open[address], self._lately[address]) >= caps.per_address:
            return f"max.connections.before.login.per.ip is {caps.per_address}"
        self._open[address] += 1
        self.in_all += 1
        self._lately[address] += 1
        self._lately_in_all += 1
        return ""

    def left(self, address: str) -> None:
        """A connection has logged in, or was closed."""
        address = origin_of(address)
        self.in_all -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]
