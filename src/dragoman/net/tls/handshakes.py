"""Handshakes in progress: their number, their memory, and their share of each loop turn.

A handshake costs the node a signature, half a millisecond, and while it waits for the client some
46 KB; a client that sends a hello has spent nothing. So

- a few steps run in a loop turn, and those of clients that have answered run before those of new
  ones: under a storm of connections, handshakes that have begun end;
- what handshakes hold counts in the node's memory budget, a quarter of which they may have. Past
  that, the oldest that waits for its client is cut off: a client that answers is gone from the list
  within a round trip, one that does not makes room for others;
- one that does not end in time is cut off.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from dragoman.limits import (
    TLS_HANDSHAKE_S_MAX,
    TLS_HANDSHAKE_STEPS_PER_TURN,
    TLS_HANDSHAKES_BUDGET_SHARE,
    TLS_READ_BYTES,
)
from dragoman.net.admission import MemoryBudget
from dragoman.world import Handle, Scheduler


class Handshake(Protocol):
    """A connection whose handshake has not ended."""

    def step(self) -> None:
        """Continue with the bytes that have arrived."""
        ...

    def give_up(self, reason: str) -> None:
        """Close the connection. It calls `ended`."""
        ...


class Handshakes:
    """All handshakes of a node."""

    def __init__(self, budget: MemoryBudget, scheduler: Scheduler) -> None:
        self.budget = budget
        self._scheduler = scheduler
        #: The receive buffer that all TLS connections share: what is in it is decrypted, or copied,
        #: before the next read.
        self.scratch = memoryview(bytearray(TLS_READ_BYTES))
        #: When each has begun, the oldest first.
        self._begun: dict[Handshake, float] = {}
        #: Bytes that each holds; those that wait for longest come first.
        self._held: dict[Handshake, int] = {}
        self._held_bytes = 0
        self._due: dict[Handshake, None] = {}
        #: Steps to run: of clients that have answered, and first ones.
        self._answered: deque[Handshake] = deque()
        self._new: deque[Handshake] = deque()
        self._is_running_soon = False
        self._timer: Handle | None = None
        self.completed = 0
        self.failed = 0
        #: Handshakes cut off to make room for others.
        self.displaced = 0

    @property
    def count(self) -> int:
        return len(self._begun)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def began(self, handshake: Handshake) -> None:
        self._begun[handshake] = self._scheduler.time()
        if self._timer is None:
            self._timer = self._scheduler.call_later(TLS_HANDSHAKE_S_MAX, self._expire)

    def ended(self, handshake: Handshake, *, is_complete: bool) -> None:
        if handshake in self._begun:
            self.left(handshake)
            if is_complete:
                self.completed += 1
            else:
                self.failed += 1

    def left(self, handshake: Handshake) -> None:
        """Forget a connection, which may turn out to be without TLS."""
        self.holds(handshake, 0)
        self._begun.pop(handshake, None)
        self._due.pop(handshake, None)

    def give_up_all(self, reason: str) -> None:
        for handshake in list(self._begun):
            handshake.give_up(reason)

    def holds(self, handshake: Handshake, size: int) -> None:
        """Note the memory that a handshake holds. Others may be cut off."""
        change = size - self._held.pop(handshake, 0)
        if size:
            self._held[handshake] = size
        self._held_bytes += change
        self.budget.change(change)
        if change > 0:
            self._make_room(handshake)

    def _make_room(self, newest: Handshake) -> None:
        most = self.budget.bytes_max // TLS_HANDSHAKES_BUDGET_SHARE
        while self._held_bytes > most:
            waiting = (each for each in self._held if each not in self._due)
            oldest = next(waiting, None) or next(iter(self._held))
            if oldest is newest and len(self._held) == 1:
                return
            self.displaced += 1
            oldest.give_up("others needed the memory of its TLS handshake")

    # ---- steps

    def due(self, handshake: Handshake, *, is_new: bool) -> None:
        """Have `step` called, in this turn or a later one."""
        if handshake not in self._due:
            self._due[handshake] = None
            (self._new if is_new else self._answered).append(handshake)
            self._run_soon()

    def _run_soon(self) -> None:
        if not self._is_running_soon:
            self._is_running_soon = True
            self._scheduler.call_soon(self._run)

    def _run(self) -> None:
        self._is_running_soon = False
        left = TLS_HANDSHAKE_STEPS_PER_TURN
        try:
            while left and (self._answered or self._new):
                handshake = (self._answered or self._new).popleft()
                # One that has ended meanwhile is no longer due.
                if handshake in self._due:
                    del self._due[handshake]
                    left -= 1
                    handshake.step()
        finally:
            if self._answered or self._new:
                self._run_soon()

    # ---- time

    def _expire(self) -> None:
        self._timer = None
        before = self._scheduler.time() - TLS_HANDSHAKE_S_MAX
        late = []
        for handshake, since in self._begun.items():
            if since > before:
                break
            late.append(handshake)
        for handshake in late:
            handshake.give_up(f"no TLS handshake within {TLS_HANDSHAKE_S_MAX:g} s")
        if self._begun:
            oldest = next(iter(self._begun.values()))
            wait = max(0.0, oldest + TLS_HANDSHAKE_S_MAX - self._scheduler.time())
            self._timer = self._scheduler.call_later(wait, self._expire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
