"""The state of a leader, for one term; created with each election won.

For every other node, the leader tracks how far the logs match (`stable`: on stable storage there)
and the next offset to send. One message with entries is in flight to a node at a time; lost ones
are repeated with the next heartbeat. A round asks all nodes whether they still follow: every
request carries its number, every reply repeats it. Reads and check-quorum are built on rounds.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from dragoman.errors import ClusterError, LogError
from dragoman.limits import RAFT_READS_MAX
from dragoman.raft.membership import Membership
from dragoman.raft.messages import (
    AppendReply,
    AppendRequest,
    Message,
    SnapshotReply,
    SnapshotRequest,
    TimeoutNow,
)
from dragoman.raft.ports import NO_NODE, Entries, RaftStorage, Settings
from dragoman.raft.snapshots import encode_snapshot


class Voter(Protocol):
    """What a leadership needs from its voter."""

    node_id: int
    storage: RaftStorage
    entries: Entries
    settings: Settings
    now: float
    #: Everything below is committed.
    commit: int

    @property
    def leadership(self) -> Leadership | None:
        """None once the voter has stepped down."""
        ...

    @property
    def term(self) -> int: ...

    @property
    def membership(self) -> Membership: ...

    @property
    def membership_offset(self) -> int: ...

    @property
    def is_voter(self) -> bool: ...

    def send(self, node: int, message: Message) -> None: ...

    def answer_read(self, token: int, end: int) -> None: ...

    def advance_commit(self, end: int) -> None: ...

    def adopt_membership(self, offset: int, membership: Membership) -> None: ...

    def step_down(self) -> None: ...


class Progress:
    """The replication progress of another node."""

    __slots__ = ("is_waiting", "next", "position", "round", "seen_at", "snapshot", "stable")

    def __init__(self, next_offset: int, now: float) -> None:
        #: The next offset to send.
        self.next = next_offset
        self.stable = 0
        #: Whether entries are in flight.
        self.is_waiting = False
        self.seen_at = now
        self.round = 0
        #: The snapshot being sent (its end, its bytes), and the number of acknowledged bytes.
        self.snapshot: tuple[int, bytes] | None = None
        self.position = 0


class Leadership:
    def __init__(self, raft: Voter) -> None:
        self._raft = raft
        self._storage = raft.storage
        self.term = raft.term
        #: The offset at which entries of this term begin.
        self.term_start = raft.storage.end
        self.heartbeat_at = raft.now
        self._round = 0
        self._progress: dict[int, Progress] = {}
        #: Pending reads: (round that has to be acknowledged, read offset, token).
        self._reads: deque[tuple[int, int, int]] = deque()
        #: Reads that arrived before any entry of this term was committed.
        self._early_reads: list[int] = []
        self.transfer_to = NO_NODE
        self._transfer_until = 0.0

    def begin(self) -> None:
        raft = self._raft
        self._follow_membership()
        try:
            self._storage.append(self.term, raft.entries.term_batch(raft.node_id))
        except LogError:
            # A leader that cannot write resigns.
            raft.step_down()
            return
        self.tick()
        self.count()

    def end(self) -> None:
        """The leadership has ended: pending reads must be retried."""
        waiting = [*self._early_reads, *(token for _, _, token in self._reads)]
        self._early_reads.clear()
        self._reads.clear()
        for token in waiting:
            self._raft.answer_read(token, -1)

    @property
    def has_agreed(self) -> bool:
        """Whether an entry of this term is committed, and with it all before it."""
        return self._raft.commit > self.term_start

    # ---- time

    def tick(self) -> None:
        raft = self._raft
        if raft.now < self.heartbeat_at:
            return
        self.heartbeat_at = raft.now + raft.settings.heartbeat_s
        if not self._has_quorum():
            raft.step_down()
            return
        if self.transfer_to != NO_NODE and raft.now >= self._transfer_until:
            self.transfer_to = NO_NODE
        self.broadcast()

    def _has_quorum(self) -> bool:
        patience = self._raft.settings.election_s
        now = self._raft.now
        alive = [n for n, each in self._progress.items() if now - each.seen_at < patience]
        return self._raft.membership.has_majority([self._raft.node_id, *alive])

    # ---- sending

    def broadcast(self) -> None:
        """Send to all nodes, even with entries in flight, which may be lost."""
        for node in self._progress:
            self.send_to(node)

    def send_new(self) -> None:
        """Send to nodes without entries in flight."""
        for node, progress in self._progress.items():
            if not progress.is_waiting:
                self.send_to(node)

    def send_to(self, node: int) -> None:
        progress = self._progress[node]
        storage = self._storage
        if progress.next < storage.start:
            self._send_snapshot(node, progress)
            return
        previous = progress.next
        try:
            data = storage.read(previous, self._raft.settings.append_bytes_max)
        except LogError:
            # A leader that cannot read its log resigns; another node may be able to.
            self._raft.step_down()
            return
        progress.is_waiting = bool(data)
        request = AppendRequest(
            source=self._raft.node_id,
            term=self.term,
            previous_end=previous,
            previous_term=max(storage.term_of(previous - 1), 0) if previous else 0,
            commit=self._raft.commit,
            round=self._round,
            data=data,
        )
        self._raft.send(node, request)

    def _send_snapshot(self, node: int, progress: Progress) -> None:
        latest = self._storage.snapshot
        assert latest is not None, "the log does not start at 0, and there is no snapshot"
        if progress.snapshot is None or progress.snapshot[0] != latest.end:
            progress.snapshot = (latest.end, encode_snapshot(latest))
            progress.position = 0
        data = progress.snapshot[1]
        start = progress.position
        progress.is_waiting = True
        request = SnapshotRequest(
            source=self._raft.node_id,
            term=self.term,
            end=latest.end,
            last_term=latest.last_term,
            round=self._round,
            position=start,
            size=len(data),
            data=data[start : start + self._raft.settings.snapshot_piece_bytes],
        )
        self._raft.send(node, request)

    # ---- replies

    def on_reply(self, reply: AppendReply | SnapshotReply) -> None:
        progress = self._progress.get(reply.source)
        if progress is None:
            return
        progress.seen_at = self._raft.now
        progress.round = max(progress.round, min(reply.round, self._round))
        if isinstance(reply, SnapshotReply):
            self._on_piece(reply, progress)
        elif reply.is_match:
            self._on_match(reply, progress)
        elif reply.round == progress.round:
            self._on_mismatch(reply, progress)
        self.answer_reads()

    def _on_match(self, reply: AppendReply, progress: Progress) -> None:
        progress.is_waiting = False
        progress.snapshot = None
        progress.next = max(progress.next, reply.end)
        if reply.stable > progress.stable:
            progress.stable = reply.stable
            self.count()
        if self._raft.leadership is not self:
            return
        self._hand_over_if_ready()
        if progress.next < self._storage.end and not progress.is_waiting:
            self.send_to(reply.source)

    def _on_mismatch(self, reply: AppendReply, progress: Progress) -> None:
        """Go back to a possible match, by at least one record, so that the search ends."""
        _, own_end = self._storage.end_of_term(reply.last_term)
        progress.next = max(0, min(reply.end, own_end, progress.next - 1))
        self.send_to(reply.source)

    def _on_piece(self, reply: SnapshotReply, progress: Progress) -> None:
        if progress.snapshot is None or progress.snapshot[0] != reply.end:
            return
        progress.position = min(reply.position, len(progress.snapshot[1]))
        self.send_to(reply.source)

    def ends(self) -> dict[int, int]:
        """The stable ends of the other nodes."""
        return {node: each.stable for node, each in self._progress.items()}

    # ---- committing

    def count(self) -> None:
        """Move the commit mark to what a majority has on stable storage, this node included."""
        raft = self._raft
        ends = self.ends()
        # A term that is not durable here has not begun.
        if self._storage.is_ballot_stable:
            ends[raft.node_id] = self._storage.stable_end
        agreed = raft.membership.agreed(ends)
        if agreed <= raft.commit or not self._may_commit(agreed):
            return
        raft.advance_commit(agreed)
        self._after_commit()

    def _may_commit(self, end: int) -> bool:
        """Entries of earlier terms are committed only through one of this term (Raft, §5.4.2)."""
        return end > self.term_start

    def _after_commit(self) -> None:
        raft = self._raft
        if raft.commit > raft.membership_offset and not raft.is_voter:
            # This node has voted itself out: hand over to the most advanced voter.
            self._send_timeout_now(self._furthest())
            raft.step_down()
            return
        early, self._early_reads = self._early_reads, []
        for token in early:
            self.read(token)
        self.send_new()

    def _furthest(self) -> int:
        voters = [node for node in self._progress if node in self._raft.membership.voters]
        return max(voters, key=lambda node: self._progress[node].stable, default=NO_NODE)

    def append(self, batch: bytearray) -> int:
        """Propose an entry; returns its end. Raises `LogError` or `ClusterError`: not accepted."""
        if self.transfer_to != NO_NODE:
            raise ClusterError(f"the leadership is being handed over to node {self.transfer_to}")
        self._storage.append(self.term, batch)
        end = self._storage.end
        self.send_new()
        return end

    # ---- reading

    def read(self, token: int) -> None:
        """Answered with the current commit offset, once this node is confirmed to lead still."""
        if len(self._reads) + len(self._early_reads) >= RAFT_READS_MAX:
            self._raft.answer_read(token, -1)
        elif not self.has_agreed:
            self._early_reads.append(token)
        else:
            self._round += 1
            self._reads.append((self._round, self._raft.commit, token))
            self.broadcast()
            self.answer_reads()

    def answer_reads(self) -> None:
        if not self._reads:
            return
        rounds = {node: each.round for node, each in self._progress.items()}
        rounds[self._raft.node_id] = self._round
        agreed = self._raft.membership.agreed(rounds)
        while self._reads and self._reads[0][0] <= agreed:
            _, end, token = self._reads.popleft()
            self._raft.answer_read(token, end)

    # ---- membership

    def change_membership(self, membership: Membership) -> int:
        """Propose another membership, one node away from this one; returns the entry's end."""
        if not self.may_change_membership():
            raise ClusterError("another change of the quorum is not committed yet")
        end = self.append(self._raft.entries.membership_batch(membership))
        self._raft.adopt_membership(end - 1, membership)
        self._follow_membership()
        self.send_new()
        # With a smaller quorum, more may be committed already.
        self.count()
        return end

    def may_change_membership(self) -> bool:
        """Refuse before an entry of this term is committed: two leaders that both change an old
        membership could otherwise each find a majority of their own (Ongaro, raft-dev, 2015).
        """
        return self.has_agreed and self._raft.commit > self._raft.membership_offset

    def has_caught_up(self, node: int) -> bool:
        """Whether a learner would not delay commits as a voter."""
        progress = self._progress.get(node)
        return progress is not None and progress.stable >= self._raft.commit

    def _follow_membership(self) -> None:
        raft = self._raft
        others = [node for node in raft.membership.nodes if node != raft.node_id]
        self._progress = {
            node: self._progress.get(node) or Progress(self._storage.end, raft.now)
            for node in others
        }

    # ---- handing over

    def transfer(self, node: int) -> None:
        """Hand the leadership to another voter; takes no proposals meanwhile. Abandoned after a
        while.
        """
        if node not in self._progress or node not in self._raft.membership.voters:
            raise ClusterError(f"node {node} cannot lead: it is not another voter")
        self.transfer_to = node
        self._transfer_until = self._raft.now + self._raft.settings.election_s
        self._hand_over_if_ready()
        if self._raft.leadership is self:
            self.send_to(node)

    def _hand_over_if_ready(self) -> None:
        node = self.transfer_to
        if node != NO_NODE and self._progress[node].stable == self._storage.end:
            self._send_timeout_now(node)

    def _send_timeout_now(self, node: int) -> None:
        if node != NO_NODE:
            self._raft.send(node, TimeoutNow(source=self._raft.node_id, term=self.term))
