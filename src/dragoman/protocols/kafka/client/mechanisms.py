"""Which SASL mechanisms a listener offers, asked before there is a login."""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.client_core.addresses import parse_addresses
from dragoman.client_core.errors import ClientClosedError, ClientError
from dragoman.framing import Scratch
from dragoman.operating_system import system_random
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.values import DEFAULT_PORT, ClientSettings

#: A broker answers with all that it offers. One that does not offer this one answers, too, and
#: closes the connection.
_ASKED_FOR: Final = "SCRAM-SHA-512"
#: Version 0 has tokens follow that are no requests.
_VERSION: Final = 1


async def offered_mechanisms(bootstrap: str, settings: ClientSettings) -> tuple[str, ...]:
    """The mechanisms that the first broker which answers offers to this client, over TLS or not;
    empty: its listener takes no logins. Raises `ClientError`, and `ConfigError` for certificates
    that cannot be used.
    """
    anonymous = msgspec.structs.replace(settings, login=None)
    failure: ClientError | None = None
    for address in parse_addresses((bootstrap,), default_port=DEFAULT_PORT):
        broker = Broker(address, anonymous, Scratch(), system_random())
        try:
            request = m.SaslHandshakeRequest(mechanism=_ASKED_FOR)
            reply = await broker.ask(m.SaslHandshakeResponse, request, newest=_VERSION)
            return tuple(reply.mechanisms)
        except ClientError as error:
            failure = failure or error
        finally:
            broker.close(ClientClosedError("the listener was asked"))
    assert failure is not None
    raise failure
