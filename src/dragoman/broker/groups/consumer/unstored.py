"""Changes of a group that are in memory and not durable yet, and the replies that wait for them.

A change takes effect in memory at once and is sent to a client only when its record is durable. In
between, the next change may build on it. So when a write fails, every later one in flight counts as
failed, too: their replies get the error, and their contents are written with the next write, in
their current form. So a client never learns of a change unless every earlier one is durable. After
a crash the log may have a later change without the earlier one it was built on, but no client
learnt of it: see `ConsumerRoster.add_restored`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dragoman.broker.groups.records import Key, StateRecord
from dragoman.errors import DragomanError
from dragoman.outcome import Acknowledge, Outcome, succeeded


class _Write:
    __slots__ = ("failure", "keys", "waiting")

    def __init__(self, keys: dict[Key, None], waiting: list[Outcome[None]]) -> None:
        self.keys = keys
        self.waiting = waiting
        self.failure: DragomanError | None = None


class Unstored:
    __slots__ = ("_changed", "_on_their_way", "_persist", "_record")

    def __init__(
        self,
        persist: Callable[[Sequence[StateRecord], Acknowledge], None],
        record: Callable[[Key], StateRecord],
    ) -> None:
        self._persist = persist
        #: Returns the current record of a key.
        self._record = record
        self._changed: dict[Key, None] = {}
        self._on_their_way: list[_Write] = []

    @property
    def is_empty(self) -> bool:
        """Whether everything is durable."""
        return not self._changed and not self._on_their_way

    @property
    def changed(self) -> Iterable[Key]:
        """Changes that are neither durable nor in flight."""
        return self._changed.keys()

    def mark(self, key: Key) -> None:
        self._changed[key] = None

    def store(self) -> Outcome[None]:
        """Write the changes. Settled when all changes up to now are durable, or have failed."""
        if self.is_empty:
            return succeeded(None)
        stored: Outcome[None] = Outcome()
        if self._changed:
            self._write([stored])
        else:
            self._on_their_way[-1].waiting.append(stored)
        return stored

    def write(self) -> None:
        """Write what changed, for a caller that does not wait for it."""
        if self._changed:
            self._write([])

    def abandon(self, error: DragomanError) -> None:
        """Nothing more will be written: fail the waiting replies."""
        writes, self._on_their_way = self._on_their_way, []
        self._changed.clear()
        for write in writes:
            for each in write.waiting:
                each.fail(error)

    def _write(self, waiting: list[Outcome[None]]) -> None:
        write = _Write(self._changed, waiting)
        self._changed = {}
        self._on_their_way.append(write)
        records = [self._record(key) for key in write.keys]
        self._persist(records, partial(self._finished, write))

    def _finished(self, write: _Write, error: DragomanError | None) -> None:
        if write not in self._on_their_way:
            return
        self._on_their_way.remove(write)
        if error is not None:
            for later in self._on_their_way:
                later.failure = later.failure or error
        error = error or write.failure
        if error is not None:
            for key in write.keys:
                self._changed.setdefault(key)
        for each in write.waiting:
            each.acknowledge(error)
