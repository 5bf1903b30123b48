"""A deadline that is moved far more often than it is reached.

Every heartbeat moves its member's deadline. Cancelling and creating a timer each time would cost
several microseconds and leave the dead ones in the loop's heap, so a later deadline is only noted
down: the timer that is already running finds it when it fires, and runs again for the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.world import Handle, Scheduler

_NEVER = float("inf")


class DeadlineTimer:
    __slots__ = ("_callback", "_deadline", "_fires_at", "_handle", "_scheduler", "_time")

    def __init__(self, scheduler: Scheduler, callback: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._time = scheduler.time
        self._callback = callback
        self._deadline = _NEVER
        self._fires_at = _NEVER
        self._handle: Handle | None = None

    @property
    def is_armed(self) -> bool:
        return self._deadline != _NEVER

    def arm(self, seconds: float) -> None:
        """Call back `seconds` from now, instead of whenever it was due before."""
        self._deadline = deadline = self._time() + seconds
        if deadline < self._fires_at:
            self._start(seconds)

    def stop(self) -> None:
        self._deadline = self._fires_at = _NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _start(self, seconds: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._fires_at = self._deadline
        self._handle = self._scheduler.call_later(seconds, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._fires_at = _NEVER
        remaining = self._deadline - self._time()
        if remaining > 0:
            self._start(remaining)
            return
        self._deadline = _NEVER
        self._callback()


class PhaseTimer:
    """Ends a phase that lasts a set time unless it is over before; at most one phase at a time."""

    __slots__ = ("_handle", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._handle: Handle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def begin(self, seconds: float, when_over: Callable[[], None]) -> None:
        self.end()
        self._handle = self._scheduler.call_later(seconds, self._fire, when_over)

    def end(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self, when_over: Callable[[], None]) -> None:
        self._handle = None
        when_over()
