"""Goal: quorums over sockets to a real etcd agree, fail over, and live through its death.

Method: the etcd of the test wheel; nodes are quorums without a broker around them.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvloop

from dragoman.cluster.etcd.session import Settings
from dragoman.cluster.events import Event, GroupConfigChanged
from dragoman.errors import (
    ConfigError,
    DragomanError,
    NotControllerError,
    OutcomeUnknownError,
    VersionConflictError,
)
from dragoman.limits import ETCD_PROPOSAL_BYTES_MAX
from dragoman.raft.ports import Role
from nodes.etcd import RealCluster, RealEtcd, RealMember
from nodes.ports import free_ports


def event(name: str, size: int = 0) -> Event:
    return GroupConfigChanged(group_id=name, config={"padding": "x" * size})


def keys_under(etcd: RealEtcd, prefix: str) -> list[str]:
    first, end = (base64.b64encode(f"{prefix}{c}".encode()).decode() for c in "/0")
    found = etcd.post("/v3/kv/range", {"key": first, "range_end": end, "keys_only": True})
    return [base64.b64decode(each["key"]).decode() for each in found.get("kvs", [])]


def compact(etcd: RealEtcd) -> None:
    """Everything that is not the newest is forgotten."""
    first = base64.b64encode(b"/").decode()
    revision = etcd.post("/v3/kv/range", {"key": first})["header"]["revision"]
    etcd.post("/v3/kv/compaction", {"revision": revision, "physical": True})


@pytest.fixture
async def cluster(etcd: RealEtcd, request: pytest.FixtureRequest) -> AsyncIterator[RealCluster]:
    """Three nodes, one of which leads."""
    settings = Settings(retry_s=0.05, snapshot_entries=20)
    made = RealCluster(f"/{request.node.name}", [etcd.port], settings)
    for node in (1, 2, 3):
        made.start(node)
    await made.led()
    yield made
    await made.stop()


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[RealEtcd]:
    """One that may be killed."""
    started = RealEtcd(tmp_path)
    yield started
    started.stop()


def assert_alike(cluster: RealCluster) -> None:
    assert len({each.state() for each in cluster.members.values()}) == 1
    assert not any(each.failures for each in cluster.members.values())


async def agree_on(cluster: RealCluster, name: str) -> RealMember:
    """Wherever the leadership wanders meanwhile; the node that led when it was agreed on."""
    while True:
        leader = await cluster.led()
        error = await cluster.propose(leader, [event(name)])
        if error is None:
            return leader
        assert isinstance(error, NotControllerError)


def break_connections(member: RealMember) -> None:
    """As a network that forgets them would."""
    for stream in list(member.client._streams):
        if stream.connection is not None:
            stream.connection._transport.abort()  # type: ignore[union-attr]


# ---- agreement


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nodes_agree(etcd: RealEtcd, nodes: int, make_loop, request) -> None:
    async def scenario() -> None:
        cluster = RealCluster(f"/{request.node.name}", [etcd.port])
        for node in range(1, nodes + 1):
            cluster.start(node)
        leader = await cluster.led()
        for number in range(10):
            assert await cluster.propose(leader, [event(f"g{number}")], number) is None
        assert await cluster.read(leader) is None
        await cluster.agree(10)
        assert_alike(cluster)
        for each in cluster.members.values():
            assert each.history == leader.history
            if each is not leader:
                refusal = await cluster.propose(each, [event("x")])
                assert isinstance(refusal, NotControllerError)
                assert refusal.leader == leader.node_id
        await cluster.stop()

    loop = make_loop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()


async def test_conflicts_are_refused(cluster: RealCluster) -> None:
    leader = await cluster.led()
    outcomes = await asyncio.gather(
        *(cluster.propose(leader, [event(f"g{number}")], 0) for number in range(3))
    )
    assert outcomes[0] is None
    assert all(isinstance(each, VersionConflictError) for each in outcomes[1:])
    await cluster.agree(1)


async def test_many_and_large_changes_fit_into_the_limits_of_etcd(cluster: RealCluster) -> None:
    leader = await cluster.led()
    outcomes = await asyncio.gather(
        *(cluster.propose(leader, [event(f"g{number}")]) for number in range(500)),
        *(cluster.propose(leader, [event("l", ETCD_PROPOSAL_BYTES_MAX - 99)]) for _ in range(3)),
    )
    assert set(outcomes) == {None}
    await cluster.agree(503)
    assert_alike(cluster)


async def test_clusters_under_different_prefixes_do_not_meet(
    cluster: RealCluster, etcd: RealEtcd
) -> None:
    other = RealCluster(cluster.prefix + "2", [etcd.port])
    other.start(1)
    theirs, ours = await other.led(), await cluster.led()
    await cluster.propose(ours, [event("ours")])
    await other.propose(theirs, [event("theirs")])
    await cluster.agree(1)
    assert [each.group_id for _, each in theirs.history] == ["theirs"]  # type: ignore[union-attr]
    assert {each.quorum.leader for each in cluster.members.values()} == {ours.node_id}
    await other.stop()


# ---- fail-over


async def test_clean_stop_hands_over_and_the_next_leader_has_everything(
    cluster: RealCluster,
) -> None:
    for number in range(3):
        leader = await cluster.led()
        assert await cluster.propose(leader, [event(f"g{number}")], number) is None
        await leader.stop()
        # Its lease has not run out: it was given back.
        del cluster.members[leader.node_id]
        if cluster.members:
            await cluster.led()
            await cluster.agree(number + 1)
    # All started anew find what there was.
    for node in (1, 2, 3):
        cluster.start(node)
    leader = await cluster.led()
    await cluster.agree(3)
    assert_alike(cluster)


async def test_crashed_leader_is_suspected_and_replaced_when_its_lease_ends(
    etcd: RealEtcd,
) -> None:
    cluster = RealCluster("/crashed", [etcd.port], ttl_s=2)
    for node in (1, 2, 3):
        cluster.start(node)
    old = await cluster.led()
    term = old.quorum.term
    old.crash()
    del cluster.members[old.node_id]
    new = await cluster.led()
    await cluster.until(lambda: old.node_id in new.suspected)
    assert new.quorum.term > term
    assert old.node_id not in new.quorum.nodes
    again = cluster.start(old.node_id)
    await cluster.until(lambda: new.quorum.nodes.get(old.node_id) == again.incarnation)
    await cluster.stop()


async def test_leader_whose_lease_is_revoked_is_fenced(
    cluster: RealCluster, etcd: RealEtcd
) -> None:
    old = await cluster.led()
    term = old.quorum.term
    etcd.expire(old.lease)
    # Sent before it can have heard: refused by etcd, not by us.
    assert old.quorum.role is Role.LEADER
    assert isinstance(await cluster.propose(old, [event("late")]), NotControllerError)
    await cluster.until(lambda: cluster.leader is not None and cluster.leader.quorum.term > term)
    leader = await cluster.led()
    assert await cluster.propose(leader, [event("after")], 0) is None
    await cluster.agree(1)
    assert_alike(cluster)


# ---- disturbances


async def test_broken_connections_are_made_anew(cluster: RealCluster) -> None:
    leader = await cluster.led()
    for number in range(5):
        for each in cluster.members.values():
            break_connections(each)
        assert await cluster.propose(leader, [event(f"g{number}")]) is None
        await cluster.agree(number + 1)
    assert_alike(cluster)


async def test_node_that_was_away_gets_the_snapshot(cluster: RealCluster, etcd: RealEtcd) -> None:
    leader = await cluster.led()
    away = next(each for each in cluster.members.values() if each is not leader)
    await away.stop()
    del cluster.members[away.node_id]
    for number in range(50):
        assert await cluster.propose(leader, [event(f"g{number}")]) is None
    await cluster.propose(leader, [event("last")])
    compact(etcd)
    back = cluster.start(away.node_id)
    await cluster.agree(51)
    assert back.restored
    assert back.restored[0] + len(back.history) == 51
    assert_alike(cluster)
    entries = [each for each in keys_under(etcd, cluster.prefix) if "/log/" in each]
    assert len(entries) < 51


async def test_first_endpoint_may_be_dead(etcd: RealEtcd) -> None:
    cluster = RealCluster("/endpoints", [next(free_ports()), etcd.port])
    cluster.start(1)
    leader = await cluster.led()
    assert await cluster.propose(leader, [event("g")]) is None
    await cluster.stop()


async def test_kill_9_of_etcd_loses_and_doubles_nothing(own_etcd: RealEtcd) -> None:
    cluster = RealCluster("/killed", [own_etcd.port], Settings(retry_s=0.05, outcome_s=30.0))
    for node in (1, 2, 3):
        cluster.start(node)
    outcomes: dict[str, DragomanError | None] = {}

    async def propose(name: str) -> None:
        # The leader of the moment; a refusal by any other node is final.
        leader = await cluster.led()
        outcomes[name] = await cluster.propose(leader, [event(name)])

    for kill in range(4):
        async with asyncio.TaskGroup() as proposals:
            for number in range(40):
                proposals.create_task(propose(f"{kill}-{number}"))
            await asyncio.sleep(0)
            await asyncio.to_thread(own_etcd.kill)
            await asyncio.to_thread(own_etcd.start)
        leader = await agree_on(cluster, f"{kill}-after")
        outcomes[f"{kill}-after"] = None
    await cluster.agree(leader.quorum.version)
    assert_alike(cluster)
    happened = [each.group_id for _, each in leader.history]  # type: ignore[union-attr]
    assert len(happened) == len(set(happened))
    unknown = {n for n, e in outcomes.items() if isinstance(e, OutcomeUnknownError)}
    agreed = {n for n, e in outcomes.items() if e is None}
    assert agreed <= set(happened) <= agreed | unknown
    assert len(agreed) > 40
    await cluster.stop()


async def test_etcd_that_is_away_for_long_is_waited_for(own_etcd: RealEtcd) -> None:
    settings = Settings(retry_s=0.05, outcome_s=0.5)
    cluster = RealCluster("/away", [own_etcd.port], settings, ttl_s=2)
    for node in (1, 2):
        cluster.start(node)
    leader = await cluster.led()
    own_etcd.kill()
    assert isinstance(await cluster.propose(leader, [event("lost")]), OutcomeUnknownError)
    # As seen from here its lease is over.
    await cluster.until(lambda: leader.quorum.role is Role.FOLLOWER)
    assert isinstance(await cluster.propose(leader, [event("no")]), NotControllerError)
    await asyncio.to_thread(own_etcd.start)
    leader = await agree_on(cluster, "after")
    await cluster.agree(leader.quorum.version)
    assert_alike(cluster)
    await cluster.stop()


# ---- refusal


async def test_etcd_of_the_test_wheel_is_refused(etcd: RealEtcd) -> None:
    cluster = RealCluster("/refused", [etcd.port])
    member = RealMember(cluster, 1, 1, [etcd.port], is_any_version=False)
    await cluster.until(lambda: bool(member.failures))
    [error] = member.failures
    assert isinstance(error, ConfigError)
    assert "etcd 3.5.1 may lose metadata" in str(error)
    assert not member.is_loaded
    await member.client.finish(5.0)
    assert keys_under(etcd, "/refused") == []
