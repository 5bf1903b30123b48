"""The metadata log of a simulated cluster: one list that never forks, with the controller on it.

It stands for the quorum, so that replication is tested by itself. Requests to it are lost or
delayed like all messages, its decisions take a moment to be agreed on, events reach each node in
order and at different times, and now and then the controller is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from dragoman.cluster.events import Event, decode_event, encode_event
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import ClusterError
from dragoman.outcome import Outcome
from dragoman.replication.controller import Controller
from simulation.replication.network import Network, ProcessScheduler

CONTROLLER = 0
Proposal: TypeAlias = tuple[list[bytes], Outcome[None]]


class MetadataLog:
    """A `MetadataQuorum` whose voters never disagree."""

    def __init__(
        self,
        scheduler: ProcessScheduler,
        random: Random,
        on_event: Callable[[Event], None],
        session_s: float,
    ) -> None:
        self.image = MetadataImage()
        self.events: list[bytes] = []
        self.leader = CONTROLLER
        self._scheduler = scheduler
        self._random = random
        self._on_event = on_event
        self._proposed: list[Proposal] = []
        self._is_replacing = False
        self.on_agreed: Callable[[], None] = lambda: None
        self.controller = Controller(
            self.image, self, scheduler, session_s=session_s, balance_s=3.0
        )

    @property
    def version(self) -> int:
        return len(self.events)

    def propose(self, events: list[Event]) -> Outcome[None]:
        outcome: Outcome[None] = Outcome()
        proposal = ([encode_event(each) for each in events], outcome)
        self._proposed.append(proposal)
        self._scheduler.call_later(self._random.uniform(0.0005, 0.01), self._commit, proposal)
        return outcome

    def _commit(self, proposal: Proposal) -> None:
        if proposal in self._proposed:
            self._proposed.remove(proposal)
            self._agree(*proposal)

    def agree_now(self, events: list[Event]) -> None:
        self._agree([encode_event(each) for each in events], Outcome())

    def _agree(self, events: list[bytes], outcome: Outcome[None]) -> None:
        for each in events:
            event = decode_event(each)
            self._on_event(event)
            self.image.apply(event)
            self.events.append(each)
        outcome.succeed(None)
        self.on_agreed()

    def replace_controller(self) -> None:
        """Another node leads the metadata log; it takes a moment until it does."""
        if self._is_replacing:
            return
        self._is_replacing = True
        proposed, self._proposed = self._proposed, []
        for events, outcome in proposed:
            # It may have been committed all the same.
            if self._random.random() < 0.5:
                self._agree(events, Outcome())
            outcome.fail(ClusterError("the leader changed; the outcome is unknown"))
        self.controller.end()
        self._scheduler.call_later(self._random.uniform(0.05, 0.5), self._replaced)

    def _replaced(self) -> None:
        self._is_replacing = False
        self.controller.begin()


class Subscription:
    """The delivery of events to one node: in order, with a delay."""

    def __init__(
        self, metadata: MetadataLog, network: Network, node: int, apply: Callable[[bytes], None]
    ) -> None:
        self._metadata = metadata
        self._network = network
        self._node = node
        self._apply = apply
        self.applied = 0

    def push(self) -> None:
        end = len(self._metadata.events)
        self._network.send(CONTROLLER, self._node, lambda: self._catch_up(end))

    def _catch_up(self, end: int) -> None:
        while self.applied < end:
            self.applied += 1
            self._apply(self._metadata.events[self.applied - 1])
