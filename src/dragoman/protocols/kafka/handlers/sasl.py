"""SaslHandshake (17), versions 0 and 1, and SaslAuthenticate (36), versions 0 to 2."""

from __future__ import annotations

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.session import Call


def handle_handshake(call: Call) -> None:
    call.session.login.shake_hands(call, call.decode(m.SaslHandshakeRequest))


def handle_authenticate(call: Call) -> None:
    call.session.login.authenticate(call, call.decode(m.SaslAuthenticateRequest))
