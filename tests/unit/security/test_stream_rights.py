"""Goal: each request of minibroker and mlog needs exactly the rights in the tables below, and what
they push ends with the right.

Method: as for Kafka's requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from dragoman.protocols.minibroker import messages as mini
from dragoman.protocols.minibroker.handlers.service import REQUESTS as MINIBROKER
from dragoman.protocols.mlog import messages as mlog
from dragoman.protocols.mlog.handlers.service import REQUESTS as MLOG
from dragoman.security.access import CLUSTER_NAME, Resource
from worlds.broker import World
from worlds.minibroker import Peer, service_of
from worlds.mlog import MlogPipe
from worlds.rights import Guard, Need, Right, need, others
from worlds.stacks import no_stack_left

RESOURCES: Final = (
    (Resource.TOPIC, "t"),
    (Resource.TOPIC, "fresh"),
    (Resource.TOPIC, "bystander"),
    (Resource.GROUP, "g"),
    (Resource.GROUP, "bystander"),
    (Resource.CLUSTER, CLUSTER_NAME),
)


class Stage:
    """Each request has a connection of its own, because pushes follow some of them."""

    def __init__(self) -> None:
        self.world = World()
        self.minibroker = service_of(self.world)
        for name in ("t", "bystander"):
            (replica,) = self.world.create(name)
            self.world.write(replica, b"v")
        self.guard = Guard(self.world)

    def tell(self, request: mini.Request) -> str:
        """The text of the refusal; empty if the request was not refused."""
        peer = Peer(self.world, self.minibroker)
        peer.send(request)
        events = peer.events()
        peer.lose()
        self.world.settle()
        return next((each.reason for each in events if isinstance(each, mini.Failed)), "")

    def ask(self, request: mlog.Message) -> mlog.Message:
        pipe = MlogPipe(self.world)
        (reply,) = pipe.ask_all(request)
        pipe.lose()
        return reply

    def without_fresh(self) -> None:
        if "fresh" in self.world.broker.image.topics:
            self.ask(mlog.DeleteTopic(topic="fresh"))

    def with_fresh(self) -> None:
        if "fresh" not in self.world.broker.image.topics:
            self.world.create("fresh")


def _nothing(_: Stage) -> None:
    return None


class Row(NamedTuple):
    request: mini.Request | mlog.Message
    needs: str = ""
    prepare: Callable[[Stage], None] = _nothing

    @property
    def all_needs(self) -> list[Need]:
        return [need(each) for each in self.needs.split(",") if each]


MINIBROKER_ROWS: Final[dict[type, list[Row]]] = {
    mini.Publish: [
        Row(mini.Publish(topic="t", payload=b"v"), "write topic t"),
        Row(
            mini.Publish(topic="fresh", payload=b"v"),
            "write topic fresh,create topic fresh|create cluster",
            Stage.without_fresh,
        ),
    ],
    mini.SubscribeHead: [Row(mini.SubscribeHead(topic="t", partition=0), "read topic t")],
    mini.SubscribeOffset: [
        Row(mini.SubscribeOffset(topic="t", partition=0, offset=0), "read topic t")
    ],
    mini.SubscribeGroup: [
        Row(mini.SubscribeGroup(topic="t", group="g"), "read topic t,read group g")
    ],
    mini.Commit: [
        Row(
            mini.Commit(topic="t", group="g", partition=0, offset=0),
            "read topic t,read group g",
        )
    ],
    # Of what the connection itself has subscribed to.
    mini.Unsubscribe: [Row(mini.Unsubscribe(topic="t"))],
    mini.Heartbeat: [Row(mini.Heartbeat(topic="t", group="g"))],
    mini.Quit: [Row(mini.Quit())],
}
MLOG_ROWS: Final[dict[type, list[Row]]] = {
    mlog.Produce: [Row(mlog.Produce(topic="t", value=b"v", acks=2), "write topic t")],
    mlog.ProduceBatch: [Row(mlog.ProduceBatch(topic="t", values=[b"v"], acks=2), "write topic t")],
    mlog.Fetch: [
        Row(mlog.Fetch(topic="t", id="g"), "read topic t,describe topic t,describe group g")
    ],
    mlog.FetchBatch: [
        Row(
            mlog.FetchBatch(topic="t", id="g", max_count=1),
            "read topic t,describe topic t,describe group g",
        )
    ],
    mlog.FetchStream: [
        Row(
            mlog.FetchStream(topic="t", id="g", max_count=1),
            "read topic t,describe topic t,describe group g",
        )
    ],
    mlog.CommitOffset: [
        Row(mlog.CommitOffset(topic="t", id="g", offset=1), "read group g,read topic t")
    ],
    mlog.FetchOffset: [
        Row(mlog.FetchOffset(topic="t", id="g"), "describe group g,describe topic t")
    ],
    mlog.CreateTopic: [
        Row(
            mlog.CreateTopic(topic="fresh"),
            "create topic fresh|create cluster",
            Stage.without_fresh,
        )
    ],
    mlog.DeleteTopic: [
        Row(mlog.DeleteTopic(topic="fresh"), "delete topic fresh", Stage.with_fresh)
    ],
    mlog.ListTopics: [Row(mlog.ListTopics(), "describe topic t")],
    mlog.FindTopicLeader: [Row(mlog.FindTopicLeader(topic="t"), "describe topic t")],
    mlog.FindRaftLeader: [Row(mlog.FindRaftLeader())],
    mlog.ReplicateStream: [
        Row(
            mlog.ReplicateStream(topic="t", replica_node_id="node-1", batch_size=1),
            "read topic t",
        )
    ],
    mlog.ApplyIsrUpdateEvent: [Row(mlog.ApplyIsrUpdateEvent(topic="t"), "describe topic t")],
}


def test_every_request_has_a_row() -> None:
    assert set(MINIBROKER_ROWS) == set(MINIBROKER)
    assert set(MLOG_ROWS) == set(MLOG)


def sees(stage: Stage, request: mini.Request | mlog.Message) -> bool:
    if type(request) in MINIBROKER:
        return "may not" in stage.tell(request)
    reply = stage.ask(request)
    if isinstance(reply, mlog.ListTopicsResp):
        return "t" not in [each.name for each in reply.topics or ()]
    return isinstance(reply, mlog.RPCError) and "may not" in reply.message


CASES: Final = [
    each for rows in (MINIBROKER_ROWS, MLOG_ROWS) for cases in rows.values() for each in cases
]


@pytest.mark.parametrize("case", CASES, ids=lambda each: type(each.request).__name__)
def test_request_needs_exactly_these_rights(case: Row) -> None:
    stage = Stage()

    def is_refused(*denied: Right) -> bool:
        case.prepare(stage)
        with stage.guard.without(denied):
            return sees(stage, case.request)

    for each in case.all_needs:
        assert is_refused(*each), each
        with no_stack_left():
            is_refused(*each)
        if len(each) > 1:
            assert not any(map(is_refused, each)), "one of these rights suffices"
    refused = [each for each in others(RESOURCES, case.all_needs) if is_refused(each)]
    assert refused == []


# ---- at once


@pytest.mark.parametrize("words", ["read topic t", "read group g"])
def test_group_subscription_of_minibroker_ends_with_the_right(words: str) -> None:
    stage = Stage()
    peer = Peer(stage.world, stage.minibroker)
    peer.send(mini.SubscribeGroup(topic="t", group="g"))
    assert any(isinstance(each, mini.Delivered) for each in peer.events())
    with stage.guard.without(need("read topic bystander")):
        assert not peer.is_closed
    with stage.guard.without(need(words)):
        stage.world.settle()
    (event,) = peer.events()
    assert isinstance(event, mini.Failed)
    assert "may not read" in event.reason
    assert peer.is_closed
    stage.world.write(stage.world.broker.partitions.find("t", 0), b"secret")
    assert peer.events() == []
    assert len(stage.world.broker.grants) == 0


def test_subscription_of_minibroker_ends_with_the_right() -> None:
    stage = Stage()
    peer = Peer(stage.world, stage.minibroker)
    peer.send(mini.SubscribeHead(topic="t", partition=0))
    peer.events()
    with stage.guard.without(need("read topic t")):
        (event,) = peer.events()
    assert isinstance(event, mini.Failed)
    assert len(stage.world.broker.grants) == 0


def test_ended_subscription_of_minibroker_holds_no_right() -> None:
    stage = Stage()
    peer = Peer(stage.world, stage.minibroker)
    peer.send(mini.SubscribeHead(topic="t", partition=0))
    peer.events()
    assert len(stage.world.broker.grants) == 1
    peer.send(mini.Unsubscribe(topic="t"))
    peer.events()
    assert len(stage.world.broker.grants) == 0


def test_stream_of_mlog_ends_with_the_right() -> None:
    stage = Stage()
    pipe = MlogPipe(stage.world)
    assert pipe.ask_all(mlog.FetchStream(topic="t", id="g", offset=1, max_count=1)) == []
    with stage.guard.without(need("read topic bystander")):
        assert pipe.replies() == []
    with stage.guard.without(need("read topic t")):
        (reply,) = pipe.replies()
    assert isinstance(reply, mlog.RPCError)
    assert "may not read" in reply.message
    assert len(stage.world.broker.grants) == 0
    # The connection serves the next request.
    assert pipe.ask_all(mlog.ListTopics())
