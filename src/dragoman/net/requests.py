"""Counts of the requests of one protocol: how many, how long they took, and their errors.

A session takes the counter of a request when it knows what the request is, and adds to it once,
when the reply is passed to the channel: the time since the read with which the request began.
Requests of one read that are answered together are added together.

A request that was parked on purpose (a fetch that waits for records, a join that waits for members)
says nothing about the speed of the node: its time goes to the histogram of parked requests.

The names of requests are those of a fixed table: whatever else clients send is `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from dragoman.histogram import Times
from dragoman.limits import REQUEST_ERROR_CODES_MAX

Key = TypeVar("Key", bound=Hashable)
UNKNOWN: Final = "unknown"


class RequestCounter:
    """The requests of one name."""

    __slots__ = ("answered", "dropped", "errors", "name", "parked", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        #: From the read of a request to its reply.
        self.seconds = Times()
        #: Adds the time of a request, or of several.
        self.answered = self.seconds.add_seconds
        #: Requests whose client left before the reply.
        self.dropped = 0
        #: By code: errors in replies.
        self.errors: dict[int | str, int] = {}
        #: Where a request is counted that waits for records or members.
        self.parked: RequestCounter = self

    def failed(self, code: int | str, count: int = 1) -> None:
        errors = self.errors
        if code not in errors and len(errors) >= REQUEST_ERROR_CODES_MAX:
            code = UNKNOWN
        errors[code] = errors.get(code, 0) + count

    @property
    def count(self) -> int:
        own = self.seconds.count + self.dropped
        parked = self.parked
        return own if parked is self else own + parked.count


class Requests(dict[Key, RequestCounter], Generic[Key]):
    """The counters of a protocol, by what its sessions know a request by; those that were used."""

    def __init__(
        self,
        protocol: str,
        name_of: Callable[[Key], str | None],
        code_name: Callable[[int | str], str] = str,
    ) -> None:
        """`name_of` names a request, None if the protocol does not have it; `code_name` names an
        error.
        """
        super().__init__()
        self.protocol = protocol
        self.code_name = code_name
        self.unknown = RequestCounter(UNKNOWN)
        self._name_of = name_of
        self._by_name: dict[str, RequestCounter] = {UNKNOWN: self.unknown}

    def __missing__(self, key: Key) -> RequestCounter:
        name = self._name_of(key)
        if name is None:
            return self.unknown
        counter = self._by_name.get(name)
        if counter is None:
            counter = self._by_name[name] = RequestCounter(name)
            counter.parked = RequestCounter(name)
            counter.parked.errors = counter.errors
        self[key] = counter
        return counter

    def counters(self) -> list[RequestCounter]:
        """Every counter that was used."""
        return [each for each in self._by_name.values() if each.count or each.errors]
