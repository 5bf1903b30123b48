"""The Raft state machine of one voter: events in, messages and effects out.

Theory of operation. Time is divided into terms with at most one leader each. A node's ballot (term
and vote, one durable record) ensures that it never votes for two candidates of one term, and a
candidate needs a majority; no node votes for a candidate whose log is behind its own. The leader
replicates its log to the others; what a majority has on stable storage is *committed*, provided
that an entry of the leader's own term is among it: each leader therefore begins with an empty
entry. Two logs with the same (offset, term) have the same bytes up to there, so a follower
truncates its log only where the term differs from the leader's, never on a match.

    FOLLOWER ──no leader for a while──► PRE_CANDIDATE ──majority would vote──► CANDIDATE
       ▲                                                                          │ majority voted
       └──────────────── newer term, or no majority answers ──────────── LEADER ◄─┘

Before any term rises, a pre-vote asks whether an election could be won; a node in contact with a
leader refuses, so a node with a bad link disturbs no other. A leader without answers from a
majority resigns (check-quorum).

No message leaves while the ballot is not stable: each carries the term, and a vote or the request
for one must never be forgotten. A follower reports only what is stable. Durability needs no other
order, and both rules are in this module (`take_messages`, `_report`).

The core has no clock, no files, no sockets: the driver (`cluster/raft_quorum/driver.py`) calls
`tick` at `deadline`, `receive` with messages and `stable` when storage has moved, and drains
messages and effects after each call. The state of a leader is in `leadership.py`.

This file is longer than most on purpose: the rules of elections, of following and of snapshots hold
only together, over one state, and are read side by side.
"""

from __future__ import annotations

from typing import assert_never

from dragoman.errors import CorruptionError, DecodeError, LogError, NotControllerError
from dragoman.log.batch import BatchHeader, batches
from dragoman.log.node import Ballot
from dragoman.raft.leadership import Leadership
from dragoman.raft.membership import Membership, MembershipHistory
from dragoman.raft.messages import (
    AppendReply,
    AppendRequest,
    Message,
    SnapshotReply,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from dragoman.raft.ports import (
    NO_NODE,
    Committed,
    Effect,
    Entries,
    RaftStorage,
    ReadAnswered,
    Role,
    RoleChanged,
    Settings,
    SnapshotInstalled,
    SnapshotWanted,
)
from dragoman.raft.snapshots import IncomingSnapshot, Snapshot
from dragoman.world import Random

_NEVER = float("-inf")


class Raft:
    def __init__(
        self,
        node_id: int,
        storage: RaftStorage,
        entries: Entries,
        random: Random,
        initial: Membership,
        settings: Settings | None = None,
    ) -> None:
        """`initial` is the membership until the log has one; a node that joins starts without
        voters.

        Changes nothing yet. Raises `CorruptionError` when log and snapshot do not fit together.
        """
        self.node_id = node_id
        self.storage = storage
        self.entries = entries
        self.settings = settings if settings is not None else Settings()
        self.role = Role.FOLLOWER
        self.leader = NO_NODE
        self.now = 0.0
        self.leadership: Leadership | None = None
        self.effects: list[Effect] = []
        self._random = random
        self._messages: list[tuple[int, Message]] = []
        snapshot = storage.snapshot
        reached = snapshot.end if snapshot is not None else 0
        if storage.start > reached:
            raise CorruptionError(
                "metadata", 0, f"log starts at {storage.start}, the snapshot reaches {reached}"
            )
        #: Everything below is committed. Not durable: learnt again from the first leader.
        self.commit = reached
        self._memberships = MembershipHistory(
            snapshot.membership if snapshot is not None else initial
        )
        if self._log_follows_snapshot():
            self._note_memberships()
        #: Everything below matches the log of the current leader.
        self._matched = 0
        #: The last report to the leader: the stable end, and the round.
        self._reported = 0
        self._round = 0
        self._leader_commit = 0
        self._leader_seen_at = _NEVER
        self._votes: set[int] = set()
        self._lost_elections = 0
        #: Whether the previous leader requested this node's last election.
        self.is_transfer = False
        self._incoming: IncomingSnapshot | None = None
        self._election_at = 0.0

    def start(self, now: float) -> None:
        self.now = now
        snapshot = self.storage.snapshot
        if snapshot is not None and not self._log_follows_snapshot():
            # A crash came after the snapshot was installed and before the log was reset.
            self.storage.reset(snapshot.end, snapshot.last_term)
        if self.membership.voters == (self.node_id,):
            self._campaign()
        else:
            self._wait_for_leader()

    def would_drop_entries(self) -> bool:
        """Whether `start` would drop entries that are newer than the snapshot, because damage hides
        whether they follow it.
        """
        snapshot = self.storage.snapshot
        is_longer = snapshot is not None and self.storage.end > snapshot.end
        return is_longer and not self._log_follows_snapshot()

    def _log_follows_snapshot(self) -> bool:
        snapshot = self.storage.snapshot
        return snapshot is None or self._has(snapshot.end, snapshot.last_term)

    # ---- state

    @property
    def term(self) -> int:
        return self.storage.ballot.term

    @property
    def membership(self) -> Membership:
        """The newest membership in the log, committed or not."""
        return self._memberships.newest

    @property
    def membership_offset(self) -> int:
        return self._memberships.newest_offset

    @property
    def is_membership_recorded(self) -> bool:
        """Whether the log or the snapshot has a membership."""
        return len(self._memberships) > 1 or self.storage.snapshot is not None

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.membership.voters

    @property
    def deadline(self) -> float:
        """The time at which `tick` has work."""
        return self.leadership.heartbeat_at if self.leadership is not None else self._election_at

    def _has(self, end: int, last_term: int) -> bool:
        """Whether a log with this last record may be a prefix of this one."""
        storage = self.storage
        return end <= storage.end and (end == 0 or storage.term_of(end - 1) == last_term)

    # ---- events

    def tick(self, now: float) -> None:
        self.now = now
        if self.leadership is not None:
            self.leadership.tick()
        elif now >= self._election_at:
            self._election_due()

    def stable(self, now: float) -> None:
        """Storage has made something durable."""
        self.now = now
        if self.leadership is not None:
            self.leadership.count()
        elif self.leader != NO_NODE and self._stable_match() > self._reported:
            self._learn_commit()
            self._report()

    def peer_lost(self, node: int, now: float) -> None:
        """The connection to a node was lost: if it led, it is probably dead."""
        self.now = now
        if node == self.leader and self.leadership is None:
            self._set_leader(NO_NODE)
            self._leader_seen_at = _NEVER
            soon = now + self._random.uniform(0.0, self.settings.lost_leader_s)
            self._election_at = min(self._election_at, soon)

    def log_refused(self, now: float) -> None:
        """The log withdrew staged appends because the disk is full.

        Followers may have them already, so a leader must not write different ones in their place.
        """
        self.now = now
        self._matched = min(self._matched, self.storage.end)
        self._memberships.forget(self.storage.end)
        if self.leadership is not None and not self.is_alone:
            self.step_down()

    @property
    def is_alone(self) -> bool:
        """Whether this node leads and is the only member that could have received entries."""
        leadership = self.leadership
        is_only_one = self.membership.nodes == (self.node_id,)
        return is_only_one and leadership is not None and leadership.has_agreed

    def compact(self, end: int, state: bytes, now: float) -> None:
        """`state` is the state after the committed entries below `end`."""
        self.now = now
        storage, previous = self.storage, self.storage.snapshot
        assert end <= self.commit
        if previous is not None and end <= previous.end:
            return
        membership = self._memberships.at(end)
        storage.save_snapshot(Snapshot(end, storage.term_of(end - 1), membership, state))
        # Entries above the previous snapshot are kept for followers that lag slightly.
        if previous is not None:
            storage.compact(previous.end)

    def forget_history(self) -> None:
        """Drop every entry below the snapshot, from files too."""
        snapshot = self.storage.snapshot
        if snapshot is not None:
            self.storage.forget(snapshot.end)

    # ---- requests

    def leading(self) -> Leadership:
        """Raises `NotControllerError` with the leader."""
        if self.leadership is None:
            raise NotControllerError(self.leader)
        return self.leadership

    def answer_read(self, token: int, end: int) -> None:
        self.effects.append(ReadAnswered(token, end))

    # ---- messages

    def send(self, node: int, message: Message) -> None:
        self._messages.append((node, message))

    def take_messages(self) -> list[tuple[int, Message]]:
        """All messages that may be sent now: none while term and vote are not durable."""
        if not self._messages or not self.storage.is_ballot_stable:
            return []
        taken, self._messages = self._messages, []
        return taken

    def take_effects(self) -> list[Effect]:
        taken, self.effects = self.effects, []
        return taken

    def receive(self, message: Message, now: float) -> None:
        self.now = now
        if message.source == self.node_id:
            return
        if message.term > self.term and not self._leaves_term_alone(message):
            is_leader = isinstance(message, AppendRequest | SnapshotRequest)
            self._become_follower(message.term, message.source if is_leader else NO_NODE)
        match message:
            case VoteRequest():
                self._on_vote_request(message)
            case VoteReply():
                self._on_vote_reply(message)
            case AppendRequest():
                if self._follows(message):
                    self._on_append(message)
            case SnapshotRequest():
                if self._follows(message):
                    self._on_snapshot(message)
            case AppendReply() | SnapshotReply():
                if self.leadership is not None and message.term == self.term:
                    self.leadership.on_reply(message)
            case TimeoutNow():
                if (message.term, message.source) == (self.term, self.leader) and self.is_voter:
                    self._campaign(is_transfer=True)
            case _:
                assert_never(message)

    def _leaves_term_alone(self, message: Message) -> bool:
        """Pre-votes raise no term, nor does a candidate while this node is in contact with a
        leader.
        """
        if isinstance(message, VoteRequest):
            return message.is_pre_vote or (self._has_leader_contact() and not message.is_transfer)
        return isinstance(message, VoteReply) and message.is_pre_vote and message.is_granted

    def _has_leader_contact(self) -> bool:
        if self.leadership is not None:
            return True
        return self.leader != NO_NODE and self.now - self._leader_seen_at < self.settings.election_s

    # ---- elections

    def _wait_for_leader(self) -> None:
        jitter = self._random.uniform(0.0, self.settings.election_jitter_s)
        self._election_at = self.now + self.settings.election_s + jitter

    def _retry_later(self) -> None:
        """A short delay at first, so that a split vote costs little; then increasing ones."""
        settings = self.settings
        step = min(settings.retry_s * 2**self._lost_elections, settings.election_s)
        self._lost_elections = min(self._lost_elections + 1, 10)
        self._election_at = self.now + self._random.uniform(step, 2 * step)

    def _may_campaign(self) -> bool:
        """A node that is voted out is still needed until that change is committed (Ongaro, §4.2.2).

        After a start the committed end is unknown: any later membership may be the current one.
        """
        possible = self._memberships.possible(self.commit)
        return any(self.node_id in each.voters for each in possible)

    def _election_due(self) -> None:
        if not self._may_campaign():
            self._wait_for_leader()
        elif not self.storage.is_ballot_stable:
            # The disk is slow: other nodes have not seen the last election yet.
            self._election_at = self.now + self.settings.retry_s
        else:
            self._ask_around()

    def _ask_around(self) -> None:
        """Pre-vote: ask whether an election could be won."""
        self._change_role(Role.PRE_CANDIDATE)
        self._set_leader(NO_NODE)
        self._votes = {self.node_id}
        self._retry_later()
        if self._would_win():
            self._campaign()
        else:
            self._ask_for_votes(self.term + 1, is_pre_vote=True)

    def _would_win(self) -> bool:
        """Whether the votes suffice: a majority, except that a node with an empty log needs all
        voters, since an absent one may have the existing history.
        """
        if self.storage.end == 0 and self.storage.snapshot is None:
            return self._votes.issuperset(self.membership.voters)
        return self.membership.has_majority(self._votes)

    def _campaign(self, *, is_transfer: bool = False) -> None:
        self._begin_term(Ballot(self.term + 1, self.node_id))
        self._change_role(Role.CANDIDATE)
        self._set_leader(NO_NODE)
        self._votes = {self.node_id}
        self.is_transfer = is_transfer
        self._retry_later()
        # The node's own vote may count before it is durable: no request is sent and nothing is
        # committed before it is.
        if self.membership.has_majority(self._votes):
            self._lead()
        else:
            self._ask_for_votes(self.term, is_pre_vote=False)

    def _ask_for_votes(self, term: int, *, is_pre_vote: bool) -> None:
        for node in self.membership.voters:
            if node != self.node_id:
                request = VoteRequest(
                    source=self.node_id,
                    term=term,
                    end=self.storage.end,
                    last_term=self.storage.last_term,
                    is_pre_vote=is_pre_vote,
                    is_transfer=self.is_transfer and not is_pre_vote,
                )
                self.send(node, request)

    def _on_vote_request(self, request: VoteRequest) -> None:
        is_granted = self._would_vote(request)
        if is_granted and not request.is_pre_vote:
            self._cast_vote(request.source)
            self._wait_for_leader()
        is_pre_grant = is_granted and request.is_pre_vote
        self.send(
            request.source,
            VoteReply(
                source=self.node_id,
                term=request.term if is_pre_grant else self.term,
                is_granted=is_granted,
                is_pre_vote=request.is_pre_vote,
            ),
        )

    def _would_vote(self, request: VoteRequest) -> bool:
        ballot = self.storage.ballot
        is_free = request.term > ballot.term or (
            request.term == ballot.term and ballot.vote in (NO_NODE, request.source)
        )
        if not request.is_pre_vote and request.term != ballot.term:
            return False
        if self._has_leader_contact() and not request.is_transfer:
            return False
        return is_free and self._is_log_current(request)

    def _is_log_current(self, request: VoteRequest) -> bool:
        return (request.last_term, request.end) >= (self.storage.last_term, self.storage.end)

    def _cast_vote(self, candidate: int) -> None:
        if self.storage.ballot.vote != candidate:
            self.storage.stage_ballot(Ballot(self.term, candidate))

    def _on_vote_reply(self, reply: VoteReply) -> None:
        if reply.is_pre_vote:
            is_ours = self.role is Role.PRE_CANDIDATE and reply.term == self.term + 1
        else:
            is_ours = self.role is Role.CANDIDATE and reply.term == self.term
        if not is_ours or not reply.is_granted:
            return
        self._votes.add(reply.source)
        if self.role is Role.PRE_CANDIDATE:
            if self._would_win():
                self._campaign()
        elif self.membership.has_majority(self._votes):
            self._lead()

    def _lead(self) -> None:
        self._lost_elections = 0
        self._incoming = None
        self._change_role(Role.LEADER)
        self._set_leader(self.node_id)
        self.leadership = Leadership(self)
        self.leadership.begin()

    def step_down(self) -> None:
        """Resign in this term, so that another node may lead."""
        self._become_follower(self.term, NO_NODE)
        self._wait_for_leader()

    # ---- roles and terms

    def _begin_term(self, ballot: Ballot) -> None:
        assert ballot.term > self.term
        self.storage.stage_ballot(ballot)
        self._matched = self._reported = self._round = 0
        # Pending messages of the old term would carry the new one.
        self._messages.clear()

    def _become_follower(self, term: int, leader: int) -> None:
        if term > self.term:
            self._begin_term(Ballot(term))
        leadership, self.leadership = self.leadership, None
        if self._election_at <= self.now:
            self._wait_for_leader()
        self._change_role(Role.FOLLOWER)
        self._set_leader(leader)
        if leadership is not None:
            leadership.end()

    def _change_role(self, role: Role) -> None:
        if self.role is not role:
            self.role = role
            self._report_role()

    def _set_leader(self, leader: int) -> None:
        if self.leader != leader:
            self.leader = leader
            self._report_role()

    def _report_role(self) -> None:
        """Report the final role once per external call."""
        changed = RoleChanged(self.role, self.term, self.leader)
        if self.effects and isinstance(self.effects[-1], RoleChanged):
            self.effects[-1] = changed
        else:
            self.effects.append(changed)

    # ---- following

    def _follows(self, request: AppendRequest | SnapshotRequest) -> bool:
        """Whether the request comes from the leader of this term; a deposed one gets the new
        term.
        """
        if request.term < self.term:
            reply = AppendReply(
                source=self.node_id, term=self.term, round=request.round, is_match=False
            )
            self.send(request.source, reply)
            return False
        assert self.leadership is None, f"nodes {request.source} and {self.node_id} lead one term"
        if self.role is not Role.FOLLOWER or self.leader != request.source:
            self._become_follower(request.term, request.source)
        self._leader_seen_at = self.now
        self._lost_elections = 0
        self._round = max(self._round, request.round)
        self._wait_for_leader()
        return True

    def _on_append(self, request: AppendRequest) -> None:
        if not self._matches(request):
            self._disagree(request)
            return
        try:
            end = self._take_batches(request)
        except (DecodeError, LogError):
            # Damaged on the way, or the disk is full: nothing was appended, and the leader retries.
            return
        self._matched = max(self._matched, end)
        self._leader_commit = max(self._leader_commit, request.commit)
        self._learn_commit()
        self._report()

    def _matches(self, request: AppendRequest) -> bool:
        # Committed entries are the same in the log of every possible leader.
        end = request.previous_end
        return end <= self.commit or self._has(end, request.previous_term)

    def _disagree(self, request: AppendRequest) -> None:
        """Reply with a possible match: back over a whole term at a time (KIP-279)."""
        last_term, end = self.storage.end_of_term(request.previous_term)
        self.send(
            self.leader,
            AppendReply(
                source=self.node_id,
                term=self.term,
                round=request.round,
                is_match=False,
                end=max(min(end, request.previous_end), self.commit),
                last_term=last_term,
            ),
        )

    def _take_batches(self, request: AppendRequest) -> int:
        """Append the new batches of the request; returns the end of the match with the leader."""
        end = request.previous_end
        taken = 0
        for header, batch in list(batches(memoryview(request.data))):
            end = header.last_offset + 1
            if not self._is_held(header):
                break
            taken += len(batch)
        else:
            return end
        new = request.data[taken:]
        self._make_way(header)
        self.storage.append_as_is(new)
        for header, batch in batches(memoryview(new)):
            self._note_membership(header, batch)
            end = header.last_offset + 1
        return end

    def _is_held(self, header: BatchHeader) -> bool:
        if header.last_offset < self.commit:
            return True
        is_inside = header.last_offset < self.storage.end
        return is_inside and self.storage.term_of(header.base_offset) == header.leader_epoch

    def _make_way(self, header: BatchHeader) -> None:
        """Truncate the log to the batch's offset: what follows there was never committed."""
        storage, base = self.storage, header.base_offset
        if base < storage.end:
            assert base >= self.commit, f"truncating to {base}, {self.commit} is committed"
            assert base >= self._matched, f"truncating to {base}, {self._matched} is the leader's"
            storage.truncate(base)
            self._memberships.forget(storage.end)
        if base != storage.end:
            raise DecodeError(f"batch at {base} does not follow the log's end {storage.end}")

    def _report(self) -> None:
        """Report to the leader how far the logs match, and how far that is stable."""
        self._reported = self._stable_match()
        self.send(
            self.leader,
            AppendReply(
                source=self.node_id,
                term=self.term,
                round=self._round,
                is_match=True,
                stable=self._reported,
                end=self._matched,
            ),
        )

    def _stable_match(self) -> int:
        return min(self._matched, self.storage.stable_end)

    def _learn_commit(self) -> None:
        self.advance_commit(min(self._leader_commit, self._stable_match()))

    def advance_commit(self, end: int) -> None:
        if end <= self.commit:
            return
        self.commit = end
        self.storage.committed(end)
        self.effects.append(Committed(end))
        snapshot = self.storage.snapshot
        since = end - (snapshot.end if snapshot is not None else 0)
        if since >= self.settings.snapshot_records:
            self.effects.append(SnapshotWanted())

    # ---- membership

    def _note_memberships(self) -> None:
        """Find the memberships in the log after the snapshot, at start."""
        storage, offset = self.storage, self.commit
        while offset < storage.end:
            for header, batch in batches(memoryview(storage.read(offset, 1 << 20))):
                if header.base_offset >= offset:
                    self._note_membership(header, batch)
                offset = header.last_offset + 1

    def _note_membership(self, header: BatchHeader, batch: memoryview) -> None:
        found = self.entries.membership_in(batch)
        if found is not None:
            self.adopt_membership(header.base_offset, found)

    def adopt_membership(self, offset: int, membership: Membership) -> None:
        """A membership counts as soon as it is in the log, committed or not."""
        self._memberships.add(offset, membership)

    # ---- snapshots

    def _on_snapshot(self, request: SnapshotRequest) -> None:
        if request.end <= self.commit:
            # The snapshot has nothing new.
            self._incoming = None
            self._matched = max(self._matched, request.end)
            self._report()
            return
        incoming = self._incoming
        if incoming is None or not incoming.is_same(request):
            incoming = self._incoming = IncomingSnapshot(request)
        snapshot = incoming.add(request)
        if snapshot is not None:
            self._incoming = None
            try:
                self._install(snapshot)
            except LogError:
                # The disk is full: the leader retries.
                return
            self._report()
            return
        reply = SnapshotReply(
            source=self.node_id,
            term=self.term,
            end=request.end,
            round=request.round,
            position=incoming.position,
        )
        self.send(self.leader, reply)

    def _install(self, snapshot: Snapshot) -> None:
        storage = self.storage
        is_ours = self._has(snapshot.end, snapshot.last_term)
        storage.save_snapshot(snapshot)
        if is_ours:
            storage.compact(snapshot.end)
        else:
            storage.reset(snapshot.end, snapshot.last_term)
            self._memberships.forget(0)
        self._memberships.begin_at(snapshot.end, snapshot.membership)
        self._matched = max(self._matched, snapshot.end)
        self.effects.append(SnapshotInstalled(snapshot))
        self.advance_commit(snapshot.end)
