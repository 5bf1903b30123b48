"""A Kafka client for each session, which logs in as its user.

A client serves all searches of its session. It is closed when the session has ended, when it was
not used for a while, or to make room for another one. A tail has a client of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from dragoman.client.kafka import ClientError, KafkaClient, LoginFailedError
from dragoman.console.errors import ConsoleError
from dragoman.console.kafka_access import OPEN_TIMEOUT_S, KafkaAccess
from dragoman.console.records.failures import failure_of
from dragoman.console.sessions import Session
from dragoman.errors import DragomanError
from dragoman.limits import CONSOLE_KAFKA_CLIENTS_MAX

IDLE_S: Final = 120.0


class _Held:
    def __init__(self, session: Session | None, now: float) -> None:
        self.session = session
        #: None: it is not open.
        self.client: KafkaClient | None = None
        self.users = 0
        self.last_used = now
        #: Requests that come at the same time wait for one login.
        self.opening = asyncio.Lock()


class Clients:
    def __init__(
        self,
        access: KafkaAccess,
        is_open: Callable[[Session], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._access = access
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
                client = held.client or await self._open(held)
            yield client
        finally:
            held.users -= 1
            held.last_used = self._monotonic()
            if held.client is None:
                await self._drop(held)

    @asynccontextmanager
    async def own(self, session: Session | None) -> AsyncIterator[KafkaClient]:
        """A client for one request alone. Raises `ConsoleError`."""
        held = _Held(session, self._monotonic())
        try:
            yield await self._open(held)
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
        self._access.check()
        if len(self._held) >= CONSOLE_KAFKA_CLIENTS_MAX:
            free = [each for each in self._held.values() if not each.users]
            if not free:
                raise TooManyClientsError(
                    f"{CONSOLE_KAFKA_CLIENTS_MAX} users read records; try again later"
                )
            await self._drop(min(free, key=lambda each: each.last_used))
        held = _Held(session, self._monotonic())
        self._held[id(session)] = held
        return held

    async def _open(self, held: _Held) -> KafkaClient:
        session = held.session
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                client = KafkaClient(self._access.bootstrap, await self._access.settings(session))
                try:
                    held.client = await client.open()
                finally:
                    if held.client is None:
                        await client.close()
        except (DragomanError, OSError) as error:
            if session is not None and isinstance(error, LoginFailedError):
                # The listener may offer others by now.
                session.mechanism = None
            raise failure_of(error, has_session=session is not None) from None
        return client

    async def _drop(self, held: _Held) -> None:
        if self._held.get(id(held.session)) is held:
            del self._held[id(held.session)]
        client, held.client = held.client, None
        if client is not None:
            with suppress(ClientError):
                await client.close()


class TooManyClientsError(ConsoleError):
    code = "overloaded"
    status = 503
