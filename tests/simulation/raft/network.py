"""The network between simulated voters, and the scheduler that each of them sees.

Messages are delayed, lost, doubled and overtake each other; links are cut in one direction or both.
A node's clock runs a little fast or slow; a paused node does everything late, a dead one nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from dragoman.testing.sim.scheduler import SimScheduler
from dragoman.world import Handle


class NetworkFaults(msgspec.Struct, frozen=True, kw_only=True):
    delay_s: float = 0.002
    #: At this rate a message takes up to so many seconds instead.
    slow_rate: float = 0.0
    slow_s: float = 1.5
    loss_rate: float = 0.0
    double_rate: float = 0.0


class Network:
    def __init__(self, scheduler: SimScheduler, random: Random, faults: NetworkFaults) -> None:
        self._scheduler = scheduler
        self._random = random
        self.faults = faults
        #: (from, to) that nothing passes.
        self.cuts: set[tuple[int, int]] = set()
        #: Nodes that are cut off in both directions.
        self.isolated: set[int] = set()
        self.delivered = 0

    def send(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        random, faults = self._random, self.faults
        if self._is_cut(source, target) or random.random() < faults.loss_rate:
            return
        copies = 2 if random.random() < faults.double_rate else 1
        for _ in range(copies):
            longest = faults.slow_s if random.random() < faults.slow_rate else faults.delay_s
            self._scheduler.call_later(
                random.uniform(0.0, longest), self._arrive, source, target, deliver
            )

    def _arrive(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        if not self._is_cut(source, target):
            self.delivered += 1
            deliver()

    def _is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts or source in self.isolated or target in self.isolated

    def split(self, nodes: list[int]) -> None:
        """Two sides that do not hear each other."""
        side = set(self._random.sample(nodes, self._random.randint(1, max(1, len(nodes) - 1))))
        self.cuts |= {(a, b) for a in nodes for b in nodes if (a in side) != (b in side)}

    def cut_one_way(self, nodes: list[int]) -> None:
        """Some directions of some links."""
        for _ in range(self._random.randint(1, len(nodes))):
            self.cuts.add((self._random.choice(nodes), self._random.choice(nodes)))

    def mute(self, node: int, nodes: list[int]) -> None:
        """The node and about half of the others do not hear each other."""
        for other in nodes:
            if self._random.random() < 0.5:
                self.cuts |= {(node, other), (other, node)}

    def heal_one(self, node: int) -> None:
        self.cuts = {each for each in self.cuts if node not in each}

    def heal(self) -> None:
        self.cuts.clear()
        self.isolated.clear()


class NodeScheduler:
    """One life of one node: its callbacks end with it."""

    def __init__(self, scheduler: SimScheduler, rate: float) -> None:
        self._scheduler = scheduler
        #: Seconds of the node's clock to a second.
        self._rate = rate
        self.is_dead = False
        self.is_paused = False
        self._late: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def time(self) -> float:
        return self._scheduler.time() * self._rate

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle:
        return self._scheduler.call_soon(self.run, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
        return self._scheduler.call_later(delay / self._rate, self.run, callback, *args)

    def run(self, callback: Callable[..., object], *args: object) -> None:
        if self.is_paused:
            self._late.append((callback, args))
        elif not self.is_dead:
            callback(*args)

    def resume(self) -> None:
        self.is_paused = False
        late, self._late = self._late, []
        for callback, args in late:
            self._scheduler.call_soon(self.run, callback, *args)
