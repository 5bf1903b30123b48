"""Listeners that require a login, and logins of Kafka clients. The users are of `worlds.users`."""

from __future__ import annotations

import msgspec
from scramp import ScramClient

from dragoman.config.listeners import ListenerSecurity
from dragoman.config.settings import Settings
from dragoman.protocols.kafka import messages as m
from worlds.broker import Wire, World

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
REQUIRED = ListenerSecurity(authentication="required", mechanisms=MECHANISMS)
OPTIONAL = ListenerSecurity(authentication="optional", mechanisms=MECHANISMS)


def secured(security: ListenerSecurity = REQUIRED, **settings: object) -> World:
    """A world whose connections have this security; clear text is offered to all."""
    fields = {"sasl_insecure_clear_text": True} | settings
    world = World(msgspec.structs.replace(Settings(), **fields))
    world.channels.security = security
    return world


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
