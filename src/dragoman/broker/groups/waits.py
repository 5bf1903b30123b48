"""What a group waits for: deadlines, member ids that were given out, and requests to be answered.

Deadlines. Every heartbeat moves its member's deadline, so a deadline is moved far more often than
it is reached. Cancelling and creating a timer each time would cost several microseconds and leave
the dead ones in the loop's heap, so a later deadline is only noted down: the timer that is already
running finds it when it fires, and runs again for the rest.

Requests. A request that waits gets exactly one answer:

    waiting --decide--> decided --deliver--> answered
       \\--abandon--> abandoned  <--abandon--/

Deciding and delivering are two steps because a reply may lead straight into the next request of the
same client: answers are decided while the group changes and leave only when it is consistent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from dragoman.errors import DragomanError
from dragoman.types import MemberId
from dragoman.world import Handle, Scheduler

# ---- deadlines


_NEVER = float("inf")


class DeadlineTimer:
    """A deadline that is moved far more often than it is reached."""

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


# ---- member ids


class Promises:
    """Member ids that were given out and not used yet (KIP-394), each for one session."""

    __slots__ = ("_scheduler", "_timers", "_when_lapsed")

    def __init__(self, scheduler: Scheduler, when_lapsed: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._when_lapsed = when_lapsed
        self._timers: dict[MemberId, DeadlineTimer] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def give(self, member_id: MemberId, seconds: float) -> None:
        timer = DeadlineTimer(self._scheduler, partial(self._lapse, member_id))
        self._timers[member_id] = timer
        timer.arm(seconds)

    def take(self, member_id: MemberId) -> bool:
        """Use up a promise. False when there is none."""
        timer = self._timers.pop(member_id, None)
        if timer is None:
            return False
        timer.stop()
        return True

    def clear(self) -> None:
        for timer in self._timers.values():
            timer.stop()
        self._timers.clear()

    def _lapse(self, member_id: MemberId) -> None:
        del self._timers[member_id]
        self._when_lapsed()


# ---- requests


Result = TypeVar("Result")


class Parked(Generic[Result]):
    """A request that waits for its answer."""

    __slots__ = ("_reply", "_result", "_when_abandoned")

    def __init__(self, reply: Callable[[Result | DragomanError], None]) -> None:
        self._reply: Callable[[Result | DragomanError], None] | None = reply
        self._result: Result | DragomanError | None = None
        self._when_abandoned: Callable[[], None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._reply is not None and self._result is None

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        self._when_abandoned = callback

    def decide(self, result: Result | DragomanError) -> None:
        assert self._result is None, "a request is answered once"
        self._result = result

    def deliver(self) -> None:
        reply, result = self._reply, self._result
        assert result is not None
        self._reply = None
        if reply is not None:
            reply(result)

    def abandon(self) -> None:
        """The connection is gone: no answer is wanted any more. No effect once answered."""
        was_waiting = self.is_waiting
        self._reply = None
        if was_waiting and self._when_abandoned is not None:
            self._when_abandoned()


class _Decided(Protocol):
    def deliver(self) -> None: ...


class Outbox:
    """Answers that were decided and wait for the group to be consistent."""

    __slots__ = ("_decided",)

    def __init__(self) -> None:
        self._decided: deque[_Decided] = deque()

    def add(self, parked: Parked[Result], result: Result | DragomanError) -> None:
        parked.decide(result)
        self._decided.append(parked)

    def send(self) -> None:
        """The last step of every entry into a group: a reply may bring the next request."""
        try:
            while self._decided:
                self._decided.popleft().deliver()
        finally:
            # When a reply fails, the others must not wait for it.
            if self._decided:
                self.send()
