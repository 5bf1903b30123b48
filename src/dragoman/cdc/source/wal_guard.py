"""Monitors how much WAL the slot of a capture retains, so that the database's disk does not fill
up.

Above the first bound the guard warns. Above the second, it applies the policy of the definition:
the capture stops, or the slot is dropped. The guard also runs while the capture is paused or fails,
because no WAL is confirmed then. A capture that catches up is not stopped: the second bound applies
only if the retained WAL has not shrunk over several checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec
import psycopg

from dragoman.captures.definition import Definition
from dragoman.cdc.source.connection import Connection, SourceError, connect, refusal
from dragoman.cdc.source.publication import Slot, drop_slot, find_slot, size_text
from dragoman.limits import GUARD_LOOK_S, GUARD_LOOKS


class Verdict(msgspec.Struct, frozen=True):
    act: Literal["nothing", "warn", "stop", "drop"]
    text: str = ""


def judge(definition: Definition, slot: Slot, checks: int) -> Verdict:
    """`checks` counts consecutive checks that found too much WAL, and no less than the check
    before.
    """
    retained, limit = slot.retained_bytes, definition.wal_limit_bytes
    text = f"the database retains {size_text(retained)} of WAL for the slot {definition.slot_name}"
    if 0 < limit < retained and checks >= GUARD_LOOKS:
        return Verdict(definition.wal_policy, f"{text}, more than {size_text(limit)}")
    if 0 < definition.wal_warn_bytes < retained or 0 < limit < retained:
        return Verdict("warn", text)
    if slot.wal_status == "unreserved":
        return Verdict("warn", f"{text}, and is about to remove it (max_slot_wal_keep_size)")
    return Verdict("nothing")


class WalGuard:
    """`run` monitors the slot concurrently with the capture."""

    def __init__(self, definition: Definition, on_excess: Callable[[SourceError], None]) -> None:
        """`on_excess` receives the reason when the capture has to stop."""
        self._definition = definition
        self._on_excess = on_excess
        #: -1: not known.
        self.retained_bytes = -1
        self.warnings: tuple[str, ...] = ()
        self._checks = 0

    async def run(self) -> None:
        """Monitor until cancelled. The session, not the guard, reports an unreachable database."""
        while True:
            try:
                await self._watch()
            except SourceError:
                self.retained_bytes = -1
            await asyncio.sleep(GUARD_LOOK_S)

    async def _watch(self) -> None:
        """Monitor over one connection until it is lost."""
        definition = self._definition
        connection = await connect(definition.dsn, name=definition.name)
        try:
            while True:
                await self.check(connection)
                await asyncio.sleep(GUARD_LOOK_S)
        except psycopg.Error as error:
            raise refusal(error, definition.dsn) from None
        finally:
            await connection.close()

    async def check(self, connection: Connection) -> None:
        definition = self._definition
        slot = await find_slot(connection, definition.slot_name)
        if slot is None:
            # The slot does not exist yet, or was dropped, which the session detects.
            self.retained_bytes, self.warnings = -1, ()
            return
        is_over = 0 < definition.wal_limit_bytes < slot.retained_bytes
        is_less = slot.retained_bytes < self.retained_bytes
        self._checks = self._checks + 1 if is_over and not is_less else 0
        self.retained_bytes = slot.retained_bytes
        verdict = judge(definition, slot, self._checks)
        self.warnings = () if verdict.act == "nothing" else (verdict.text,)
        if verdict.act in ("drop", "stop"):
            self._checks = 0
        if verdict.act == "drop":
            await drop_slot(connection, definition.slot_name)
            self._on_excess(
                SourceError(
                    f"{verdict.text}: the slot was dropped by the capture's wal_policy",
                    f"`dragoman cdc remove {definition.name}` and add it again: a new snapshot"
                    " replaces the lost changes",
                )
            )
        elif verdict.act == "stop":
            self._on_excess(
                SourceError(
                    f"{verdict.text}: the capture was stopped by its wal_policy",
                    "it resumes by itself and stops again unless it catches up; raise its"
                    " --wal-limit, or drop the slot if it is not needed",
                )
            )
