"""How late the event loop runs what is due: what clients wait for when the node has too much to do.

A timer notes by how much it came late. It is set twice a second while clients send, and every five
seconds otherwise, so that an idle node sleeps.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.histogram import Times
from dragoman.limits import LOOP_LAG_BUSY_S, LOOP_LAG_IDLE_S
from dragoman.world import Clock, Handle, Scheduler


class LoopLag:
    def __init__(self, scheduler: Scheduler, clock: Clock, received: Callable[[], int]) -> None:
        """`received` counts the bytes that clients have sent."""
        self._scheduler = scheduler
        self._clock = clock
        self._received = received
        self._seen = 0
        self._due_at = 0.0
        self._timer: Handle | None = None
        #: By how much timers came late.
        self.seconds = Times()

    def watch(self) -> None:
        """Measure from now on."""
        received = self._received()
        delay = LOOP_LAG_IDLE_S if received == self._seen else LOOP_LAG_BUSY_S
        self._seen = received
        self._due_at = self._clock.monotonic() + delay
        self._timer = self._scheduler.call_later(delay, self._due)

    def _due(self) -> None:
        self.seconds.add_seconds(max(0.0, self._clock.monotonic() - self._due_at))
        self.watch()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
