"""How many requests a node begins in one turn of its loop, and how many operations it works on at
once.

Health, metrics and the OpenAPI document are no operations: they answer whatever the operations wait
for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from dragoman import limits
from dragoman.api.operations import ApiError

#: Set in the state of a request's scope once an operation works on it.
BEGUN = "begun"


class Admission:
    def __init__(self) -> None:
        self._working = 0
        #: Times left to operations whose body is still to come, the oldest first.
        self._reading: dict[asyncio.Timeout, None] = {}

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Raises `ApiError` when there are too many and none of them waits for its client."""
        if self._working >= limits.HTTP_OPERATIONS_MAX and not self._make_room():
            raise ApiError(503, "overloaded", "the node works on other requests; try again")
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """While a body is read. Raises `TimeoutError` when it takes too long, or longest of all
        while others want to be served.
        """
        async with asyncio.timeout(limits.HTTP_REQUEST_SECONDS) as timeout:
            self._reading[timeout] = None
            try:
                yield
            finally:
                self._reading.pop(timeout, None)

    def _make_room(self) -> bool:
        if not self._reading:
            return False
        oldest = next(iter(self._reading))
        del self._reading[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
        return True


class Pace:
    """Requests beyond a few begin in later turns of the loop, so that clients of the other
    listeners are served in between. A connection has one request at a time: no more wait than there
    are connections.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_counting = False

    async def turn(self, *, is_urgent: bool) -> None:
        """Until the request may begin; an urgent one goes before all that wait."""
        loop = asyncio.get_running_loop()
        if not self._is_counting:
            self._is_counting = True
            loop.call_soon(self._next, loop)
        if self._begun < limits.HTTP_REQUESTS_PER_TURN and not self._waiting:
            self._begun += 1
            return
        begins: asyncio.Future[None] = loop.create_future()
        if is_urgent:
            self._waiting.appendleft(begins)
        else:
            self._waiting.append(begins)
        await begins

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun = 0
        while self._waiting and self._begun < limits.HTTP_REQUESTS_PER_TURN:
            begins = self._waiting.popleft()
            # One that is done was cancelled with its connection.
            if not begins.done():
                self._begun += 1
                begins.set_result(None)
        self._is_counting = self._begun > 0
        if self._is_counting:
            loop.call_soon(self._next, loop)
