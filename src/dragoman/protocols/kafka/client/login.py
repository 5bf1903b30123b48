"""How the client logs in: PLAIN, SCRAM-SHA-256 and -512 with a password, OAUTHBEARER with a token.

A broker may limit how long a login lasts (KIP-368). The client logs in again on the same connection
before that; other requests wait meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.client_core.credentials import resolved
from dragoman.errors import ConfigError
from dragoman.limits import SCRAM_CLIENT_ITERATIONS_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.errors import LoginFailedError
from dragoman.protocols.kafka.errors import ErrorCode

SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
#: Mechanisms whose messages are credentials themselves.
_CLEAR_TEXT: Final = frozenset(("PLAIN", "OAUTHBEARER"))
#: The share of a login's time after which the client logs in again.
_RENEWED_AFTER: Final = 0.85
_ABORT: Final = b"\x01"


class SaslLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of a client.

    `password` and a textual `token` may be references (`client_core.credentials`), which are
    resolved at each login. A callable `token` returns a fresh token; it runs in a thread.
    """

    mechanism: SaslMechanism = "SCRAM-SHA-256"
    name: str = ""
    password: str = ""
    token: str | Callable[[], str] = ""
    #: Of OAUTHBEARER (KIP-342).
    extensions: dict[str, str] = {}
    #: Whether PLAIN and OAUTHBEARER may be used without TLS with other machines.
    allow_clear_text: bool = False

    def __post_init__(self) -> None:
        if self.mechanism == "OAUTHBEARER":
            if not self.token:
                raise ConfigError("OAUTHBEARER: expected a token")
        elif not self.name or not self.password:
            raise ConfigError(f"{self.mechanism}: expected a name and a password")

    def __repr__(self) -> str:
        return f"SaslLogin(mechanism={self.mechanism!r}, name={self.name!r})"


#: Sends a request and returns the reply.
Ask: TypeAlias = Callable[[m.Message], Awaitable[m.Message | None]]
#: Yields the client's tokens, and is sent the broker's.
_Exchange: TypeAlias = Generator[bytes, bytes, None]


async def log_in(login: SaslLogin, ask: Ask, *, is_private: bool) -> float | None:
    """Log in. Returns the seconds after which to log in again; None: never.

    `is_private` says that nobody else can read the connection. Raises `LoginFailedError`,
    `ConfigError`, and what `ask` raises.
    """
    if login.mechanism in _CLEAR_TEXT and not is_private and not login.allow_clear_text:
        raise LoginFailedError(
            ErrorCode.ILLEGAL_SASL_STATE,
            f"{login.mechanism} sends credentials in clear: use TLS or SCRAM",
        )
    reply = await ask(m.SaslHandshakeRequest(mechanism=login.mechanism))
    assert isinstance(reply, m.SaslHandshakeResponse)
    if reply.error_code:
        offered = ", ".join(reply.mechanisms)
        text = f"the broker offers {offered}" if offered else "the listener takes no logins"
        raise LoginFailedError(reply.error_code, f"{login.mechanism}: {text}")
    exchange = await _exchange(login)
    lifetime_ms = 0
    token = next(exchange)
    is_over = False
    while not is_over:
        answer = await ask(m.SaslAuthenticateRequest(auth_bytes=token))
        assert isinstance(answer, m.SaslAuthenticateResponse)
        if answer.error_code:
            raise LoginFailedError(answer.error_code, answer.error_message)
        lifetime_ms = answer.session_lifetime_ms
        try:
            # The hash of a password takes milliseconds, or as long as the broker likes.
            token = await asyncio.to_thread(_next, exchange, answer.auth_bytes)
        except _OverError:
            is_over = True
    return lifetime_ms / 1000 * _RENEWED_AFTER if lifetime_ms > 0 else None


class _OverError(Exception):
    """`StopIteration` cannot be raised into a future."""


def _next(exchange: _Exchange, answer: bytes) -> bytes:
    try:
        return exchange.send(bytes(answer))
    except StopIteration:
        raise _OverError from None


async def _exchange(login: SaslLogin) -> _Exchange:
    match login.mechanism:
        case "PLAIN":
            return _plain(login.name, resolved(login.password))
        case "OAUTHBEARER":
            token = login.token
            text = await asyncio.to_thread(token) if callable(token) else resolved(token)
            return _bearer(text, login.extensions)
        case mechanism:
            return _scram(mechanism, login.name, resolved(login.password))


def _plain(name: str, password: str) -> _Exchange:
    yield f"\0{name}\0{password}".encode()


def _bearer(token: str, extensions: dict[str, str]) -> _Exchange:
    pairs = [f"auth=Bearer {token}", *(f"{key}={value}" for key, value in extensions.items())]
    challenge = yield "\x01".join(["n,,", *pairs, "", ""]).encode()
    if challenge:
        # The token was refused; the broker answers this with the error (RFC 7628).
        yield _ABORT


def _scram(mechanism: str, name: str, password: str) -> _Exchange:
    from scramp import ScramClient, ScramException

    try:
        client = ScramClient([mechanism], name, password)
        first = yield client.get_client_first().encode()
        _check_iterations(first)
        client.set_server_first(first.decode())
        final = yield client.get_client_final().encode()
        # Proves that the broker knows the user, too.
        client.set_server_final(final.decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise LoginFailedError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None


def _check_iterations(first: bytes) -> None:
    """Refuse to compute for hours."""
    for part in first.split(b","):
        value = part.removeprefix(b"i=")
        if value != part and (not value.isdigit() or int(value) > SCRAM_CLIENT_ITERATIONS_MAX):
            text = f"the broker asks for {value[:20]!r} iterations"
            raise LoginFailedError(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
