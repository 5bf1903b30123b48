"""The controller, on the node that leads the metadata log.

One decision is under way at a time, and the next is made on the image that has it: this makes
compare-and-set correct. Requests of operators for different partitions are decided together: they
do not depend on each other, and thousands of moves would take as many rounds of the quorum. A
decision whose outcome is unknown ends the work of this controller; the next one begins with what
was committed.

Nodes send heartbeats. A silent node is fenced: it loses leaderships and in-sync memberships, and
nothing else; safety never depends on time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias, assert_never

from dragoman.cluster.events import Event, Member
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata
from dragoman.cluster.quorum import MetadataQuorum
from dragoman.errors import DragomanError, NotControllerError, OutcomeUnknownError
from dragoman.limits import (
    BALANCED_AT_ONCE_MAX,
    CONTROL_DECISIONS_MAX,
    CONTROL_REQUESTS_MAX,
)
from dragoman.outcome import Outcome, ignore, succeeded
from dragoman.replication.decisions import Decisions
from dragoman.replication.messages import (
    ControlReply,
    Decision,
    ElectPreferred,
    ElectUnclean,
    HandOver,
    Heartbeat,
    InSyncChanges,
    Move,
    NodeRequest,
    PartitionRequest,
    Registration,
    Relieve,
)
from dragoman.world import Scheduler

#: The longest time between two checks of moves and balance.
_TICK_S_MAX = 0.5
_ACCEPTED = ControlReply(outcomes=(Decision.ACCEPTED,))
_REFUSED = ControlReply(outcomes=(Decision.REFUSED,))
#: Decides on the current image: the events to commit, and the reply once they are.
Decide: TypeAlias = Callable[[], tuple[list[Event], ControlReply]]
#: The reply to a request. None: the outcome is unknown, or this node is not the controller.
Controlled: TypeAlias = Outcome[ControlReply | None]


class _Waiting(NamedTuple):
    decide: Decide
    outcome: Controlled
    #: The only partition that the decision reads and changes; None: it may be any number.
    partition_id: int | None


class _Decided(NamedTuple):
    outcome: Controlled
    #: The reply once the events of the decision are committed.
    reply: ControlReply


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
        has_voters: bool = True,
    ) -> None:
        """`session_s`: how long a node may be silent; `suspect_s`: the same for a node that has
        lost the leadership of the metadata by its silence; `balance_s`: how often leaders are
        balanced, 0: never; `has_voters`: whether the nodes themselves are the quorum.
        """
        self.controller = Decisions(image, has_voters=has_voters)
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
        #: The number of times that this node became the controller; 0 while it is not.
        self._term = 0
        self._terms = 0

    def begin(self, suspect: int = NO_LEADER) -> None:
        """This node leads the metadata log, and the image has everything committed before.

        `suspect`: the leader before, if it was silent.
        """
        self._terms += 1
        self._term = self._terms
        self._is_deciding = False
        self._balanced_at = now = self._scheduler.time()
        # The new controller waits the whole session time for each node's first heartbeat.
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
            each.outcome.succeed(None)

    # ---- requests

    def ask(self, request: NodeRequest | PartitionRequest) -> Controlled:
        if not self._term:
            return succeeded(None)
        match request:
            case Heartbeat():
                return succeeded(self._heartbeat(request.member))
            case Registration():
                self._seen[request.node_id] = self._scheduler.time()
                return self.decide(lambda: (self.controller.register(request), _ACCEPTED))
            case InSyncChanges():
                return self.decide(lambda: self._change(request))
            case HandOver():
                return self.decide(lambda: (self.controller.hand_over(request.member), _ACCEPTED))
            case ElectPreferred() | ElectUnclean() | Move():
                partition_id = request.partition_id
                return self.decide(lambda: (self._events(request), _ACCEPTED), partition_id)
            case Relieve():
                return self.decide(lambda: (self._events(request), _ACCEPTED))
            case _:
                assert_never(request)

    def _events(self, request: PartitionRequest) -> list[Event]:
        """What a request of an operator changes. Raises `DragomanError`."""
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
            self.decide(lambda: (self.controller.finish_moves(), _ACCEPTED)).then(ignore)
        if self._balance_s and now - self._balanced_at >= self._balance_s:
            self._balanced_at = now
            balance = self.controller.balance
            self.decide(lambda: (balance(BALANCED_AT_ONCE_MAX), _ACCEPTED)).then(ignore)
        self._scheduler.call_later(min(self._session_s / 10, _TICK_S_MAX), self._tick, term)

    def settle(self, partitions: list[PartitionMetadata]) -> None:
        """Partitions are new, here or to this controller: the nodes that hold them must exist."""
        known = self._image.partitions

        def decide() -> tuple[list[Event], ControlReply]:
            there = [each for each in partitions if known.get(each.partition_id) is each]
            return self.controller.settle(there), _ACCEPTED

        self.decide(decide).then(ignore)

    def raise_level(self) -> None:
        """A node has come, gone or been upgraded: all nodes may know a higher feature level now."""
        self.decide(lambda: (self.controller.raise_level(), _ACCEPTED)).then(ignore)

    def fence(self, member: Member) -> None:
        """Fence a node that is silent, or whose connection shows that its process is gone."""
        self.decide(lambda: (self.controller.fence(member), _ACCEPTED)).then(ignore)

    # ---- the queue of decisions

    def decide(self, decide: Decide, partition_id: int | None = None) -> Controlled:
        """Queue a decision. If `decide` raises a `DragomanError`, the reply is a refusal."""
        outcome: Controlled = Outcome()
        if not self._term or len(self._waiting) >= CONTROL_REQUESTS_MAX:
            outcome.succeed(None)
        else:
            self._waiting.append(_Waiting(decide, outcome, partition_id))
            self._next()
        return outcome

    def _next(self) -> None:
        while self._waiting and not self._is_deciding:
            term = self._term
            # A requester that gets its reply may make another request within the call: that one
            # waits for its turn.
            self._is_deciding = True
            events: list[Event] = []
            decided: list[_Decided] = []
            try:
                self._decide_some(events, decided)
            except BaseException:
                self._is_deciding = False
                _leave_unknown(decided)
                raise
            if term != self._term:
                _leave_unknown(decided)
                return
            if events:
                self._quorum.propose(events).then(partial(self._committed, term, decided))
            else:
                self._is_deciding = False

    def _decide_some(self, events: list[Event], decided: list[_Decided]) -> None:
        """Make the next decision, and those behind it that concern one other partition each.

        A decision without events is answered at once.
        """
        partitions: set[int] = set()
        while self._waiting and len(partitions) < CONTROL_DECISIONS_MAX:
            partition_id = self._waiting[0].partition_id
            if events and (partition_id is None or partition_id in partitions):
                break
            decide, outcome, _ = self._waiting.popleft()
            try:
                wanted, reply = decide()
            except DragomanError as error:
                outcome.succeed(ControlReply(outcomes=(Decision.REFUSED,), text=str(error)))
                continue
            if not wanted:
                outcome.succeed(reply)
                continue
            events += wanted
            decided.append(_Decided(outcome, reply))
            if partition_id is None:
                break
            partitions.add(partition_id)

    def _committed(self, term: int, decided: list[_Decided], error: DragomanError | None) -> None:
        """Answer the requests of one proposal, and make the next decisions."""
        for outcome, reply in decided:
            outcome.succeed(reply if error is None else None)
        if term != self._term:
            return
        self._is_deciding = False
        if isinstance(error, OutcomeUnknownError | NotControllerError):
            self.end()
        else:
            self._next()


def _leave_unknown(decided: list[_Decided]) -> None:
    for outcome, _ in decided:
        outcome.succeed(None)
