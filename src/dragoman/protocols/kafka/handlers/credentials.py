"""SaslHandshake (17), SaslAuthenticate (36), DescribeUserScramCredentials (50),
AlterUserScramCredentials (51): nobody has to authenticate, and there are no users.

A listener without authentication answers the first two as Kafka's does, with ILLEGAL_SASL_STATE; a
client that was set up for SASL then says so, instead of waiting.
"""

from __future__ import annotations

from collections import Counter
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


def handle_describe(call: Call) -> None:
    request = call.decode(m.DescribeUserScramCredentialsRequest)
    named = Counter(each.name for each in request.users or ())
    results = []
    for name, count in named.items():
        code = ErrorCode.RESOURCE_NOT_FOUND if count == 1 else ErrorCode.DUPLICATE_RESOURCE
        results.append(
            m.DescribeUserScramCredentialsResponseUser(
                user=name, error_code=code, error_message=code.text
            )
        )
    call.reply(m.DescribeUserScramCredentialsResponse(error_message=None, results=results))


def handle_alter(call: Call) -> None:
    request = call.decode(m.AlterUserScramCredentialsRequest)
    # What cannot be deleted is not there; what cannot be stored, could not be used either.
    codes = {each.name: ErrorCode.RESOURCE_NOT_FOUND for each in request.deletions}
    codes |= {each.name: ErrorCode.SECURITY_DISABLED for each in request.upsertions}
    call.reply(
        m.AlterUserScramCredentialsResponse(
            results=[
                m.AlterUserScramCredentialsResponseUser(
                    user=name, error_code=code, error_message=code.text
                )
                for name, code in codes.items()
            ]
        )
    )
