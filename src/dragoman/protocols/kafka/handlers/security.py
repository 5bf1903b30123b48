"""SaslHandshake (17) and SaslAuthenticate (36).

A listener without SASL answers both with ILLEGAL_SASL_STATE, as in Kafka: a client that is
configured for SASL then reports an error instead of waiting.
"""

from __future__ import annotations

from typing import Final

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.session import Call

_NO_SASL: Final = "this listener does not use SASL"


def handle_handshake(call: Call) -> None:
    call.request.decode()
    call.reply(m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def handle_authenticate(call: Call) -> None:
    call.request.decode()
    call.reply(
        m.SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL)
    )
