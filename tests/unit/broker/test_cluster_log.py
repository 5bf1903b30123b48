"""Goal: what happens in the cluster is in the log, a line each for few changes, one for many.

Method: the first node of a cluster on virtual time, and events of a second one that does not exist.
"""

from __future__ import annotations

import logging

import pytest

from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import Member, NodeFenced, NodeRegistered
from dragoman.config.settings import Settings
from dragoman.limits import (
    LIMITED_LOG_INTERVAL_S,
    LIMITED_LOG_LINES_MAX,
    PARTITION_LOG_LINES_MAX,
)
from worlds.broker import World
from worlds.cluster import ThreeNodes
from worlds.remote_leaders import propose


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.INFO, "dragoman.cluster")
    made = World(Settings(cluster=("1@127.0.0.1:9190",), broker_session_timeout_ms=600_000))
    propose(made, NodeRegistered(node_id=2, incarnation=1))
    return made


@pytest.mark.parametrize(("count", "lines"), [(2, 2), (PARTITION_LOG_LINES_MAX + 1, 1)])
def test_fenced_node_leaves_a_line_for_each_partition_or_one_for_all(
    world: World, caplog: pytest.LogCaptureFixture, count: int, lines: int
) -> None:
    topic = NewTopic(name="t", assignment=((2, 1),) * count)
    assert world.create_outcome(topic) is None
    world.scheduler.run_ready()
    caplog.clear()
    world.broker.cluster.controller.fence(Member(2, 1))
    world.scheduler.run_ready()
    fenced = [vars(each) for each in caplog.records if each.message == "node fenced"]
    assert [each["node"] for each in fenced] == [2]
    changed = [vars(each) for each in caplog.records if each.message.startswith("in-sync set")]
    assert len(changed) == lines
    if lines == 1:
        assert changed[0]["partitions"] == count
        assert changed[0]["why"] == f"node 2 is fenced ({count}), node 1 leads ({count})"
        return
    assert [each["partition"] for each in changed] == [0, 1]
    assert changed[0]["topic"] == "t"
    assert (changed[0]["before"], changed[0]["in_sync"]) == ([2, 1], [1])
    assert (changed[0]["leader"], changed[0]["why"]) == (1, "node 2 is fenced, node 1 leads")


def test_registered_node_has_a_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    propose(world, NodeFenced(node_id=2, incarnation=1))
    caplog.clear()
    propose(world, NodeRegistered(node_id=2, incarnation=2))
    (line,) = [vars(each) for each in caplog.records if each.message == "node registered"]
    assert (line["node"], line["incarnation"]) == (2, 2)


def test_election_has_a_line_on_every_node(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.cluster")
    ThreeNodes()
    (own,) = [
        vars(each) for each in caplog.records if each.message == "this node leads the metadata"
    ]
    assert own["why"] == "there was no leader"
    others = [
        vars(each) for each in caplog.records if each.message == "another node leads the metadata"
    ]
    assert {(each["leader"], each["term"]) for each in others} == {(own["leader"], own["term"])}
    assert len(others) == 2


def test_node_that_comes_and_goes_leaves_few_lines(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.advance(LIMITED_LOG_INTERVAL_S)
    caplog.clear()
    for incarnation in range(2, 52):
        propose(world, NodeFenced(node_id=2, incarnation=incarnation - 1))
        propose(world, NodeRegistered(node_id=2, incarnation=incarnation))
    assert len(caplog.records) == LIMITED_LOG_LINES_MAX
    world.advance(LIMITED_LOG_INTERVAL_S)
    assert caplog.records[LIMITED_LOG_LINES_MAX].message.startswith("... and 90 more lines")
