"""Requests to an etcd that requires a user's password.

etcd gives a token for the password. Its tokens end a few minutes after their last use, and whenever
users or rights change: a request whose token is refused has had no effect, and is sent again, once,
with a new one. All requests share one token; while it is fetched, they wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import Stream
from dragoman.errors import DragomanError
from dragoman.outcome import Outcome, start

log = logging.getLogger("dragoman.etcd")
_PATH = "/v3/auth/authenticate"
#: Users or rights have changed since the token was made.
_OLD = "revision of auth store is old"


class Credentials(msgspec.Struct, frozen=True):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"


class _Login(msgspec.Struct, frozen=True):
    name: str
    password: str


class _Token(msgspec.Struct, frozen=True):
    token: str


_read_token = m.reader(_Token)


class Transport(Protocol):
    """A gateway whose requests can carry a token."""

    def request(
        self, method: str, path: str, body: bytes, timeout_s: float, *, token: str = ""
    ) -> Outcome[tuple[int, bytes]]: ...

    def stream(
        self,
        path: str,
        body: bytes,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
        *,
        token: str = "",
    ) -> Stream: ...


class AuthenticatedGateway:
    """A `Gateway` that logs in."""

    def __init__(self, transport: Transport, credentials: Callable[[], Credentials]) -> None:
        """`credentials` is called for each login, so that a new password is used at once. Raises
        `DragomanError` when the password cannot be read.
        """
        self._transport = transport
        self._credentials = credentials
        self._token = ""
        #: What waits for the token that is being fetched; None: no token is.
        self._waiting: list[Outcome[None]] | None = None
        self._problem = ""

    def request(
        self, method: str, path: str, body: bytes, timeout_s: float
    ) -> Outcome[tuple[int, bytes]]:
        return start(self._request(method, path, body, timeout_s))

    async def _request(
        self, method: str, path: str, body: bytes, timeout_s: float
    ) -> tuple[int, bytes]:
        used, answer = "", (0, b"")
        for _ in range(2):
            if self._token == used:
                refusal = await self._log_in(timeout_s)
                if refusal is not None:
                    return refusal
            used = self._token
            answer = await self._transport.request(method, path, body, timeout_s, token=used)
            if not _is_refused_token(*answer):
                break
            if self._token == used:
                self._token = ""
                used = ""
        return answer

    async def _log_in(self, timeout_s: float) -> tuple[int, bytes] | None:
        """Fetch a token, or wait for the one that is being fetched. Returns the answer that
        refuses it.
        """
        if self._waiting is not None:
            fetched: Outcome[None] = Outcome()
            self._waiting.append(fetched)
            await fetched
            return None if self._token else (0, b"etcd has accepted no login")
        self._waiting = []
        try:
            return await self._fetch(timeout_s)
        finally:
            waiting, self._waiting = self._waiting, None
            for each in waiting:
                each.succeed(None)

    async def _fetch(self, timeout_s: float) -> tuple[int, bytes] | None:
        try:
            credentials = self._credentials()
        except DragomanError as error:
            self._report(str(error))
            return 0, str(error).encode()
        login = m.encode(_Login(credentials.user, credentials.password))
        status, body = await self._transport.request("POST", _PATH, login, timeout_s)
        found = _read_token(body) if status == 200 else m.Failure("")
        if isinstance(found, _Token):
            self._token = found.token
            self._problem = ""
            return None
        if status and status != 200:
            self._report(f"user {credentials.user}: {m.read_failure(body).message}")
        return status if status != 200 else 0, body

    def _report(self, problem: str) -> None:
        """Log a problem once, not with each attempt."""
        if problem != self._problem:
            self._problem = problem
            log.error("etcd accepts no login: %s", problem)

    def stream(
        self,
        path: str,
        body: bytes,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> Stream:
        """With the token of the moment: requests, which renew it, come before streams and beside
        them.
        """
        return self._transport.stream(path, body, on_line, on_end, token=self._token)


def _is_refused_token(status: int, body: bytes) -> bool:
    if status not in (400, 401):
        return False
    failure = m.read_failure(body)
    return failure.code == m.UNAUTHENTICATED or _OLD in failure.message
