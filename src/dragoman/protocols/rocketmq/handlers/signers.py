"""The caller of each request: its signer or, for an unsigned request, the connection's caller.

A connection may carry the requests of several signers. The node knows the secret of a signer's
access key, which is the name of a user, and computes the signature again.

- The listener decides whether requests may (`optional`) or must (`required`) be signed. Without
  authentication (`off`), signatures are ignored.
- A request with an empty access key is unsigned: C++ clients sign with an empty one if they have
  none.
- A wrong signature is refused even where unsigned requests are served.
- All wrong signatures are refused with the same text, and unknown access keys, too.
- After wrong signatures from an address or for a user, the next signature from there or for that
  user is examined after a wait, as logins of other protocols are, unless its signer has signed
  another request of the connection rightly.
"""

from __future__ import annotations

from typing import Final, Protocol

from dragoman.broker.errors import Overloaded
from dragoman.limits import ROCKETMQ_SIGNERS_MAX, USER_NAME_BYTES_MAX
from dragoman.net.channel import Channel
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.service import RocketmqService
from dragoman.protocols.rocketmq.signatures import ACCESS_KEY, is_signed_with
from dragoman.security.access import Caller, Principal

_PROTOCOL: Final = "rocketmq"
#: The first version with users and rules in place of accounts: 5.0.0.
_HAS_USERS: Final = 413


class SigningSession(Protocol):
    """A connection, as this module uses it."""

    channel: Channel
    #: The caller of unsigned requests.
    caller: Caller
    signers: dict[str, Signer]

    @property
    def service(self) -> RocketmqService: ...

    @property
    def must_log_in(self) -> bool: ...

    def login_awaited(self) -> None: ...

    def refused_anonymous(self) -> None: ...

    def login_ended(self, reason: str) -> None: ...


class Signer:
    """A user that has signed requests of a connection. The connection ends with the user."""

    __slots__ = ("_session", "caller")

    def __init__(self, session: SigningSession, caller: Caller) -> None:
        self._session = session
        self.caller = caller

    def is_renamed(self) -> bool:
        return False

    def login_ended(self, reason: str) -> None:
        self._session.login_ended(reason)


def unproven_signer(session: SigningSession, request: Command) -> str:
    """The name of a request's signer; empty: it has none, or it has signed another request of the
    connection.
    """
    access_key = request.fields.get(ACCESS_KEY, "")
    return "" if access_key in session.signers else _name_of(access_key)


def _name_of(access_key: str) -> str:
    # No user has a longer name.
    return access_key[: USER_NAME_BYTES_MAX + 1]


def caller_of(session: SigningSession, request: Command) -> Caller:
    """Raises `Refused`."""
    access_key = request.fields.get(ACCESS_KEY)
    if access_key:
        return _signer(session, request, access_key)
    if session.must_log_in:
        session.refused_anonymous()
        raise unsigned(request.version)
    return session.caller


def _signer(session: SigningSession, request: Command, access_key: str) -> Caller:
    service = session.service
    secret = service.signing_secret(access_key)
    # An unknown access key costs as much as a wrong signature.
    key = service.no_secret if secret is None else secret
    is_right = is_signed_with(key, request.fields, request.body, request.version)
    known = session.signers.get(access_key)
    if known is not None and secret is not None and is_right:
        return known.caller
    is_right = is_right and secret is not None
    caller = Caller(Principal("User", _name_of(access_key)), session.caller.host, is_right)
    logins = service.broker.logins
    logins.signature_checked(caller, _PROTOCOL, is_right=is_right)
    if not is_right:
        if known is not None:
            # Its next signature waits like that of any other.
            logins.closed(session.signers.pop(access_key))
        raise _wrong(request.version, access_key)
    if len(session.signers) >= ROCKETMQ_SIGNERS_MAX:
        raise Overloaded(f"a connection has at most {ROCKETMQ_SIGNERS_MAX} signers")
    signer = session.signers[access_key] = Signer(session, caller)
    logins.opened(signer)
    session.login_awaited()
    return caller


def unsigned(version: int) -> Refused:
    if version < _HAS_USERS:
        return Refused(Response.SYSTEM_ERROR, "No accessKey is configured")
    return Refused(Response.NO_PERMISSION, "username cannot be null.")


def _wrong(version: int, access_key: str) -> Refused:
    if version < _HAS_USERS:
        text = f"Check signature failed for accessKey={access_key[:100]}"
        return Refused(Response.SYSTEM_ERROR, text)
    return Refused(Response.NO_PERMISSION, "check signature failed.")
