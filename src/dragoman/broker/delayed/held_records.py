"""Held records: the owner decides about each, and is asked when the decision takes too long.

    held ──► release: the decision is stored; from then on the record is due
         ──► drop: the record is removed
         ──► check … check ──► given up: dropped

A record is checked by `on_check`, which the protocol that knows the owner sets. The number of
checks is not stored: a new leader counts from zero, which may cause one check too many but never
one too few.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from dragoman.broker.delayed.records import Kind, Release, Stored, encode_key, encode_value, removal
from dragoman.broker.delayed.state import (
    Content,
    Entry,
    Phase,
    StoredPartition,
    Target,
    Token,
    Undecided,
)
from dragoman.broker.errors import LabelsDiffer, UnknownDelayedRecord
from dragoman.broker.internal_topic import KeyValue
from dragoman.errors import DragomanError
from dragoman.limits import DELAYED_DECISIONS_KEPT
from dragoman.log.batch import Record
from dragoman.log_limiter import LogLimiter
from dragoman.outcome import Outcome, attempt, gather, ignore, start
from dragoman.world import Clock, Scheduler

log = logging.getLogger("dragoman.delayed")

#: Receives token, record, target, labels, and the number of checks.
Check: TypeAlias = Callable[[Token, Record, Target, dict[str, str], int], None]
#: The record is dropped once all of these have ended, so that their effects are durable.
GiveUp: TypeAlias = Callable[[Token, Record, Target, dict[str, str]], Coroutine[object, None, None]]


class Ports(Protocol):
    """What this module needs from the broker."""

    async def persist(self, index: int, records: Sequence[KeyValue]) -> None: ...

    def stored(self, index: int, offset: int) -> Stored:
        """Raises `DragomanError`."""
        ...

    def content(self, index: int, offset: int) -> Content:
        """Raises `DragomanError`."""
        ...

    def token(self, index: int, offset: int) -> Token: ...

    def check_settings(self) -> tuple[int, int]:
        """Milliseconds between checks, and their maximum number."""
        ...


class HeldRecords:
    def __init__(self, clock: Clock, scheduler: Scheduler, ports: Ports) -> None:
        self._clock = clock
        #: Bounds the checks: any client can hold thousands of records without a decision.
        self._log = LogLimiter(log, scheduler)
        self._ports = ports
        self.on_check: list[Check] = []
        self.on_given_up: list[GiveUp] = []
        #: By records that are no longer stored, whether they were released.
        self._decisions: OrderedDict[Token, bool] = OrderedDict()

    # ---- decisions

    async def decide(
        self, partition: StoredPartition, token: Token, labels: dict[str, str], is_release: bool
    ) -> None:
        """Release or drop a record, and wait until the decision is durable."""
        entry = partition.entries.get(token.offset)
        if entry is None:
            if self._decisions.get(token) is not is_release:
                raise _unknown(token, "is not kept any more, or never was")
            return
        found = self._ports.stored(partition.index, token.offset).labels
        differing = sorted(name for name in labels if labels[name] != found.get(name))
        if differing:
            raise LabelsDiffer(f"record {token.offset} has another {', '.join(differing)}")
        if entry.phase is Phase.DECIDING:
            undecided = partition.deciding[token.offset]
            if undecided.is_release is not is_release:
                raise _unknown(token, "is being decided about")
            repeated: Outcome[None] = Outcome()
            undecided.waiting.append(repeated)
            await repeated
        elif entry.phase is Phase.HELD or (
            entry.phase is Phase.WAITING and not entry.is_released and not is_release
        ):
            await self._write(partition, token, entry, is_release)
        elif not (entry.is_released and is_release):
            raise _unknown(token, "is not held")

    def _write(
        self, partition: StoredPartition, token: Token, entry: Entry, is_release: bool
    ) -> Outcome[None]:
        """Settled when the decision is durable."""
        decided: Outcome[None] = Outcome()
        partition.deciding[token.offset] = Undecided(is_release, [decided])
        written = start(self._carry_out(partition, token, entry, is_release))
        written.then(partial(self._settle, partition, token))
        return decided

    async def _carry_out(
        self, partition: StoredPartition, token: Token, entry: Entry, is_release: bool
    ) -> None:
        before, entry.phase = entry.phase, Phase.DECIDING
        release = Release(self._clock.wall_ms())
        if is_release:
            key = encode_key(Kind.RELEASE, partition.index, token.offset)
            changes: list[KeyValue] = [(key, encode_value(release))]
        else:
            changes = removal(partition.index, token.offset, is_released=False)
        try:
            await self._ports.persist(partition.index, changes)
        except DragomanError:
            entry.phase = before
            partition.look_at(token.offset, entry, entry.when_ms)
            raise
        self._remember(token, is_release)
        if is_release:
            self.released(partition, token.offset, release)
        else:
            partition.remove(token.offset)

    def _settle(
        self, partition: StoredPartition, token: Token, error: DragomanError | None
    ) -> None:
        for each in partition.deciding.pop(token.offset).waiting:
            each.acknowledge(error)

    def released(self, partition: StoredPartition, offset: int, release: Release) -> None:
        """A decision is durable: a released record is due from now on."""
        entry = partition.entries.get(offset)
        if entry is not None:
            entry.is_released = True
            entry.phase = Phase.WAITING
            partition.look_at(offset, entry, release.released_ms)

    def _remember(self, token: Token, is_release: bool) -> None:
        self._decisions[token] = is_release
        if len(self._decisions) > DELAYED_DECISIONS_KEPT:
            self._decisions.popitem(last=False)

    # ---- records without a decision

    def check(self, partition: StoredPartition, offset: int, entry: Entry) -> None:
        """A check is due: ask the owner, or drop the record after the last check."""
        interval_ms, checks_max = self._ports.check_settings()
        partition.look_at(offset, entry, self._clock.wall_ms() + interval_ms)
        token = self._ports.token(partition.index, offset)
        try:
            content = self._ports.content(partition.index, offset)
            if entry.checks < checks_max:
                entry.checks += 1
                for check in self.on_check:
                    check(token, content.record, content.target, content.labels, entry.checks)
                return
        except DragomanError as error:
            # Errors end here: other records that are due are handled in the same turn.
            self._log.warning("held record %d cannot be checked: %s; tried again", offset, error)
            return
        start(self._give_up(partition, token, entry, content)).then(ignore)

    async def _give_up(
        self, partition: StoredPartition, token: Token, entry: Entry, content: Content
    ) -> None:
        about = (token, content.record, content.target, content.labels)
        try:
            await gather([start(give_up(*about)) for give_up in self.on_given_up])
        except DragomanError as error:
            text = "held record %d, without a decision, cannot be dropped yet: %s"
            self._log.warning(text, token.offset, error)
            return
        if entry.phase is Phase.HELD and partition.entries.get(token.offset) is entry:
            self._log.warning(
                "held record %d is dropped: no decision after %d checks",
                token.offset,
                entry.checks,
            )
            # After an error, the drop is retried at the record's next time.
            await attempt(self._write(partition, token, entry, False))


def _unknown(token: Token, text: str) -> UnknownDelayedRecord:
    return UnknownDelayedRecord(f"record {token.offset} {text}")
