"""Drives the Raft core with a node's ports, and completes proposals and reads.

After every call into the core the driver sends its messages and carries out its effects, in order.
One timer is set for the core's next deadline. It is reset only when it has fired or the deadline
has come nearer, because the deadline of a follower recedes with every heartbeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar, assert_never

from dragoman.errors import (
    ClusterError,
    DiskFullError,
    DragomanError,
    LogError,
    LogStoppedError,
    NotControllerError,
    OutcomeUnknownError,
)
from dragoman.limits import (
    METADATA_PROPOSALS_MAX,
    RAFT_PROPOSAL_BYTES_MAX,
    RAFT_SNAPSHOT_BYTES_MAX,
)
from dragoman.outcome import Outcome, failed
from dragoman.raft.core import Raft
from dragoman.raft.membership import Membership
from dragoman.raft.messages import Message
from dragoman.raft.ports import (
    Committed,
    Effect,
    ReadAnswered,
    Role,
    RoleChanged,
    SnapshotInstalled,
    SnapshotWanted,
)
from dragoman.raft.snapshots import Snapshot
from dragoman.world import Handle, Scheduler

Result = TypeVar("Result")
#: A timer may fire slightly early because of rounding.
_EARLY_S = 0.0001


class Peers(Protocol):
    def send(self, node: int, message: Message, /) -> None:
        """Try to deliver; failures are not reported."""
        ...


class StateMachine(Protocol):
    """The state machine that the committed entries drive."""

    def apply(self, end: int) -> None:
        """Apply every entry below `end`, in order. `end` may be below what is applied already."""
        ...

    def install(self, snapshot: Snapshot) -> None:
        """Replace the state by the snapshot's."""
        ...

    def save(self) -> tuple[int, bytes]:
        """The encoded state, and the end of the applied entries."""
        ...

    def role_changed(self, changed: RoleChanged) -> None: ...


class RaftDriver:
    def __init__(
        self, raft: Raft, scheduler: Scheduler, peers: Peers, machine: StateMachine
    ) -> None:
        self.raft = raft
        self._scheduler = scheduler
        self._peers = peers
        self._machine = machine
        self._timer: Handle | None = None
        self._timer_at = 0.0
        self._is_draining = False
        self._is_inside = False
        self._is_stable_due = False
        self.is_stopped = False
        #: Proposals of this leadership, ascending: end of the entry, and its outcome.
        self._proposals: deque[tuple[int, Outcome[None]]] = deque()
        self._proposals_term = 0
        self._reads: dict[int, Outcome[int]] = {}
        self._next_token = 0
        #: By node, settled when the learner has caught up and become a voter.
        self._promotions: dict[int, Outcome[None]] = {}

    # ---- events

    def start(self) -> None:
        self._step(self.raft.start)

    def receive(self, message: Message) -> None:
        self._step(lambda now: self.raft.receive(message, now))

    def stable(self) -> None:
        """Storage made something durable, perhaps within a call from the core."""
        if self._is_inside:
            self._is_stable_due = True
        else:
            self._step(self.raft.stable)

    def peer_lost(self, node: int) -> None:
        """The connection to a node was lost or refused."""
        self._step(lambda now: self.raft.peer_lost(node, now))

    def log_refused(self) -> None:
        """The log withdrew staged appends because the disk is full."""
        if self.raft.is_alone:
            kept = self.raft.storage.end
            lost = [proposed for end, proposed in self._proposals if end > kept]
            self._proposals = deque(each for each in self._proposals if each[0] <= kept)
            for proposed in lost:
                proposed.fail(DiskFullError("the disk is full"))
        self._step(self.raft.log_refused)

    def _step(self, call: Callable[[float], None]) -> None:
        if not self.is_stopped:
            now = self._scheduler.time()
            self._enter(lambda: call(now))
            self._drain()

    def _enter(self, call: Callable[[], Result]) -> Result:
        """Call into the core, which is not reentrant."""
        assert not self._is_inside
        self._is_inside = True
        try:
            return call()
        finally:
            self._is_inside = False

    def stop(self, error: DragomanError) -> None:
        """Stop sending and answering; pending calls fail with `error`."""
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail_all(error)

    # ---- requests

    def propose(self, batch: bytearray) -> Outcome[None]:
        """Commit an entry. Settled once it is applied.

        An error means that the entry was not accepted and never will be, unless it is an
        `OutcomeUnknownError`.
        """
        if len(self._proposals) >= METADATA_PROPOSALS_MAX:
            return failed(ClusterError("too many metadata changes are waiting"))
        if len(batch) > RAFT_PROPOSAL_BYTES_MAX:
            return failed(ClusterError(f"a metadata change of {len(batch)} bytes is too large"))
        return self._attempt(lambda: self.raft.leading().append(batch))

    def read(self) -> Outcome[int]:
        """The end of the entries that have to be applied for a state with all committed by now."""
        if self.is_stopped:
            return failed(_stopped())
        try:
            leadership = self.raft.leading()
        except NotControllerError as error:
            return failed(error)
        self._next_token += 1
        read: Outcome[int] = Outcome()
        self._reads[self._next_token] = read
        self._in_time(lambda: leadership.read(self._next_token))
        self._drain()
        return read

    async def add(self, node: int) -> Outcome[None]:
        """Make a node a learner. The outcome is settled when it has caught up and votes."""
        is_learner = node in self.raft.membership.learners and self.raft.leadership is not None
        if not is_learner:
            await self._change(partial(Membership.with_learner, node=node))
        promoted = self._promotions[node] = Outcome()
        self._promote()
        return promoted

    def record_membership(self) -> Outcome[None]:
        """Write the membership to the log, which replaces the configured one."""
        return self._change(lambda membership: membership)

    def remove(self, node: int) -> Outcome[None]:
        """Take a node, perhaps the leader, out of the quorum."""
        return self._change(partial(Membership.without, node=node))

    def transfer(self, node: int) -> None:
        """Begin to hand over the leadership; `RoleChanged` reports when another node leads.

        Raises `ClusterError` when this node does not lead or the other one does not vote.
        """
        if self.is_stopped:
            raise _stopped()
        leadership = self.raft.leading()
        self._in_time(lambda: leadership.transfer(node))
        self._drain()

    def _change(self, changed: Callable[[Membership], Membership]) -> Outcome[None]:
        return self._attempt(
            lambda: self.raft.leading().change_membership(changed(self.raft.membership))
        )

    def _attempt(self, append: Callable[[], int]) -> Outcome[None]:
        """Append an entry, if possible. Settled once it is committed and applied."""
        if self.is_stopped:
            # Perhaps in the middle of a call into the core, whose log has failed.
            return failed(_stopped())
        term = self.raft.term
        try:
            end = self._in_time(append)
        except LogError as error:
            if not self.raft.is_alone:
                # A leader that cannot write must not lead: another node may have room.
                self._in_time(self.raft.step_down)
                self._drain()
            return failed(error)
        except ClusterError as error:
            return failed(error)
        proposed: Outcome[None] = Outcome()
        # Before effects are carried out: a quorum of one may have committed already.
        self._proposals.append((end, proposed))
        self._proposals_term = term
        self._drain()
        return proposed

    def _in_time(self, call: Callable[[], Result]) -> Result:
        self.raft.now = self._scheduler.time()
        return self._enter(call)

    def _promote(self) -> None:
        """Learners that have caught up become voters, one at a time."""
        leadership = self.raft.leadership
        if leadership is None or not leadership.may_change_membership():
            return
        for node in list(self._promotions):
            if node not in self.raft.membership.learners:
                self._promotions.pop(node).fail(ClusterError(f"node {node} was removed meanwhile"))
            elif leadership.has_caught_up(node):
                promoted = self._promotions.pop(node)
                self._change(partial(Membership.with_voter, learner=node)).then(promoted.settle)
                return

    # ---- effects

    def _drain(self) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while not self.is_stopped:
                if self._is_stable_due:
                    self._is_stable_due = False
                    self._enter(lambda: self.raft.stable(self._scheduler.time()))
                effects = self.raft.take_effects()
                for effect in effects:
                    self._carry_out(effect)
                if self._promotions:
                    self._promote()
                messages = self.raft.take_messages()
                for node, message in messages:
                    self._peers.send(node, message)
                if not effects and not messages and not self._is_stable_due:
                    break
        finally:
            self._is_draining = False
        self._arm()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Committed():
                self._committed(effect.end)
            case RoleChanged():
                self._role_changed(effect)
            case ReadAnswered():
                read = self._reads.pop(effect.token)
                if effect.end < 0:
                    read.fail(OutcomeUnknownError("the quorum has no leader"))
                else:
                    read.succeed(effect.end)
            case SnapshotInstalled():
                self._machine.install(effect.snapshot)
            case SnapshotWanted():
                self._snapshot()
            case _:
                assert_never(effect)

    def _snapshot(self) -> None:
        end, state = self._machine.save()
        if len(state) > RAFT_SNAPSHOT_BYTES_MAX:
            return
        # The disk is full; a later snapshot may succeed.
        with suppress(LogError):
            self._enter(lambda: self.raft.compact(end, state, self._scheduler.time()))

    def forget_history(self) -> None:
        """Save a snapshot, and drop the entries that it replaces even for followers that lag."""
        if self.is_stopped:
            return
        self._snapshot()
        with suppress(LogError):
            self._enter(self.raft.forget_history)
        self._drain()

    def _committed(self, end: int) -> None:
        while self._proposals and self._proposals[0][0] <= end:
            reached, proposed = self._proposals.popleft()
            self._machine.apply(reached)
            proposed.succeed(None)
        self._machine.apply(end)

    def _role_changed(self, changed: RoleChanged) -> None:
        if changed.role is not Role.LEADER or changed.term != self._proposals_term:
            text = "the leader changed before the metadata change was committed; it may still be"
            self._fail_all(OutcomeUnknownError(text))
        self._machine.role_changed(changed)

    def _fail_all(self, error: DragomanError) -> None:
        waiting = [proposed for _, proposed in self._proposals]
        waiting += self._promotions.values()
        self._proposals.clear()
        self._promotions.clear()
        for outcome in waiting:
            outcome.fail(error)

    # ---- time

    def _arm(self) -> None:
        if self.is_stopped:
            return
        deadline = self.raft.deadline
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(0.0, deadline - self._scheduler.time())
        self._timer = self._scheduler.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now, deadline = self._scheduler.time(), self.raft.deadline
        if now >= deadline - _EARLY_S:
            self._enter(lambda: self.raft.tick(max(now, deadline)))
        self._drain()


def _stopped() -> LogStoppedError:
    return LogStoppedError("this node has stopped")
