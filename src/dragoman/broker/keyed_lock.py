"""A lock per key, for coroutines: changes of one thing happen one after the other.

A change that builds on the current state must see the result of every change before it, which is
known only once the metadata quorum has agreed. Changes with the same key therefore queue, in the
order of their calls; changes with different keys do not wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from dragoman.broker.errors import Overloaded
from dragoman.limits import CONFIG_CHANGES_WAITING_MAX
from dragoman.outcome import Outcome


class _Queue:
    __slots__ = ("is_draining", "is_held", "waiting")

    def __init__(self) -> None:
        self.is_held = True
        self.waiting: deque[Outcome[None]] = deque()
        #: Whether a caller further up the stack is resuming waiters, one after the other.
        self.is_draining = False


class KeyedLock:
    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue] = {}

    def take(self, key: Hashable) -> _Hold:
        """`async with lock.take(key):` holds the lock of a key. Entering raises `Overloaded` when
        too many wait for it.
        """
        return _Hold(self, key)

    async def _acquire(self, key: Hashable) -> None:
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = _Queue()
            return
        if len(queue.waiting) >= CONFIG_CHANGES_WAITING_MAX:
            raise Overloaded(f"{len(queue.waiting) + 1} changes are waiting")
        acquired: Outcome[None] = Outcome()
        queue.waiting.append(acquired)
        await acquired

    def _release(self, key: Hashable) -> None:
        queue = self._queues[key]
        queue.is_held = False
        if queue.is_draining:
            return
        # A loop, not a recursion: a thousand changes may be refused one after the other.
        queue.is_draining = True
        while queue.waiting and not queue.is_held:
            queue.is_held = True
            queue.waiting.popleft().succeed(None)
        queue.is_draining = False
        if not queue.is_held:
            del self._queues[key]


class _Hold:
    __slots__ = ("_key", "_lock")

    def __init__(self, lock: KeyedLock, key: Hashable) -> None:
        self._lock = lock
        self._key = key

    async def __aenter__(self) -> None:
        await self._lock._acquire(self._key)

    async def __aexit__(self, *_raised: object) -> None:
        self._lock._release(self._key)
