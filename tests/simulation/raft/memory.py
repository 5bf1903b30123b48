"""Storage of one voter in memory: what is staged becomes durable later, or is lost by a crash.

Like the journal it writes groups: what one loop turn staged becomes durable together, one group at
a time, in order. A crash keeps what was durable, and the group under way or not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from random import Random

import msgspec

from dragoman.log.batch import assign, batches
from dragoman.log.node import Ballot
from dragoman.raft.snapshots import Snapshot
from dragoman.types import Buffer
from dragoman.world import Scheduler


class Entry(msgspec.Struct, frozen=True, gc=False):
    base: int
    next: int
    term: int
    data: bytes


class Durable(msgspec.Struct):
    """What a crash leaves."""

    ballot: Ballot = Ballot()
    start: int = 0
    start_term: int = 0
    entries: list[Entry] = []
    snapshot: Snapshot | None = None


class DiskSpeed:
    """How a node's disk is at the moment; shared by its lives."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.seconds_max = 0.004
        #: The next sync fails.
        self.is_broken = False


class MemoryStorage:
    def __init__(
        self,
        durable: Durable,
        scheduler: Scheduler,
        speed: DiskSpeed,
        on_stable: Callable[[], None],
        on_failure: Callable[[], None],
    ) -> None:
        self.durable = durable
        self.ballot = durable.ballot
        self.start = durable.start
        self._start_term = durable.start_term
        self.entries = list(durable.entries)
        self._bases = [each.base for each in self.entries]
        self.snapshot = durable.snapshot
        self.stable_end = self.end
        self._scheduler = scheduler
        self._speed = speed
        self._on_stable = on_stable
        self._on_failure = on_failure
        self._is_scheduled = False
        self._is_staged = False
        self.in_flight: Durable | None = None
        self._flight_end = 0
        self.has_failed = False

    # ---- group commit

    def _stage(self) -> None:
        self._is_staged = True
        if not self._is_scheduled and self.in_flight is None:
            self._is_scheduled = True
            self._scheduler.call_soon(self._commit)

    def _commit(self) -> None:
        self._is_scheduled = False
        if not self._is_staged or self.in_flight is not None or self.has_failed:
            return
        self._is_staged = False
        self.in_flight = self.captured()
        self._flight_end = self.end
        delay = self._speed.random.uniform(0.0, self._speed.seconds_max)
        self._scheduler.call_later(delay, self._synced)

    def captured(self) -> Durable:
        return Durable(
            self.ballot, self.start, self._start_term, list(self.entries), self.durable.snapshot
        )

    def _synced(self) -> None:
        assert self.in_flight is not None
        if self._speed.is_broken:
            self._speed.is_broken = False
            self.fail()
            return
        self.in_flight.snapshot = self.durable.snapshot
        self.durable, self.in_flight = self.in_flight, None
        self.stable_end = max(self.stable_end, self._flight_end)
        if self._is_staged:
            self._commit()
        self._on_stable()

    def fail(self) -> None:
        self.has_failed = True
        self._on_failure()

    def crashed(self, random: Random) -> Durable:
        """What the next life finds."""
        if self.in_flight is not None and random.random() < 0.5:
            self.in_flight.snapshot = self.durable.snapshot
            return self.in_flight
        return self.durable

    # ---- the port

    @property
    def is_ballot_stable(self) -> bool:
        return self.durable.ballot == self.ballot

    def stage_ballot(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self._stage()

    @property
    def end(self) -> int:
        return self.entries[-1].next if self.entries else self.start

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self._start_term

    def term_of(self, offset: int) -> int:
        if offset >= self.end or offset < self.start - 1:
            return -1
        at = bisect_right(self._bases, offset) - 1
        return self.entries[at].term if at >= 0 and offset >= self.start else self._start_term

    def end_of_term(self, term: int) -> tuple[int, int]:
        for each in reversed(self.entries):
            if each.term <= term:
                return each.term, each.next
        return (self._start_term if self._start_term <= term else 0), self.start

    def read(self, offset: int, bytes_max: int) -> bytes:
        at = max(bisect_right(self._bases, offset) - 1, 0)
        found: list[bytes] = []
        size = 0
        for each in self.entries[at:]:
            if each.next <= offset:
                continue
            if found and size + len(each.data) > bytes_max:
                break
            found.append(each.data)
            size += len(each.data)
        return b"".join(found)

    def append(self, term: int, batch: bytearray) -> None:
        assign(batch, self.end, term)
        self.append_as_is(batch)

    def append_as_is(self, data: Buffer) -> None:
        for header, batch in batches(memoryview(data)):
            assert header.base_offset == self.end
            self._add(Entry(self.end, header.last_offset + 1, header.leader_epoch, bytes(batch)))
        self._stage()

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._bases.append(entry.base)

    def truncate(self, offset: int) -> None:
        while self.entries and self.entries[-1].next > offset:
            self.entries.pop()
            self._bases.pop()
        self.stable_end = min(self.stable_end, self.end)
        self._flight_end = min(self._flight_end, self.end)
        self._stage()

    def committed(self, end: int) -> None:
        assert end <= self.end

    def forget(self, offset: int) -> None:
        self.compact(offset)

    def compact(self, offset: int) -> None:
        while self.entries and self.entries[0].next <= offset:
            first = self.entries.pop(0)
            self._bases.pop(0)
            self.start, self._start_term = first.next, first.term
        self._stage()

    def reset(self, end: int, last_term: int) -> None:
        self.entries.clear()
        self._bases.clear()
        self.start, self._start_term = end, last_term
        self.stable_end, self._flight_end = end, 0
        self._stage()

    def save_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot = self.durable.snapshot = snapshot


class MemoryMachine:
    """A node's storage through all its lives."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._speed = DiskSpeed(random)
        self._durable = Durable()
        self._storage: MemoryStorage

    def open(
        self, scheduler: Scheduler, on_stable: Callable[[], None], on_failure: Callable[[], None]
    ) -> MemoryStorage:
        self._storage = MemoryStorage(self._durable, scheduler, self._speed, on_stable, on_failure)
        return self._storage

    def crash(self) -> None:
        self._durable = self._storage.crashed(self._random)

    def slow_down(self, seconds_max: float) -> None:
        self._speed.seconds_max = seconds_max

    def break_sync(self) -> None:
        self._speed.is_broken = True
