"""LISTEN: payloads of NOTIFY become records.

PostgreSQL does not store notifications: one that is sent while no process listens, or is in flight
when the process dies, is lost. Applications that need every event write to an outbox table. Each
time listening begins, a record on the channel `pgcdc:_notifications` contains the time since which
no process had listened.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import psycopg
from psycopg import sql

from dragoman.captures.definition import Definition
from dragoman.cdc.source.connection import connect, refusal

MARKS = "pgcdc:_notifications"


class _Listening(msgspec.Struct, frozen=True):
    op: str
    capture: str
    channels: tuple[str, ...]
    #: The time since which no process listened; null: not known.
    away_since: str | None


class Listener:
    """Lives as long as the process, so it knows how long no session listened."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._until_us = 0
        self.warnings: tuple[str, ...] = ()

    async def run(self, deliver: Callable[[str, str, int], Awaitable[None]]) -> None:
        """`deliver` receives channel, payload and time of each notification. While it waits, the
        database queues the others for this connection. Raises `SourceError` at its end.
        """
        definition = self._definition
        connection = await connect(definition.dsn, name=definition.name)
        try:
            for channel in definition.channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            await self._begun(deliver)
            async for notification in connection.notifies():
                await deliver(notification.channel, notification.payload, _now_us())
        except psycopg.Error as error:
            raise refusal(error, definition.dsn) from None
        finally:
            self._until_us = _now_us()
            await connection.close()

    async def _begun(self, deliver: Callable[[str, str, int], Awaitable[None]]) -> None:
        definition, now_us = self._definition, _now_us()
        since = _text(self._until_us) if self._until_us else None
        if since is not None:
            self.warnings = (
                f"no process listened to {', '.join(definition.channels)} from {since} to"
                f" {_text(now_us)}: notifications of that time are lost",
            )
        mark = _Listening(
            op="LISTENING", capture=definition.name, channels=definition.channels, away_since=since
        )
        await deliver(MARKS, msgspec.json.encode(mark).decode(), now_us)


def _now_us() -> int:
    return time.time_ns() // 1000


def _text(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds")
