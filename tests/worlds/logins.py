"""Users in a world, and listeners that require a login."""

from __future__ import annotations

import msgspec
from scramp import ScramClient

from dragoman.cluster.events import Event, UserChanged, UserRemoved
from dragoman.config.listeners import ListenerSecurity
from dragoman.config.settings import Settings
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.security.passwords import verifiers_of
from dragoman.security.users import User
from worlds.broker import Outcome, Wire, World

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
REQUIRED = ListenerSecurity(authentication="required", mechanisms=MECHANISMS)
OPTIONAL = ListenerSecurity(authentication="optional", mechanisms=MECHANISMS)


def secured(security: ListenerSecurity = REQUIRED, **settings: object) -> World:
    """A world whose connections have this security; clear text is offered to all."""
    fields = {"sasl_insecure_clear_text": True} | settings
    world = World(msgspec.structs.replace(Settings(), **fields))
    world.channels.security = lambda: security
    return world


def change(world: World, *events: Event) -> None:
    async def make() -> None:
        await world.broker.changes.make(lambda: list(events))

    outcome = Outcome()
    start(make()).then(outcome)
    world.settle()
    assert outcome.error is None, outcome.error


def add_user(
    world: World,
    name: str = "alice",
    password: str = "secret",
    incarnation: str = "1",
    *,
    is_enabled: bool = True,
) -> User:
    work = verifiers_of(password, world.broker.random, world.broker.logins.hasher, iterations=4096)
    user = User(
        name=name, incarnation=incarnation, is_enabled=is_enabled, scram=start(work).result()
    )
    change(world, UserChanged(user=user))
    return user


def remove_user(world: World, name: str = "alice") -> None:
    change(world, UserRemoved(name=name))


def handshake(wire: Wire, mechanism: str, version: int = 1) -> m.SaslHandshakeResponse:
    return wire.ask(m.SaslHandshakeRequest(mechanism=mechanism), version, m.SaslHandshakeResponse)


def authenticate(wire: Wire, token: bytes, version: int = 2) -> m.SaslAuthenticateResponse:
    return wire.ask(
        m.SaslAuthenticateRequest(auth_bytes=token), version, m.SaslAuthenticateResponse
    )


def plain(name: str, password: str) -> bytes:
    return f"\0{name}\0{password}".encode()


def log_in(
    wire: Wire, name: str = "alice", password: str = "secret", mechanism: str = "SCRAM-SHA-256"
) -> m.SaslAuthenticateResponse:
    """A complete login; returns the last response."""
    assert handshake(wire, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return authenticate(wire, plain(name, password))
    client = ScramClient([mechanism], name, password)
    first = authenticate(wire, client.get_client_first().encode())
    client.set_server_first(first.auth_bytes.decode())
    return authenticate(wire, client.get_client_final().encode())
