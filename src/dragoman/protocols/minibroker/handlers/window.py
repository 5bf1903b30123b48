"""How far the pushes of a group subscription may run ahead of what its client has committed.

The original client puts records in a queue of 256 for each subscription and stops reading the
connection when it is full. A handler that commits, and waits for the OK, while more than that is
on its way to it waits for ever: the OK is behind records that nobody reads. What the peer's
program has taken cannot be seen from here, only what its system has; but a commit tells what the
handler is done with. So at most `PUSH_WINDOW_RECORDS` records are pushed that the client has not
committed.

Not every client commits after each record, and some never do. They must not be held up for long:

- A commit that takes in many records at once is the client's habit: the window grows to as many,
  and the usual number on top of it.
- A commit that leaves nothing on its way shows that the client waited for us: the window doubles.
- A client that does not commit although its window is full is given four times as much after
  `PUSH_PATIENCE_S`; one that is known to commit, after `PUSH_PATIENCE_COMMITTING_S`.
- Past `PUSH_WINDOW_RECORDS_MAX` there is no window any more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dragoman.limits import (
    PUSH_PATIENCE_COMMITTING_S,
    PUSH_PATIENCE_S,
    PUSH_WINDOW_RECORDS,
    PUSH_WINDOW_RECORDS_MAX,
)
from dragoman.world import Handle, Scheduler

if TYPE_CHECKING:
    from dragoman.protocols.minibroker.handlers.pushing import Pusher, Stream


class Window:
    def __init__(self, scheduler: Scheduler, pusher: Pusher, *, commits: bool = False) -> None:
        self._scheduler = scheduler
        self._pusher = pusher
        #: Whether the client is known to commit.
        self.commits = commits
        self.size = PUSH_WINDOW_RECORDS
        #: By partition: offsets pushed and not committed, in order.
        self._sent: dict[int, deque[int]] = {}
        self._in_flight = 0
        self._waiting: list[Stream] = []
        self._timer: Handle | None = None

    @property
    def is_bounded(self) -> bool:
        return self.size <= PUSH_WINDOW_RECORDS_MAX

    @property
    def room(self) -> int:
        """How many more may be pushed now."""
        return self.size - self._in_flight if self.is_bounded else PUSH_WINDOW_RECORDS_MAX

    def sent(self, partition: int, offsets: list[int]) -> None:
        if self.is_bounded:
            self._sent.setdefault(partition, deque()).extend(offsets)
            self._in_flight += len(offsets)

    def wait(self, stream: Stream) -> None:
        """Have the stream line up when there is room again."""
        self._waiting.append(stream)
        if self._timer is None:
            patience = PUSH_PATIENCE_COMMITTING_S if self.commits else PUSH_PATIENCE_S
            self._timer = self._scheduler.call_later(patience, self._lose_patience)

    def committed(self, partition: int, offset: int) -> None:
        sent = self._sent.get(partition, deque())
        was_full = self.room <= 0
        taken = 0
        while sent and sent[0] < offset:
            sent.popleft()
            taken += 1
        self._in_flight -= taken
        if not taken or not self.is_bounded:
            return
        if not self.commits:
            # What was given out of impatience is taken back: now the habit is known.
            self.commits = True
            self.size = PUSH_WINDOW_RECORDS
        if was_full and not self._in_flight:
            self.size *= 2
        self.size = max(self.size, taken + PUSH_WINDOW_RECORDS)
        self._go_on()

    def forget(self, partition: int) -> None:
        """It belongs to another member now: what was pushed of it is nothing to wait for."""
        self._in_flight -= len(self._sent.pop(partition, ()))
        self._go_on()

    def close(self) -> None:
        self._stop_timer()
        self._waiting.clear()

    def _lose_patience(self) -> None:
        self._timer = None
        self.size *= 4
        self._go_on()

    def _go_on(self) -> None:
        if not self.is_bounded:
            self._sent.clear()
            self._in_flight = 0
        if self.room > 0:
            self._stop_timer()
            waiting, self._waiting = self._waiting, []
            for stream in waiting:
                if not stream.is_closed:
                    self._pusher.line_up(stream)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
