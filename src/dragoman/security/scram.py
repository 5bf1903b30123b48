"""The server's side of SCRAM (RFC 5802, RFC 7677), by the library `scramp`.

Two messages come and two go:

    client first     n,,n=NAME,r=NONCE              server first   r=NONCE+,s=SALT,i=ITERATIONS
    client final     c=biws,r=NONCE+,p=PROOF        server final   v=SIGNATURE

There is no channel binding: a client that requires one (`p=`) is refused, and one that would
support it (`y`) continues, as none is offered to it. The nonce of a server is random in each
exchange, so an exchange cannot be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, TypeAlias

from dragoman.errors import AuthenticationFailedError
from dragoman.limits import (
    SCRAM_ITERATIONS_MIN,
    SCRAM_MESSAGE_BYTES_MAX,
    SCRAM_NONCE_BYTES,
    SCRAM_SALT_BYTES,
)
from dragoman.security.access import Caller
from dragoman.security.passwords import Mechanism
from dragoman.security.users import ScramVerifier
from dragoman.world import Random

if TYPE_CHECKING:
    from scramp.core import ScramServer as Exchange

#: Finds the verifier of a name, which may take a computation.
VerifierOf: TypeAlias = Callable[[str], Coroutine[object, None, ScramVerifier]]
#: Decides on a name, whether the password is proven, and the verifier that was used.
Decide: TypeAlias = Callable[[str, bool, ScramVerifier], Coroutine[object, None, Caller]]
#: Gets the name, empty if none has come, and the reason of an exchange that ends undecided.
Refuse: TypeAlias = Callable[[str, str], None]


class ScramServer:
    """One exchange."""

    expires_ms = 0

    def __init__(
        self,
        mechanism: Mechanism,
        random: Random,
        verifier_of: VerifierOf,
        decide: Decide,
        refuse: Refuse,
    ) -> None:
        self._mechanism = mechanism
        self._random = random
        self._verifier_of = verifier_of
        self._decide = decide
        self._refuse = refuse
        self._exchange: Exchange | None = None
        self._name = ""
        self._verifier: ScramVerifier | None = None
        self._is_over = False
        #: The caller, once the exchange has succeeded.
        self.caller: Caller | None = None

    async def receive(self, message: bytes) -> bytes:
        """The reply to a message of the client; afterwards `caller` is set if it was the last.

        Raises `AuthenticationFailedError`.
        """
        from scramp.utils import ScramException

        was_over, self._is_over = self._is_over, True
        if was_over or len(message) > SCRAM_MESSAGE_BYTES_MAX:
            self._refuse(self._name, "unexpected message")
            raise AuthenticationFailedError(f"unexpected SCRAM message of {len(message)} bytes")
        exchange = self._exchange
        try:
            text = message.decode()
            if exchange is not None:
                return await self._final(exchange, text)
            reply = await self._first(text)
        except (ScramException, UnicodeDecodeError) as error:
            # Not the text of the error: it may have parts of the message.
            found = error.server_error if isinstance(error, ScramException) else None
            self._refuse(self._name, "malformed message" if found is None else str(found.value))
            raise AuthenticationFailedError(f"malformed SCRAM message: {error}") from None
        self._is_over = False
        return reply

    async def _first(self, text: str) -> bytes:
        from scramp.core import ScramMechanism

        nonce = self._random.randbytes(SCRAM_NONCE_BYTES).hex()
        mechanism = ScramMechanism(self._mechanism.value)
        # `scramp` cannot wait for a verifier, so the message is read once for its name alone.
        mechanism.make_server(self._named, s_nonce=nonce).set_client_first(text)
        found = self._verifier = await self._verifier_of(self._name)
        stored = found.salt, found.stored_key, found.server_key, found.iterations
        self._exchange = exchange = mechanism.make_server(lambda _: stored, s_nonce=nonce)
        exchange.set_client_first(text)
        return str(exchange.get_server_first()).encode()

    def _named(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name
        # `scramp` checks the size of salts, and the least number of iterations.
        return bytes(SCRAM_SALT_BYTES), b"", b"", SCRAM_ITERATIONS_MIN

    async def _final(self, exchange: Exchange, text: str) -> bytes:
        from scramp.utils import ScramException, ServerError

        assert self._verifier is not None
        try:
            exchange.set_client_final(text)
            is_proven = True
        except ScramException as error:
            if error.server_error is not ServerError.INVALID_PROOF:
                raise
            is_proven = False
        self.caller = await self._decide(self._name, is_proven, self._verifier)
        return str(exchange.get_server_final()).encode()
