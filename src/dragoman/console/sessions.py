"""Logins of the console: who they are, and for how long.

A session is named by a random text in a cookie, and holds what its user has logged in with: the
nodes check it with every request, so a user who is disabled or whose password changes is out at
once. It ends after a time without requests, after a longer one in any case, and with the process. A
login makes a new session, so that a name that was planted before it is worth nothing.

Only what the node has accepted becomes a session. A user who logs in once too often loses the
session that was not used for longest.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dragoman.config.console import PasswordMechanism
from dragoman.console.errors import ConsoleError

SESSIONS_MAX: Final = 1000
#: Of one user, or of one token.
USER_SESSIONS_MAX: Final = 20
_NAME_BYTES: Final = 32


class TooManySessionsError(ConsoleError):
    code = "overloaded"
    status = 503


class Session:
    __slots__ = ("authorization", "last_used", "mechanism", "password", "since", "user")

    def __init__(self, user: str, password: str, authorization: str) -> None:
        #: Empty for the bearer of a token.
        self.user = user
        #: What the user logs in to Kafka's listener with; empty for the bearer of a token.
        self.password = password
        #: The header of requests to the node.
        self.authorization = authorization
        #: The SASL mechanism by which this user has logged in to Kafka's listener; None: not yet.
        self.mechanism: PasswordMechanism | None = None
        self.since = 0.0
        self.last_used = 0.0

    @classmethod
    def of_password(cls, user: str, password: str) -> Session:
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        return cls(user, password, f"Basic {basic}")

    @classmethod
    def of_token(cls, token: str) -> Session:
        return cls("", "", f"Bearer {token}")

    def __repr__(self) -> str:
        return f"<Session of {self.user or 'a token'}>"

    @property
    def owner(self) -> str:
        """What a bound counts sessions by."""
        return self.user or self.authorization


class Sessions:
    def __init__(self, monotonic: Callable[[], float], idle_s: float, life_s: float) -> None:
        self._monotonic = monotonic
        self._idle_s = idle_s
        self._life_s = life_s
        #: By the hash of the name: a copy of this memory opens no session.
        self._sessions: dict[bytes, Session] = {}
        #: What is called when a session ends, by the session.
        self._watchers: dict[Session, set[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def are_open(self) -> bool:
        """Whether there is a session that has not expired."""
        self._end_old()
        return bool(self._sessions)

    def open(self, session: Session) -> str:
        """The name of a session, which begins now. Raises `TooManySessionsError`."""
        self._end_old()
        others = [key for key, each in self._sessions.items() if each.owner == session.owner]
        if len(others) >= USER_SESSIONS_MAX:
            self._end(min(others, key=lambda key: self._sessions[key].last_used))
        if len(self._sessions) >= SESSIONS_MAX:
            raise TooManySessionsError(f"{SESSIONS_MAX} users are logged in; try again later")
        session.since = session.last_used = self._monotonic()
        name = secrets.token_urlsafe(_NAME_BYTES)
        self._sessions[_hashed(name)] = session
        return name

    def find(self, name: str) -> Session | None:
        """The session of a cookie, whose use this is."""
        key = _hashed(name)
        session = self._sessions.get(key)
        if session is None:
            return None
        if self._is_over(session):
            self._end(key)
            return None
        session.last_used = self._monotonic()
        return session

    def is_open(self, session: Session) -> bool:
        return session in self._sessions.values() and not self._is_over(session)

    def use(self, session: Session) -> bool:
        """Whether a session is open. Its user sees what is asked for here, so it does not idle."""
        if not self.is_open(session):
            return False
        session.last_used = self._monotonic()
        return True

    @contextmanager
    def ending(self, session: Session | None, ended: Callable[[], None]) -> Iterator[None]:
        """Call `ended` once the session is over; at once if it is already."""
        if session is None:
            yield
            return
        watchers = self._watchers.setdefault(session, set())
        watchers.add(ended)
        if session not in self._sessions.values():
            ended()
        try:
            yield
        finally:
            watchers.discard(ended)
            if not watchers:
                self._watchers.pop(session, None)

    def close(self, name: str) -> None:
        self._end(_hashed(name))

    def close_session(self, session: Session) -> None:
        for key in [key for key, each in self._sessions.items() if each is session]:
            self._end(key)

    def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            for each in tuple(self._watchers.get(session, ())):
                each()

    def _end_old(self) -> None:
        for key in [key for key, each in self._sessions.items() if self._is_over(each)]:
            self._end(key)

    def _is_over(self, session: Session) -> bool:
        now = self._monotonic()
        is_old = now - session.since >= self._life_s
        return is_old or now - session.last_used >= self._idle_s


def _hashed(name: str) -> bytes:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
