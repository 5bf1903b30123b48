"""Changes of the metadata, made from any node: decided here, committed by the quorum.

A change is *decided* on the image: checks, then events. On the leader of the quorum, changes follow
each other without waiting; their callers make sure that two that are under way do not conflict. On
any other node the events go to the leader with the version of the image that they were decided on,
and are refused if anything was committed since: then the change is decided again, on the newer
image. So what was checked still holds when it is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Protocol, TypeAlias

import msgspec

from dragoman.broker.errors import Overloaded
from dragoman.cluster.events import Event
from dragoman.cluster.quorum import MetadataQuorum
from dragoman.errors import (
    DragomanError,
    NotControllerError,
    OutcomeUnknownError,
    VersionConflictError,
)
from dragoman.limits import METADATA_CHANGE_TIMEOUT_S, METADATA_PROPOSALS_MAX
from dragoman.outcome import Outcome, attempt
from dragoman.world import Handle, Scheduler

#: Decides on the image; no events: it is as wanted already. Raises `DragomanError`.
Decide: TypeAlias = Callable[[], list[Event]]


class Proposal(msgspec.Struct, frozen=True):
    """Events that were decided on an image of this version."""

    events: list[Event]
    version: int


class Verdict(IntEnum):
    AGREED = 0
    #: Another change was committed in between, or is about to be.
    CONFLICT = 1
    #: The receiver does not lead the quorum.
    NOT_LEADER = 2
    REFUSED = 3
    UNKNOWN = 4


class ProposalReply(msgspec.Struct, frozen=True):
    verdict: Verdict
    #: The image must have this version for the outcome to be seen.
    version: int = 0
    text: str = ""


class Forward(Protocol):
    def __call__(self, node_id: int, proposal: Proposal, /) -> Outcome[ProposalReply | None]:
        """None: no answer, the outcome is unknown; it may not even have been sent."""
        ...


class _Change:
    __slots__ = ("decide", "outcome", "timer", "version")

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.outcome: Outcome[None] = Outcome()
        #: The change is not decided, or seen, before the image has this version.
        self.version = 0
        self.timer: Handle | None = None


class Changes:
    def __init__(self, quorum: MetadataQuorum, scheduler: Scheduler, forward: Forward) -> None:
        self._quorum = quorum
        self._scheduler = scheduler
        self._forward = forward
        #: This node leads, and its image has everything committed before.
        self._leads = False
        #: Proposals of other nodes that are under way here.
        self._foreign = 0
        self._waiting: dict[_Change, None] = {}
        #: Changes that are committed, but not yet in the image here.
        self._unseen: dict[_Change, None] = {}
        self._is_looking = False
        self._is_closed = False

    @property
    def version(self) -> int:
        return self._quorum.version

    @property
    def leader(self) -> int:
        return self._quorum.leader

    # ---- what happens around it

    def lead(self, leads: bool) -> None:
        self._leads = leads
        self._look_soon()

    def moved(self) -> None:
        """The image has changed, or another node leads."""
        if self._waiting or self._unseen:
            self._look_soon()

    def close(self) -> None:
        """The node stops: fail all changes that wait."""
        self._is_closed = True
        for change in [*self._waiting, *self._unseen]:
            self._finish(change, OutcomeUnknownError("the node is stopping"))
        self._waiting.clear()
        self._unseen.clear()

    # ---- changes of this node

    def make(self, decide: Decide) -> Outcome[None]:
        """Settled when the events are in the image here. With an error they were not committed and
        never will be, unless it is an `OutcomeUnknownError`.
        """
        change = _Change(decide)
        if self._leads and not self._foreign:
            self._decide_here(change)
        elif self._is_closed:
            change.outcome.fail(NotControllerError(-1))
        elif len(self._waiting) >= METADATA_PROPOSALS_MAX:
            change.outcome.fail(Overloaded("too many metadata changes are waiting"))
        else:
            change.timer = self._scheduler.call_later(
                METADATA_CHANGE_TIMEOUT_S, self._time_is_over, change
            )
            self._waiting[change] = None
            self._look_soon()
        return change.outcome

    def when_seen(self, version: int) -> Outcome[None]:
        """Settled when the image here has reached this version, or does not for a long time."""
        change = _Change(list)
        if version <= self._quorum.version:
            change.outcome.succeed(None)
            return change.outcome
        change.version = version
        change.timer = self._scheduler.call_later(
            METADATA_CHANGE_TIMEOUT_S, self._time_is_over, change
        )
        self._unseen[change] = None
        self._look_soon()
        return change.outcome

    def _finish(self, change: _Change, error: DragomanError | None) -> None:
        self._waiting.pop(change, None)
        self._unseen.pop(change, None)
        if change.timer is not None:
            change.timer.cancel()
            change.timer = None
        change.outcome.acknowledge(error)

    def _time_is_over(self, change: _Change) -> None:
        change.timer = None
        if change in self._unseen:
            # The change is committed, even if this node lags.
            self._finish(change, None)
        elif change in self._waiting:
            self._finish(change, NotControllerError(-1))

    def _look_soon(self) -> None:
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            self._scheduler.call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        for change in list(self._unseen):
            if change.version <= self._quorum.version:
                self._finish(change, None)
        for change in list(self._waiting):
            if change not in self._waiting or change.version > self._quorum.version:
                continue
            if self._leads:
                if self._foreign:
                    return
                del self._waiting[change]
                self._decide_here(change)
            elif self._quorum.leader >= 0 and not self._quorum.is_leading:
                del self._waiting[change]
                self._decide_elsewhere(change)

    def _decided(self, change: _Change) -> list[Event] | None:
        """The events of a change; None: it has ended."""
        try:
            events = change.decide()
            # The leader may run a release that cannot read them.
            self._quorum.check_level(events)
        except DragomanError as error:
            self._finish(change, error)
            return None
        if not events:
            self._finish(change, None)
            return None
        return events

    def _decide_here(self, change: _Change) -> None:
        events = self._decided(change)
        if events is not None:
            self._quorum.propose(events).then(partial(self._finish, change))

    def _decide_elsewhere(self, change: _Change) -> None:
        events = self._decided(change)
        if events is None:
            return
        proposal = Proposal(events, self._quorum.version)
        self._forward(self._quorum.leader, proposal).then(partial(self._answered, change, proposal))

    def _answered(
        self, change: _Change, proposal: Proposal, reply: ProposalReply | DragomanError | None
    ) -> None:
        if self._is_closed or change.timer is None:
            if not self._is_closed:
                self._finish(change, OutcomeUnknownError("no answer in time"))
            return
        match reply:
            case ProposalReply(verdict=Verdict.AGREED):
                change.version = reply.version
                self._unseen[change] = None
                self._look_soon()
            case ProposalReply(verdict=Verdict.CONFLICT):
                change.version = max(reply.version, proposal.version + 1)
                self._waiting[change] = None
                self._look_soon()
            case ProposalReply(verdict=Verdict.NOT_LEADER):
                self._waiting[change] = None
                # The new leader will be known soon.
                self._scheduler.call_later(_RETRY_S, self._look_soon)
            case ProposalReply(verdict=Verdict.REFUSED):
                self._finish(change, Overloaded(reply.text))
            case ProposalReply():
                self._finish(change, OutcomeUnknownError(f"{reply.text}; the outcome is unknown"))
            case _:
                text = "the leader of the metadata is away; the outcome is unknown"
                self._finish(change, OutcomeUnknownError(text))

    # ---- changes of other nodes

    async def take(self, proposal: Proposal) -> ProposalReply:
        """Propose events that another node has decided on."""
        if not self._leads:
            return ProposalReply(Verdict.NOT_LEADER)
        self._foreign += 1
        error = await attempt(self._quorum.propose(proposal.events, proposal.version))
        self._foreign -= 1
        self._look_soon()
        match error:
            case None:
                return ProposalReply(Verdict.AGREED, self._quorum.version)
            case VersionConflictError():
                return ProposalReply(Verdict.CONFLICT, self._quorum.version_at_end())
            case NotControllerError():
                return ProposalReply(Verdict.NOT_LEADER)
            case OutcomeUnknownError():
                return ProposalReply(Verdict.UNKNOWN, text=str(error))
            case _:
                return ProposalReply(Verdict.REFUSED, text=str(error))


_RETRY_S = 0.1
