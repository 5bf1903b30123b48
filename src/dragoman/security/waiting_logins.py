"""The logins that wait because of earlier failures, bounded by address, by network and in all.

What waits takes memory, and its number bounds the rate of guesses. A guesser with many addresses
takes the room of addresses without a successful login, and none of the room of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.errors import LoginsOverloadedError
from dragoman.limits import (
    LOGINS_WAITING_MAX,
    LOGINS_WAITING_PER_ADDRESS_MAX,
    LOGINS_WAITING_PER_NETWORK_MAX,
    LOGINS_WAITING_UNKNOWN_MAX,
)
from dragoman.security.login_origins import KnownOrigins, network_of, origin_of


class WaitingLogins:
    def __init__(self, known: KnownOrigins) -> None:
        self._known = known
        self._by_origin: Counter[str] = Counter()
        #: Logins from unknown addresses, by their networks.
        self._by_network: Counter[str] = Counter()
        self._in_all = 0
        self._unknown = 0

    @contextmanager
    def place(self, host: str) -> Iterator[None]:
        """The place of one login while it waits. Raises `LoginsOverloadedError`."""
        origin, network = origin_of(host), network_of(host)
        is_unknown = origin not in self._known
        if (
            self._in_all >= LOGINS_WAITING_MAX
            or self._by_origin[origin] >= LOGINS_WAITING_PER_ADDRESS_MAX
            or (is_unknown and self._is_full_for_unknown(network))
        ):
            raise LoginsOverloadedError("too many logins wait; retry later")
        self._count(origin, network, 1, is_unknown=is_unknown)
        try:
            yield
        finally:
            self._count(origin, network, -1, is_unknown=is_unknown)

    def _is_full_for_unknown(self, network: str) -> bool:
        return (
            self._unknown >= LOGINS_WAITING_UNKNOWN_MAX
            or self._by_network[network] >= LOGINS_WAITING_PER_NETWORK_MAX
        )

    def _count(self, origin: str, network: str, change: int, *, is_unknown: bool) -> None:
        self._in_all += change
        _add(self._by_origin, origin, change)
        if is_unknown:
            self._unknown += change
            _add(self._by_network, network, change)


def _add(counts: Counter[str], key: str, change: int) -> None:
    counts[key] += change
    if not counts[key]:
        del counts[key]
