"""How many connections clients may have at a time: in all, and from one address.

One more is closed as soon as it is accepted. The nodes' connections to each other are not counted
here: a flood of clients does not keep nodes from each other.

So is one that takes a descriptor which others will need. The system always gives the lowest number
that is free, so the number tells how many are in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from dragoman.limits import OPEN_FILES_MAX


class ConnectionCaps(msgspec.Struct, frozen=True):
    """As the settings have them at the moment."""

    in_all: int
    per_address: int
    #: Addresses, such as those of proxies, that have a cap of their own.
    overrides: Mapping[str, int]


def all_descriptors() -> int:
    """The bound where connections leave no descriptors to others."""
    return OPEN_FILES_MAX


def has_descriptor_left(transport: asyncio.BaseTransport, descriptor_max: int) -> bool:
    """Whether a connection that was just accepted leaves enough descriptors to the others."""
    connected = transport.get_extra_info("socket")
    return connected is None or connected.fileno() <= descriptor_max


class ConnectionCount:
    """The connections of all clients, over all listeners."""

    def __init__(self, caps: Callable[[], ConnectionCaps]) -> None:
        self._caps = caps
        self._by_address: dict[str, int] = {}
        self.in_all = 0

    def refusal(self, address: str) -> str:
        """Why one more from this address is not taken; empty when it is."""
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
