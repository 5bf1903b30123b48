"""Goal: a listener without SASL says so, in the form each request has for it."""

from __future__ import annotations

import pytest

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from worlds.broker import Wire
from worlds.kafka_admin import ends


@pytest.mark.parametrize("version", ends(ApiKey.SASL_HANDSHAKE))
def test_handshake_on_a_listener_without_sasl(wire: Wire, version: int) -> None:
    found = wire.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), version, m.SaslHandshakeResponse)
    assert (found.error_code, found.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", ends(ApiKey.SASL_AUTHENTICATE))
def test_authentication_on_a_listener_without_sasl(wire: Wire, version: int) -> None:
    request = m.SaslAuthenticateRequest(auth_bytes=b"\0a\0b")
    found = wire.ask(request, version, m.SaslAuthenticateResponse)
    assert (found.error_code, found.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
    assert found.error_message
    # The connection works as before.
    assert not wire.is_closed
