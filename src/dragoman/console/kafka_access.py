"""How the console connects to Kafka's listener for a user: the login, and TLS.

The listener is asked which mechanisms it offers, and the best one that takes a password is used. A
user whom Kafka's own tools have made may have a verifier of one mechanism only: where several are
offered, they are tried in turn, once for a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from dragoman.client.kafka import (
    ClientSettings,
    KafkaClient,
    LoginFailedError,
    SaslLogin,
    TlsSettings,
    offered_mechanisms,
)
from dragoman.client_core.credentials import is_reference
from dragoman.config.console import PASSWORD_MECHANISMS, KafkaTarget, PasswordMechanism
from dragoman.console.errors import ConsoleError
from dragoman.console.sessions import Session

#: The mechanisms that a listener offers.
Offered: TypeAlias = Callable[[str, ClientSettings], Awaitable[Sequence[str]]]
OPEN_TIMEOUT_S: Final = 10.0
OPERATION_TIMEOUT_S: Final = 15.0


class KafkaAccessError(ConsoleError):
    """The console cannot read records here, or not as this user."""

    code = "kafka_access"
    status = 403


class KafkaAccess:
    def __init__(self, target: KafkaTarget, offered: Offered = offered_mechanisms) -> None:
        self._target = target
        self._offered = offered
        self._settings = ClientSettings(
            client_id="dragoman-console",
            connect_timeout_s=OPEN_TIMEOUT_S,
            operation_timeout_s=OPERATION_TIMEOUT_S,
            tls=_tls(target),
        )

    @property
    def bootstrap(self) -> str:
        return self._target.bootstrap

    def check(self) -> None:
        """Raises `KafkaAccessError` where no user can read records."""
        if not self._target.bootstrap:
            raise KafkaAccessError(
                "the node has no listener for Kafka's protocol, by which the console reads records"
            )
        if self._target.obstacle:
            raise KafkaAccessError(self._target.obstacle)

    async def settings(self, session: Session | None) -> ClientSettings:
        """What a client for a user connects with. Raises `ConsoleError`, and what the raw client
        raises.
        """
        self.check()
        login = None if session is None else await self._login(session)
        if login is None and self._target.certificate:
            raise KafkaAccessError(
                "without a login, Kafka's listener would take everyone for the owner of the"
                " console's certificate"
            )
        return msgspec.structs.replace(self._settings, login=login)

    async def _login(self, session: Session) -> SaslLogin | None:
        if session.mechanism is not None:
            return _login(session, session.mechanism)
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            offered = await self._offered(self._target.bootstrap, self._settings)
            if not offered:
                return None
            _check_password(session)
            usable = [each for each in PASSWORD_MECHANISMS if each in offered]
            if not usable:
                raise KafkaAccessError(
                    f"Kafka's listener takes logins by {' and '.join(offered)} only, which need"
                    " more than a password"
                )
            session.mechanism = await self._working(session, usable)
        return _login(session, session.mechanism)

    async def _working(
        self, session: Session, usable: Sequence[PasswordMechanism]
    ) -> PasswordMechanism:
        *others, last = usable
        for mechanism in others:
            settings = msgspec.structs.replace(self._settings, login=_login(session, mechanism))
            client = KafkaClient(self._target.bootstrap, settings)
            try:
                await client.open()
            except LoginFailedError:
                continue
            finally:
                await client.close()
            return mechanism
        return last


def _check_password(session: Session) -> None:
    if not session.user:
        raise KafkaAccessError(
            "an API token cannot log in to the listener for Kafka's protocol, by which the console"
            " reads records: log in with a user and a password"
        )
    if is_reference(session.password):
        # The client would log in with what is in that place.
        raise KafkaAccessError(
            "a password that begins with file: or env: cannot log in to the listener for Kafka's"
            " protocol, by which the console reads records"
        )


def _login(session: Session, mechanism: PasswordMechanism) -> SaslLogin:
    return SaslLogin(mechanism=mechanism, name=session.user, password=session.password)


def _tls(target: KafkaTarget) -> TlsSettings | None:
    if not target.is_encrypted:
        return None
    return TlsSettings(ca=target.authorities, certificate=target.certificate, key=target.key)
