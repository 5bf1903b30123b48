"""Goal: every rule of the core, one by one.

Method: cores over storage in memory, handed messages by hand; nothing happens unless the test says.
"""

from __future__ import annotations

from random import Random

import pytest

from dragoman.cluster.codec import MetadataEntries, event_batch
from dragoman.cluster.events import NodeRegistered
from dragoman.errors import ClusterError, CorruptionError, NotControllerError
from dragoman.log.node import Ballot
from dragoman.raft.core import Raft
from dragoman.raft.membership import Membership
from dragoman.raft.messages import (
    AppendReply,
    AppendRequest,
    Message,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from dragoman.raft.ports import (
    Committed,
    ReadAnswered,
    Role,
    RoleChanged,
    Settings,
    SnapshotInstalled,
    SnapshotWanted,
)
from dragoman.raft.snapshots import Snapshot
from dragoman.testing.sim.scheduler import SimScheduler
from simulation.raft.memory import DiskSpeed, Durable, MemoryStorage

THREE = Membership((1, 2, 3))


class Voter:
    """A core, its storage, and a disk that syncs when a test lets it."""

    def __init__(
        self,
        node_id: int = 1,
        membership: Membership = THREE,
        durable: Durable | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.scheduler = SimScheduler()
        self.storage = MemoryStorage(
            durable if durable is not None else Durable(),
            self.scheduler,
            DiskSpeed(Random(1)),
            lambda: None,
            lambda: None,
        )
        self.raft = Raft(node_id, self.storage, MetadataEntries(), Random(2), membership, settings)
        self.raft.start(0.0)

    def sync(self) -> None:
        self.scheduler.advance(0.1)
        self.raft.stable(self.raft.now)

    def sent(self) -> list[tuple[int, Message]]:
        return self.raft.take_messages()

    def receive(self, *messages: Message, after: float = 0.0) -> list[tuple[int, Message]]:
        """What it answers once it has made durable what it had to."""
        for message in messages:
            self.raft.receive(message, self.raft.now + after)
        self.sync()
        return self.sent()

    def time_out(self) -> list[tuple[int, Message]]:
        self.raft.tick(self.raft.deadline)
        return self.sent()

    def elect(self) -> None:
        """Make it lead, with the vote of node 2."""
        self.time_out()
        term = self.raft.term + 1
        for source in self.raft.membership.voters:
            if source != self.raft.node_id:
                self.receive(VoteReply(source=source, term=term, is_granted=True, is_pre_vote=True))
        self.receive(VoteReply(source=2, term=term, is_granted=True))
        assert self.raft.role is Role.LEADER

    def acknowledge(self, source: int = 2, end: int | None = None) -> list[tuple[int, Message]]:
        stable = self.storage.end if end is None else end
        return self.receive(
            AppendReply(
                source=source,
                term=self.raft.term,
                round=0,
                is_match=True,
                stable=stable,
                end=stable,
            )
        )

    def propose(self) -> int:
        return self.raft.leading().append(entry())


def entry(number: int = 7) -> bytearray:
    return event_batch([NodeRegistered(node_id=number, incarnation=1)])


def written(*terms: int) -> Durable:
    """What is left of a log with one entry of each of these terms."""
    voter = Voter(membership=Membership(()))
    for number, term in enumerate(terms):
        voter.storage.append(term, entry(number))
    voter.sync()
    return voter.storage.durable


def append(
    previous: tuple[int, int] = (0, 0), *, data: bytes = b"", **others: int
) -> AppendRequest:
    values = {"source": 2, "term": 1, "commit": 0, "round": 0, **others}
    return AppendRequest(previous_end=previous[0], previous_term=previous[1], data=data, **values)


def ask(**others: int | bool) -> VoteRequest:
    return VoteRequest(**{"source": 2, "term": 1, "end": 0, "last_term": 0, **others})  # type: ignore[arg-type]


# ---- elections


def test_isolated_voter_pre_votes_before_it_raises_its_term():
    voter = Voter()
    requests = voter.time_out()
    assert [node for node, _ in requests] == [2, 3]
    assert all(isinstance(each, VoteRequest) and each.is_pre_vote for _, each in requests)
    assert voter.raft.term == 0


def test_majority_of_pre_votes_begins_an_election_and_votes_are_asked_when_the_own_is_durable():
    voter = Voter()
    voter.elect()
    voter.sync()
    voter.raft.step_down()
    voter.time_out()
    voter.sent()
    voter.raft.receive(VoteReply(source=3, term=2, is_granted=True, is_pre_vote=True), 9.0)
    assert voter.raft.role is Role.CANDIDATE
    assert voter.sent() == []
    voter.sync()
    assert [type(each) for _, each in voter.sent()] == [VoteRequest, VoteRequest]
    assert voter.storage.durable.ballot == Ballot(2, 1)


def test_voter_with_an_empty_log_is_elected_only_by_all_others():
    voter = Voter()
    voter.time_out()
    voter.raft.receive(VoteReply(source=3, term=1, is_granted=True, is_pre_vote=True), 1.0)
    assert voter.raft.role is Role.PRE_CANDIDATE
    voter.raft.receive(VoteReply(source=2, term=1, is_granted=True, is_pre_vote=True), 1.0)
    assert voter.raft.role is Role.CANDIDATE


def test_only_voter_leads_at_once_and_commits_what_is_stable():
    voter = Voter(membership=Membership((1,)))
    assert voter.raft.role is Role.LEADER
    assert voter.raft.commit == 0
    voter.sync()
    assert voter.raft.commit == 1
    assert voter.storage.durable.ballot == Ballot(1, 1)


def test_vote_leaves_only_when_it_is_durable():
    voter = Voter()
    voter.raft.receive(ask(), 5.0)
    assert voter.sent() == []
    voter.sync()
    assert voter.sent() == [(2, VoteReply(source=1, term=1, is_granted=True))]
    assert voter.storage.durable.ballot == Ballot(1, 2)


def test_second_candidate_of_a_term_gets_no_vote_and_the_first_gets_it_again():
    voter = Voter()
    voter.receive(ask())
    assert [each.is_granted for _, each in voter.receive(ask(source=3))] == [False]
    assert [each.is_granted for _, each in voter.receive(ask(source=2))] == [True]


def test_vote_is_remembered_after_a_restart():
    voter = Voter()
    voter.receive(ask())
    again = Voter(durable=voter.storage.durable)
    assert [each.is_granted for _, each in again.receive(ask(source=3))] == [False]


@pytest.mark.parametrize(
    ("last_term", "end", "is_granted"),
    [(2, 2, True), (2, 1, False), (1, 9, False), (3, 1, True)],
)
@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_no_voter_votes_for_a_log_behind_its_own(last_term, end, is_granted, is_pre_vote):
    voter = Voter(durable=written(1, 2))
    request = ask(term=5, last_term=last_term, end=end, is_pre_vote=is_pre_vote)
    assert [each.is_granted for _, each in voter.receive(request)] == [is_granted]


def test_voter_that_hears_a_leader_supports_no_other_and_keeps_its_term():
    voter = Voter()
    voter.receive(append())
    for is_pre_vote in (True, False):
        replies = voter.receive(ask(source=3, term=9, is_pre_vote=is_pre_vote), after=0.1)
        assert [each.is_granted for _, each in replies] == [False]
    assert voter.raft.term == 1
    assert voter.receive(ask(source=3, term=9, is_transfer=True))[0][1].is_granted


def test_lost_connection_to_the_leader_begins_a_pre_vote_soon():
    voter = Voter()
    voter.receive(append())
    later = voter.raft.deadline
    voter.raft.peer_lost(2, 0.2)
    assert voter.raft.deadline < later
    assert voter.raft.deadline <= 0.2 + voter.raft.settings.lost_leader_s
    assert voter.receive(ask(source=3, term=2, is_pre_vote=True))[0][1].is_granted


def test_lost_connection_to_another_follower_changes_nothing():
    voter = Voter()
    voter.receive(append())
    later = voter.raft.deadline
    voter.raft.peer_lost(3, 0.2)
    assert voter.raft.deadline == later


def test_leader_that_no_majority_answers_resigns():
    voter = Voter()
    voter.elect()
    for _ in range(10):
        voter.time_out()
    assert voter.raft.role is not Role.LEADER
    assert voter.raft.take_effects()[-1] == RoleChanged(voter.raft.role, 1, -1)


def test_leader_follows_a_newer_term():
    voter = Voter()
    voter.elect()
    voter.receive(append(term=4, source=3))
    assert (voter.raft.role, voter.raft.term, voter.raft.leader) == (Role.FOLLOWER, 4, 3)


def test_deposed_leader_receives_the_newer_term():
    voter = Voter()
    voter.receive(append(term=4, source=3))
    replies = voter.receive(append(term=3))
    assert replies == [(2, AppendReply(source=1, term=4, round=0, is_match=False))]


def test_failed_election_is_repeated_more_and_more_patiently():
    voter = Voter()
    waits = []
    for _ in range(6):
        before = voter.raft.deadline
        voter.time_out()
        waits.append(voter.raft.deadline - before)
    assert waits[0] < 0.3
    assert waits[-1] >= voter.raft.settings.election_s


# ---- replication


def test_leader_begins_with_an_entry_of_its_term_and_sends_it():
    voter = Voter()
    voter.time_out()
    for source in (2, 3):
        voter.receive(VoteReply(source=source, term=1, is_granted=True, is_pre_vote=True))
    requests = voter.receive(VoteReply(source=2, term=1, is_granted=True))
    assert [node for node, _ in requests] == [2, 3]
    assert all(isinstance(each, AppendRequest) and each.data for _, each in requests)


def test_entry_is_committed_when_a_majority_has_it_on_stable_storage():
    voter = Voter()
    voter.elect()
    assert voter.raft.commit == 0
    voter.acknowledge()
    assert voter.raft.commit == 1
    assert Committed(1) in voter.raft.take_effects()


def test_entries_of_an_earlier_term_are_committed_only_through_one_of_this_term():
    voter = Voter(durable=written(1, 1))
    voter.storage.stage_ballot(Ballot(1))
    voter.sync()
    voter.elect()
    voter.acknowledge(end=2)
    assert voter.raft.commit == 0
    voter.acknowledge(end=3)
    assert voter.raft.commit == 3


def test_leader_does_not_count_itself_before_its_disk_has_the_entry():
    voter = Voter()
    voter.elect()
    voter.acknowledge()
    voter.propose()
    voter.raft.receive(
        AppendReply(source=2, term=1, round=0, is_match=True, stable=2, end=2), voter.raft.now
    )
    assert voter.raft.commit == 1
    voter.sync()
    assert voter.raft.commit == 2


def test_follower_reports_what_is_received_at_once_and_what_is_stable_later():
    voter = Voter()
    voter.receive(append())
    voter.raft.receive(append(data=bytes(written(1).entries[0].data)), 0.2)
    first = voter.sent()[-1][1]
    assert (first.end, first.stable) == (1, 0)
    voter.sync()
    later = voter.sent()[-1][1]
    assert (later.end, later.stable) == (1, 1)


def test_follower_cuts_its_log_only_where_the_terms_differ():
    voter = Voter(durable=written(1, 1, 2))
    leader = written(1, 1, 3)
    data = b"".join(each.data for each in leader.entries)
    voter.receive(append(term=3, data=data[: len(leader.entries[0].data)]))
    assert voter.storage.end == 3
    replies = voter.receive(append(term=3, data=data))
    assert (replies[-1][1].end, replies[-1][1].stable) == (3, 3)
    assert voter.storage.term_of(2) == 3
    # A late copy of an earlier message must not take away what came after it.
    voter.receive(append(term=3, data=data[: len(leader.entries[0].data)]))
    assert voter.storage.end == 3


def test_follower_that_disagrees_says_where_to_look():
    voter = Voter(durable=written(1, 1, 2, 2))
    [(_, reply)] = voter.receive(append((4, 3), term=3))
    assert (reply.is_match, reply.end, reply.last_term) == (False, 4, 2)
    [(_, reply)] = voter.receive(append((4, 1), term=3))
    assert (reply.end, reply.last_term) == (2, 1)
    [(_, reply)] = voter.receive(append((9, 3), term=3))
    assert (reply.end, reply.last_term) == (4, 2)


def test_leader_goes_back_to_where_the_logs_agree():
    voter = Voter(durable=written(1, 1, 3, 3))
    voter.storage.stage_ballot(Ballot(3))
    voter.sync()
    voter.elect()
    requests = voter.receive(
        AppendReply(source=2, term=4, round=0, is_match=False, end=4, last_term=2)
    )
    [request] = [each for node, each in requests if node == 2]
    assert (request.previous_end, request.previous_term) == (2, 1)


def test_follower_learns_the_commit_but_not_beyond_what_it_has():
    voter = Voter()
    voter.receive(append(data=bytes(written(1).entries[0].data), commit=5))
    assert voter.raft.commit == 1


@pytest.mark.parametrize("data", [b"rubbish", bytes(written(1).entries[0].data)[:-1] + b"\xff"])
def test_damaged_entries_are_not_taken(data):
    voter = Voter()
    assert voter.receive(append(data=data)) == []
    assert voter.storage.end == 0


def test_one_message_with_entries_is_under_way_at_a_time():
    voter = Voter()
    voter.elect()
    voter.sent()
    voter.propose()
    assert voter.sent() == []
    requests = voter.acknowledge(end=1)
    assert [each.previous_end for node, each in requests if node == 2] == [1]


def test_log_that_takes_entries_back_ends_the_leadership():
    voter = Voter()
    voter.elect()
    voter.raft.log_refused(1.0)
    assert voter.raft.role is Role.FOLLOWER


# ---- reads


def test_read_is_answered_after_a_majority_has_confirmed_the_leader():
    voter = Voter()
    voter.elect()
    voter.acknowledge()
    voter.raft.take_effects()
    voter.raft.leading().read(11)
    assert voter.raft.take_effects() == []
    voter.acknowledge()
    assert voter.raft.take_effects() == []
    voter.receive(AppendReply(source=3, term=1, round=1, is_match=True))
    assert ReadAnswered(11, 1) in voter.raft.take_effects()


def test_read_before_the_first_entry_of_the_term_waits_and_fails_with_the_leadership():
    voter = Voter()
    voter.elect()
    voter.raft.leading().read(11)
    voter.raft.take_effects()
    voter.receive(append(term=9, source=3))
    assert ReadAnswered(11, -1) in voter.raft.take_effects()


def test_follower_says_who_leads():
    voter = Voter()
    voter.receive(append())
    with pytest.raises(NotControllerError) as caught:
        voter.raft.leading()
    assert caught.value.leader == 2


# ---- membership


def test_membership_changes_only_after_the_first_entry_of_the_term_and_one_at_a_time():
    voter = Voter()
    voter.elect()
    leadership = voter.raft.leading()
    with pytest.raises(ClusterError):
        leadership.change_membership(THREE.with_learner(4))
    voter.acknowledge()
    leadership.change_membership(THREE.with_learner(4))
    assert voter.raft.membership.learners == (4,)
    with pytest.raises(ClusterError):
        leadership.change_membership(THREE.without(3))
    voter.acknowledge()
    leadership.change_membership(voter.raft.membership.without(3))


def test_learner_gets_the_log_and_counts_only_as_a_voter():
    voter = Voter()
    voter.elect()
    voter.acknowledge()
    leadership = voter.raft.leading()
    leadership.change_membership(THREE.with_learner(4))
    assert 4 in [node for node, _ in voter.sent()]
    voter.acknowledge(source=4)
    assert voter.raft.commit == 1
    assert leadership.has_caught_up(4)
    voter.acknowledge()
    assert voter.raft.commit == 2


def test_truncated_change_of_membership_never_was():
    voter = Voter()
    voter.elect()
    voter.acknowledge()
    voter.raft.leading().change_membership(THREE.with_learner(4))
    voter.sync()
    other = written(1, 2)
    voter.receive(append((1, 1), term=2, source=3, data=other.entries[1].data))
    assert voter.raft.membership == THREE


def test_membership_is_found_in_the_log_after_a_restart():
    voter = Voter()
    voter.elect()
    voter.acknowledge()
    voter.raft.leading().change_membership(THREE.with_learner(4))
    voter.sync()
    assert Voter(durable=voter.storage.durable).raft.membership == THREE.with_learner(4)


def test_leader_that_is_voted_out_leads_until_that_is_agreed_on_and_names_a_successor():
    voter = Voter()
    voter.elect()
    voter.acknowledge()
    voter.raft.leading().change_membership(THREE.without(1))
    voter.acknowledge()
    assert voter.raft.role is Role.LEADER
    messages = voter.acknowledge(source=3)
    assert voter.raft.role is Role.FOLLOWER
    assert [node for node, each in messages if isinstance(each, TimeoutNow)] == [2]


def test_node_that_is_no_voter_begins_no_election():
    voter = Voter(node_id=9)
    assert voter.time_out() == []
    assert voter.raft.role is Role.FOLLOWER


def test_node_voted_out_begins_elections_until_that_is_agreed_on_also_after_a_restart():
    voter = Voter(node_id=1, membership=Membership(()))
    voter.storage.append(1, MetadataEntries().membership_batch(Membership((1, 2))))
    voter.storage.append(1, MetadataEntries().membership_batch(Membership((2,))))
    voter.sync()
    again = Voter(node_id=1, membership=Membership(()), durable=voter.storage.durable)
    assert [node for node, _ in again.time_out()] == [2]
    again.receive(append((2, 1), term=2, commit=2))
    assert again.raft.commit == 2
    again.time_out()
    assert again.raft.role is Role.FOLLOWER


@pytest.mark.parametrize(
    "change",
    [lambda m: m.with_learner(2), lambda m: m.with_voter(9), lambda m: m.without(9),
     lambda m: Membership((1,)).without(1)],
)  # fmt: skip
def test_impossible_changes_are_refused(change):
    with pytest.raises(ClusterError):
        change(THREE)


# ---- handing over


def test_transfer_waits_until_the_target_has_everything_and_refuses_proposals():
    voter = Voter()
    voter.elect()
    voter.acknowledge()
    voter.propose()
    voter.raft.leading().transfer(2)
    with pytest.raises(ClusterError, match="handed over"):
        voter.propose()
    messages = voter.acknowledge()
    assert TimeoutNow(source=1, term=1) in [each for _, each in messages]


def test_transfer_is_given_up_after_a_while():
    voter = Voter()
    voter.elect()
    voter.raft.leading().transfer(3)
    for _ in range(5):
        voter.time_out()
        voter.acknowledge(end=1)
    assert voter.raft.leading().transfer_to == -1
    voter.propose()


def test_target_of_a_transfer_begins_an_election_without_asking():
    voter = Voter()
    voter.receive(append())
    requests = voter.receive(TimeoutNow(source=2, term=1))
    assert [each.is_transfer for _, each in requests] == [True, True]
    assert voter.raft.term == 2


def test_transfer_to_a_stranger_is_refused():
    voter = Voter()
    voter.elect()
    with pytest.raises(ClusterError):
        voter.raft.leading().transfer(9)


# ---- snapshots


def snapshotted(*terms: int, end: int, start: int | None = None) -> Voter:
    durable = written(*terms)
    durable.snapshot = Snapshot(end, terms[end - 1], THREE, b"state")
    durable.ballot = Ballot(max(terms))
    voter = Voter(durable=durable, settings=Settings(snapshot_piece_bytes=20))
    if start is not None:
        voter.storage.compact(start)
        voter.sync()
    return voter


def test_snapshot_is_wanted_when_the_log_has_grown_and_the_one_before_bounds_what_is_forgotten():
    voter = Voter(settings=Settings(snapshot_records=3), membership=Membership((1,)))
    voter.sync()
    for _ in range(6):
        voter.propose()
        voter.sync()
        if SnapshotWanted() in voter.raft.take_effects():
            voter.raft.compact(voter.raft.commit, b"state", 0.0)
    assert voter.storage.snapshot is not None
    assert (voter.storage.snapshot.end, voter.storage.start) == (6, 3)


def test_follower_far_behind_gets_the_snapshot_in_pieces():
    leader = snapshotted(1, 1, 1, end=3, start=3)
    leader.elect()
    follower = Voter(node_id=2)
    reply: Message = AppendReply(source=2, term=2, round=0, is_match=False, end=0)
    pieces = 0
    while not follower.raft.commit:
        [request] = [each for node, each in leader.receive(reply) if node == 2]
        assert isinstance(request, SnapshotRequest)
        pieces += 1
        replies = follower.receive(request)
        reply = replies[-1][1]
    assert pieces > 2
    assert SnapshotInstalled(leader.storage.snapshot) in follower.raft.take_effects()
    assert (follower.storage.start, follower.storage.end, follower.storage.last_term) == (3, 3, 1)
    [request] = [each for node, each in leader.receive(reply) if node == 2]
    assert (request.previous_end, request.previous_term) == (3, 1)


def test_snapshot_of_what_is_known_is_not_installed():
    follower = snapshotted(1, 1, end=2)
    request = SnapshotRequest(
        source=2, term=2, end=1, last_term=1, round=0, position=0, size=3, data=b"abc"
    )
    [(_, reply)] = follower.receive(request)
    assert (reply.is_match, reply.stable) == (True, 1)
    assert follower.raft.take_effects()[-1] != SnapshotInstalled(follower.storage.snapshot)


def test_snapshot_that_fails_its_checksum_is_received_again():
    follower = Voter(node_id=2)
    request = SnapshotRequest(
        source=1, term=1, end=4, last_term=1, round=0, position=0, size=9, data=b"123456789"
    )
    [(_, reply)] = follower.receive(request)
    assert reply.position == 0
    assert follower.storage.snapshot is None


def test_start_makes_the_log_follow_a_snapshot_that_was_installed_just_before_a_crash():
    durable = written(1, 1)
    durable.snapshot = Snapshot(5, 3, THREE, b"state")
    voter = Voter(durable=durable)
    assert (voter.storage.start, voter.storage.end, voter.storage.last_term) == (5, 5, 3)
    assert voter.raft.commit == 5


def test_log_without_the_snapshot_that_it_follows_is_refused():
    durable = written(1, 1)
    durable.start, durable.entries = 1, durable.entries[1:]
    with pytest.raises(CorruptionError):
        Voter(durable=durable)
