"""Goal: requests to a node that is taken for gone fail at once, and only once.

Method: the connections are an object that keeps what is sent; the broker is one that leads alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from dragoman.cluster.events import NodeFenced, NodeRegistered
from dragoman.errors import ClusterError, DragomanError
from dragoman.net.peer_connections import PeerAnswer, PeerConnections
from dragoman.peers import Peers
from dragoman.rpc import RawReply
from dragoman.types import Buffer
from worlds.broker import World
from worlds.remote_leaders import propose

REQUEST = b"request"


class Lines:
    """Stands for `PeerConnections`."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Callable[[PeerAnswer | ClusterError], None]]] = []

    def request(
        self,
        node: int,
        _service: int,
        _header: bytes,
        done: Callable[[PeerAnswer | ClusterError], None],
        *,
        timeout_s: float,
        body: Sequence[Buffer] = (),
    ) -> None:
        assert timeout_s > 0
        assert not body
        self.sent.append((node, done))


def test_what_a_node_was_asked_is_given_up_when_it_is_taken_for_gone() -> None:
    world, lines = World(), Lines()
    peers = Peers(cast(PeerConnections, lines), dict, {})
    peers._broker = world.broker
    world.broker.on_fenced.append(peers._give_up_on)
    propose(world, NodeRegistered(node_id=2, incarnation=5))
    propose(world, NodeRegistered(node_id=3, incarnation=6))
    told: dict[int, list[RawReply | DragomanError]] = {2: [], 3: []}
    for node, heard in told.items():
        peers.exchange(node, REQUEST, ()).then(heard.append)
    propose(world, NodeFenced(node_id=2, incarnation=5))
    world.settle()
    (gone,) = told[2]
    assert isinstance(gone, ClusterError)
    assert "node 2 is gone; the outcome is unknown" in str(gone)
    # What comes late, and what comes from others.
    for _node, done in lines.sent:
        done(PeerAnswer(memoryview(b"reply"), memoryview(b"")))
    assert len(told[2]) == 1
    (answer,) = told[3]
    assert isinstance(answer, RawReply)
    assert answer.header == b"reply"
    peers.exchange(2, REQUEST, ()).then(told[2].append)
    lines.sent[-1][1](ClusterError("no connection"))
    assert len(told[2]) == 2
