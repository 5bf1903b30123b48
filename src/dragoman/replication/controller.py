"""The controller, on the node that leads the metadata log.

One decision is in flight at a time, and the next is made on an image that includes it, so
compare-and-set is sound. Requests of operators about different partitions are independent, so they
are decided together: thousands of moves would otherwise take as many rounds of the quorum. A
decision with an unknown outcome ends this controllership; the next one begins with the committed
metadata.

Nodes send heartbeats. A node without them is fenced, which costs it leaderships and in-sync
memberships and nothing else; safety never depends on time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, assert_never

from dragoman.cluster.events import Event, Member
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata
from dragoman.cluster.quorum import MetadataQuorum
from dragoman.errors import DragomanError, NotControllerError, OutcomeUnknownError
from dragoman.limits import (
    BALANCED_AT_ONCE_MAX,
    CONTROL_DECISIONS_MAX,
    CONTROL_REQUESTS_MAX,
)
from dragoman.outcome import Outcome
from dragoman.replication.decisions import Decisions
from dragoman.replication.messages import (
    ControlReply,
    ControlRequest,
    Decision,
    ElectPreferred,
    ElectUnclean,
    HandOver,
    Heartbeat,
    InSyncChanges,
    Move,
    PartitionRequest,
    Registration,
    Relieve,
)
from dragoman.replication.ports import Controlled
from dragoman.world import Scheduler

#: Interval of checks of moves and balance, whatever the session time-out.
_TICK_S_MAX = 0.5
_ACCEPTED = ControlReply(outcomes=(Decision.ACCEPTED,))
_REFUSED = ControlReply(outcomes=(Decision.REFUSED,))
#: Decides on the current image: the events to commit, and the answer after the commit.
Decide = Callable[[], tuple[list[Event], ControlReply]]


class _Waiting(NamedTuple):
    decide: Decide
    done: Controlled
    #: The only partition that the decision reads and changes; None: several.
    partition_id: int | None


class Controller:
    def __init__(
        self,
        image: MetadataImage,
        quorum: MetadataQuorum,
        scheduler: Scheduler,
        *,
        node_id: int = NO_LEADER,
        session_s: float = 3.0,
        suspect_s: float = 0.5,
        balance_s: float = 60.0,
        is_alone: bool = False,
    ) -> None:
        """`session_s`: time-out of a node without heartbeats; `suspect_s`: the same for one that
        has lost the metadata leadership through silence; `balance_s`: 0 disables leader balancing.
        """
        self.controller = Decisions(image)
        self._image = image
        self._quorum = quorum
        self._scheduler = scheduler
        self._node_id = node_id
        self._is_alone = is_alone
        self._session_s = session_s
        self._suspect_s = suspect_s
        self._balance_s = balance_s
        self._balanced_at = 0.0
        self._seen: dict[int, float] = {}
        self._waiting: deque[_Waiting] = deque()
        self._is_deciding = False
        #: Counts this node's controllerships; 0 outside of them.
        self._term = 0
        self._terms = 0

    def begin(self, suspect: int = NO_LEADER) -> None:
        """This node leads the metadata log, and the image has everything committed before.

        `suspect`: the previous leader, if it was silent.
        """
        self._terms += 1
        self._term = self._terms
        self._is_deciding = False
        self._balanced_at = now = self._scheduler.time()
        # Every node gets the full time-out to contact the new controller.
        self._seen = dict.fromkeys(self._image.nodes, now)
        if suspect in self._seen:
            self._seen[suspect] = now - self._session_s + self._suspect_s
        self.settle(list(self._image.partitions.values()))
        self.raise_level()
        self._tick(self._term)

    def end(self) -> None:
        """Another node leads the metadata log."""
        self._term = 0
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.done(None)

    # ---- requests

    def ask(self, request: ControlRequest, done: Controlled) -> None:
        """Answered with None when this node is not the controller or the outcome is unknown."""
        if not self._term:
            done(None)
            return
        match request:
            case Heartbeat():
                done(self._heartbeat(request.member))
            case Registration():
                self._seen[request.node_id] = self._scheduler.time()
                self.decide(lambda: (self.controller.register(request), _ACCEPTED), done)
            case InSyncChanges():
                self.decide(lambda: self._change(request), done)
            case HandOver():
                self.decide(lambda: (self.controller.hand_over(request.member), _ACCEPTED), done)
            case ElectPreferred() | ElectUnclean() | Move():
                decide = partial(self._decide_and_accept, request)
                self.decide(decide, done, request.partition_id)
            case Relieve():
                self.decide(partial(self._decide_and_accept, request), done)

    def _decide_and_accept(self, request: PartitionRequest) -> tuple[list[Event], ControlReply]:
        return self._decide(request), _ACCEPTED

    def _decide(self, request: PartitionRequest) -> list[Event]:
        """Handle an operator's request. Raises `DragomanError`."""
        controller = self.controller
        match request:
            case ElectPreferred():
                return controller.elect_preferred(controller.partition(request.partition_id))
            case Relieve():
                return controller.relieve(request.node_id)
            case ElectUnclean():
                return controller.elect_unclean(request.partition_id, request.node_id)
            case Move():
                if request.replicas:
                    return controller.reassign(request.partition_id, request.replicas)
                return controller.cancel_move(request.partition_id)
            case _:
                assert_never(request)

    def _heartbeat(self, member: Member) -> ControlReply:
        is_fenced = member.node_id in self._image.fenced
        if is_fenced or not self.controller.is_current(member):
            return _REFUSED
        self._seen[member.node_id] = self._scheduler.time()
        return _ACCEPTED

    def _change(self, request: InSyncChanges) -> tuple[list[Event], ControlReply]:
        events: list[Event] = []
        outcomes: list[Decision] = []
        changed: set[int] = set()
        for change in request.changes:
            if change.partition_id in changed:
                outcomes.append(Decision.CONFLICT)
                continue
            changed.add(change.partition_id)
            outcome, granted = self.controller.change_in_sync(request.leader, change)
            outcomes.append(outcome)
            events += granted
        return events, ControlReply(outcomes=tuple(outcomes))

    # ---- time

    def _tick(self, term: int) -> None:
        if term != self._term or self._is_alone:
            return
        now = self._scheduler.time()
        for node_id, seen_at in self._seen.items():
            is_silent = now - seen_at > self._session_s and node_id != self._node_id
            if is_silent and node_id not in self._image.fenced:
                self.fence(Member(node_id, self._image.nodes.get(node_id, -1)))
        if self._image.moving:
            self.decide(lambda: (self.controller.finish_moves(), _ACCEPTED), _ignore)
        if self._balance_s and now - self._balanced_at >= self._balance_s:
            self._balanced_at = now
            balance = self.controller.balance
            self.decide(lambda: (balance(BALANCED_AT_ONCE_MAX), _ACCEPTED), _ignore)
        self._scheduler.call_later(min(self._session_s / 10, _TICK_S_MAX), self._tick, term)

    def settle(self, partitions: list[PartitionMetadata]) -> None:
        """Partitions are new, here or to this controller: settle replicas on nodes that are
        absent.
        """
        known = self._image.partitions

        def decide() -> tuple[list[Event], ControlReply]:
            there = [each for each in partitions if known.get(each.partition_id) is each]
            return self.controller.settle(there), _ACCEPTED

        self.decide(decide, _ignore)

    def raise_level(self) -> None:
        """A node has registered, was removed or was upgraded: the feature level may rise."""
        self.decide(lambda: (self.controller.raise_level(), _ACCEPTED), _ignore)

    def fence(self, member: Member) -> None:
        """Fence a silent node, or one whose lost connection shows that its process has ended."""
        self.decide(lambda: (self.controller.fence(member), _ACCEPTED), _ignore)

    # ---- the queue of decisions

    def decide(self, decide: Decide, done: Controlled, partition_id: int | None = None) -> None:
        """Queue a decision of the controller or an operator; `decide` refuses with
        `DragomanError`.
        """
        if not self._term or len(self._waiting) >= CONTROL_REQUESTS_MAX:
            done(None)
            return
        self._waiting.append(_Waiting(decide, done, partition_id))
        self._next()

    def decided(self, decide: Decide) -> Outcome[ControlReply | None]:
        """The outcome of a decision; None: it is unknown, or this node is not the controller."""
        outcome: Outcome[ControlReply | None] = Outcome()
        self.decide(decide, outcome.succeed)
        return outcome

    def _next(self) -> None:
        while self._waiting and not self._is_deciding:
            term = self._term
            # An answered caller may submit another request within the call, which is queued.
            self._is_deciding = True
            events: list[Event] = []
            answers: list[Callable[[bool], None]] = []
            try:
                self._decide_some(events, answers)
            except BaseException:
                self._is_deciding = False
                for answer in answers:
                    answer(False)
                raise
            if term != self._term:
                for answer in answers:
                    answer(False)
                return
            if events:
                self._propose(events, answers)
            else:
                self._is_deciding = False

    def _decide_some(self, events: list[Event], answers: list[Callable[[bool], None]]) -> None:
        """Add the next decision, and those behind it that each concern another single partition.

        Decisions without events are answered at once.
        """
        decided: set[int] = set()
        while self._waiting and len(decided) < CONTROL_DECISIONS_MAX:
            partition_id = self._waiting[0].partition_id
            if events and (partition_id is None or partition_id in decided):
                break
            decide, done, _ = self._waiting.popleft()
            try:
                wanted, reply = decide()
            except DragomanError as error:
                done(ControlReply(outcomes=(Decision.REFUSED,), text=str(error)))
                continue
            if not wanted:
                done(reply)
                continue
            events += wanted
            answers.append(partial(_answer, done, reply))
            if partition_id is None:
                break
            decided.add(partition_id)

    def _propose(self, events: list[Event], answers: list[Callable[[bool], None]]) -> None:
        term = self._term

        def agreed(error: DragomanError | None) -> None:
            for answer in answers:
                answer(error is None)
            if term != self._term:
                return
            self._is_deciding = False
            if isinstance(error, OutcomeUnknownError | NotControllerError):
                self.end()
            else:
                self._next()

        self._quorum.propose(events, agreed)


def _answer(done: Controlled, reply: ControlReply, is_agreed: bool) -> None:
    done(reply if is_agreed else None)


def _ignore(_: ControlReply | None) -> None:
    return None
