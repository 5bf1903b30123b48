"""Goal: a cluster uses what all its nodes know, tells who holds it back, and never goes back.

Method: one node of a cluster that leads the metadata; the others are registrations in its image.
The release under test knows one level more than the first.
"""

from __future__ import annotations

import pytest

from dragoman.broker import cluster_node
from dragoman.cluster import events
from dragoman.cluster.events import (
    FIRST_LEVEL,
    LEVEL_IN_FORCE,
    FeatureLevelChanged,
    GroupConfigChanged,
    NodeAdded,
    NodeRegistered,
    NodeRemoved,
)
from dragoman.config.settings import Settings
from dragoman.errors import ClusterError, FormatError
from dragoman.log import node as log_node
from dragoman.outcome import start
from dragoman.replication import life
from dragoman.replication.messages import ControlReply, Registration
from dragoman.replication.messages import Decision as Answer
from worlds.broker import Outcome, World
from worlds.remote_leaders import propose

NEXT = FIRST_LEVEL + 1
ALONE = Settings(cluster=("1@127.0.0.1:9190",))


@pytest.fixture(autouse=True)
def _newer_release(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cluster_node, life, log_node):
        monkeypatch.setattr(module, "FEATURE_LEVEL", NEXT)
    monkeypatch.setitem(events.LEVELS, GroupConfigChanged, NEXT)


def older_among_us() -> World:
    """A node that met another before it could agree on more than that knows."""
    world = World(ALONE, start=False)
    world.broker.image.apply(NodeAdded(node_id=2, address="two.example:9190"))
    world.start()
    return world


def change(world: World) -> Outcome:
    outcome = Outcome()
    event = GroupConfigChanged(group_id="g", config={"a": "b"})
    world.broker.cluster.changes.make(lambda: [event]).then(outcome)
    world.settle()
    return outcome


def test_a_node_alone_uses_all_that_it_knows_and_marks_its_directory() -> None:
    world = World()
    assert world.broker.image.feature_level == NEXT
    assert world.store.node.feature_level == NEXT
    assert change(world).error is None


def test_an_older_node_holds_the_cluster_back_until_it_is_upgraded() -> None:
    world = older_among_us()
    propose(world, NodeRegistered(node_id=2, incarnation=1))
    assert world.broker.image.feature_level == FIRST_LEVEL
    assert world.store.node.feature_level == FIRST_LEVEL
    refused = change(world).error
    assert isinstance(refused, ClusterError)
    assert str(refused) == (
        "this needs feature level 3 and the cluster uses 2: upgrade node 2 first"
    )
    propose(world, NodeRegistered(node_id=2, incarnation=2, feature_level=NEXT))
    assert world.broker.image.feature_level == NEXT
    assert world.store.node.feature_level == NEXT
    assert change(world).error is None


def test_a_node_that_has_not_come_yet_holds_the_cluster_back_and_one_that_is_gone_does_not() -> (
    None
):
    world = older_among_us()
    assert world.broker.image.feature_level == FIRST_LEVEL
    propose(world, NodeRemoved(node_id=2))
    assert world.broker.image.feature_level == NEXT


def test_the_level_never_goes_back() -> None:
    world = World(ALONE)
    assert world.broker.image.feature_level == NEXT
    propose(world, NodeRegistered(node_id=2, incarnation=1))
    assert world.broker.image.feature_level == NEXT


def register(world: World, level: int, lowest: int) -> ControlReply:
    request = Registration(
        node_id=1,
        directory=world.store.node.directory_id,
        life="9/9",
        is_intact=True,
        feature_level=level,
        feature_level_min=lowest,
    )
    replies: list[ControlReply | None] = []
    start(world.broker.cluster.access.serve(request)).then(replies.append)
    world.settle()
    assert replies[0] is not None
    return replies[0]


@pytest.mark.parametrize(
    ("level", "lowest", "why"),
    [
        (NEXT - 1, FIRST_LEVEL, "knows feature level 2 and the cluster uses 3: run a newer"),
        (NEXT + 3, NEXT + 1, "needs feature level 4 and the cluster uses 3: run a release in b"),
        (NEXT + 3, NEXT, ""),
    ],
    ids=["too old", "too new", "newer"],
)
def test_node_that_cannot_work_at_the_level_is_refused(level: int, lowest: int, why: str) -> None:
    reply = register(World(ALONE), level, lowest)
    assert (Answer.REFUSED in reply.outcomes) == bool(why)
    assert why in reply.text


def test_a_node_stops_when_the_cluster_is_further_than_it() -> None:
    world = World(ALONE)
    failures: list[OSError] = []
    world.broker.on_fatal = failures.append
    propose(world, FeatureLevelChanged(feature=LEVEL_IN_FORCE, level=NEXT + 1))
    world.settle()
    assert "the cluster uses feature level 4, this release knows 3" in str(failures[0])
    world.store.abandon()
    again = World(ALONE, disk=world.disk, start=False)
    with pytest.raises(FormatError, match="run a newer one on this node"):
        again.broker.recover()
    again.store.abandon()
