"""What a leader does and knows, for as long as it leads; made anew with each election won.

The leader keeps for every other node how far their logs agree (`stable`: on stable storage there)
and from where to send next. One message with entries is under way to a node at a time; what got
lost is sent again with the next heartbeat. A round is a question to all "do I still lead?": every
request carries its number, every reply repeats it. Reads and check-quorum are made of that.
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
    """What a leadership needs of the voter that leads."""

    node_id: int
    storage: RaftStorage
    entries: Entries
    settings: Settings
    now: float
    #: Everything below is agreed on.
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
    """How far one other node is."""

    __slots__ = ("heard_at", "is_waiting", "next", "position", "round", "snapshot", "stable")

    def __init__(self, next_offset: int, now: float) -> None:
        #: Entries from here on are to be sent.
        self.next = next_offset
        self.stable = 0
        #: Entries are under way.
        self.is_waiting = False
        self.heard_at = now
        self.round = 0
        #: The snapshot being sent, (its end, its bytes), and how much of it has arrived.
        self.snapshot: tuple[int, bytes] | None = None
        self.position = 0


class Leadership:
    def __init__(self, raft: Voter) -> None:
        self._raft = raft
        self._storage = raft.storage
        self.term = raft.term
        #: Entries of this term begin here.
        self.term_start = raft.storage.end
        self.heartbeat_at = raft.now
        self._round = 0
        self._progress: dict[int, Progress] = {}
        #: Reads that wait: (round that has to be answered, offset to be answered, token).
        self._reads: deque[tuple[int, int, int]] = deque()
        #: Reads that came before anything of this term was agreed on.
        self._early_reads: list[int] = []
        self.transfer_to = NO_NODE
        self._transfer_until = 0.0

    def begin(self) -> None:
        raft = self._raft
        self._follow_membership()
        try:
            self._storage.append(self.term, raft.entries.term_batch(raft.node_id))
        except LogError:
            # A leader that cannot write is none.
            raft.step_down()
            return
        self.tick()
        self.count()

    def end(self) -> None:
        """It leads no more: whoever waits for a read has to ask again."""
        waiting = [*self._early_reads, *(token for _, _, token in self._reads)]
        self._early_reads.clear()
        self._reads.clear()
        for token in waiting:
            self._raft.answer_read(token, -1)

    @property
    def has_agreed(self) -> bool:
        """Whether an entry of this term is agreed on: only then is all before it known to be."""
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
        alive = [n for n, each in self._progress.items() if now - each.heard_at < patience]
        return self._raft.membership.has_majority([self._raft.node_id, *alive])

    # ---- sending

    def broadcast(self) -> None:
        """To everybody, whether something is under way or not: it may be lost."""
        for node in self._progress:
            self.send_to(node)

    def send_new(self) -> None:
        """To those who wait for nothing else."""
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
            # A leader that cannot read its log cannot lead; a better one may be there.
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
        assert latest is not None, "the log starts behind its beginning without a snapshot"
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
        progress.heard_at = self._raft.now
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
        """Go back to where the two logs may agree; at least by one, so that it comes to an end."""
        _, own_end = self._storage.end_of_term(reply.last_term)
        progress.next = max(0, min(reply.end, own_end, progress.next - 1))
        self.send_to(reply.source)

    def _on_piece(self, reply: SnapshotReply, progress: Progress) -> None:
        if progress.snapshot is None or progress.snapshot[0] != reply.end:
            return
        progress.position = min(reply.position, len(progress.snapshot[1]))
        self.send_to(reply.source)

    def ends(self) -> dict[int, int]:
        """What the others have on stable storage."""
        return {node: each.stable for node, each in self._progress.items()}

    # ---- agreeing

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
        """Entries of earlier terms are agreed on only through one of this term (Raft, §5.4.2)."""
        return end > self.term_start

    def _after_commit(self) -> None:
        raft = self._raft
        if raft.commit > raft.membership_offset and not raft.is_voter:
            # It has voted itself out: hand over to whoever is furthest.
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
        """Answered with what was agreed on now, once it is certain that this node still leads."""
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
            raise ClusterError("another change of the quorum is not agreed on yet")
        end = self.append(self._raft.entries.membership_batch(membership))
        self._raft.adopt_membership(end - 1, membership)
        self._follow_membership()
        self.send_new()
        # A quorum that has become smaller may have agreed by that.
        self.count()
        return end

    def may_change_membership(self) -> bool:
        """Not before an entry of this term is agreed on: without that, two leaders that both change
        an old membership could each find a majority of their own (Ongaro, raft-dev, 2015)."""
        return self.has_agreed and self._raft.commit > self._raft.membership_offset

    def has_caught_up(self, node: int) -> bool:
        """Whether a learner would not hold up the others if it were a voter."""
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
        """Let another voter lead; takes no proposals meanwhile. Given up after a while."""
        if node not in self._progress or node not in self._raft.membership.voters:
            raise ClusterError(f"node {node} cannot lead: it is no other voter")
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
