"""Logins of Cursus connections: AUTH, and credentials among the arguments of any other command.

As in the original, both log the connection in: its later commands and batches are the user's. A
failed login changes nothing. The text of a refusal is the same for unknown users and wrong
passwords. Commands wait for a login before them on their connection (`session.py`).
"""

from __future__ import annotations

from typing import Final, Protocol

from dragoman.errors import AuthenticationFailedError, LoginsOverloadedError
from dragoman.limits import PASSWORD_BYTES_MAX, USER_NAME_BYTES_MAX
from dragoman.net.channel import Channel
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.messages import Command
from dragoman.security.access import Caller

#: Commands that need no login, and whose arguments are no credentials.
OPEN_COMMANDS: Final = frozenset(("AUTH", "HELP", "NEGOTIATE", "PROTOCOL_INFO"))
FAILED: Final = "authentication_failed mechanism=PLAIN"
_CREDENTIALS: Final = ("principal", "auth_token")


class Session(Protocol):
    """A connection, as this module uses it."""

    channel: Channel
    caller: Caller

    @property
    def service(self) -> CursusService: ...

    @property
    def is_private(self) -> bool: ...

    def log_in(self, caller: Caller) -> None: ...


def credentials_of(command: Command) -> tuple[str, str] | None:
    """Name and password among the arguments, if there are any. Raises `Refusal`."""
    name, password = (command.arguments.get(each, "") for each in _CREDENTIALS)
    if not name and not password:
        return None
    if not name or not password:
        raise Refusal("invalid_auth reason=principal_and_auth_token_required")
    return name, password


def without_credentials(command: Command) -> Command:
    """The command for another node, which need not know the password."""
    kept = {name: value for name, value in command.arguments.items() if name not in _CREDENTIALS}
    return Command(
        word=command.word,
        arguments=kept,
        message=command.message,
        last=command.last,
        is_positional=command.is_positional,
    )


def login_required(word: str) -> Refusal:
    return Refusal(f"authentication_required command={word}")


async def log_in(session: Session, name: str, password: str) -> None:
    """Raises `Refusal`."""
    if not session.is_private:
        raise Refusal(f'{FAILED} reason="passwords need TLS"')
    logins = session.service.broker.logins
    # Longer ones are wrong in any case, and must cost no more than others.
    name, password = name[: USER_NAME_BYTES_MAX + 1], password[: PASSWORD_BYTES_MAX + 1]
    try:
        caller = await logins.password(
            name, password, session.caller.host, protocol="cursus", mechanism="plain"
        )
    except LoginsOverloadedError as error:
        raise Refusal(f"router_not_available reason={quoted(str(error))}") from None
    except AuthenticationFailedError:
        raise Refusal(FAILED) from None
    if not session.channel.is_closing:
        session.log_in(caller)
