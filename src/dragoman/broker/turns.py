"""Changes of one thing, one after the other.

A change that builds on what is there must see the result of every change before it, and that is
only known when the metadata quorum has agreed. So changes with the same key take turns; those of
other keys do not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from dragoman.broker.errors import Overloaded
from dragoman.limits import CONFIG_CHANGES_WAITING_MAX
from dragoman.outcome import Outcome


class _Queue:
    __slots__ = ("is_taken", "is_woken", "waiting")

    def __init__(self) -> None:
        self.is_taken = True
        self.waiting: deque[Outcome[None]] = deque()
        #: Whether the queue is being worked off: the next turn begins there.
        self.is_woken = False


class Turns:
    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue] = {}

    def take(self, key: Hashable) -> Turn:
        """`async with turns.take(key):` holds the turn of a key. Raises `Overloaded` when too many
        wait for it.
        """
        return Turn(self, key)

    async def _begin(self, key: Hashable) -> None:
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = _Queue()
            return
        if len(queue.waiting) >= CONFIG_CHANGES_WAITING_MAX:
            raise Overloaded(f"{len(queue.waiting) + 1} changes are waiting")
        turn: Outcome[None] = Outcome()
        queue.waiting.append(turn)
        await turn

    def _end(self, key: Hashable) -> None:
        queue = self._queues[key]
        queue.is_taken = False
        if queue.is_woken:
            return
        # A loop, not a recursion: a thousand changes may be refused one after the other.
        queue.is_woken = True
        while queue.waiting and not queue.is_taken:
            queue.is_taken = True
            queue.waiting.popleft().succeed(None)
        queue.is_woken = False
        if not queue.is_taken:
            del self._queues[key]


class Turn:
    __slots__ = ("_key", "_turns")

    def __init__(self, turns: Turns, key: Hashable) -> None:
        self._turns = turns
        self._key = key

    async def __aenter__(self) -> None:
        await self._turns._begin(self._key)

    async def __aexit__(self, *_raised: object) -> None:
        self._turns._end(self._key)
