"""Goal: whatever happens between a node and etcd, entries are agreed on once, in one order, by
successive leaders; and every proposal has the outcome that its proposer got.

Method: quorums and an etcd on virtual time, with the faults made by hand.
"""

from __future__ import annotations

import msgspec
import pytest

from dragoman.cluster.etcd.layout import Head, Holder
from dragoman.cluster.etcd.session import Settings
from dragoman.cluster.events import Event, NodeRegistered
from dragoman.errors import (
    ClusterError,
    ConfigError,
    FormatError,
    LogStoppedError,
    NotControllerError,
    OutcomeUnknownError,
    VersionConflictError,
)
from dragoman.outcome import start
from dragoman.raft.ports import Role
from worlds.broker import Outcome
from worlds.etcd import PREFIX, QUICK, TTL_S, EtcdWorld, Member, is_candidacy, is_proposal


@pytest.fixture
def world() -> EtcdWorld:
    return EtcdWorld()


def versions(world: EtcdWorld) -> list[int]:
    return [each.quorum.version for each in world.members.values()]


def assert_alike(world: EtcdWorld) -> None:
    assert len({each.state() for each in world.members.values()}) == 1


def blind_leader() -> tuple[EtcdWorld, Member]:
    """A leader that can send requests, but receives no news for the next second."""
    world = EtcdWorld(settings=msgspec.structs.replace(QUICK, look_s=100.0))
    world.advance(0.5)
    for stream in world.leader.gateway.streams:
        stream.is_dead = True
    return world, world.leader


def other_leader(world: EtcdWorld, old: Member) -> Member:
    leaders = [each for each in world.members.values() if each.quorum.role is Role.LEADER]
    [new] = [each for each in leaders if each is not old]
    return new


def cut_off(world: EtcdWorld) -> Member:
    """The leader, cut off; another leads when this returns."""
    old = world.leader
    old.gateway.cut()
    world.advance(2 * TTL_S)
    assert world.leader is not old
    return old


# ---- proposals


def test_proposal_is_applied_on_every_node_before_it_completes(world: EtcdWorld) -> None:
    leader = world.leader
    seen: list[object] = []
    leader.quorum.on_applied = lambda event, _: seen.append(event)
    events: list[Event] = [NodeRegistered(node_id=n, incarnation=1) for n in (5, 6)]
    leader.quorum.propose(events).then(lambda error: seen.append(error))
    assert not seen
    world.advance()
    assert seen == [*events, None]
    assert versions(world) == [2, 2, 2]
    assert_alike(world)


def test_follower_refuses_and_names_the_leader(world: EtcdWorld) -> None:
    for follower in world.followers:
        error = follower.propose().error
        assert isinstance(error, NotControllerError)
        assert error.leader == world.leader.node_id == follower.quorum.leader


def test_proposal_for_another_version_conflicts_also_with_what_is_not_agreed_on_yet(
    world: EtcdWorld,
) -> None:
    leader = world.leader
    first = leader.propose(expected_version=0)
    second = leader.propose(expected_version=0)
    third = leader.propose(expected_version=1)
    assert isinstance(second.error, VersionConflictError)
    world.advance()
    assert (first.error, third.error) == (None, None)
    assert isinstance(leader.propose(expected_version=0).error, VersionConflictError)


def test_what_gathers_meanwhile_is_one_transaction(world: EtcdWorld) -> None:
    leader = world.leader
    before = world.etcd.revision
    outcomes = [leader.propose(f"g{n}") for n in range(60)]
    world.advance()
    assert [each.error for each in outcomes] == [None] * 60
    assert world.etcd.revision == before + 2
    assert [version for version, _ in world.followers[0].history] == list(range(1, 61))


def test_transactions_stay_within_the_limits_of_etcd(
    world: EtcdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.leadership.ETCD_TRANSACTION_ENTRIES_MAX", 4)
    before = world.etcd.revision
    outcomes = [world.leader.propose(f"g{n}") for n in range(9)]
    world.advance()
    assert world.etcd.revision == before + 3
    monkeypatch.setattr("dragoman.cluster.etcd.leadership.ETCD_PROPOSAL_BYTES_MAX", 150)
    outcomes += [world.leader.propose(f"h{n}") for n in range(7)]
    world.advance()
    assert world.etcd.revision == before + 3 + 4
    assert {each.error for each in outcomes} == {None}
    assert_alike(world)


def test_proposals_are_bounded(world: EtcdWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.leadership.METADATA_PROPOSALS_MAX", 2)
    outcomes = [world.leader.propose() for _ in range(4)]
    assert isinstance(outcomes[3].error, ClusterError)
    monkeypatch.setattr("dragoman.cluster.etcd.leadership.METADATA_PROPOSALS_MAX", 100)
    assert isinstance(world.leader.propose("x" * (1 << 20)).error, ClusterError)
    world.advance()
    assert [each.error for each in outcomes[:3]] == [None] * 3


def test_proposal_out_of_an_answer_is_agreed_on_too(world: EtcdWorld) -> None:
    leader, outcome = world.leader, Outcome()

    def again(error: object) -> None:
        leader.quorum.propose([NodeRegistered(node_id=9, incarnation=1)], 1).then(outcome)

    leader.quorum.propose([NodeRegistered(node_id=8, incarnation=1)]).then(again)
    world.advance()
    assert outcome.error is None


# ---- answers that are lost


def test_change_whose_answer_is_lost_is_found_to_have_happened(world: EtcdWorld) -> None:
    leader = world.leader
    leader.gateway.lose_answer = is_proposal
    first, second = leader.propose("a"), leader.propose("b")
    world.advance(2.0)
    assert (first.error, second.error) == (None, None)
    assert [event.group_id for _, event in leader.history] == ["a", "b"]
    assert world.leader is leader
    assert_alike(world)


def test_change_whose_request_is_lost_happens_at_the_second_try(world: EtcdWorld) -> None:
    world.leader.gateway.lose_request = is_proposal
    outcome = world.leader.propose()
    world.advance(2.0)
    assert outcome.error is None
    assert versions(world) == [1, 1, 1]


def test_request_that_arrives_long_after_its_second_try_has_no_effect(world: EtcdWorld) -> None:
    leader = world.leader
    late: list[bytes] = []

    def keep(body: bytes) -> bool:
        return is_proposal(body) and not late.append(body)

    leader.gateway.lose_request = keep
    outcome = leader.propose()
    world.advance(2.0)
    assert outcome.error is None
    revision = world.etcd.revision
    world.etcd.handle("/v3/kv/txn", late[0])
    assert world.etcd.revision == revision


def test_outcome_is_unknown_while_etcd_says_nothing_and_no_longer(world: EtcdWorld) -> None:
    leader = world.leader
    leader.gateway.lose_answer = is_proposal
    happened, waiting = leader.propose("a"), leader.propose("b")
    world.scheduler.advance(0.1)
    world.etcd.stop()
    world.advance(QUICK.outcome_s + 0.1)
    assert isinstance(happened.error, OutcomeUnknownError)
    # What was never sent is refused: nothing is decided here before the fate of the other is known.
    assert isinstance(waiting.error, NotControllerError)
    assert not leader.quorum.is_leading
    world.etcd.restart()
    world.advance(2 * TTL_S)
    assert [event.group_id for _, event in world.leader.history] == ["a"]
    later = world.leader.propose("c", expected_version=1)
    world.advance()
    assert later.error is None
    assert_alike(world)


def test_refusal_leaves_no_trace(world: EtcdWorld) -> None:
    leader = world.leader
    world.etcd.is_full = True
    outcomes = [leader.propose(), leader.propose(expected_version=1)]
    world.advance()
    assert all(type(each.error) is ClusterError for each in outcomes)
    world.etcd.is_full = False
    again = leader.propose(expected_version=0)
    world.advance()
    assert again.error is None
    assert_alike(world)


def test_refusal_after_a_lost_answer_does_not_count(world: EtcdWorld) -> None:
    leader = world.leader
    leader.gateway.lose_answer = is_proposal
    outcome = leader.propose()
    world.scheduler.advance(0.1)
    world.etcd.is_full = True
    world.advance(1.5)
    assert outcome.error is None
    assert versions(world) == [1, 1, 1]


# ---- leaders


def test_one_leads_and_all_know(world: EtcdWorld) -> None:
    leader = world.leader
    assert leader.roles[-1].term > 0
    for follower in world.followers:
        assert follower.roles[-1].leader == leader.node_id
        assert follower.roles[-1].term == leader.roles[-1].term


def test_next_leader_has_a_higher_term_and_all_that_was_agreed_on(world: EtcdWorld) -> None:
    before = world.leader.quorum.term
    world.leader.propose("a")
    world.advance()
    old = cut_off(world)
    assert world.leader.quorum.term > before
    after = world.leader.propose("b", expected_version=1)
    world.advance()
    assert after.error is None
    old.gateway.is_cut = False
    world.advance(2 * TTL_S)
    assert old.quorum.role is Role.FOLLOWER
    assert_alike(world)


def test_leader_that_was_replaced_without_knowing_writes_nothing() -> None:
    world, old = blind_leader()
    world.etcd.revoke(old.quorum._session.lease)
    world.scheduler.advance(0.1)
    assert old.quorum.role is Role.LEADER
    new = other_leader(world, old)
    outcome, behind = old.propose("old"), old.propose("behind")
    by_new = new.propose("new")
    world.advance()
    for each in (outcome, behind):
        assert isinstance(each.error, NotControllerError)
        assert each.error.leader == new.node_id
    assert by_new.error is None
    assert old.quorum.role is Role.FOLLOWER
    world.advance(2.0)
    assert [event.group_id for _, event in old.history] == ["new"]


def test_replaced_leader_finds_out_that_its_last_change_happened(world: EtcdWorld) -> None:
    leader = world.leader
    leader.gateway.lose_answer = is_proposal
    outcome = leader.propose("a")
    world.scheduler.advance(0.1)
    world.etcd.revoke(leader.quorum._session.lease)
    world.scheduler.advance(0.1)
    assert leader.quorum.role is Role.FOLLOWER or leader.quorum.term > 5
    world.leader.propose("b")
    world.advance(2.0)
    assert outcome.error is None
    assert [event.group_id for _, event in leader.history] == ["a", "b"]


def test_replaced_leader_finds_out_that_its_last_change_did_not_happen(world: EtcdWorld) -> None:
    leader = world.leader
    leader.gateway.lose_request = is_proposal
    outcome = leader.propose("a")
    world.scheduler.advance(0.1)
    world.etcd.revoke(leader.quorum._session.lease)
    world.advance(2.0)
    assert isinstance(outcome.error, NotControllerError)
    assert versions(world) == [0, 0, 0]


def test_outcome_stays_unknown_when_a_snapshot_has_taken_the_entrys_place() -> None:
    world = EtcdWorld(settings=msgspec.structs.replace(QUICK, snapshot_entries=3))
    leader = world.leader
    leader.gateway.lose_answer = is_proposal
    outcome = leader.propose("a")
    world.scheduler.advance(0.1)
    old = cut_off(world)
    outcomes = [world.leader.propose(f"b{n}") for n in range(5)]
    world.advance()
    assert [each.error for each in outcomes] == [None] * 5
    assert outcome.calls == [outcome.error]
    assert isinstance(outcome.error, OutcomeUnknownError)
    old.gateway.is_cut = False
    world.advance(2 * TTL_S)
    assert outcome.calls == [outcome.error]
    assert_alike(world)


def test_entry_replaced_by_a_snapshot_differs_from_a_missing_entry() -> None:
    settings = msgspec.structs.replace(QUICK, snapshot_entries=3, outcome_s=100.0)
    world = EtcdWorld(settings=settings)
    leader = world.leader
    leader.gateway.lose_answer = is_proposal
    outcome = leader.propose("a")
    world.scheduler.advance(0.1)
    old = cut_off(world)
    for number in range(5):
        world.leader.propose(f"b{number}")
    world.advance()
    assert not outcome.is_known
    old.gateway.is_cut = False
    world.advance(2 * TTL_S)
    assert isinstance(outcome.error, OutcomeUnknownError)


def test_lost_answer_to_a_candidacy_does_not_matter() -> None:
    world = EtcdWorld(members=1)
    only = world.leader
    only.gateway.lose_answer = is_candidacy
    world.etcd.revoke(only.quorum._session.lease)
    world.advance(2.0)
    assert world.leader is only
    outcome = only.propose()
    world.advance()
    assert outcome.error is None


def test_leadership_for_a_lease_that_is_gone_is_not_to_be_had() -> None:
    world = EtcdWorld(members=1)
    lease = world.leader.quorum._session.lease
    world.etcd.revoke(lease)
    world.advance(0.3)
    # The keep-alive, a second later, is not what notices.
    assert world.leader.quorum._session.lease not in (0, lease)


def test_clean_stop_lets_another_lead_at_once(world: EtcdWorld) -> None:
    old = world.leader
    waiting = old.propose()
    old.quorum.stop()
    assert isinstance(waiting.error, OutcomeUnknownError)
    world.scheduler.advance(0.1)
    assert world.leader is not old
    assert isinstance(old.propose().error, NotControllerError)


def test_failed_log_ends_the_leadership(world: EtcdWorld) -> None:
    old = world.leader
    waiting = [old.propose(), old.propose()]
    old.quorum.fail()
    old.quorum.fail()
    assert all(isinstance(each.error, LogStoppedError) for each in waiting)
    world.scheduler.advance(0.1)
    assert world.leader is not old


def test_head_written_by_another_node_restarts_the_leader(world: EtcdWorld) -> None:
    term = world.leader.quorum.term
    world.etcd.put(f"{PREFIX}/head", msgspec.json.encode(Head(0, 0)))
    refused = world.leader.propose()
    world.advance(2.0)
    assert isinstance(refused.error, NotControllerError)
    assert world.leader.quorum.term > term
    outcome = world.leader.propose()
    world.advance()
    assert outcome.error is None


# ---- reads


def test_read_sees_everything_agreed_on_and_only_the_leader_may(world: EtcdWorld) -> None:
    leader = world.leader
    leader.propose()
    outcome, refused = Outcome(), Outcome()
    start(leader.quorum.read()).then(outcome)
    start(world.followers[0].quorum.read()).then(refused)
    world.advance()
    assert outcome.error is None
    assert isinstance(refused.error, NotControllerError)


def test_read_waits_for_a_change_whose_answer_is_lost() -> None:
    world, leader = blind_leader()
    leader.gateway.lose_answer = is_proposal
    leader.propose()
    world.scheduler.advance(0.1)
    outcome = Outcome()
    start(leader.quorum.read()).then(outcome)
    world.scheduler.advance(0.1)
    assert not outcome.is_known
    assert leader.quorum.version == 0
    world.advance(1.0)
    assert outcome.error is None
    assert leader.quorum.version == 1


def test_read_fails_on_a_leader_that_was_replaced_or_cut_off() -> None:
    world, old = blind_leader()
    world.etcd.revoke(old.quorum._session.lease)
    world.scheduler.advance(0.1)
    replaced, cut, stopped = Outcome(), Outcome(), Outcome()
    start(old.quorum.read()).then(replaced)
    world.advance()
    assert isinstance(replaced.error, OutcomeUnknownError)
    new = other_leader(world, old)
    new.gateway.cut()
    start(new.quorum.read()).then(cut)
    world.advance()
    assert isinstance(cut.error, OutcomeUnknownError)
    new.gateway.is_cut = False
    start(new.quorum.read()).then(stopped)
    new.quorum.stop()
    assert isinstance(stopped.error, OutcomeUnknownError)
    world.advance()
    assert len(stopped.calls) == 1


def test_reads_are_bounded(world: EtcdWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.quorum.METADATA_PROPOSALS_MAX", 2)
    outcomes = [Outcome() for _ in range(3)]
    for outcome in outcomes:
        start(world.leader.quorum.read()).then(outcome)
    assert type(outcomes[2].error) is ClusterError
    world.advance()
    assert [each.error for each in outcomes[:2]] == [None, None]


# ---- following


def test_broken_watch_is_made_anew_and_nothing_is_missed(world: EtcdWorld) -> None:
    follower = world.followers[0]
    follower.gateway.break_streams()
    world.leader.propose()
    world.advance(0.3)
    assert follower.quorum.version == 1
    world.leader.propose()
    world.scheduler.advance(0.05)
    assert follower.quorum.version == 2


def test_watch_that_died_without_a_word_is_noticed(world: EtcdWorld) -> None:
    follower = world.followers[0]
    for stream in follower.gateway.streams:
        stream.is_dead = True
    world.leader.propose()
    world.advance(QUICK.look_s + 0.1)
    assert follower.quorum.version == 1
    world.leader.propose()
    world.scheduler.advance(0.05)
    assert follower.quorum.version == 2


def test_compaction_of_etcd_ends_a_watch_and_a_look_but_loses_nothing(
    world: EtcdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.history.ETCD_PAGE_ENTRIES", 2)
    for number in range(9):
        world.leader.propose(f"g{number}")
        world.scheduler.advance(0.05)
    follower = world.followers[0]
    follower.crash()
    follower.start()
    # The pages of its first look are read at a revision that goes away under it.
    world.scheduler.advance(0.008)
    assert 0 < follower.quorum.version < 9
    world.leader.propose("last")
    world.scheduler.advance(0.001)
    world.etcd.put("/elsewhere", b"")
    world.etcd.compact()
    world.advance(1.0)
    assert follower.loaded == 1
    assert follower.quorum.version == 10
    assert_alike(world)


def test_watch_at_a_revision_that_is_gone_begins_with_a_look(world: EtcdWorld) -> None:
    follower = world.followers[0]
    follower.gateway.stream_delay_s = 0.3
    follower.gateway.break_streams()
    world.advance(0.2)
    # The look is over, the watch behind it has not begun.
    world.leader.propose()
    world.scheduler.advance(0.05)
    world.etcd.compact()
    follower.gateway.stream_delay_s = 0.0
    assert follower.quorum.version == 0
    world.advance(0.3)
    assert follower.quorum.version == 1


def test_progress_without_events_is_no_news(world: EtcdWorld) -> None:
    world.etcd.put("/elsewhere", b"")
    for stream in world.etcd.streams:
        stream.progress()
    world.leader.propose()
    world.advance()
    assert versions(world) == [1, 1, 1]
    assert world.followers[0].quorum._history.revision == world.etcd.revision


def test_quorum_that_was_not_registered_follows_and_never_leads() -> None:
    world = EtcdWorld(members=1)
    leader = world.leader
    Member_register = Member.start

    class Watcher(Member):
        def start(self) -> None:
            Member_register(self)
            self.quorum.stop()
            self.quorum = type(self.quorum)(
                9, self.image, world.scheduler, self.gateway, prefix=PREFIX, settings=QUICK
            )
            self.quorum.start()

    watcher = Watcher(world, 9)
    leader.propose()
    world.advance()
    assert watcher.quorum.version == 1
    leader.quorum.stop()
    requests = len(watcher.gateway.requests)
    world.advance(10.0)
    assert watcher.quorum.role is Role.FOLLOWER
    assert watcher.quorum.leader == -1
    # It does not look more often than it has to.
    assert len(watcher.gateway.requests) - requests < 15


# ---- snapshots


def snapshotting(entries: int, members: int = 3) -> EtcdWorld:
    return EtcdWorld(members, settings=msgspec.structs.replace(QUICK, snapshot_entries=entries))


def test_snapshot_takes_the_place_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.snapshots.ETCD_PIECE_BYTES", 50)
    world = snapshotting(10)
    for number in range(25):
        world.leader.propose(f"g{number}")
        world.scheduler.advance(0.05)
    world.advance()
    names = [key.removeprefix(PREFIX.encode()) for key in world.etcd.keys]
    assert sum(name.startswith(b"/log/") for name in names) == 5
    pieces = [name for name in names if name.startswith(b"/snapshots/")]
    assert len(pieces) > 3
    assert all(b"/00000000000000000020/" in name for name in pieces)


def test_node_that_starts_or_is_far_behind_gets_the_snapshot_and_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.snapshots.ETCD_PIECE_BYTES", 50)
    world = snapshotting(10)
    behind, fresh = world.followers
    behind.gateway.cut()
    fresh.crash()
    for number in range(25):
        world.leader.propose(f"g{number}")
        world.scheduler.advance(0.05)
    behind.gateway.is_cut = False
    fresh.start()
    world.advance(2.0)
    assert (behind.restored, fresh.restored) == ([20], [20])
    assert [version for version, _ in fresh.history] == [21, 22, 23, 24, 25]
    assert_alike(world)


def test_snapshot_that_the_watch_overtakes_is_not_gone_back_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.snapshots.ETCD_PIECE_BYTES", 20)
    world = snapshotting(10)
    follower = world.followers[0]
    # Right after a look, so that there is none for a second.
    world.advance(0.1)
    [stream] = follower.gateway.streams
    stream.is_held = True
    for number in range(25):
        world.leader.propose(f"g{number}")
        world.scheduler.advance(0.02)
    for _ in range(1000):
        if follower.gateway.requests.count("/v3/kv/range") == 5:
            break
        world.scheduler.advance(0.001)
    # It is reading the pieces now.
    assert follower.quorum.version == 0
    assert follower.gateway.requests[-1] == "/v3/kv/range"
    stream.release()
    assert follower.quorum.version == 25
    world.advance(1.0)
    assert follower.restored == []
    assert [version for version, _ in follower.history] == list(range(1, 26))
    assert_alike(world)


def test_snapshot_that_is_not_finished_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.snapshots.ETCD_PIECE_BYTES", 50)
    world = snapshotting(4)

    def is_last(body: bytes) -> bool:
        return b"request_delete_range" in body

    world.leader.gateway.lose_request = is_last
    for number in range(6):
        world.leader.propose(f"g{number}")
        world.scheduler.advance(0.05)
    world.advance(1.0)
    assert f"{PREFIX}/snapshot".encode() not in world.etcd.keys
    for number in range(6):
        world.leader.propose(f"h{number}")
        world.scheduler.advance(0.05)
    world.advance(1.0)
    pieces = [key for key in world.etcd.keys if b"/snapshots/" in key]
    assert pieces
    assert not any(b"/00000000000000000004/" in key for key in pieces)
    fresh = world.followers[0]
    fresh.crash()
    fresh.start()
    world.advance()
    assert_alike(world)


def test_snapshot_of_a_leader_that_was_replaced_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.snapshots.ETCD_PIECE_BYTES", 50)
    world = snapshotting(4)
    old = world.leader
    for number in range(4):
        old.propose(f"g{number}")
        world.scheduler.advance(0.005)
    assert old.quorum._is_snapshotting
    world.etcd.revoke(old.quorum._session.lease)
    world.advance()
    assert f"{PREFIX}/snapshot".encode() not in world.etcd.keys
    assert not old.quorum._is_snapshotting


def test_damaged_snapshot_stops_the_node() -> None:
    world = snapshotting(4)
    for number in range(4):
        world.leader.propose(f"g{number}")
        world.scheduler.advance(0.05)
    [piece] = [key for key in world.etcd.keys if b"/snapshots/" in key]
    world.etcd.put(piece.decode(), b"rubbish")
    fresh = world.followers[0]
    fresh.crash()
    fresh.start()
    world.advance()
    [error] = fresh.failures
    assert "damaged" in str(error)


def test_image_that_is_too_large_is_not_put_to_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cluster.etcd.quorum.RAFT_SNAPSHOT_BYTES_MAX", 10)
    world = snapshotting(2)
    for number in range(4):
        world.leader.propose(f"g{number}")
        world.scheduler.advance(0.05)
    assert not any(b"snapshot" in key for key in world.etcd.keys)


# ---- liveness


def test_nodes_that_register_are_known_with_their_incarnation(world: EtcdWorld) -> None:
    for member in world.members.values():
        assert member.quorum.nodes == {1: 1, 2: 1, 3: 1}


def test_node_whose_lease_expires_is_suspected_and_later_known_again(world: EtcdWorld) -> None:
    node = world.followers[0]
    node.crash()
    world.advance(TTL_S - 1)
    assert node.node_id in world.leader.quorum.nodes
    world.advance(2.0)
    assert world.leader.liveness[-1] == (node.node_id, None)
    assert node.node_id not in world.leader.quorum.nodes
    node.start()
    world.advance()
    assert world.leader.liveness[-1] == (node.node_id, 2)


def test_suspicion_is_also_found_by_looking(world: EtcdWorld) -> None:
    node, watcher = world.followers
    for stream in watcher.gateway.streams:
        stream.is_dead = True
    node.quorum.stop()
    world.advance(2.0)
    assert node.node_id not in watcher.quorum.nodes


def test_node_whose_lease_was_revoked_registers_again(world: EtcdWorld) -> None:
    node = world.followers[0]
    lease = node.quorum._session.lease
    world.etcd.revoke(lease)
    world.advance(2.0)
    assert node.quorum._session.lease not in (0, lease)
    assert world.leader.quorum.nodes[node.node_id] == 1


def test_node_whose_key_was_taken_away_registers_again(world: EtcdWorld) -> None:
    node = world.followers[0]
    stray = msgspec.json.encode(Holder(node.node_id, 1))
    world.etcd.put(f"{PREFIX}/nodes/{node.node_id}", stray)
    world.advance(QUICK.look_s + 0.5)
    value = world.etcd.keys[f"{PREFIX}/nodes/{node.node_id}".encode()]
    assert value.lease == node.quorum._session.lease


def test_node_that_was_started_again_elsewhere_stops(world: EtcdWorld) -> None:
    old = world.followers[0]
    twin = Member(world, old.node_id)
    twin.quorum.stop()
    twin.start()
    world.advance(2.0)
    [error] = old.failures
    assert f"another process runs as node {old.node_id}" in str(error)
    assert world.leader.quorum.nodes[old.node_id] == twin.incarnation == 2
    assert not twin.failures


@pytest.mark.parametrize("what", ["lease/grant", "kv/txn", "lease/keepalive"])
def test_session_outlives_lost_answers(what: str) -> None:
    world = EtcdWorld(members=1)
    member = world.leader
    gateway = member.gateway
    gateway.lost_answers = 0.5
    world.advance(30.0)
    assert f"/v3/{what}" in gateway.requests
    gateway.lost_answers = 0.0
    world.advance(2 * TTL_S)
    assert world.leader.quorum.nodes == {1: 1}
    # All others have expired.
    assert list(world.etcd.leases) == [member.quorum._session.lease]


def test_stop_while_a_session_begins_leaves_nothing_behind() -> None:
    world = EtcdWorld(members=1)
    for seconds in (0.0, 0.001, 0.002, 0.003, 0.004, 0.006, 0.01):
        member = Member(world, 2)
        world.scheduler.advance(seconds)
        member.quorum.stop()
        member.quorum.stop()
        world.advance(2 * TTL_S)
        assert world.leader.quorum.nodes == {1: 1}
        assert len(world.etcd.leases) == 1


# ---- what ends it


def test_etcd_that_is_not_to_be_trusted_is_refused() -> None:
    world = EtcdWorld(members=0)
    world.etcd.version = "3.5.1"
    member = Member(world, 1)
    world.advance()
    [error] = member.failures
    assert isinstance(error, ConfigError)
    assert member.loaded == 0
    assert not world.etcd.keys


def test_etcd_that_forgot_is_not_believed(world: EtcdWorld) -> None:
    world.leader.propose()
    world.advance()
    for key in [key for key in world.etcd.keys if b"/log/" in key or b"/head" in key]:
        del world.etcd.keys[key]
    world.advance(2.0)
    for member in world.members.values():
        [error] = member.failures
        assert isinstance(error, ClusterError)
        assert "lost metadata" in str(error)


def test_etcd_that_went_back_is_not_believed(world: EtcdWorld) -> None:
    world.advance()
    world.etcd.revision -= 2
    world.advance(2.0)
    assert all(member.failures for member in world.members.values())


def test_entry_that_is_missing_is_noticed(world: EtcdWorld) -> None:
    for number in range(3):
        world.leader.propose(f"g{number}")
        world.scheduler.advance(0.05)
    del world.etcd.keys[f"{PREFIX}/log/{1:020d}".encode()]
    fresh = world.followers[0]
    fresh.crash()
    fresh.start()
    world.advance(2.0)
    [error] = fresh.failures
    assert "no entry 1 of 3" in str(error)


def test_head_that_does_not_fit_the_entries_is_noticed() -> None:
    world = EtcdWorld(members=0)
    world.etcd.put(f"{PREFIX}/head", msgspec.json.encode(Head(0, 7)))
    member = Member(world, 1)
    world.advance()
    [error] = member.failures
    assert "is inconsistent" in str(error)


def test_metadata_of_a_newer_release_stop_the_node(world: EtcdWorld) -> None:
    leader = world.leader
    leader.gateway.lose_answer = is_proposal
    under_way, read = leader.propose(), Outcome()
    start(leader.quorum.read()).then(read)
    world.etcd.put(f"{PREFIX}/log/{0:020d}", b"\x93\x01\x01\x91\x81\xa4type\xa3New")
    world.advance()
    # Whether it has happened, who knows.
    assert isinstance(under_way.error, OutcomeUnknownError)
    assert read.error is None or isinstance(read.error, OutcomeUnknownError)
    for member in world.members.values():
        [error] = member.failures
        assert isinstance(error, FormatError)


def test_no_callback_runs_after_stop(world: EtcdWorld) -> None:
    follower = world.followers[0]
    follower.quorum.stop()
    roles, liveness = len(follower.roles), len(follower.liveness)
    world.leader.propose()
    world.leader.quorum.stop()
    world.advance(2 * TTL_S)
    assert (len(follower.roles), len(follower.liveness)) == (roles, liveness)
    assert follower.quorum.version == 0


def test_defaults_are_patient() -> None:
    settings = Settings()
    assert settings.retry_s < settings.call_s < settings.outcome_s
