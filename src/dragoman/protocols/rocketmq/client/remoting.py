"""Connections by address, made when they are needed, and what is asked over them.

Requests of servers are answered by whoever registered for their code; others are refused. Nothing
is repeated here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from dragoman.client_core.errors import ClientClosedError, before_sending, unreachable
from dragoman.errors import DragomanError
from dragoman.framing import Scratch
from dragoman.limits import ROCKETMQ_CLIENT_SERVER_REQUESTS_MAX
from dragoman.protocols.rocketmq.client.errors import refusal
from dragoman.protocols.rocketmq.client.identity import Identity
from dragoman.protocols.rocketmq.client.link import Link
from dragoman.protocols.rocketmq.client.settings import (
    ClientSettings,
    split_address,
    vip_address,
)
from dragoman.protocols.rocketmq.client.signing import signed
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import IS_ONE_WAY, IS_RESPONSE, Response
from dragoman.types import Buffer

log = logging.getLogger("dragoman.client.rocketmq")

Fields: TypeAlias = Mapping[str, str | int | bool | None]
#: Given the address of the server; None when there is nothing to say.
Answer: TypeAlias = Callable[[str, Command], Awaitable[Command | None]]


class Remoting:
    """Owned by one event loop."""

    def __init__(self, settings: ClientSettings, identity: Identity) -> None:
        self._settings = settings
        self._identity = identity
        self._scratch = Scratch()
        self._links: dict[str, Link] = {}
        self._dialling: dict[str, asyncio.Lock] = {}
        self._answers: dict[int, Answer] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # ---- asking

    async def call(
        self,
        address: str,
        code: int,
        fields: Fields | None = None,
        body: Buffer = b"",
        *,
        timeout_s: float | None = None,
    ) -> Command:
        """The response. Raises `RocketmqError` unless it says success."""
        response = await self.ask(address, code, fields, body, timeout_s=timeout_s)
        if response.code != Response.SUCCESS:
            raise refusal(response, address)
        return response

    async def ask(
        self,
        address: str,
        code: int,
        fields: Fields | None = None,
        body: Buffer = b"",
        *,
        timeout_s: float | None = None,
    ) -> Command:
        """The response, whatever it says. Fields that are None are left out."""
        command = self._request(code, fields, body)
        link = await self._connected(address)
        response = await link.request(command, timeout_s or self._settings.request_timeout_s)
        assert response is not None
        return response

    async def tell(
        self,
        address: str,
        code: int,
        fields: Fields | None = None,
        body: Buffer = b"",
    ) -> None:
        """One way: returns when the bytes are on their way."""
        command = self._request(code, fields, body)
        command.flag = IS_ONE_WAY
        await (await self._connected(address)).request(command, self._settings.request_timeout_s)

    def _request(self, code: int, fields: Fields | None, body: Buffer) -> Command:
        settings = self._settings
        texts = {
            name: ("true" if value else "false") if isinstance(value, bool) else str(value)
            for name, value in (fields or {}).items()
            if value is not None
        }
        if settings.access_key:
            texts = signed(
                texts,
                body,
                access_key=settings.access_key,
                secret_key=settings.secret_key,
                security_token=settings.security_token,
            )
        return Command(code=code, fields=texts, body=body, serialization=settings.serialization)

    def broker(self, address: str) -> str:
        """Where a broker with this address is dialled."""
        return vip_address(address) if self._settings.vip_channel else address

    # ---- connections

    async def _connected(self, address: str) -> Link:
        link = self._links.get(address)
        if link is not None and link.is_open:
            return link
        # One lock for each address that is dialled at the moment or was: brokers are few.
        async with self._dialling.setdefault(address, asyncio.Lock()):
            if self._was_closed():
                raise before_sending(ClientClosedError("the client was closed"))
            link = self._links.get(address)
            if link is None or not link.is_open:
                link = await self._dial(address)
                if self._was_closed():
                    link.close()
                    raise before_sending(ClientClosedError("the client was closed"))
                self._links = {name: each for name, each in self._links.items() if each.is_open}
                self._links[address] = link
                self._identity.seen_from(link.local_ip)
            return link

    def _was_closed(self) -> bool:
        """Perhaps while something was waited for."""
        return self._is_closed

    async def _dial(self, address: str) -> Link:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        link = Link(
            address,
            scratch=self._scratch,
            loop=loop,
            in_flight_max=self._settings.in_flight_max,
            on_request=self._requested,
        )
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await loop.create_connection(lambda: link, host, port)
        except (OSError, TimeoutError) as error:
            raise unreachable(address, error) from None
        return link

    async def close(self) -> None:
        self._is_closed = True
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        for link in self._links.values():
            link.close(ClientClosedError("the client was closed"))
        # Sockets are closed in the loop's next turn; afterwards the loop may end.
        await asyncio.sleep(0)

    # ---- answering

    def on_request(self, code: int, answer: Answer) -> None:
        self._answers[code] = answer

    def _requested(self, link: Link, request: Command) -> None:
        answer = self._answers.get(request.code)
        if answer is None:
            text = f"request type {request.code} not supported"
            self._reply(link, request, Response.REQUEST_CODE_NOT_SUPPORTED, text)
        elif len(self._answering) >= ROCKETMQ_CLIENT_SERVER_REQUESTS_MAX:
            self._reply(link, request, Response.SYSTEM_BUSY, "too many requests at once")
        else:
            task = asyncio.create_task(self._answer(link, request, answer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, link: Link, request: Command, answer: Answer) -> None:
        try:
            response = await answer(link.address, request)
        except DragomanError as error:
            log.info("request %d of %s: %s", request.code, link.address, error)
            self._reply(link, request, Response.SYSTEM_ERROR, str(error))
        else:
            if response is not None:
                self._send_back(link, request, response)

    def _reply(self, link: Link, request: Command, code: int, remark: str) -> None:
        self._send_back(link, request, Command(code=code, remark=remark))

    def _send_back(self, link: Link, request: Command, response: Command) -> None:
        if request.is_one_way:
            return
        response.opaque = request.opaque
        response.flag = IS_RESPONSE
        response.serialization = request.serialization
        try:
            link.write(response)
        except DragomanError as error:
            log.info("answer to %s: %s", link.address, error)
