"""Goal: the nodes of a cluster are named in one place, and mistakes in it are reported at once."""

from __future__ import annotations

import pytest

from dragoman.config.hosts import own_address, parse_nodes
from dragoman.config.layers import Assignment, Flags, load
from dragoman.config.listeners import Address
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError


def configured(cluster: str, *listen: str, node_id: str = "1") -> Settings:
    assignments = (
        Assignment("--cluster", "cluster", cluster),
        Assignment("--node-id", "node.id", node_id),
    )
    flags = Flags(assignments=assignments, listen=listen)
    return load(file=None, environment={}, flags=flags).settings


def test_nodes_are_read_with_their_addresses() -> None:
    nodes = parse_nodes(["1@a.example:9190", "7@[::1]:9191"])
    assert nodes == {1: Address("a.example", 9190), 7: Address("::1", 9191)}
    assert own_address(nodes, 7) == Address("::1", 9191)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["a.example:9190"], "expected NODE@HOST:PORT"),
        (["x@a.example:9190"], "expected NODE@HOST:PORT"),
        (["1@a.example"], "expected HOST:PORT"),
        (["1@a.example:0"], "expected a port from 1"),
        (["1@a:1", "1@b:1"], "node 1 is named twice"),
        (["1@a:1", "2@a:1"], "two nodes at a:1"),
        (["1@0.0.0.0:1"], "others cannot connect to 0.0.0.0"),
    ],
)
def test_mistakes_are_refused(entries: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_nodes(entries)


def test_a_node_opens_its_own_entry_whatever_else_is_listened_on() -> None:
    settings = configured("1@127.0.0.1:9190,2@127.0.0.1:9191", "kafka=127.0.0.1:9092")
    assert [each.name for each in settings.listeners] == ["kafka", "peer"]
    peer = settings.listener("peer")
    assert peer is not None
    assert peer.bind == Address("127.0.0.1", 9190)


def test_another_bind_may_be_given_for_it() -> None:
    settings = configured("1@a.example:9190", "peer=0.0.0.0:9190")
    peer = settings.listener("peer")
    assert peer is not None
    assert peer.bind == Address("0.0.0.0", 9190)


def test_a_node_that_is_not_named_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"node\.id is 3, and the cluster has nodes 1, 2"):
        configured("1@127.0.0.1:9190,2@127.0.0.1:9191", node_id="3")


def test_a_cluster_without_its_listener_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs its listener peer"):
        configured("1@127.0.0.1:9190", "peer=off")
