"""Admission: how many connections clients may have, and how many bytes may be in flight.

**Connections** are counted in all and by address; one too many is closed as soon as it is accepted.
Connections between nodes are not counted: a flood of clients does not keep nodes from each other. A
connection is also refused when it takes a descriptor that other parts of the node will need
(`DescriptorShare`).

**Bytes** in flight are requests that arrive or are worked on, and replies that wait for an earlier
one or for a peer that does not read. Memory is charged as it is taken. A connection is read until
all others together hold more than its ceiling:

    new          three quarters of the budget: a connection that has never been answered
    working      the budget: one that has been answered, between two requests
    finishing    a quarter above the budget: the same in the middle of a request

Connections that have done nothing yet therefore cannot take the whole budget from those that work,
and a request that has begun can still end when the budget is used up. What a connection itself
holds does not count against it: one alone may always finish. Past its ceiling a connection is not
read until a fifth of the ceiling is free again. Builders of large replies check `room` first.
`stalled.py` finds the peers that keep the others waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from dragoman.limits import OPEN_FILES_MAX


class Paused(Protocol):
    def resume(self) -> None: ...


class Ceiling:
    """A byte budget of one kind of connections, and the connections that wait for it."""

    __slots__ = ("bytes_max", "paused", "resume_below")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.resume_below = bytes_max - bytes_max // 5
        self.paused: dict[Paused, None] = {}


class MemoryBudget:
    __slots__ = ("_bytes_max", "_ceilings", "_is_waited_for", "finishing", "new", "used", "working")

    def __init__(self, bytes_max: int, *, bounds_working: bool = True) -> None:
        """`bounds_working` is false where working connections are few and must not be stopped."""
        self._bytes_max = bytes_max
        unbounded = 1 << 62
        self.new = Ceiling(bytes_max - bytes_max // 4)
        self.working = Ceiling(bytes_max if bounds_working else unbounded)
        self.finishing = Ceiling(bytes_max + bytes_max // 4 if bounds_working else unbounded)
        self._ceilings = (self.new, self.working, self.finishing)
        self._is_waited_for = False
        self.used = 0

    @property
    def bytes_max(self) -> int:
        return self._bytes_max

    @property
    def is_exhausted(self) -> bool:
        return self.used >= self._bytes_max

    @property
    def missing(self) -> int:
        """Bytes to be released before all waiting connections may read; 0 while none waits."""
        lowest = [each.resume_below for each in self._ceilings if each.paused]
        if self.is_exhausted:
            lowest.append(self.working.resume_below)
        return max(0, self.used - min(lowest) + 1) if lowest else 0

    @property
    def room(self) -> int:
        return max(0, self._bytes_max - self.used)

    def take(self, size: int) -> None:
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0
        if self._is_waited_for:
            self._resume()

    def change(self, size: int) -> None:
        """Take bytes, or release them when `size` is negative."""
        if size > 0:
            self.take(size)
        else:
            self.give_back(-size)

    def wait(self, paused: Paused, ceiling: Ceiling) -> None:
        """Call `resume` when the use is below the ceiling again."""
        ceiling.paused[paused] = None
        self._is_waited_for = True

    def forget(self, paused: Paused) -> None:
        for ceiling in self._ceilings:
            ceiling.paused.pop(paused, None)

    def _resume(self) -> None:
        for ceiling in self._ceilings:
            if ceiling.paused and self.used < ceiling.resume_below:
                paused, ceiling.paused = ceiling.paused, {}
                for each in paused:
                    each.resume()
        self._is_waited_for = any(each.paused for each in self._ceilings)


class ConnectionCaps(msgspec.Struct, frozen=True):
    """The current values of the settings."""

    in_all: int
    per_address: int
    #: Addresses, such as those of proxies, that have a cap of their own.
    overrides: Mapping[str, int]


def all_descriptors() -> int:
    """The highest descriptor that leaves enough to others."""
    return OPEN_FILES_MAX


class DescriptorShare:
    """The descriptors that connections of one kind may have: those up to `highest`.

    The system assigns the lowest free number, so the number of a new connection tells how many
    descriptors are in use, unless an earlier connection is above the share. Such a connection has
    replaced another one, whose lower number is free again. If the next connection took that number
    as one of the share, the connections in use would grow by one with every second connection.
    While one is above the share, every new connection therefore replaces another one.
    """

    __slots__ = ("_above", "_give_way", "highest")

    def __init__(
        self,
        highest: Callable[[], int] = all_descriptors,
        give_way: Callable[[], bool] | None = None,
    ) -> None:
        """`give_way` closes a connection that is needed less than a new one, if there is one."""
        self.highest = highest
        self._give_way = give_way
        #: Connections that were admitted above the share, with their numbers.
        self._above: list[tuple[int, asyncio.BaseTransport]] = []

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether a new connection may stay, possibly in place of another one."""
        connected = transport.get_extra_info("socket")
        if connected is None:
            return True
        number, highest = connected.fileno(), self.highest()
        if self._above:
            self._above = [
                (each, its) for each, its in self._above if each > highest and not its.is_closing()
            ]
        is_left: bool = number <= highest
        if is_left and not self._above:
            return True
        if self._give_way is None or not self._give_way():
            # Work is done for all others, which bounds how many there are.
            return is_left
        if not is_left:
            self._above.append((number, transport))
        return True


class ConnectionCount:
    """The number of client connections, over all listeners."""

    def __init__(self, caps: Callable[[], ConnectionCaps]) -> None:
        self._caps = caps
        self._by_address: dict[str, int] = {}
        self.in_all = 0

    def refusal(self, address: str) -> str:
        """The reason for refusing another connection from this address; empty when it is
        accepted.
        """
        caps = self._caps()
        if self.in_all >= caps.in_all:
            return f"max.connections is {caps.in_all}"
        most = caps.overrides.get(address, caps.per_address)
        if self._by_address.get(address, 0) >= most:
            return f"max.connections.per.ip is {most} for this address"
        return ""

    def opened(self, address: str) -> None:
        self.in_all += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def closed(self, address: str) -> None:
        self.in_all -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]
