"""Held records: somebody has to decide about each, and is asked when that takes too long.

    held ──► release: a record that says so; from then on it is one that has come due
         ──► drop: the record is removed
         ──► check … check ──► given up: dropped

A record is checked by `on_check`, which the protocol sets that knows whom to ask. How often that
happened is not stored: a node that takes over counts anew, and rather asks once too often than
gives up too early.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from dragoman.broker.delayed.records import (
    Kind,
    Release,
    Stored,
    encode_key,
    encode_value,
    removal,
)
from dragoman.broker.delayed.state import Content, Entry, Phase, Shelf, Target, Token, Undecided
from dragoman.broker.errors import LabelsDiffer, UnknownDeferredRecord
from dragoman.broker.internal import KeyValue
from dragoman.broker.replica import Acknowledge
from dragoman.broker.steps import AllOf
from dragoman.errors import DragomanError
from dragoman.limits import DEFERRED_DECISIONS_KEPT
from dragoman.log.batch import Record
from dragoman.log_limiter import LogLimiter
from dragoman.world import Clock, Scheduler

log = logging.getLogger("dragoman.deferring")

#: Token, record, target, labels, and how often that is now.
TellCheck: TypeAlias = Callable[[Token, Record, Target, dict[str, str], int], None]
#: The record is dropped once all have acknowledged: what they do with it is durable then.
TellGivenUp: TypeAlias = Callable[[Token, Record, Target, dict[str, str], Acknowledge], None]


class Ports(Protocol):
    """What is needed of the broker."""

    def persist(self, index: int, records: Sequence[KeyValue], done: Acknowledge) -> None: ...

    def stored(self, index: int, offset: int) -> Stored:
        """Raises `DragomanError`."""
        ...

    def content(self, index: int, offset: int) -> Content:
        """Raises `DragomanError`."""
        ...

    def token(self, index: int, offset: int) -> Token: ...

    def check_settings(self) -> tuple[int, int]:
        """Milliseconds between checks, and how many there are at most."""
        ...


class Holding:
    def __init__(self, clock: Clock, scheduler: Scheduler, ports: Ports) -> None:
        self._clock = clock
        #: Any client can hold thousands of records and decide about none.
        self._log = LogLimiter(log, scheduler)
        self._ports = ports
        self.on_check: list[TellCheck] = []
        self.on_given_up: list[TellGivenUp] = []
        #: Whether records that are kept no longer were released.
        self._decisions: OrderedDict[Token, bool] = OrderedDict()

    # ---- decisions

    def decide(
        self,
        shelf: Shelf,
        token: Token,
        labels: dict[str, str],
        is_release: bool,
        done: Acknowledge,
    ) -> None:
        """`done` comes when the decision is durable. Raises `DragomanError`: nothing was done."""
        entry = shelf.entries.get(token.offset)
        if entry is None:
            if self._decisions.get(token) is not is_release:
                raise _unknown(token, "is not kept any more, or never was")
            done(None)
            return
        found = self._ports.stored(shelf.index, token.offset).labels
        differing = sorted(name for name in labels if labels[name] != found.get(name))
        if differing:
            raise LabelsDiffer(f"record {token.offset} has another {', '.join(differing)}")
        if entry.phase is Phase.DECIDING:
            undecided = shelf.deciding[token.offset]
            if undecided.is_release is not is_release:
                raise _unknown(token, "is being decided about")
            undecided.waiting.append(done)
        elif entry.phase is Phase.HELD or (
            entry.phase is Phase.WAITING and not entry.is_released and not is_release
        ):
            self._write(shelf, token, entry, is_release, done)
        elif entry.is_released and is_release:
            done(None)
        else:
            raise _unknown(token, "is not held")

    def _write(
        self, shelf: Shelf, token: Token, entry: Entry, is_release: bool, done: Acknowledge
    ) -> None:
        offset, before = token.offset, entry.phase
        undecided = shelf.deciding[offset] = Undecided(is_release, [done])
        entry.phase = Phase.DECIDING
        release = Release(self._clock.wall_ms())
        if is_release:
            key = encode_key(Kind.RELEASE, shelf.index, offset)
            changes: list[KeyValue] = [(key, encode_value(release))]
        else:
            changes = removal(shelf.index, offset, is_released=False)

        def written(error: DragomanError | None) -> None:
            del shelf.deciding[offset]
            if error is not None:
                entry.phase = before
                shelf.look_at(offset, entry, entry.when_ms)
            else:
                self._remember(token, is_release)
                if is_release:
                    self.released(shelf, offset, release)
                else:
                    shelf.entries.pop(offset, None)
            for each in undecided.waiting:
                each(error)

        self._ports.persist(shelf.index, changes, written)

    def released(self, shelf: Shelf, offset: int, release: Release) -> None:
        """A decision is in the log: the record is due from then on, if there is one."""
        entry = shelf.entries.get(offset)
        if entry is not None:
            entry.is_released = True
            entry.phase = Phase.WAITING
            shelf.look_at(offset, entry, release.released_ms)

    def _remember(self, token: Token, is_release: bool) -> None:
        self._decisions[token] = is_release
        if len(self._decisions) > DEFERRED_DECISIONS_KEPT:
            self._decisions.popitem(last=False)

    # ---- nobody decides

    def check(self, shelf: Shelf, offset: int, entry: Entry) -> None:
        """It is time to ask about a record, again or for the first time; or to give up."""
        interval_ms, checks_max = self._ports.check_settings()
        shelf.look_at(offset, entry, self._clock.wall_ms() + interval_ms)
        token = self._ports.token(shelf.index, offset)
        try:
            content = self._ports.content(shelf.index, offset)
            what = (token, content.record, content.target, content.labels)
            if entry.checks < checks_max:
                entry.checks += 1
                for tell in self.on_check:
                    tell(*what, entry.checks)
                return
            AllOf(len(self.on_given_up), partial(self._given_up, shelf, token, entry)).run(
                [partial(tell, *what) for tell in self.on_given_up]
            )
        except DragomanError as error:
            # Not further: others that are due are taken in the same turn.
            self._log.warning(
                "held record %d cannot be asked about: %s; tried again", offset, error
            )

    def _given_up(
        self, shelf: Shelf, token: Token, entry: Entry, error: DragomanError | None
    ) -> None:
        if error is not None:
            text = "held record %d, about which nobody decided, stays for now: %s"
            self._log.warning(text, token.offset, error)
        elif entry.phase is Phase.HELD and shelf.entries.get(token.offset) is entry:
            self._log.warning(
                "held record %d is dropped: nobody decided about it, asked %d times",
                token.offset,
                entry.checks,
            )
            self._write(shelf, token, entry, False, _unheard)


def _unknown(token: Token, text: str) -> UnknownDeferredRecord:
    return UnknownDeferredRecord(f"record {token.offset} {text}")


def _unheard(_error: DragomanError | None) -> None:
    """After an error it is given up again at its next time."""
