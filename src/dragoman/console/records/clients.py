"""A Kafka client for each session, which logs in as its user.

A client serves all searches of its session. It is closed when the session has ended, when it was
not used for a while, or to make room for another one. A tail has a client of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

from dragoman.client.kafka import (
    ClientError,
    ClientSettings,
    KafkaClient,
    SaslLogin,
    SaslMechanism,
    TlsSettings,
)
from dragoman.client_core.credentials import is_reference
from dragoman.config.console import KafkaTarget
from dragoman.console.errors import ConsoleError
from dragoman.console.records.failures import KafkaAccessError, failure_of
from dragoman.console.sessions import Session
from dragoman.limits import CONSOLE_KAFKA_CLIENTS_MAX

IDLE_S: Final = 120.0
_OPEN_TIMEOUT_S: Final = 10.0
_OPERATION_TIMEOUT_S: Final = 15.0


class _Held:
    def __init__(self, session: Session | None, client: KafkaClient, now: float) -> None:
        self.session = session
        self.client = client
        self.users = 0
        self.last_used = now
        #: Requests that come at the same time wait for one login.
        self.opening = asyncio.Lock()
        self.is_open = False


class Clients:
    def __init__(
        self,
        target: KafkaTarget,
        is_open: Callable[[Session], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._target = target
        self._is_open = is_open
        self._monotonic = monotonic
        self._held: dict[int, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    @asynccontextmanager
    async def use(self, session: Session | None) -> AsyncIterator[KafkaClient]:
        """The client of a session, or of callers without one. Raises `ConsoleError`."""
        await self.close_old()
        held = await self._of(session)
        held.users += 1
        try:
            async with held.opening:
                if not held.is_open:
                    await self._open(held)
            yield held.client
        finally:
            held.users -= 1
            held.last_used = self._monotonic()
            if not held.is_open:
                await self._drop(held)

    @asynccontextmanager
    async def own(self, session: Session | None) -> AsyncIterator[KafkaClient]:
        """A client for one request alone. Raises `ConsoleError`."""
        held = _Held(session, self._new(session), self._monotonic())
        try:
            await self._open(held)
            yield held.client
        finally:
            await self._drop(held)

    async def close_old(self) -> None:
        """Close the clients of sessions that have ended, and those that are not in use."""
        now = self._monotonic()
        for held in list(self._held.values()):
            is_over = held.session is not None and not self._is_open(held.session)
            is_idle = not held.users and now - held.last_used >= IDLE_S
            if is_over or is_idle:
                await self._drop(held)

    async def close(self) -> None:
        for held in list(self._held.values()):
            await self._drop(held)

    # ---- one client

    async def _of(self, session: Session | None) -> _Held:
        held = self._held.get(id(session))
        if held is not None:
            return held
        client = self._new(session)
        if len(self._held) >= CONSOLE_KAFKA_CLIENTS_MAX:
            free = [each for each in self._held.values() if not each.users]
            if not free:
                raise TooManyClientsError(
                    f"{CONSOLE_KAFKA_CLIENTS_MAX} users read records; try again later"
                )
            await self._drop(min(free, key=lambda each: each.last_used))
        held = _Held(session, client, self._monotonic())
        self._held[id(session)] = held
        return held

    def _new(self, session: Session | None) -> KafkaClient:
        """Raises `KafkaAccessError`."""
        target = self._target
        if not target.bootstrap:
            raise KafkaAccessError(
                "the node has no listener for Kafka's protocol, by which the console reads records"
            )
        if target.obstacle:
            raise KafkaAccessError(target.obstacle)
        login = None
        if target.mechanism and session is not None:
            if not session.user:
                raise KafkaAccessError(
                    "an API token cannot log in to the listener for Kafka's protocol, by which the "
                    "console reads records: log in with a user and a password"
                )
            if is_reference(session.password):
                # The client would log in with what is in that place.
                raise KafkaAccessError(
                    "a password that begins with file: or env: cannot log in to the listener for "
                    "Kafka's protocol, by which the console reads records"
                )
            login = SaslLogin(
                mechanism=cast("SaslMechanism", target.mechanism),
                name=session.user,
                password=session.password,
            )
        tls = TlsSettings(ca=target.authorities) if target.is_encrypted else None
        settings = ClientSettings(
            client_id="dragoman-console",
            connect_timeout_s=_OPEN_TIMEOUT_S,
            operation_timeout_s=_OPERATION_TIMEOUT_S,
            login=login,
            tls=tls,
        )
        return KafkaClient(target.bootstrap, settings)

    async def _open(self, held: _Held) -> None:
        try:
            async with asyncio.timeout(_OPEN_TIMEOUT_S):
                await held.client.open()
        except (ClientError, OSError, TimeoutError) as error:
            raise failure_of(error, has_session=held.session is not None) from None
        held.is_open = True

    async def _drop(self, held: _Held) -> None:
        if self._held.get(id(held.session)) is held:
            del self._held[id(held.session)]
        with suppress(ClientError):
            await held.client.close()


class TooManyClientsError(ConsoleError):
    code = "overloaded"
    status = 503
