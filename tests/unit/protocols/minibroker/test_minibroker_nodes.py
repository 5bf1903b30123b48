"""Goal: minibroker clients of several nodes share groups, read everything, and learn who leads.

Method: two nodes on one virtual time; topics whose leaders are given, groups that one coordinates.
"""

from __future__ import annotations

import msgspec
import pytest

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.groups.direct import DirectMember, DirectRules, by_turns
from dragoman.broker.leader_queues import Append
from dragoman.cluster.events import LeaderChanged
from dragoman.cluster.metadata import NO_LEADER
from dragoman.config.settings import Settings
from dragoman.limits import RELAY_PATIENCE_S
from dragoman.outcome import start
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.codec import fnv1a_32
from dragoman.protocols.minibroker.errors import NOT_LEADER
from dragoman.types import GroupId, MemberId, TopicName
from worlds.minibroker import Peer, service_of
from worlds.two_nodes import SETTINGS, Pair

TOPIC = "t"


@pytest.fixture
def pair() -> Pair:
    return make_pair()


def make_pair(settings: Settings = SETTINGS) -> Pair:
    """Four partitions; each node leads two."""
    pair = Pair(settings)
    pair.create(TOPIC, 1, 2, 1, 2)
    pair.create_internal(OFFSETS_TOPIC)
    return pair


def connect(pair: Pair, node: int) -> Peer:
    world = pair.worlds[node]
    return Peer(world, service_of(world))


def group_of(pair: Pair, node: int) -> str:
    """A group that a node coordinates."""
    coordination = pair.one.broker.coordination
    names = (f"group-{number}" for number in range(1000))
    return next(
        each for each in names if coordination.coordinator_of(CoordinatorKind.GROUP, each) == node
    )


def key_of(partition: int) -> bytes:
    return next(key for key in map(b"%d".__mod__, range(99)) if fnv1a_32(key) % 4 == partition)


def join(peer: Peer, group: str) -> tuple[int, ...]:
    answer = peer.ask(m.SubscribeGroup(topic=TOPIC, group=group))
    assert isinstance(answer, m.Joined), answer
    return answer.partitions


def assignments(peer: Peer) -> list[tuple[int, ...]]:
    return [each.partitions for each in peer.events() if isinstance(each, m.Rebalanced)]


def payloads(peer: Peer) -> list[bytes]:
    return sorted(each.payload for each in peer.deliveries())


def publish_all(pair: Pair, text: str = "") -> None:
    """One record to each partition, where it is led."""
    for partition in range(4):
        peer = connect(pair, 1 + partition % 2)
        value = f"{text}{partition}".encode()
        assert peer.publish(TOPIC, value, key=key_of(partition))[0][0] == partition


# ---- publishing and committing


def test_a_record_for_another_leader_goes_there(pair: Pair) -> None:
    peer = connect(pair, 1)
    assert peer.publish(TOPIC, b"a", b"b", key=key_of(1)) == [(1, 0), (1, 1)]
    assert len([each for each in pair.lines[1].asked if isinstance(each, Append)]) == 1
    assert peer.publish(TOPIC, b"", key=key_of(2)) == [(2, 0)]
    found = pair.two.broker.partitions.find(TOPIC, 1).log
    assert [each.value for each in found.iterate(0, found.high_watermark)] == [b"a", b"b"]


@pytest.mark.parametrize("node", [1, 2])
def test_records_without_a_key_go_to_all_partitions_in_turn(pair: Pair, node: int) -> None:
    placed = connect(pair, node).publish(TOPIC, *[b""] * 8)
    assert placed == [(turn % 4, turn // 4) for turn in range(8)]
    pair.create("u", 1)
    assert connect(pair, 2).publish("u", b"") == [(0, 0)]


def test_records_without_a_key_pass_over_partitions_that_no_node_leads(pair: Pair) -> None:
    for world in pair.worlds.values():
        partition = world.broker.image.topics[TOPIC].partitions[1]
        world.broker.image.apply(
            LeaderChanged(
                partition_id=partition.partition_id,
                leader=NO_LEADER,
                partition_epoch=partition.partition_epoch + 1,
                leader_epoch=partition.leader_epoch + 1,
                in_sync=partition.in_sync,
            )
        )
    placed = connect(pair, 2).publish(TOPIC, *[b""] * 6)
    assert {partition for partition, _ in placed} == {0, 2, 3}


def test_records_keep_their_order_while_the_lead_moves_here(pair: Pair) -> None:
    """What waits for an answer, what waits behind it, and what comes later."""
    peer = connect(pair, 1)
    line = pair.lines[1]
    line.held = []
    publish = [m.Publish(topic=TOPIC, payload=each, key=key_of(1)) for each in (b"0", b"1", b"2")]
    peer.send(publish[0])
    pair.settle()
    peer.send(publish[1])
    pair.move(TOPIC, 1, 1)
    line.release()
    peer.send(publish[2])
    pair.advance(1)
    assert peer.events() == [m.Published(partition=1, offset=offset) for offset in range(3)]
    found = pair.one.broker.partitions.find(TOPIC, 1).log
    assert [each.value for each in found.iterate(0, found.high_watermark)] == [b"0", b"1", b"2"]


def test_a_leader_that_cannot_be_reached_is_left_to_the_client(pair: Pair) -> None:
    """It waits as long as another leader might take, then gets the words that send it elsewhere."""
    pair.lines[1].is_cut = True
    peer = connect(pair, 1)
    peer.send(m.Publish(topic=TOPIC, payload=b"", key=key_of(1)))
    assert peer.events() == []
    pair.advance(RELAY_PATIENCE_S + 1)
    (told,) = peer.events()
    assert isinstance(told, m.Failed)
    assert told.reason.startswith("not leader; leader=")
    commit = m.Commit(topic=TOPIC, group=group_of(pair, 2), partition=0, offset=3)
    assert peer.ask(commit) == m.Failed(reason="not leader; leader=")
    assert pair.two.broker.partitions.find(TOPIC, 1).log.log_end_offset == 0


def test_a_lost_answer_does_not_send_the_client_elsewhere(pair: Pair) -> None:
    """It would publish the record twice without an error."""
    pair.lines[1].loses_answers = True
    told = connect(pair, 1).ask(m.Publish(topic=TOPIC, payload=b"", key=key_of(1)))
    assert isinstance(told, m.Failed)
    assert NOT_LEADER not in told.reason
    assert "outcome is unknown" in told.reason


def test_what_a_topic_does_not_take_is_refused_without_asking(pair: Pair) -> None:
    big = b"x" * (2 << 20)
    told = connect(pair, 1).ask(m.Publish(topic=TOPIC, payload=big, key=key_of(1)))
    assert isinstance(told, m.Failed)
    assert "max.message.bytes" in told.reason
    assert pair.lines[1].asked == []


def test_a_commit_goes_to_the_coordinator(pair: Pair) -> None:
    group = group_of(pair, 2)
    commit = m.Commit(topic=TOPIC, group=group, partition=0, offset=3)
    assert connect(pair, 1).ask(commit) == m.Committed(offset=3)
    assert connect(pair, 2).ask(commit) == m.Committed(offset=3)
    committed = pair.two.broker.coordination.groups.committed_here(GroupId(group), TopicName(TOPIC))
    assert committed == {0: 3}


# ---- reading


def test_a_subscription_reads_a_partition_that_is_led_elsewhere(pair: Pair) -> None:
    connect(pair, 2).publish(TOPIC, b"0", b"1", key=key_of(1))
    reader, latest = connect(pair, 1), connect(pair, 1)
    reader.send(m.SubscribeOffset(topic=TOPIC, partition=1, offset=1))
    answer = latest.ask(m.SubscribeHead(topic=TOPIC, partition=1))
    assert answer == m.Subscribed(partitions=(1,))
    assert payloads(reader) == [b"1"]
    connect(pair, 2).publish(TOPIC, b"2", key=key_of(1))
    assert payloads(reader) == payloads(latest) == [b"2"]
    # Nothing comes for longer than one question may wait.
    pair.advance(20)
    connect(pair, 2).publish(TOPIC, b"3", key=key_of(1))
    assert payloads(reader) == payloads(latest) == [b"3"]


def test_a_reader_waits_for_a_leader_that_is_away_and_passes_over_what_was_deleted(
    pair: Pair,
) -> None:
    connect(pair, 2).publish(TOPIC, b"0", b"1", b"2", key=key_of(1))
    pair.two.broker.partitions.find(TOPIC, 1).delete_below(2)
    pair.lines[1].is_cut = True
    reader = connect(pair, 1)
    reader.send(m.SubscribeOffset(topic=TOPIC, partition=1, offset=0))
    assert payloads(reader) == []
    head = connect(pair, 1).ask(m.SubscribeHead(topic=TOPIC, partition=1))
    assert isinstance(head, m.Failed)
    pair.lines[1].is_cut = False
    pair.advance(1)
    assert payloads(reader) == [b"2"]


def test_a_reader_goes_on_when_its_partition_moves_away_and_comes_back(pair: Pair) -> None:
    reader, group = connect(pair, 1), group_of(pair, 1)
    reader.send(m.SubscribeOffset(topic=TOPIC, partition=0, offset=0))
    member = connect(pair, 1)
    member.send(m.SubscribeGroup(topic=TOPIC, group=group))
    expected = []
    for turn, leader in enumerate((1, 2, 1, 2)):
        if turn:
            pair.move(TOPIC, 0, leader)
        for half in (b"a", b"b"):
            expected.append(b"%d%b" % (turn, half))
            connect(pair, 2).publish(TOPIC, expected[-1], key=key_of(0))
        # A reader that asks another node looks again after a while.
        pair.advance(6)
        for peer in (reader, member):
            assert payloads(peer) == expected[-2:]
            assert not peer.is_closed
        commit = m.Commit(topic=TOPIC, group=group, partition=0, offset=len(expected))
        assert member.ask(commit) == m.Committed(offset=len(expected))
        assert member.ask(m.Heartbeat(topic=TOPIC, group=group)) == m.Done()


def test_a_reader_of_a_topic_that_is_deleted_hears_of_it(pair: Pair) -> None:
    reader = connect(pair, 1)
    reader.ask(m.SubscribeOffset(topic=TOPIC, partition=1, offset=0))
    start(pair.one.broker.topics.delete(TOPIC)).then(lambda _: None)
    pair.advance(10)
    (told,) = reader.events()
    assert isinstance(told, m.Failed)
    assert told.reason.startswith("iterate t/1: ")


# ---- groups


@pytest.mark.parametrize("node", [1, 2])
def test_members_of_all_nodes_are_one_group(pair: Pair, node: int) -> None:
    group = group_of(pair, node)
    here, there = connect(pair, 1), connect(pair, 2)
    assert join(here, group) == (0, 1, 2, 3)
    assert join(there, group) == (1, 3)
    assert assignments(here) == [(0, 2)]
    publish_all(pair)
    assert payloads(here) == [b"0", b"2"]
    assert payloads(there) == [b"1", b"3"]
    there.lose()
    pair.settle()
    assert assignments(here) == [(0, 1, 2, 3)]


def test_a_new_owner_goes_on_behind_the_commit_wherever_it_was_made(pair: Pair) -> None:
    group = group_of(pair, 2)
    publish_all(pair, "a")
    publish_all(pair, "b")
    committing = connect(pair, 2)
    for partition in range(4):
        committing.ask(m.Commit(topic=TOPIC, group=group, partition=partition, offset=1))
    member = connect(pair, 1)
    member.send(m.SubscribeGroup(topic=TOPIC, group=group))
    assert payloads(member) == [b"b0", b"b1", b"b2", b"b3"]


def test_a_member_hears_only_of_assignments_that_are_others(pair: Pair) -> None:
    group = group_of(pair, 2)
    peer = connect(pair, 1)
    join(peer, group)
    pair.advance(14)
    assert peer.events() == []


def test_a_silent_client_of_another_node_is_evicted(pair: Pair) -> None:
    group = group_of(pair, 2)
    alive, silent = connect(pair, 1), connect(pair, 1)
    join(alive, group)
    join(silent, group)
    for _ in range(6):
        pair.advance(5)
        assert alive.ask_or_none(m.Heartbeat(topic=TOPIC, group=group)) == m.Done()
    assert silent.is_closed
    assert silent.events()[-1] == m.Failed(reason="evicted: heartbeat timeout")


def test_members_of_a_node_that_is_gone_leave() -> None:
    """Also where a silent client may stay for ever."""
    pair = make_pair(msgspec.structs.replace(SETTINGS, minibroker_heartbeat_timeout_ms=0))
    group = group_of(pair, 2)
    gone, stays = connect(pair, 1), connect(pair, 2)
    join(gone, group)
    assert join(stays, group) == (1, 3)
    pair.advance(60)
    assert assignments(stays) == []
    pair.lines[1].is_cut = True
    pair.advance(60)
    assert assignments(stays) == [(0, 1, 2, 3)]


def test_a_group_that_another_protocol_owns_is_refused_from_afar(pair: Pair) -> None:
    group = group_of(pair, 2)
    coordination = pair.two.broker.coordination
    with_members(pair, group)
    answer = connect(pair, 1).ask(m.SubscribeGroup(topic=TOPIC, group=group))
    assert isinstance(answer, m.Failed)
    assert "cursus" in answer.reason
    assert len(coordination.groups.table.describe(GroupId(group)).members) == 1


def with_members(pair: Pair, group: str) -> None:
    coordination = pair.two.broker.coordination
    rules = DirectRules(by_turns, 0, 0, coordination.groups.partition_count)
    member = DirectMember(
        MemberId("x"),
        TopicName(TOPIC),
        client_host="",
        on_assigned=lambda _: None,
        on_evicted=lambda: None,
    )
    coordination.groups.direct(GroupId(group), "cursus", rules).join(member)


@pytest.mark.parametrize("node", [1, 2])
def test_when_the_coordinator_changes_members_join_again_by_themselves(
    pair: Pair, node: int
) -> None:
    group = group_of(pair, node)
    peers = [connect(pair, 1), connect(pair, 2)]
    for peer in peers:
        join(peer, group)
    pair.settle()
    for peer in peers:
        peer.events()
    index = pair.one.broker.coordination.groups.home_of(group)[1]
    pair.move(OFFSETS_TOPIC, index, 3 - node)
    pair.advance(1)
    publish_all(pair)
    found = [payload for peer in peers for payload in payloads(peer)]
    # Between the two joins one member may have had everything.
    assert set(found) == {b"0", b"1", b"2", b"3"}
    publish_all(pair, "again")
    found = [payload for peer in peers for payload in payloads(peer)]
    assert sorted(found) == [b"again0", b"again1", b"again2", b"again3"]
    assert not any(peer.is_closed for peer in peers)


def test_a_client_that_leaves_while_its_group_cannot_be_reached_is_forgotten(pair: Pair) -> None:
    group = group_of(pair, 2)
    pair.lines[1].is_cut = True
    peer = connect(pair, 1)
    peer.send(m.SubscribeGroup(topic=TOPIC, group=group))
    assert peer.events() == []
    pair.advance(1)
    peer.lose()
    pair.lines[1].is_cut = False
    pair.advance(1)
    assert pair.two.broker.coordination.groups.table.get(GroupId(group)) is None


def test_an_answer_that_comes_after_the_client_left_ends_its_membership(pair: Pair) -> None:
    group = group_of(pair, 2)
    line = pair.lines[1]
    line.held = []
    peer = connect(pair, 1)
    peer.send(m.SubscribeGroup(topic=TOPIC, group=group))
    pair.settle()
    peer.lose()
    pair.settle()
    line.release()
    pair.settle()
    found = pair.two.broker.coordination.groups.table.get(GroupId(group))
    assert found is None or found.is_idle
