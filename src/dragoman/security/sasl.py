"""The server's side of a SASL exchange (RFC 4422), whatever the mechanism and the protocol.

A server takes the client's messages one by one and returns the replies. It knows its caller when
the exchange has succeeded; a failed one takes no further message.
"""

from __future__ import annotations

from typing import Final, Protocol

from dragoman.errors import AuthenticationFailedError, LoginsOverloadedError
from dragoman.security.access import Caller

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
#: Mechanisms whose messages are the credentials themselves: a reader of them can log in.
CLEAR_TEXT: Final = frozenset({PLAIN, OAUTHBEARER})


class SaslServer(Protocol):
    #: The caller, once the exchange has succeeded.
    caller: Caller | None
    #: When the credential of the caller expires, in milliseconds since 1970; 0: never.
    expires_ms: int

    async def receive(self, message: bytes) -> bytes:
        """The reply to a message of the client. Raises `AuthenticationFailedError`."""
        ...


class PasswordCheck(Protocol):
    async def __call__(self, name: str, password: bytes) -> Caller:
        """Raises `AuthenticationFailedError`."""
        ...


class PlainServer:
    """PLAIN (RFC 4616): one message with name and password, `[AUTHZID] NUL NAME NUL PASSWORD`.

    A client may name the identity it wants to act as, but only if that is its own.
    """

    expires_ms = 0

    def __init__(self, check: PasswordCheck) -> None:
        self._check = check
        self._is_over = False
        self.caller: Caller | None = None

    async def receive(self, message: bytes) -> bytes:
        # The texts are those of Kafka's PlainSaslServer.
        if self._is_over:
            raise AuthenticationFailedError("Authentication failed: the exchange is over")
        self._is_over = True
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationFailedError(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        acting_as, raw_name, password = parts
        try:
            name = raw_name.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailedError(_WRONG) from None
        if not name:
            raise AuthenticationFailedError("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailedError("Authentication failed: password not specified")
        if acting_as and acting_as != raw_name:
            raise AuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different"
                " from username"
            )
        try:
            self.caller = await self._check(name, password)
        except LoginsOverloadedError:
            raise
        except AuthenticationFailedError:
            raise AuthenticationFailedError(_WRONG) from None
        return b""


_WRONG: Final = "Authentication failed: Invalid username or password"
