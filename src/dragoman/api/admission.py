"""Admission: how many requests a node begins per loop turn, and how many operations run at once.

Health, metrics and the OpenAPI document do not count as operations: they are served even while
operations wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from dragoman import limits
from dragoman.api.declaration import ApiError

#: Key in the state of a request's scope, set once its operation has begun.
BEGUN = "begun"
#: The same, set while the response is a stream of events: it gives way when nothing else can.
STREAM = "stream"


class Admission:
    def __init__(self) -> None:
        self._working = 0
        #: Timeouts of the operations that are reading a body, oldest first.
        self._reading: dict[asyncio.Timeout, None] = {}

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Count an operation while it runs.

        Raises `ApiError` at the bound, unless another operation is waiting for its client's body
        and can be cut off.
        """
        if self._working >= limits.HTTP_OPERATIONS_MAX and not self._make_room():
            raise ApiError(503, "overloaded", "the node is busy with other requests; try again")
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Bound the time in which a body is read.

        Raises `TimeoutError` when the body takes too long. At the bound on operations, the
        operation that has read its body for longest times out to make room for the next one.
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
    """Spreads requests over loop turns, so that clients of the other listeners are served in
    between.

    A connection has one request at a time, so the number of connections bounds the number of
    waiting requests.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_counting = False

    async def turn(self, *, is_urgent: bool) -> None:
        """Wait until the request may begin; an urgent one overtakes those that wait."""
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
            # A future that is done was cancelled with its connection.
            if not begins.done():
                self._begun += 1
                begins.set_result(None)
        self._is_counting = self._begun > 0
        if self._is_counting:
            loop.call_soon(self._next, loop)
