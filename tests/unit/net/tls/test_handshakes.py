"""Goal: handshakes take a bounded share of memory and of each loop turn, and those that make
progress go before those that do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dragoman.limits import (
    TLS_HANDSHAKE_MEMORY_BYTES,
    TLS_HANDSHAKE_STEPS_PER_TURN,
    TLS_HANDSHAKES_BUDGET_SHARE,
)
from dragoman.net.admission import MemoryBudget
from dragoman.net.tls.handshakes import Handshakes
from dragoman.testing.sim.scheduler import SimHandle
from dragoman.world import Handle
from worlds.tls import MemoryPeer, TlsFiles, TlsRig, client_context, server_context


class Step:
    """A handshake that records its steps."""

    def __init__(self, name: str, handshakes: Handshakes, steps: list[str]) -> None:
        self._name = name
        self._handshakes = handshakes
        self._steps = steps
        self.reason = ""
        handshakes.began(self)

    def step(self) -> None:
        self._steps.append(self._name)
        if self._name == "faulty":
            raise RuntimeError("a fault in a protocol above")

    def give_up(self, reason: str) -> None:
        self.reason = reason
        self._handshakes.ended(self, is_complete=False)


class Turns:
    """A scheduler whose loop turns are the test's."""

    def __init__(self) -> None:
        self._ready: list[Callable[[], object]] = []

    def time(self) -> float:
        return 0.0

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle:
        self._ready.append(partial(callback, *args))
        return SimHandle(0.0, callback, args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
        return SimHandle(delay, callback, args)

    def turn(self) -> None:
        """Run what is ready now, but not what that makes ready."""
        ready, self._ready = self._ready, []
        for callback in ready:
            callback()


@pytest.fixture
def scheduler() -> Turns:
    return Turns()


@pytest.fixture
def handshakes(scheduler: Turns) -> Handshakes:
    return Handshakes(MemoryBudget(1000 * TLS_HANDSHAKES_BUDGET_SHARE), scheduler)


def test_a_few_steps_run_in_a_turn_and_answers_go_first(
    handshakes: Handshakes, scheduler: Turns
) -> None:
    steps: list[str] = []
    new = [Step("new", handshakes, steps) for _ in range(2 * TLS_HANDSHAKE_STEPS_PER_TURN)]
    for each in new:
        handshakes.due(each, is_new=True)
        handshakes.due(each, is_new=True)
    answered = Step("answered", handshakes, steps)
    handshakes.due(answered, is_new=False)
    scheduler.turn()
    assert steps == ["answered", *["new"] * (TLS_HANDSHAKE_STEPS_PER_TURN - 1)]
    scheduler.turn()
    assert len(steps) == 2 * TLS_HANDSHAKE_STEPS_PER_TURN
    scheduler.turn()
    scheduler.turn()
    assert len(steps) == 2 * TLS_HANDSHAKE_STEPS_PER_TURN + 1


def test_fault_in_one_does_not_stop_the_others(handshakes: Handshakes, scheduler: Turns) -> None:
    steps: list[str] = []
    for name in ("faulty", "sound"):
        handshakes.due(Step(name, handshakes, steps), is_new=True)
    with pytest.raises(RuntimeError):
        scheduler.turn()
    scheduler.turn()
    assert steps == ["faulty", "sound"]


def test_one_that_has_ended_takes_no_step(handshakes: Handshakes, scheduler: Turns) -> None:
    steps: list[str] = []
    gone = Step("gone", handshakes, steps)
    handshakes.due(gone, is_new=True)
    handshakes.ended(gone, is_complete=False)
    scheduler.turn()
    assert steps == []


def test_oldest_that_waits_makes_room(handshakes: Handshakes) -> None:
    steps: list[str] = []
    first, second, due, last = (Step(str(each), handshakes, steps) for each in range(4))
    handshakes.holds(due, 300)
    handshakes.due(due, is_new=True)
    for each in (first, second):
        handshakes.holds(each, 300)
    assert handshakes.held_bytes == handshakes.budget.used == 900
    handshakes.holds(last, 500)
    # The one with a step to run is older, and stays: its client does not keep it waiting.
    assert [bool(each.reason) for each in (first, second, due, last)] == [True, True, False, False]
    assert (handshakes.displaced, handshakes.held_bytes) == (2, 800)
    handshakes.holds(last, 100)
    assert handshakes.held_bytes == 400


def test_without_any_that_waits_the_newest_is_refused(handshakes: Handshakes) -> None:
    steps: list[str] = []
    queued = [Step(str(each), handshakes, steps) for each in range(3)]
    for each in queued:
        handshakes.holds(each, 300)
        handshakes.due(each, is_new=True)
    newest = Step("newest", handshakes, steps)
    handshakes.holds(newest, 300)
    assert newest.reason
    assert not any(each.reason for each in queued)


def test_half_open_handshakes_make_room_for_a_client_that_answers(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    room = 8
    rig = TlsRig(
        server_context(files),
        budget_bytes=room * TLS_HANDSHAKE_MEMORY_BYTES * TLS_HANDSHAKES_BUDGET_SHARE,
    )
    context = client_context(files)
    silent = [rig.connect() for _ in range(3 * room)]
    for connected in silent:
        connected.receive(MemoryPeer(context).handshake())
    assert rig.handshakes.held_bytes <= room * TLS_HANDSHAKE_MEMORY_BYTES
    assert sum(not each.transport.is_closed for each in silent) <= room
    assert rig.handshakes.displaced >= 2 * room
    connected, peer = rig.connect(), MemoryPeer(context)
    connected.shake_hands(peer)
    assert connected.above.calls == ["made"]
    for each in silent:
        if not each.transport.is_closed:
            each.transport.close()
    assert (rig.budget.used, rig.handshakes.count) == (0, 0)
