"""Host names as IPv4 addresses, for protocols that have four bytes for one.

The system's resolver blocks while a name server is silent, so names are looked up in a thread
beside the loop, one look-up per name at a time. A caller gets the address that is known at the
moment. A result is cached for a while, a failure for a shorter one. While look-ups fail, the last
address remains valid.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from dragoman.limits import HOST_NAME_FAILED_S, HOST_NAME_LIFETIME_S, HOST_NAMES_MAX
from dragoman.outcome import Outcome, ignore, start
from dragoman.world import NO_ADDRESS, Scheduler, is_ipv4

log = logging.getLogger("dragoman.net")
#: Looks up an address; None: there is none.
LookUp: TypeAlias = Callable[[str], Outcome[str | None]]


class _Known(NamedTuple):
    address: str
    #: When the next look-up is due.
    until: float


class CachedHostNames:
    """A cache that belongs to the loop: callers and results come in its thread."""

    def __init__(self, scheduler: Scheduler, look_up: LookUp) -> None:
        self._scheduler = scheduler
        self._look_up = look_up
        #: By host, least recently looked up first.
        self._known: dict[str, _Known] = {}
        self._under_way: set[str] = set()
        self._failing: set[str] = set()

    def ipv4(self, host: str) -> str:
        if is_ipv4(host):
            return host
        known = self._known.get(host)
        if known is None or known.until <= self._scheduler.time():
            start(self._resolve(host)).then(ignore)
            known = self._known.get(host)
        return NO_ADDRESS if known is None else known.address

    async def _resolve(self, host: str) -> None:
        if host in self._under_way or len(self._under_way) >= HOST_NAMES_MAX:
            return
        self._under_way.add(host)
        address = await self._look_up(host)
        self._under_way.discard(host)
        before = self._known.pop(host, None)
        now = self._scheduler.time()
        if address is None:
            if host not in self._failing:
                log.warning("host name %s cannot be resolved; tried again while it is needed", host)
                self._failing.add(host)
            stale = NO_ADDRESS if before is None else before.address
            self._known[host] = _Known(stale, now + HOST_NAME_FAILED_S)
        else:
            if host in self._failing:
                log.info("host name %s is resolved again: %s", host, address)
                self._failing.discard(host)
            self._known[host] = _Known(address, now + HOST_NAME_LIFETIME_S)
        while len(self._known) > HOST_NAMES_MAX:
            forgotten = next(iter(self._known))
            del self._known[forgotten]
            self._failing.discard(forgotten)


def look_up_beside(call_soon_threadsafe: Callable[..., object]) -> LookUp:
    """Look-ups by the system's resolver, each in a thread of its own. A thread that hangs does not
    keep the process from ending, as one of an executor would.
    """

    def look_up(host: str) -> Outcome[str | None]:
        outcome: Outcome[str | None] = Outcome()

        def work() -> None:
            found = _address(host)
            try:
                call_soon_threadsafe(outcome.succeed, found)
            except RuntimeError:
                # The loop was closed.
                return

        threading.Thread(target=work, name="dragoman-host-name", daemon=True).start()
        return outcome

    return look_up


def _address(host: str) -> str | None:
    try:
        found = socket.getaddrinfo(host, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0]) if found else None
