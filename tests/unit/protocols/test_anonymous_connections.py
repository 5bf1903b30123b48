"""minibroker and mlog have no login: a certificate or an address names the client, or nothing does.

On a listener that demands authentication, the first request of an unnamed client is refused in the
form of its protocol, and the connection is closed.
"""

from __future__ import annotations

import logging

import pytest

from dragoman.cluster.events import NodeConfigChanged
from dragoman.cluster.metadata import EVERY_NODE
from dragoman.config.settings import Settings
from dragoman.limits import LOGIN_FRAME_BYTES_MAX
from dragoman.protocols.minibroker import messages as minibroker
from dragoman.protocols.mlog import messages as mlog
from dragoman.protocols.mlog.constants import Encoding
from dragoman.security.access import Principal
from worlds.access import Denies
from worlds.broker import World
from worlds.cursus import CursusPipe
from worlds.minibroker import Peer, service_of
from worlds.mlog import MlogPipe
from worlds.users import add_user, demand, remove_user

TEXT = "authentication required: no certificate and no known address"
NETWORK = (("10.0.0.0/8", "batch"),)


@pytest.fixture
def authorizer() -> Denies:
    return Denies()


@pytest.fixture
def world(authorizer: Denies) -> World:
    world = World(authorizer=authorizer)
    world.create("orders")
    demand(world)
    return world


# ---- minibroker


def test_minibroker_refuses_unnamed_clients(world: World, authorizer: Denies) -> None:
    peer = Peer(world, service_of(world))
    publish = minibroker.Publish(topic="orders", payload=b"v")
    peer.send(publish, publish)
    assert peer.events() == [minibroker.Failed(reason=TEXT)]
    assert peer.is_closed
    assert authorizer.asked == []


def test_minibroker_serves_clients_with_a_known_address(world: World, authorizer: Denies) -> None:
    demand(world, principals=NETWORK)
    peer = Peer(world, service_of(world))
    assert peer.publish("orders", b"v") == [(0, 0)]
    assert {each.principal for each in authorizer.callers} == {Principal("User", "batch")}


def test_minibroker_serves_unnamed_clients_where_it_may(world: World) -> None:
    demand(world, "optional")
    peer = Peer(world, service_of(world))
    assert peer.publish("orders", b"v") == [(0, 0)]


# ---- mlog


@pytest.mark.parametrize("encoding", list(Encoding))
def test_mlog_refuses_unnamed_clients(world: World, authorizer: Denies, encoding: Encoding) -> None:
    pipe = MlogPipe(world, encoding)
    assert pipe.refused(mlog.ListTopics()) == (0, TEXT)
    assert pipe.is_closed
    assert authorizer.asked == []


def test_mlog_serves_clients_with_a_known_address(world: World, authorizer: Denies) -> None:
    demand(world, principals=NETWORK)
    pipe = MlogPipe(world)
    assert pipe.ask(mlog.ListTopics(), mlog.ListTopicsResp).topics
    assert {each.name for each in authorizer.callers} == {"batch"}


# ---- both


def test_silent_connections_are_closed_in_time(world: World) -> None:
    peer, pipe = Peer(world, service_of(world)), MlogPipe(world)
    world.advance(world.settings.connections_max_login_ms / 1000)
    assert peer.is_closed
    assert pipe.is_closed
    assert world.broker.logins.admission.in_all == 0


def test_the_first_frame_of_an_unnamed_client_is_small(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.channels.listener = "inside"
    peer = Peer(world, service_of(world))
    with caplog.at_level(logging.INFO):
        peer.feed((LOGIN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    world.settle()
    assert peer.is_closed
    (said,) = [each for each in caplog.messages if "frame of" in each]
    host, port = peer.channel.peer_address
    assert said.startswith(f"closing {host}:{port}: frame of 65537 bytes; ")
    assert said.endswith(" before the login, on listener inside")


def test_connections_end_with_the_user_of_their_address(world: World) -> None:
    add_user(world, "batch")
    demand(world, principals=NETWORK)
    peer, pipe = Peer(world, service_of(world)), MlogPipe(world)
    remove_user(world, "batch")
    assert peer.is_closed
    assert pipe.is_closed


def test_a_listener_that_demands_authentication_later_refuses_the_next_request(
    world: World,
) -> None:
    demand(world, "off")
    peer = Peer(world, service_of(world))
    assert peer.publish("orders", b"v") == [(0, 0)]
    demand(world)
    peer.send(minibroker.Publish(topic="orders", payload=b"v"))
    assert peer.events() == [minibroker.Failed(reason=TEXT)]
    assert peer.is_closed


# ---- disabled users


def test_network_or_certificate_of_a_disabled_user_names_nobody(world: World) -> None:
    demand(world, principals=NETWORK)
    add_user(world, "batch", is_enabled=False)
    peer = Peer(world, service_of(world))
    peer.send(minibroker.Publish(topic="orders", payload=b"v"))
    assert peer.events() == [minibroker.Failed(reason=TEXT)]
    assert peer.is_closed
    add_user(world, "batch")
    assert Peer(world, service_of(world)).publish("orders", b"v") == [(0, 0)]


def test_connection_ends_when_its_network_names_another_caller(world: World) -> None:
    demand(world, principals=NETWORK)
    peer = Peer(world, service_of(world))
    assert peer.publish("orders", b"v") == [(0, 0)]
    rules = {"ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/"}
    world.apply(NodeConfigChanged(node_id=EVERY_NODE, config=rules))
    assert peer.publish("orders", b"v") == [(0, 1)]
    demand(world, principals=(("10.0.0.0/8", "others"),))
    world.apply(NodeConfigChanged(node_id=EVERY_NODE, config={}))
    world.settle()
    assert peer.is_closed


def test_caller_that_has_logged_in_needs_no_name(world: World) -> None:
    demand(world, principals=NETWORK)
    add_user(world, "alice", password="of-alice")
    world.broker.context.settings = Settings(sasl_insecure_clear_text=True)
    pipe = CursusPipe(world)
    assert pipe.ask("AUTH principal=alice token=of-alice").startswith("OK")
    demand(world)
    world.broker.logins.names_changed()
    assert pipe.ask("LIST").startswith("OK")
