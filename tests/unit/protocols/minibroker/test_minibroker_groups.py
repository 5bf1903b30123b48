"""Goal: groups share partitions by the protocol's rule, resume where they committed, lose the
silent, and keep other protocols out while they live.

Method: a broker on virtual time, and as many peers as members.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.errors import ForeignGroup
from dragoman.broker.groups.direct import DirectMember, DirectRules, by_turns
from dragoman.broker.groups.messages import State
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.config.settings import Settings
from dragoman.outcome import start
from dragoman.protocols.minibroker import messages as m
from dragoman.types import GroupId, MemberId, Offset, Partition, TopicName
from worlds.broker import World
from worlds.minibroker import Peer, service_of

GROUP = GroupId("g")
JOIN = m.SubscribeGroup(topic="t", group="g")
HEARTBEAT = m.Heartbeat(topic="t", group="g")


def join(peer: Peer) -> tuple[int, ...]:
    peer.send(JOIN)
    first, *_ = peer.events()
    assert isinstance(first, m.Joined), first
    return first.partitions


def assigned(peer: Peer) -> list[tuple[int, ...]]:
    return [each.partitions for each in peer.events() if isinstance(each, m.Rebalanced)]


def test_partitions_go_round_the_members_in_order_of_joining(connect: Callable[[], Peer]) -> None:
    peers = [connect() for _ in range(5)]
    assert join(peers[0]) == (0, 1, 2, 3)
    assert join(peers[1]) == (1, 3)
    assert assigned(peers[0]) == [(0, 2)]
    assert join(peers[2]) == (2,)
    assert assigned(peers[0]) == [(0, 3)]
    assert assigned(peers[1]) == [(1,)]
    assert join(peers[3]) == (3,)
    assert [assigned(each) for each in peers[:3]] == [[(0,)], [], []]
    assert join(peers[4]) == ()
    assert [assigned(each) for each in peers[:4]] == [[], [], [], []]
    peers[0].lose()
    assert [assigned(each) for each in peers[1:]] == [[(0,)], [(1,)], [(2,)], [(3,)]]


def test_partition_that_stays_is_not_read_again(connect: Callable[[], Peer]) -> None:
    first, second = connect(), connect()
    first.publish("t", *[b"%d" % n for n in range(4)])
    join(first)
    second.send(JOIN)
    assert [each.payload for each in second.deliveries()] == [b"1", b"3"]
    assert first.deliveries() == []
    second.send(m.Publish(topic="t", payload=b"4"))
    assert [each.payload for each in first.deliveries()] == [b"4"]


def test_new_owner_goes_on_behind_the_commit(connect: Callable[[], Peer]) -> None:
    first, second = connect(), connect()
    first.publish("t", b"0", b"1", b"2", key=b"k1")
    join(first)
    first.ask(m.Commit(topic="t", group="g", partition=1, offset=2))
    first.lose()
    second.send(JOIN)
    assert [each.offset for each in second.deliveries()] == [2]


def test_commit_below_what_is_left_starts_at_the_oldest(peer: Peer, world: World) -> None:
    peer.publish("t", b"0", b"1", b"2", key=b"k1")
    peer.ask(m.Commit(topic="t", group="g", partition=1, offset=0))
    world.broker.partitions.find("t", 1).delete_below(1)
    peer.send(JOIN)
    assert [each.offset for each in peer.deliveries()] == [1, 2]


def test_unsubscribing_leaves_the_group(connect: Callable[[], Peer], world: World) -> None:
    first, second = connect(), connect()
    join(first)
    join(second)
    assert first.events()
    assert second.ask(m.Unsubscribe(topic="t")) == m.Done()
    assert assigned(first) == [(0, 1, 2, 3)]
    assert first.ask(m.Unsubscribe(topic="t")) == m.Done()
    assert world.broker.coordination.groups.table.describe(GROUP).state is State.EMPTY


def test_one_connection_may_be_a_member_for_several_topics(peer: Peer) -> None:
    assert join(peer) == (0, 1, 2, 3)
    answer = peer.ask(m.SubscribeGroup(topic="u", group="g"))
    assert answer == m.Joined(group="g", partitions=(0, 1, 2, 3))
    assert peer.ask(m.Heartbeat(topic="u", group="g")) == m.Done()


def test_topic_that_grows_is_shared_out_anew(peer: Peer, world: World) -> None:
    join(peer)
    start(world.broker.topics.add_partitions("t", 6, ())).then(lambda _: None)
    assert assigned(peer) == [(0, 1, 2, 3, 4, 5)]


# ---- liveness


def test_heartbeats_keep_a_member_and_other_requests_do_not(
    connect: Callable[[], Peer], world: World
) -> None:
    alive, busy = connect(), connect()
    join(alive)
    join(busy)
    for _ in range(6):
        world.advance(5)
        if not alive.is_closed:
            alive.send(HEARTBEAT)
        if not busy.is_closed:
            busy.send(m.Publish(topic="u", payload=b""))
        world.settle()
    assert not alive.is_closed
    assert busy.is_closed
    assert busy.events()[-1] == m.Failed(reason="evicted: heartbeat timeout")
    assert assigned(alive) == [(0, 2), (0, 1, 2, 3)]


def test_subscriptions_without_a_group_are_never_evicted(peer: Peer, world: World) -> None:
    peer.ask(m.SubscribeHead(topic="t", partition=0))
    world.advance(10_000)
    assert not peer.is_closed


def test_heartbeat_timeout_of_nothing_means_never() -> None:
    world = World(Settings(minibroker_heartbeat_timeout_ms=0))
    peer = Peer(world, service_of(world))
    join(peer)
    world.advance(10_000)
    assert not peer.is_closed


def test_evicted_peer_that_reads_nothing_is_cut_off(peer: Peer, world: World) -> None:
    peer.publish("t", *[bytes(30_000)] * 20)
    peer.transport.is_stuck = True
    peer.send(JOIN)
    world.advance(21)
    assert not world.broker.coordination.groups.table.describe(GROUP).members
    aborted = []
    peer.transport.abort = lambda: aborted.append(True)  # type: ignore[method-assign]
    world.advance(60)
    assert aborted


def test_member_that_is_evicted_may_come_back(connect: Callable[[], Peer], world: World) -> None:
    first = connect()
    join(first)
    world.advance(21)
    assert first.is_closed
    assert join(connect()) == (0, 1, 2, 3)


# ---- one group, many protocols


def kafka_commit(world: World, offset: int) -> list[object]:
    told: list[object] = []
    commit = OffsetCommit(topic=TopicName("t"), partition=Partition(1), offset=Offset(offset))
    request = CommitRequest(group_id=GROUP, offsets=(commit,), owner="kafka")
    world.broker.coordination.groups.commit(request, lambda _, error: told.append(error))
    world.settle()
    return told


def test_other_protocols_wait_until_the_group_is_empty(peer: Peer, world: World) -> None:
    peer.publish("t", b"0", b"1", key=b"k1")
    join(peer)
    (error,) = kafka_commit(world, 1)
    assert isinstance(error, ForeignGroup)
    peer.ask(m.Commit(topic="t", group="g", partition=1, offset=1))
    peer.lose()
    committed = world.broker.coordination.groups.offsets.all_committed(GROUP)
    assert [each.offset for each in committed.values()] == [1]
    assert kafka_commit(world, 0) == [None]


def test_group_of_another_protocol_is_refused_in_words(
    connect: Callable[[], Peer], world: World
) -> None:
    peer = connect()
    peer.publish("t", b"0")
    rules = DirectRules(by_turns, 15, 5, world.broker.coordination.groups.partition_count)
    foreign = world.broker.coordination.groups.direct(GROUP, "cursus", rules)
    member = DirectMember(
        MemberId("x"),
        TopicName("t"),
        client_host="",
        on_assigned=lambda _: None,
        on_evicted=lambda: None,
    )
    foreign.join(member)
    for request in (JOIN, m.Commit(topic="t", group="g", partition=0, offset=0)):
        answer = peer.ask(request)
        assert answer == m.Failed(reason="group 'g' has live members of protocol cursus")
    foreign.leave(MemberId("x"))
    assert join(peer) == (0, 1, 2, 3)
