"""Goal: clients of protocols without a field for it feel a quota as back-pressure."""

from __future__ import annotations

import pytest

from dragoman.broker.quotas import entity_key
from dragoman.cluster.events import ClientQuotaChanged
from dragoman.protocols.minibroker import messages as mini
from dragoman.protocols.rocketmq.constants import Request
from worlds.broker import World
from worlds.cursus import CursusPipe
from worlds.minibroker import Peer, service_of
from worlds.rocketmq import RocketmqPipe, pull_fields

LARGE = b"v" * 2000


@pytest.fixture
def world() -> World:
    return World()


def limit(world: World, **values: float) -> None:
    entity = entity_key({"user": "ANONYMOUS"})
    world.apply(ClientQuotaChanged(entity=entity, quotas=values))


def test_producer_is_not_read_for_a_while(world: World) -> None:
    world.create("t")
    limit(world, producer_byte_rate=100)
    pipe = CursusPipe(world)
    assert "OK" in pipe.ask(f"PUBLISH topic=t producerId=p message={LARGE.decode()}")
    assert not pipe.transport.is_reading
    world.advance(20)
    assert pipe.transport.is_reading
    assert "OK" in pipe.ask("PUBLISH topic=t producerId=p message=m")


def test_throttled_client_is_not_idle(world: World) -> None:
    world.create("t")
    limit(world, producer_byte_rate=1)
    pipe = CursusPipe(world)
    pipe.ask(f"PUBLISH topic=t producerId=p message={LARGE.decode()}")
    for _ in range(10):
        world.advance(30)
    assert not pipe.is_closed
    assert not pipe.transport.is_reading


def test_subscriber_gets_nothing_for_a_while(world: World) -> None:
    (replica,) = world.create("t")
    for _ in range(200):
        world.write(replica, LARGE, settle=False)
    world.settle()
    limit(world, consumer_byte_rate=1000)
    peer = Peer(world, service_of(world))
    peer.send(mini.SubscribeOffset(topic="t", partition=0, offset=0))
    first = len(peer.deliveries())
    assert 0 < first < 200
    world.advance(1)
    assert peer.deliveries() == []
    world.advance(1000)
    assert len(peer.deliveries()) > 0


def test_pulls_are_throttled(world: World) -> None:
    (replica,) = world.create("t")
    world.write(replica, LARGE)
    limit(world, consumer_byte_rate=10)
    pipe = RocketmqPipe(world)
    assert pipe.ask(Request.PULL_MESSAGE, pull_fields("t")).code == 0
    number = pipe.send(Request.PULL_MESSAGE, pull_fields("t"))
    world.settle()
    assert pipe.replies() == {}
    world.advance(10_000)
    assert number in pipe.replies()
