"""Goal: any node answers what another node alone knows, with the rights of the caller there.

Method: the services of two nodes in virtual time.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.api.connections import ConnectionService
from dragoman.api.damage import DamageService
from dragoman.api.declaration import ApiError, PageLimit, ReadBytes, RecordLimit, ValueBytes
from dragoman.api.delayed import DelayedService
from dragoman.api.node_lists import OwnLists
from dragoman.api.node_service import serve_other_nodes
from dragoman.api.pipelines import PipelineReports
from dragoman.api.values import PipelineStatus
from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.errors import ClusterNotAuthorized
from dragoman.errors import DragomanError
from dragoman.outcome import start
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.types import NodeId
from worlds.access import Denies
from worlds.delayed_records import record_of
from worlds.http import ask
from worlds.two_nodes import Pair

CALLER = Caller()
ALL = PageLimit(10)


class FakeConnection:
    """Stands for a connection of HTTP."""

    user = "User:ann"
    client = ("127.0.0.1", 9)
    is_encrypted = False
    unsent_bytes = 0
    opened_at = 0.0

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


class Two:
    def __init__(self) -> None:
        self.pair = Pair()
        self.connections = {node: FakeConnection(f"http-{node}") for node in self.pair.worlds}
        self.own = {node: self._lists(node) for node in self.pair.worlds}
        for node, world in self.pair.worlds.items():
            lists = self.own[node]
            serve_other_nodes(
                world.broker, world.broker.leader_queues, own_lists=lambda lists=lists: lists
            )

    def _lists(self, node: int) -> OwnLists:
        broker: Any = self.pair.worlds[node].broker
        listeners: Any = SimpleNamespace(
            channels={}, http_connections=lambda: iter([self.connections[node]])
        )
        reports = PipelineReports(broker.clock, broker)
        reports.report_pipeline(CALLER, PipelineStatus(name=f"p{node}", file="f"))
        return OwnLists(
            ConnectionService(broker, listeners, broker.clock),
            DamageService(broker),
            DelayedService(broker),
            reports,
        )


@pytest.fixture
def two() -> Two:
    return Two()


@pytest.mark.parametrize(("node", "answering"), [(None, 1), (1, 1), (2, 2)])
def test_lists_are_those_of_the_node_that_is_named(
    two: Two, node: NodeId | None, answering: int
) -> None:
    own = two.own[1]
    page = ask(two.pair, own.connections.list_connections(CALLER, "", node, "", ALL))
    assert (page.node_id, [each.id for each in page.items]) == (answering, [f"http-{answering}"])
    reports = ask(two.pair, own.pipelines.list_pipelines(CALLER, node))
    assert [each.name for each in reports.items] == [f"p{answering}"]
    counts = ask(two.pair, own.delayed.list_delayed(CALLER, node, "", ALL))
    assert (counts.node_id, counts.records) == (answering, 0)


def test_damage_is_that_of_the_node_that_is_named(two: Two) -> None:
    disk = two.pair.worlds[NodeId(2)].disk
    disk.make_directory("quarantine")
    disk.open("quarantine/a.log", "create").write([b"12345"], 0)
    found = [
        ask(two.pair, two.own[1].damage.list_damage(CALLER, NodeId(node), "", ALL))
        for node in (1, 2)
    ]
    assert [(each.node_id, each.quarantined_bytes) for each in found] == [(1, 0), (2, 5)]


def test_connection_to_another_node_is_closed(two: Two) -> None:
    connections = two.own[1].connections
    with pytest.raises(ApiError, match="node 2 has no connection 'http-1'"):
        ask(two.pair, connections.close_connection(CALLER, "http-1", NodeId(2)))
    ask(two.pair, connections.close_connection(CALLER, "http-2", NodeId(2)))
    assert [each.is_cut for each in two.connections.values()] == [False, True]


def test_delayed_records_of_another_node_are_listed(two: Two) -> None:
    two.pair.create("t", 1, 1, 1, 1)
    broker = two.pair.one.broker
    due = broker.clock.wall_ms() + 5000
    for partition in range(4):
        start(broker.delayed.delay("t", partition, record_of(b"v"), due, NODE_ITSELF))
        two.pair.settle()
    found = {}
    for node in (1, 2):
        page = two.own[1].delayed.delayed_records(
            CALLER, "t", NodeId(node), "", RecordLimit(9), ReadBytes(999), ValueBytes(9), "text"
        )
        found[node] = ask(two.pair, page)
    assert [found[node].node_id for node in (1, 2)] == [1, 2]
    assert sorted(each.partition for page in found.values() for each in page.items) == [0, 1, 2, 3]
    assert found[2].items, "no record is stored by the other node"
    assert {each.due_ms for each in found[2].items} == {due}


def test_node_that_does_not_answer_or_does_not_exist_is_an_error(two: Two) -> None:
    connections = two.own[1].connections
    with pytest.raises(ApiError, match="there is no node 7"):
        ask(two.pair, connections.list_connections(CALLER, "", NodeId(7), "", ALL))
    two.pair.lines[1].is_cut = True
    with pytest.raises(DragomanError):
        ask(two.pair, connections.list_connections(CALLER, "", NodeId(2), "", ALL))


def test_rights_are_those_on_the_other_node(two: Two) -> None:
    other: Any = two.pair.worlds[2].broker
    other.authorizer = Denies((Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME))
    with pytest.raises(ClusterNotAuthorized):
        ask(
            two.pair,
            two.own[1].connections.list_connections(CALLER, "", NodeId(2), "", ALL),
        )
