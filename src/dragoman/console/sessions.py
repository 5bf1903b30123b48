"""Logins of the console: who they are, and for how long.

A session is named by a random text in a cookie, and holds what its user has logged in with: the
nodes check it with every request, so a user who is disabled or whose password changes is out at
once. It ends after a time without requests, after a day in any case, and with the process. A login
makes a new session, so that a name that was planted before it is worth nothing.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from typing import Final

from dragoman.console.errors import ConsoleError

IDLE_S: Final = 30 * 60
LIFE_S: Final = 12 * 60 * 60
SESSIONS_MAX: Final = 1000
_NAME_BYTES: Final = 32


class TooManySessionsError(ConsoleError):
    code = "overloaded"
    status = 503


class Session:
    __slots__ = ("authorization", "ends_at", "last_used", "password", "user")

    def __init__(self, user: str, password: str, authorization: str, now: float) -> None:
        #: Empty for the bearer of a token.
        self.user = user
        #: What the user logs in to Kafka's listener with; empty for the bearer of a token.
        self.password = password
        #: The header of requests to the node.
        self.authorization = authorization
        self.last_used = now
        self.ends_at = now + LIFE_S

    def __repr__(self) -> str:
        return f"<Session of {self.user or 'a token'}>"


class Sessions:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: By the hash of the name: a copy of this memory opens no session.
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open_password(self, user: str, password: str) -> str:
        """The name of a new session. Raises `TooManySessionsError`."""
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        return self._open(Session(user, password, f"Basic {basic}", self._monotonic()))

    def open_token(self, token: str) -> str:
        """The name of a new session. Raises `TooManySessionsError`."""
        return self._open(Session("", "", f"Bearer {token}", self._monotonic()))

    def _open(self, session: Session) -> str:
        self._end_old()
        if len(self._sessions) >= SESSIONS_MAX:
            raise TooManySessionsError(f"{SESSIONS_MAX} users are logged in; try again later")
        name = secrets.token_urlsafe(_NAME_BYTES)
        self._sessions[_hashed(name)] = session
        return name

    def find(self, name: str) -> Session | None:
        """The session of a cookie, whose use this is."""
        session = self._sessions.get(_hashed(name))
        if session is None:
            return None
        now = self._monotonic()
        if _is_over(session, now):
            self.close(name)
            return None
        session.last_used = now
        return session

    def is_open(self, session: Session) -> bool:
        """Whether a session still is, which is a use of it: what asks is shown to its user."""
        now = self._monotonic()
        if session not in self._sessions.values() or _is_over(session, now):
            return False
        session.last_used = now
        return True

    def close(self, name: str) -> None:
        self._sessions.pop(_hashed(name), None)

    def _end_old(self) -> None:
        now = self._monotonic()
        for key in [key for key, each in self._sessions.items() if _is_over(each, now)]:
            del self._sessions[key]


def _is_over(session: Session, now: float) -> bool:
    return now >= session.ends_at or now - session.last_used >= IDLE_S


def _hashed(name: str) -> bytes:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
