"""One leadership: proposals become entries, one transaction at a time.

A transaction carries the proposals that came while the previous one was under way. It requires that
the leader's key is still the one made at the beginning of this leadership (its *term*) and that the
head is still the one that this leader wrote or found. Hence no two leaders ever write the same
number, and a leader that was replaced without knowing it writes nothing.

A transaction without an answer is retried until there is one. Its success moves the head, so it
succeeds at most once; when a retry fails, term and proposal number of the entry in its place show
whether an earlier try succeeded. An outcome is unknown only while etcd does not answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import CallFailedError, Calls
from dragoman.cluster.etcd.history import held
from dragoman.cluster.etcd.layout import (
    Entry,
    Head,
    Keys,
    encode_entry,
    read_entry,
    read_head,
    to_json,
)
from dragoman.cluster.etcd.session import Settings
from dragoman.cluster.events import Event
from dragoman.errors import (
    ClusterError,
    DragomanError,
    NotControllerError,
    OutcomeUnknownError,
    VersionConflictError,
)
from dragoman.limits import (
    ETCD_PROPOSAL_BYTES_MAX,
    ETCD_TRANSACTION_ENTRIES_MAX,
    METADATA_PROPOSALS_MAX,
)
from dragoman.outcome import Outcome, failed, pause
from dragoman.world import Handle, Scheduler

_UNKNOWN = "etcd does not answer: the metadata change may or may not have happened, or still happen"


class _Proposal(msgspec.Struct, frozen=True):
    value: bytes
    entry: Entry
    outcome: Outcome[None]


class _Flight(msgspec.Struct):
    """A transaction in flight."""

    request: m.Transaction
    #: The number of its first entry.
    number: int
    proposals: list[_Proposal]
    #: The head once the transaction has succeeded.
    head: Head
    #: Whether an earlier attempt may have succeeded.
    is_doubtful: bool = False
    #: The proposals have failed already: their outcome is unknown, or the leadership was stopped.
    is_given_up: bool = False


class Leadership:
    def __init__(
        self,
        calls: Calls,
        keys: Keys,
        scheduler: Scheduler,
        settings: Settings,
        term: int,
        head: tuple[Head, int],
        *,
        committed: Callable[[int, Entry], None],
        deposed: Callable[[], None],
    ) -> None:
        """`head` is the head and the revision in which it was written.

        `committed` is called with each entry before its proposer is answered, `deposed` when
        another node leads.
        """
        self.term = term
        self._calls = calls
        self._keys = keys
        self._scheduler = scheduler
        self._settings = settings
        self._head, self._head_revision = head
        #: The version once every accepted proposal is committed.
        self.version_at_end = self._head.version
        self._committed = committed
        self._deposed = deposed
        self._queue: deque[_Proposal] = deque()
        self._flight: _Flight | None = None
        self._deadline: Handle | None = None
        self._last_proposal = 0
        #: The node that leads next, once this leadership is over.
        self._successor: int | None = None
        self._is_stopped = False

    @property
    def is_busy(self) -> bool:
        """Whether a transaction is under way."""
        return self._flight is not None

    # ---- proposals

    def propose(self, events: list[Event], expected_version: int | None) -> Outcome[None]:
        entry = Entry(self.term, self._last_proposal + 1, tuple(events))
        value = encode_entry(entry)
        version = self.version_at_end
        if self._successor is not None:
            return failed(NotControllerError(self._successor))
        if expected_version is not None and version != expected_version:
            text = f"the metadata has version {version}, not {expected_version}"
            return failed(VersionConflictError(text))
        if len(self._queue) >= METADATA_PROPOSALS_MAX:
            return failed(ClusterError("too many metadata changes are waiting"))
        if len(value) > ETCD_PROPOSAL_BYTES_MAX:
            return failed(ClusterError(f"a metadata change of {len(value)} bytes is too large"))
        self._last_proposal += 1
        self.version_at_end += len(events)
        outcome: Outcome[None] = Outcome()
        self._queue.append(_Proposal(value, entry, outcome))
        self._send_next()
        return outcome

    def end(self, successor: int) -> None:
        """Another node leads, or none. Proposals not yet sent are refused; a transaction under way
        is retried until its outcome is known.
        """
        if self._successor is None:
            self._successor = successor
            self._refuse(self._take_queue(), NotControllerError(successor))

    def stop(self, error: DragomanError) -> None:
        """Fail all proposals; nothing is retried any more."""
        self._is_stopped = True
        self._successor = -1
        self._cancel_deadline()
        queue = self._take_queue()
        if self._flight is not None:
            self._answer(self._flight, error)
        self._refuse(queue, error)

    # ---- transactions

    def _send_next(self) -> None:
        if self._flight is not None or not self._queue or self._successor is not None:
            return
        proposals: list[_Proposal] = []
        size = 0
        while self._queue and len(proposals) < ETCD_TRANSACTION_ENTRIES_MAX:
            size += len(self._queue[0].value)
            if proposals and size > ETCD_PROPOSAL_BYTES_MAX:
                break
            proposals.append(self._queue.popleft())
        number = self._head.entries
        events = sum(len(each.entry.events) for each in proposals)
        head = Head(number + len(proposals), self._head.version + events)
        keys = self._keys
        request = m.Transaction(
            compare=(
                m.created(keys.leader, self.term),
                m.changed(keys.head, self._head_revision),
            ),
            success=m.puts(
                *(
                    m.Put(key=keys.entry(at), value=each.value)
                    for at, each in enumerate(proposals, number)
                ),
                m.Put(key=keys.head, value=to_json(head)),
            ),
            failure=m.ranges(
                m.Range(key=keys.leader), m.Range(key=keys.head), m.Range(key=keys.entry(number))
            ),
        )
        flight = self._flight = _Flight(request, number, proposals, head)
        self._deadline = self._scheduler.call_later(self._settings.outcome_s, self._give_up, flight)
        self._calls.run(self._send(flight))

    async def _send(self, flight: _Flight) -> None:
        """Send a transaction until etcd answers."""
        answer: m.TransactionAnswer | None = None
        while answer is None:
            try:
                answer = await self._calls.transaction(flight.request)
            except CallFailedError as error:
                if self._is_stopped:
                    return
                if error.failure.is_refusal and not flight.is_doubtful:
                    self._refused(flight, ClusterError(f"etcd refuses: {error}"))
                    return
                flight.is_doubtful = True
                await pause(self._scheduler, self._settings.retry_s)
            if self._is_stopped:
                return
        if answer.succeeded:
            self._succeeded(flight, answer.header.revision)
        else:
            self._failed(flight, *answer.found())

    def _succeeded(self, flight: _Flight, revision: int) -> None:
        self._head, self._head_revision = flight.head, revision
        self._land()
        for number, each in enumerate(flight.proposals, flight.number):
            self._committed(number, each.entry)
            if not flight.is_given_up:
                each.outcome.succeed(None)
        self._send_next()

    def _failed(
        self, flight: _Flight, leader: m.RangeAnswer, head: m.RangeAnswer, first: m.RangeAnswer
    ) -> None:
        """This try was not carried out."""
        if first.kvs:
            there, ours = read_entry(first.kvs[0].value), flight.proposals[0].entry
            if (there.term, there.proposal) == (ours.term, ours.proposal):
                self._succeeded(flight, first.kvs[0].mod_revision)
                return
        successor = held(leader.kvs[0]).holder.node if leader.kvs else -1
        error: DragomanError = NotControllerError(successor)
        entries = read_head(head.kvs[0].value).entries if head.kvs else 0
        if flight.is_doubtful and not first.kvs and entries > flight.number:
            # A snapshot has replaced the entry that would show it.
            error = OutcomeUnknownError(_UNKNOWN)
        self._land()
        self.end(successor)
        self._answer(flight, error)
        self._deposed()

    def _refused(self, flight: _Flight, error: ClusterError) -> None:
        """The transaction was never carried out; the proposals behind it depended on it."""
        self._land()
        self.version_at_end = self._head.version
        queue = self._take_queue()
        self._answer(flight, error)
        self._refuse(queue, error)

    def _give_up(self, flight: _Flight) -> None:
        """Fail the proposals as unknown. Nothing may be decided before the outcome is known, so the
        leadership ends; the next one begins with what etcd has then.
        """
        self._answer(flight, OutcomeUnknownError(_UNKNOWN))
        self._deposed()

    def _answer(self, flight: _Flight, error: DragomanError) -> None:
        if not flight.is_given_up:
            flight.is_given_up = True
            self._refuse(flight.proposals, error)

    def _refuse(self, proposals: Iterable[_Proposal], error: DragomanError) -> None:
        for each in proposals:
            each.outcome.fail(error)

    def _take_queue(self) -> deque[_Proposal]:
        waiting, self._queue = self._queue, deque()
        return waiting

    def _land(self) -> None:
        self._flight = None
        self._cancel_deadline()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
