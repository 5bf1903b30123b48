"""The producers of a partition against a model that remembers everything.

Goal: whatever batches, markers, truncations, snapshots, expiries and floods of producers come, the
real states and the model agree on every verdict and every query. Method: a hypothesis state machine
drives both. The model keeps the list of everything appended and replays it from the beginning after
a truncation; it knows sets of sequence numbers, no windows and no undo. Sequences start just below
the wrap for producers whose state counts as lost. The table is made tiny so that it overflows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dragoman.log import producer_states as states_module
from dragoman.log.producer import (
    ACCEPT,
    Duplicate,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    ProducerError,
    TooManyProducersError,
    TransactionExpectedError,
)
from dragoman.log.producer_file import load_snapshot, take_snapshot
from dragoman.log.producer_states import ProducerStates

TABLE_MAX = 4
UNDO_MAX = 12
SPAN = 1 << 31
#: Ids below this count as lost from the start: they may begin anywhere, also just below the wrap.
LOST_BELOW = 3


class Known:
    """Everything a producer ever did in its present epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next: int | None = 0
        self.batches: list[tuple[int, int, int, int]] = []
        self.open: int | None = None
        self.changed_at = 0
        self.active_ms = 0

    def sequences(self, batches: list[tuple[int, int, int, int]]) -> set[int]:
        return {(base + i) % SPAN for base, count, _, _ in batches for i in range(count)}


class Model:
    def __init__(self, forgotten_below: int) -> None:
        self.forgotten_below = forgotten_below
        self.ops: list[tuple[str, int, tuple[int, ...]]] = []
        self.known: dict[int, Known] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.completed: list[tuple[int, int]] = []

    # ---- verdicts

    def verdict(self, pid: int, epoch: int, base: int, count: int, txn: bool) -> object:
        known = self.known.get(pid)
        if known is None:
            if base and pid >= self.forgotten_below:
                return OutOfOrderSequenceError
            if sum(each.open is not None for each in self.known.values()) >= TABLE_MAX:
                return TooManyProducersError
            return ACCEPT
        if epoch < known.epoch:
            return InvalidProducerEpochError
        if epoch > known.epoch:
            if base:
                return OutOfOrderSequenceError
        elif (verdict := self._same_epoch(known, base, count)) is not None:
            return verdict
        if known.open is not None and not txn:
            return TransactionExpectedError
        return ACCEPT

    def _same_epoch(self, known: Known, base: int, count: int) -> object:
        for other, length, offset, timestamp in known.batches[-5:]:
            if (other, length) == (base, count):
                return Duplicate(offset, timestamp)
        if known.next is None or known.next == base:
            return None
        asked = {(base + i) % SPAN for i in range(count)}
        recent = known.sequences(known.batches[-5:])
        if asked <= known.sequences(known.batches) and not asked & recent:
            return DuplicateSequenceError
        return OutOfOrderSequenceError

    # ---- changes

    def apply(self, kind: str, offset: int, args: tuple[int, ...]) -> None:
        self.ops.append((kind, offset, args))
        if kind == "batch":
            self._batch(offset, *args)
        elif kind == "marker":
            self._marker(offset, *args)
        else:
            for pid in args:
                del self.known[pid]

    def _entry(self, pid: int, epoch: int) -> Known:
        if pid not in self.known:
            if len(self.known) >= TABLE_MAX:
                closed = [
                    (each.active_ms, each.changed_at, other)
                    for other, each in self.known.items()
                    if each.open is None
                ]
                if closed:
                    evicted = min(closed)[2]
                    del self.known[evicted]
                    self.forgotten_below = max(self.forgotten_below, evicted + 1)
            self.known[pid] = Known(epoch)
        return self.known[pid]

    def _batch(
        self, offset: int, pid: int, epoch: int, base: int, count: int, now: int, txn: int
    ) -> None:
        known = self._entry(pid, epoch)
        if known.epoch != epoch or known.next != base:
            known.batches = []
        known.epoch = epoch
        known.batches.append((base, count, offset, now))
        known.next = (base + count) % SPAN
        known.changed_at, known.active_ms = offset, now
        if txn and known.open is None:
            known.open = offset

    def _marker(
        self, offset: int, pid: int, epoch: int, committed: int, now: int, lost: int
    ) -> None:
        is_new = pid not in self.known
        known = self._entry(pid, epoch)
        if is_new and lost:
            known.next = None
        if epoch > known.epoch:
            known.epoch, known.next, known.batches = epoch, 0, []
        known.changed_at, known.active_ms = offset, now
        if known.open is not None:
            self.completed.append((offset, known.open))
            if not committed:
                self.aborted.append((pid, known.open, offset))
            known.open = None

    def truncated(self, offset: int) -> Model:
        """Replay what remains. What was forgotten stays forgotten: leniency is never taken back."""
        fresh = Model(LOST_BELOW)
        for kind, at, args in self.ops:
            if kind == "forget" or at < offset:
                fresh.apply(kind, at, args)
        fresh.forgotten_below = self.forgotten_below
        return fresh


class ProducersAgainstModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.states = ProducerStates()
        self.states.state_lost(LOST_BELOW)
        self.model = Model(LOST_BELOW)
        self.end = 0
        self.settled = 0
        self.now = 1_000
        self.snapshots: list[tuple[int, bytes, Model]] = []

    def _append(self, pid: int, epoch: int, base: int, count: int, txn: bool) -> None:
        expected = self.model.verdict(pid, epoch, base, count, txn)
        try:
            verdict: object = self.states.check(pid, epoch, base, count, txn)
        except ProducerError as error:
            verdict = type(error)
        assert verdict == expected
        if verdict is ACCEPT:
            self.states.append(pid, epoch, base, count, self.end, self.now, self.now, txn)
            self.model.apply("batch", self.end, (pid, epoch, base, count, self.now, txn))
            self.end += count

    @rule(pid=st.integers(0, 6), count=st.integers(1, 3), txn=st.booleans(), twice=st.booleans())
    def in_order(self, pid: int, count: int, txn: bool, twice: bool) -> None:
        known = self.model.known.get(pid)
        epoch = 0 if known is None else known.epoch
        base = 0 if known is None or known.next is None else known.next
        if known is not None and known.open is not None:
            txn = True
        self._append(pid, epoch, base, count, txn)
        if twice:
            self._append(pid, epoch, base, count, txn)

    @rule(pid=st.integers(0, 6), batches=st.integers(4, 7), again=st.integers(1, 7))
    def burst(self, pid: int, batches: int, again: int) -> None:
        """A pipeline of batches, then the `again`-th last of them once more."""
        for _ in range(batches):
            self.in_order(pid, 2, False, False)
        known = self.model.known.get(pid)
        if known is not None and len(known.batches) >= again:
            base, count, _, _ = known.batches[-again]
            self._append(pid, known.epoch, base, count, known.open is not None)

    @rule(pid=st.integers(0, LOST_BELOW - 1), back=st.integers(0, 8), count=st.integers(1, 3))
    def near_the_wrap(self, pid: int, back: int, count: int) -> None:
        self._append(pid, 0, (SPAN - back) % SPAN, count, False)

    @rule(
        pid=st.integers(0, 6),
        ahead=st.integers(-14, 2),
        count=st.integers(1, 3),
        epochs=st.integers(-1, 1),
        txn=st.booleans(),
    )
    def anywhere(self, pid: int, ahead: int, count: int, epochs: int, txn: bool) -> None:
        known = self.model.known.get(pid)
        following = 0 if known is None or known.next is None else known.next
        epoch = max(0, (0 if known is None else known.epoch) + epochs)
        self._append(pid, epoch, (following + ahead) % SPAN, count, txn)

    @precondition(lambda self: any(each.batches for each in self.model.known.values()))
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        pids = sorted(pid for pid, each in self.model.known.items() if each.batches)
        pid = data.draw(st.sampled_from(pids))
        known = self.model.known[pid]
        base, count, _, _ = data.draw(st.sampled_from(known.batches))
        self._append(pid, known.epoch, base, count, known.open is not None)

    @rule(pid=st.integers(0, 6), bump=st.integers(-1, 1), committed=st.booleans())
    def marker(self, pid: int, bump: int, committed: bool) -> None:
        known = self.model.known.get(pid)
        epoch = max(0, (0 if known is None else known.epoch) + bump)
        if known is not None and epoch < known.epoch:
            with pytest.raises(InvalidProducerEpochError):
                self.states.check_marker(pid, epoch)
            return
        self.states.check_marker(pid, epoch)
        first = None if known is None else known.open
        lost = pid < self._forgotten_after_room(pid)
        entry = self.states.complete_transaction(pid, epoch, self.end, committed, self.now)
        self.model.apply("marker", self.end, (pid, epoch, committed, self.now, lost))
        assert (entry is not None) == (first is not None and not committed)
        if entry is not None:
            still_open = [each.open for each in self.model.known.values() if each.open is not None]
            stable = min(still_open, default=self.end + 1)
            assert (entry.first_offset, entry.last_offset) == (first, self.end)
            assert entry.last_stable_offset == stable
        self.end += 1

    def _forgotten_after_room(self, pid: int) -> int:
        """The bound once room was made for `pid`, which the table does before it judges."""
        probe = copy.deepcopy(self.model)
        probe._entry(pid, 0)
        return probe.forgotten_below

    @rule(ms=st.integers(1, 500))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(idle_ms=st.integers(100, 800))
    def expire(self, idle_ms: int) -> None:
        exact_from = self._exact_from()
        idle = [
            pid
            for pid, each in self.model.known.items()
            if each.active_ms < self.now - idle_ms
            and each.open is None
            and each.changed_at < exact_from
        ]
        assert self.states.expire(self.now, idle_ms) == len(idle)
        if idle:
            self.model.apply("forget", self.end, tuple(idle))
            self.model.forgotten_below = max(self.model.forgotten_below, max(idle) + 1)

    def _exact_from(self) -> int:
        """Settled, or what the bounded undo list still reaches: only the states know the latter."""
        assert self.states._undo_from >= self.settled
        return self.states._undo_from

    @rule(back=st.integers(0, 8))
    def settle(self, back: int) -> None:
        self.settled = max(self.settled, self.end - back)
        self.states.settle(self.settled)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        boundaries = [at for kind, at, _ in self.model.ops if kind != "forget"] + [self.end]
        offset = data.draw(st.sampled_from(boundaries))
        exact_from = self._exact_from()
        before = take_snapshot(self.states, self.end)
        if self.states.truncate(offset):
            assert offset >= exact_from
            self.model = self.model.truncated(offset)
        else:
            assert offset < exact_from
            assert take_snapshot(self.states, self.end) == before
            self._rebuild(offset)
            self.settled = 0
        self.end = offset
        self.snapshots = [each for each in self.snapshots if each[0] <= offset]

    def _rebuild(self, offset: int) -> None:
        """What the log does when the undo list is too short: snapshot, then replay."""
        remaining = [op for op in self.model.ops if op[0] != "forget" and op[1] < offset]
        usable = [each for each in self.snapshots if each[0] <= offset]
        if usable:
            start, data, model = usable[-1]
            self.states, valid_at = load_snapshot(data, "test")
            assert valid_at == start
            self.model = copy.deepcopy(model)
        else:
            start = 0
            self.states = ProducerStates()
            self.states.state_lost(LOST_BELOW)
            self.model = Model(LOST_BELOW)
        for kind, at, args in remaining:
            if at >= start:
                self._replay(kind, at, args)

    def _replay(self, kind: str, at: int, args: tuple[int, ...]) -> None:
        if kind == "batch":
            pid, epoch, base, count, now, txn = args
            self.states.append(pid, epoch, base, count, at, now, now, bool(txn))
        else:
            pid, epoch, committed, now, _ = args
            args = (pid, epoch, committed, now, pid < self._forgotten_after_room(pid))
            self.states.complete_transaction(pid, epoch, at, bool(committed), now)
        self.model.apply(kind, at, args)

    @rule(switch=st.booleans())
    def snapshot(self, switch: bool) -> None:
        data = take_snapshot(self.states, self.end)
        loaded, offset = load_snapshot(data, "test")
        assert offset == self.end
        assert take_snapshot(loaded, self.end) == data
        self.snapshots.append((self.end, data, copy.deepcopy(self.model)))
        if switch:
            # A restart: the log end is where it was, and nothing above it is left to undo.
            self.states = loaded
            self.settled = self.end
            self.model.completed = []

    # ---- agreement

    def _open_offsets(self) -> Iterator[int]:
        return (each.open for each in self.model.known.values() if each.open is not None)

    @invariant()
    def queries_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        first_open = min(self._open_offsets(), default=None)
        assert self.states.first_open_offset() == first_open
        exact_from = self._exact_from()
        unsettled = [first for at, first in self.model.completed if at >= exact_from]
        unstable = min([*self._open_offsets(), *unsettled], default=None)
        assert self.states.first_unstable_offset() == unstable
        assert len(self.states) == len(self.model.known)
        for described in self.states.describe():
            known = self.model.known[described.producer_id]
            assert described.epoch == known.epoch
            assert described.open_offset == (-1 if known.open is None else known.open)
            assert self.states.has_open_transaction(described.producer_id, known.epoch) == (
                known.open is not None
            )

    @invariant()
    def aborted_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        for start, end in (
            (0, self.end),
            (self.end // 2, self.end),
            (self.end // 3, self.end // 2),
        ):
            found = [
                (each.producer_id, each.first_offset, each.last_offset)
                for each in self.states.aborted_between(start, end)
            ]
            overlapping = [
                each for each in self.model.aborted if each[2] >= start and each[1] < end
            ]
            assert found == sorted(overlapping, key=lambda each: each[1])


def test_states_agree_with_a_model_that_remembers_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states_module, "PRODUCERS_PER_PARTITION_MAX", TABLE_MAX)
    monkeypatch.setattr(states_module, "PRODUCER_UNDO_MAX", UNDO_MAX)
    run_state_machine_as_test(
        ProducersAgainstModel,
        settings=settings(
            max_examples=150,
            stateful_step_count=60,
            derandomize=True,
            deadline=None,
            database=None,
        ),
    )
