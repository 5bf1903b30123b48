"""Producer ids, handed out one by one from blocks that were reserved durably beforehand.

The rest of a block is lost in a crash, so that an id is never given out twice. One source serves
all coordinators of a node.
"""

from __future__ import annotations

from collections import deque

from dragoman.broker.errors import ProducerIdsUnavailable
from dragoman.broker.transactions.ports import AllocateBlock
from dragoman.errors import DragomanError
from dragoman.limits import PRODUCER_ID_WAITERS_MAX
from dragoman.outcome import Outcome, ignore, start


class ProducerIds:
    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        self._waiting: deque[Outcome[int]] = deque()
        self._is_allocating = False

    async def next(self) -> int:
        """An id that was never used, at once or when a new block is reserved.

        Raises `ProducerIdsUnavailable`.
        """
        if self._next < self._end and not self._waiting:
            self._next += 1
            return self._next - 1
        if len(self._waiting) >= PRODUCER_ID_WAITERS_MAX:
            raise ProducerIdsUnavailable(f"{len(self._waiting)} requests wait already")
        outcome: Outcome[int] = Outcome()
        self._waiting.append(outcome)
        if not self._is_allocating:
            start(self._allocate()).then(ignore)
        return await outcome

    async def _allocate(self) -> None:
        """Reserve blocks as long as requests wait."""
        self._is_allocating = True
        while self._waiting:
            try:
                block = await self._allocate_block()
            except DragomanError as cause:
                self._is_allocating = False
                self._refuse(cause)
                return
            assert len(block) > 0
            assert block.step == 1
            assert block.start >= self._end, "a block of producer ids was reserved twice"
            self._next, self._end = block.start, block.stop
            # A request that comes out of an answer joins the queue and must not reserve another
            # block.
            while self._waiting and self._next < self._end:
                self._next += 1
                self._waiting.popleft().succeed(self._next - 1)
        self._is_allocating = False

    def _refuse(self, cause: DragomanError) -> None:
        # Only those waiting now: an answer may bring a new request, which deserves a new attempt.
        waiting, self._waiting = self._waiting, deque()
        for outcome in waiting:
            error = ProducerIdsUnavailable(f"no block of producer ids: {cause}")
            error.__cause__ = cause
            outcome.fail(error)
