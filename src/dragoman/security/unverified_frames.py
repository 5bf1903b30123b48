"""The memory of frames from connections that have to log in, by a signature that covers the frame.

RocketMQ signs each request, and the signature covers the whole of it, so the first request of a
connection is received before its sender is known, and may be a whole message. Its header names a
user and has the signature, but proves nothing before the rest has come: a check of the header alone
would keep nobody out. So frames are bounded together, by address and in all. Past a bound the
connection that began first is cut off, first of all one from an address without a successful login:
a client that sends its frame is gone from the list within a moment, and one that does not makes
room for others. A frame that is alone within its bound may always end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from dragoman.limits import (
    LOGIN_FRAME_BYTES_MAX,
    UNVERIFIED_BUDGET_SHARE,
    UNVERIFIED_PER_ADDRESS_BYTES_MAX,
)
from dragoman.security.login_origins import KnownOrigins, origin_of


class Receiver(Protocol):
    """A connection."""

    def cut(self, why: str) -> None:
        """Close at once."""
        ...


class UnverifiedFrames:
    def __init__(self, budget_bytes: Callable[[], int], known: KnownOrigins) -> None:
        """`budget_bytes` is the memory budget of the node."""
        self._budget_bytes = budget_bytes
        self._known = known
        #: Origin (`origin_of`) and bytes of each connection with more than a small frame; the one
        #: that began first comes first.
        self._held: dict[Receiver, tuple[str, int]] = {}
        self._by_origin: Counter[str] = Counter()
        self.in_all = 0
        #: Connections cut off to make room for others.
        self.displaced = 0

    def holds(self, receiver: Receiver, host: str, size: int) -> None:
        """Note the bytes that a connection holds. Connections may be cut off, this one included."""
        if size <= LOGIN_FRAME_BYTES_MAX:
            self.left(receiver)
            return
        origin = origin_of(host)
        _, before = self._held.get(receiver, (origin, 0))
        self._held[receiver] = origin, size
        self._by_origin[origin] += size - before
        self.in_all += size - before
        if size > before:
            self._make_room(origin)

    def left(self, receiver: Receiver) -> None:
        """A connection holds nothing, has logged in, or was closed."""
        origin, size = self._held.pop(receiver, ("", 0))
        if not size:
            return
        self.in_all -= size
        self._by_origin[origin] -= size
        if not self._by_origin[origin]:
            del self._by_origin[origin]

    def _make_room(self, origin: str) -> None:
        while self._by_origin[origin] > UNVERIFIED_PER_ADDRESS_BYTES_MAX:
            of_address = [each for each, (its, _) in self._held.items() if its == origin]
            if len(of_address) == 1:
                break
            self._displace(of_address[0])
        while self.in_all > self._budget_bytes() // UNVERIFIED_BUDGET_SHARE and len(self._held) > 1:
            unknown = (each for each, (its, _) in self._held.items() if its not in self._known)
            self._displace(next(unknown, None) or next(iter(self._held)))

    def _displace(self, receiver: Receiver) -> None:
        self.left(receiver)
        self.displaced += 1
        receiver.cut("others needed the memory of its first request, whose signature is unverified")
