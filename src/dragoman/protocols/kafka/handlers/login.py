"""How a connection logs in, and how long its session lasts.

    SaslHandshake 1, mechanism      33, and the connection is closed: not offered here
    SaslAuthenticate, token         repeated as the mechanism needs; 58 and closed: refused
    any other request               as the caller that has logged in

After SaslHandshake 0 the tokens are frames without headers, and so are the replies; a refusal is a
closed connection. Before the login of a connection that has to log in, other requests than these
two and ApiVersions close it. A refusal is sent after `connection.failed.authentication.delay.ms`,
and nothing is read until then.

A connection may log in again (KIP-368), as the same principal with the same mechanism. Requests
that have begun keep their caller. The reply says for how long the session lasts; once that is over,
any request but these two closes the connection. Unlike in Kafka, a SCRAM exchange fails with its
last message, never with the first, which would reveal which users exist.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, Protocol

from dragoman.errors import AuthenticationFailedError, LoginsOverloadedError
from dragoman.limits import KAFKA_REAUTHENTICATION_INTERVAL_S, LOGIN_REFUSED_CLOSE_S
from dragoman.net.channel import Channel, Reason
from dragoman.outcome import ignore, pause, start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import Request
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.service import KafkaService
from dragoman.protocols.kafka.messages import Message
from dragoman.security.access import Caller
from dragoman.security.sasl import CLEAR_TEXT, SaslServer
from dragoman.types import Buffer

_TO_LOG_IN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_BEFORE_LOGIN: Final = _TO_LOG_IN | {ApiKey.API_VERSIONS}
_PROTOCOL: Final = "kafka"
#: The version of a request that is a token without a header.
_RAW: Final = -1


class Asked(Protocol):
    """A request in the queue of replies."""

    is_done: bool

    @property
    def version(self) -> int: ...

    def reply(self, message: Message) -> None: ...

    def reply_raw(self, buffers: list[Buffer]) -> None: ...


class Connection(Protocol):
    """The session of a connection."""

    caller: Caller
    channel: Channel

    @property
    def service(self) -> KafkaService: ...

    @property
    def must_log_in(self) -> bool: ...

    @property
    def is_private(self) -> bool: ...

    def begin(self, request: Request) -> Asked:
        """Give a request its place in the queue of replies."""
        ...

    def hold_back(self, call: Asked) -> None:
        """Begin no later request until this one is answered."""
        ...

    def log_in(self, caller: Caller) -> None:
        """Begin later requests as this caller."""
        ...

    def guard_changed(self) -> None:
        """What `Login.is_watching` says has changed."""
        ...

    def close(self) -> None:
        """Send the replies that are due, then close."""
        ...


class Login:
    """The logins of one connection."""

    __slots__ = (
        "_began_at",
        "_expires_at",
        "_is_raw",
        "_mechanism",
        "_refusal",
        "_server",
        "_session",
        "_wanted",
    )

    def __init__(self, session: Connection) -> None:
        self._session = session
        #: The exchange in progress, and its mechanism.
        self._server: SaslServer | None = None
        self._wanted = ""
        #: The reason why the next token will be refused.
        self._refusal = ""
        #: Whether tokens come without headers.
        self._is_raw = False
        #: The mechanism of the last login; empty before the first.
        self._mechanism = ""
        #: When the last handshake of a connection that had logged in began.
        self._began_at = 0.0
        #: When the session expires; None: never.
        self._expires_at: float | None = None

    @property
    def is_watching(self) -> bool:
        """Whether `take` must see each frame: before a required login, among raw tokens, and where
        a session expires.
        """
        return self._is_raw or self._expires_at is not None or self._session.must_log_in

    def take(self, backlog: deque[bytearray]) -> bool:
        """Take a frame that is a token, or that closes the connection; False: it is a request."""
        session = self._session
        if self._is_raw:
            self._take_token(backlog.popleft())
            return True
        api_key = int.from_bytes(backlog[0][:2], "big")
        if session.must_log_in:
            if api_key in _BEFORE_LOGIN:
                return False
            why = f"Unexpected Kafka request of type {api_key} during SASL handshake."
        elif self._is_expired and api_key not in _TO_LOG_IN:
            why = "the session has expired, and the client has not logged in again"
        else:
            return False
        session.channel.complain(why)
        session.channel.close()
        return True

    @property
    def _is_expired(self) -> bool:
        now = self._session.service.broker.clock.monotonic()
        return self._expires_at is not None and now >= self._expires_at

    # ---- requests

    def shake_hands(self, call: Asked, request: m.SaslHandshakeRequest) -> None:
        broker = self._session.service.broker
        offered = offered_mechanisms(self._session)
        now = broker.clock.monotonic()
        since = now - self._began_at
        too_soon = self._began_at > 0 and since < KAFKA_REAUTHENTICATION_INTERVAL_S
        if self._session.channel.security.authentication == "off" or too_soon:
            call.reply(m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
            return
        if request.mechanism not in offered:
            text = f"the SASL mechanism {request.mechanism!r:.50} is not offered here"
            self._refuse(
                call,
                text,
                m.SaslHandshakeResponse(
                    error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
                ),
            )
            return
        if self._mechanism:
            self._began_at = now
        self._server = None
        self._refusal = ""
        self._wanted = request.mechanism
        if self._mechanism and self._mechanism != request.mechanism:
            self._refusal = (
                f"SASL mechanism '{request.mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self._mechanism}'"
            )
        else:
            host = self._session.channel.peer_address[0]
            self._server = broker.logins.sasl_server(request.mechanism, host, _PROTOCOL)
        self._is_raw = call.version == 0
        call.reply(m.SaslHandshakeResponse(mechanisms=offered))
        self._session.guard_changed()

    def authenticate(self, call: Asked, request: m.SaslAuthenticateRequest) -> None:
        if self._server is None and not self._refusal:
            code = ErrorCode.ILLEGAL_SASL_STATE
            text = (
                "SaslAuthenticate request received after successful authentication"
                if self._mechanism
                else "this listener does not use SASL"
                if self._session.channel.security.authentication == "off"
                else "SaslAuthenticate request received before SaslHandshake"
            )
            reply = m.SaslAuthenticateResponse(error_code=code, error_message=text)
            if self._session.must_log_in:
                self._refuse(call, text, reply)
            else:
                call.reply(reply)
            return
        self._examine(call, bytes(request.auth_bytes))

    def _take_token(self, frame: bytearray) -> None:
        request = Request(ApiKey.SASL_AUTHENTICATE, _RAW, 0, None, frame, 0)
        self._examine(self._session.begin(request), bytes(frame))

    # ---- the exchange

    def _examine(self, call: Asked, token: bytes) -> None:
        # A request that is sent together with the token begins as the caller it logs in.
        self._session.hold_back(call)
        start(self._continue(call, token)).then(ignore)

    async def _continue(self, call: Asked, token: bytes) -> None:
        server = self._server
        try:
            if server is None:
                raise AuthenticationFailedError(self._refusal)
            reply = await server.receive(token)
        except AuthenticationFailedError as error:
            self._fail(call, self._text_of(error))
            return
        if call.is_done:
            # The connection is gone.
            return
        if server.caller is None:
            _answer(call, reply)
            return
        change = self._change_to(server.caller)
        if change:
            self._fail(call, change)
        else:
            _answer(call, reply, self._succeed(server, server.caller))

    def _text_of(self, error: AuthenticationFailedError) -> str:
        """The reason of a refusal, in Kafka's words."""
        is_said = self._wanted in CLEAR_TEXT or isinstance(error, LoginsOverloadedError)
        if is_said or self._refusal:
            return str(error)
        during = "re-authentication" if self._mechanism else "authentication"
        return (
            f"Authentication failed during {during} due to invalid credentials with SASL"
            f" mechanism {self._wanted}"
        )

    def _change_to(self, caller: Caller) -> str:
        """Why a login may not change the principal of the connection; empty if it does not."""
        before, after = self._session.caller.principal, caller.principal
        if not self._mechanism or before == after:
            return ""
        return (
            "Cannot change principals during re-authentication from"
            f" {before.kind}.{before.name}: {after.kind}.{after.name}"
        )

    def _succeed(self, server: SaslServer, caller: Caller) -> int:
        """Continue as a caller; returns the milliseconds that the session lasts, 0 for no end."""
        broker = self._session.service.broker
        self._server = None
        self._is_raw = False
        self._mechanism = self._wanted
        lifetime_ms = broker.settings.connections_max_reauth_ms
        if server.expires_ms:
            left_ms = max(1, server.expires_ms - broker.clock.wall_ms())
            lifetime_ms = min(lifetime_ms, left_ms) if lifetime_ms else left_ms
        now = broker.clock.monotonic()
        self._expires_at = now + lifetime_ms / 1000 if lifetime_ms else None
        self._session.log_in(caller)
        return lifetime_ms

    def _fail(self, call: Asked, text: str) -> None:
        response = m.SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text
        )
        # Raw tokens have no form for an error.
        self._refuse(call, text, None if call.version == _RAW else response)

    def _refuse(self, call: Asked, why: str, reply: Message | None) -> None:
        """Answer after a delay, and close."""
        self._server = None
        session = self._session
        session.hold_back(call)
        delay_ms = session.service.broker.settings.connection_failed_authentication_delay_ms

        async def later() -> None:
            if delay_ms:
                await pause(session.service.broker.scheduler, delay_ms / 1000)
            if call.is_done:
                return
            session.channel.complain(why, logging.INFO)
            if reply is not None:
                # Some clients lose a reply that arrives together with the end of the connection.
                session.channel.pause(Reason.READ_AHEAD)
                call.reply(reply)
                session.hold_back(call)
                await pause(session.service.broker.scheduler, LOGIN_REFUSED_CLOSE_S)
            session.close()

        start(later()).then(ignore)


def _answer(call: Asked, token: bytes, lifetime_ms: int = 0) -> None:
    if call.version == _RAW:
        call.reply_raw([len(token).to_bytes(4, "big") + token])
    else:
        call.reply(
            m.SaslAuthenticateResponse(
                error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms
            )
        )


def offered_mechanisms(session: Connection) -> list[str]:
    """The mechanisms that a client on this connection may use. Those that send credentials in
    clear need TLS, unless the client is on this machine.
    """
    offered = session.channel.security.mechanisms
    return [each for each in offered if session.is_private or each not in CLEAR_TEXT]
