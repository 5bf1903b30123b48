"""Settings of a listener that change count for the connections that it has.

A connection that the listener would now refuse, or whose caller would be another one, is closed at
once: its streams, long polls and parked requests would otherwise go on as before.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dragoman.config.listeners import ListenerSecurity
from dragoman.config.settings import Settings
from dragoman.protocols.minibroker import messages as minibroker
from dragoman.types import Certificate
from worlds.broker import Pipe, Wire, World
from worlds.cursus import CursusPipe
from worlds.logins import MECHANISMS, log_in
from worlds.minibroker import Peer, service_of
from worlds.mlog import MlogPipe
from worlds.rocketmq import RocketmqPipe
from worlds.users import add_user

OFF = ListenerSecurity(mechanisms=MECHANISMS)
OPTIONAL = msgspec.structs.replace(OFF, authentication="optional")
REQUIRED = msgspec.structs.replace(OFF, authentication="required")
NAMED = msgspec.structs.replace(OFF, principals=(("127.0.0.0/8", "batch"), ("10.0.0.0/8", "batch")))

PIPES: dict[str, Callable[[World], Pipe]] = {
    "kafka": Wire,
    "cursus": CursusPipe,
    "mlog": MlogPipe,
    "minibroker": lambda world: Peer(world, service_of(world)),
    "rocketmq": RocketmqPipe,
}
each_protocol = pytest.mark.parametrize("connect", PIPES.values(), ids=PIPES)


def change(world: World, security: ListenerSecurity, *, has_new_names: bool = False) -> None:
    """Give the listener of all connections this security."""
    for examine in world.channels.reexamine(security, has_new_names=has_new_names):
        examine()
    world.settle()


@pytest.fixture
def world() -> World:
    world = World()
    world.create("orders")
    change(world, OFF)
    return world


@each_protocol
@pytest.mark.parametrize("before", [OFF, OPTIONAL], ids=["off", "optional"])
def test_anonymous_connections_end_when_a_login_is_demanded(
    world: World, connect: Callable[[World], Pipe], before: ListenerSecurity
) -> None:
    change(world, before)
    pipe = connect(world)
    change(world, REQUIRED)
    assert pipe.is_closed


@each_protocol
def test_connections_end_that_would_belong_to_another_user(
    world: World, connect: Callable[[World], Pipe]
) -> None:
    anonymous = connect(world)
    change(world, NAMED)
    assert anonymous.is_closed
    named = connect(world)
    change(world, msgspec.structs.replace(NAMED, authentication="required"))
    assert not named.is_closed
    change(world, REQUIRED)
    assert named.is_closed


@each_protocol
def test_plain_connections_end_when_tls_is_demanded(
    world: World, connect: Callable[[World], Pipe]
) -> None:
    pipe = connect(world)
    change(world, msgspec.structs.replace(OFF, tls="optional"))
    assert not pipe.is_closed
    change(world, msgspec.structs.replace(OFF, tls="required"))
    assert pipe.is_closed


@each_protocol
def test_connections_stay_that_the_change_does_not_concern(
    world: World, connect: Callable[[World], Pipe]
) -> None:
    pipe = connect(world)
    change(world, OPTIONAL)
    change(world, msgspec.structs.replace(OPTIONAL, mechanisms=("PLAIN",)), has_new_names=True)
    assert not pipe.is_closed


def test_stream_ends_with_its_anonymous_connection(world: World) -> None:
    service = service_of(world)
    peer = Peer(world, service)
    peer.send(minibroker.SubscribeGroup(topic="orders", group="g"))
    peer.events()
    assert len(world.broker.grants) == 1
    change(world, REQUIRED)
    assert len(world.broker.grants) == 0
    assert peer.deliveries() == []


def test_login_outlives_what_named_the_connection_before() -> None:
    world = World(msgspec.structs.replace(Settings(), sasl_insecure_clear_text=True))
    add_user(world, password="secret")
    change(world, REQUIRED)
    wire, waiting = Wire(world), Wire(world)
    assert log_in(wire, "alice").error_code == 0
    for security in (OPTIONAL, REQUIRED, msgspec.structs.replace(NAMED, authentication="required")):
        change(world, security)
        assert not wire.is_closed
    # It was anonymous, and would be `batch` now.
    assert waiting.is_closed


def test_connection_whose_login_is_awaited_keeps_its_time(world: World) -> None:
    change(world, REQUIRED)
    wire = Wire(world)
    change(world, OPTIONAL)
    change(world, REQUIRED)
    assert not wire.is_closed


def test_certificate_that_rules_name_differently_ends_its_connection() -> None:
    world = World()
    change(world, OFF)
    wire = Wire(world)
    # The rules had no name for it before.
    wire.transport.certificate = Certificate(subject="CN=alice")
    change(world, OFF)
    assert not wire.is_closed
    change(world, OFF, has_new_names=True)
    assert wire.is_closed
