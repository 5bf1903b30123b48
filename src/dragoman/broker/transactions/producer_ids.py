"""Producer ids, handed out one by one from blocks that were reserved durably beforehand.

What is left of a block is lost in a crash; that is why an id is never given out twice. One source
serves all coordinators of a node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from dragoman.broker.errors import ProducerIdsUnavailable
from dragoman.broker.transactions.ports import AllocateBlock
from dragoman.errors import DragomanError
from dragoman.limits import PRODUCER_ID_WAITERS_MAX

Receive: TypeAlias = Callable[[int | ProducerIdsUnavailable], None]


class ProducerIds:
    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        self._waiting: deque[Receive] = deque()
        self._is_allocating = False

    def next(self, receive: Receive) -> None:
        """Give `receive` an id nobody had, at once or when a new block is reserved, or an error."""
        if self._next < self._end and not self._waiting:
            self._next += 1
            receive(self._next - 1)
        elif len(self._waiting) >= PRODUCER_ID_WAITERS_MAX:
            receive(ProducerIdsUnavailable(f"{len(self._waiting)} requests wait already"))
        else:
            self._waiting.append(receive)
            self._allocate()

    def _allocate(self) -> None:
        if not self._is_allocating:
            self._is_allocating = True
            self._allocate_block(self._allocated)

    def _allocated(self, result: range | DragomanError) -> None:
        assert self._is_allocating
        if isinstance(result, DragomanError):
            self._is_allocating = False
            self._refuse(result)
            return
        assert len(result) > 0
        assert result.step == 1
        assert result.start >= self._end, "a block of producer ids was reserved twice"
        self._next, self._end = result.start, result.stop
        # A request that comes out of an answer joins the queue and must not reserve another block.
        while self._waiting and self._next < self._end:
            self._next += 1
            self._waiting.popleft()(self._next - 1)
        self._is_allocating = False
        if self._waiting:
            self._allocate()

    def _refuse(self, cause: DragomanError) -> None:
        # Only those waiting now: an answer may bring a new request, which deserves a new attempt.
        waiting, self._waiting = self._waiting, deque()
        for receive in waiting:
            error = ProducerIdsUnavailable(f"no block of producer ids: {cause}")
            error.__cause__ = cause
            receive(error)
