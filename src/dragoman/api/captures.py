"""Captures of databases, through the HTTP API: wherever they run, any node answers for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import msgspec

from dragoman.api.errors import ApiError
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    Findings,
    Told,
)
from dragoman.broker.broker import Broker
from dragoman.broker.errors import UnknownCapture
from dragoman.broker.neighbours import CaptureState
from dragoman.broker.placement import NOBODY
from dragoman.captures.addresses import without_secrets
from dragoman.captures.control import Finding, Rewind, Snapshot
from dragoman.captures.definition import Definition
from dragoman.errors import ConfigError, DragomanError
from dragoman.net.future import future_of
from dragoman.outcome import acknowledged
from dragoman.telemetry.catalogue import Stats


class CaptureOperations:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._capturing = broker.capturing

    # ---- how they are

    async def describe(self, names: Sequence[str]) -> list[CaptureDescription]:
        """Raises `UnknownCapture` for one that there is not."""
        for name in names:
            if name not in self._broker.image.captures:
                raise UnknownCapture(f"there is no capture {name!r}")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[dict[str, CaptureState]] = loop.create_future()

        def take(states: dict[str, CaptureState]) -> None:
            if not found.done():
                found.set_result(states)

        self._capturing.states(names, take)
        states = await found
        # Some may have been removed meanwhile.
        present = [name for name in names if name in self._broker.image.captures]
        return [self._described(states[name]) for name in present]

    async def describe_one(self, name: str) -> CaptureDescription:
        found = await self.describe([name])
        if not found:
            raise UnknownCapture(f"capture {name} was removed meanwhile")
        (described,) = found
        warnings = (*described.status.warnings, *self._capturing.overlaps(name))
        status = msgspec.structs.replace(described.status, warnings=warnings)
        return msgspec.structs.replace(described, status=status)

    def _described(self, state: CaptureState) -> CaptureDescription:
        try:
            definition: Definition | None = self._capturing.definition(state.name)
        except ConfigError:
            definition = None
        return CaptureDescription(
            name=state.name,
            definition=definition and _shown(definition),
            paused=self._broker.image.captures[state.name].is_paused,
            node=state.node if state.node != NOBODY else None,
            status=state.status,
            restarts=state.restarts,
            rows=state.rows,
        )

    def stats(self) -> Stats:
        running = self._capturing.running_here()
        states = Counter(each.status.state for each in running)

        def known(field: str) -> dict[tuple[str, ...], int | float]:
            values = {(each.name,): getattr(each.status, field) for each in running}
            return {name: value for name, value in values.items() if value >= 0}

        return {
            "captures": {(state,): count for state, count in states.items()},
            "capture_rows_total": {(each.name,): each.rows for each in running},
            "capture_transactions_total": known("transactions"),
            "capture_rows_per_second": known("rows_per_s"),
            "capture_lag_bytes": known("lag_bytes"),
            "capture_lag_seconds": known("lag_s"),
            "capture_retained_bytes": known("retained_bytes"),
            "capture_restarts_total": {(each.name,): each.restarts for each in running},
        }

    # ---- what they shall do

    async def add(self, definition: Definition) -> CaptureDescription:
        await future_of(acknowledged(lambda done: self._capturing.add(definition, done)))
        return await self.describe_one(definition.name)

    async def remove(self, name: str, *, keeps_slot: bool) -> Told:
        await future_of(acknowledged(lambda done: self._capturing.remove(name, keeps_slot, done)))
        kept = "; its slot is still in the database, which keeps its log for it" * keeps_slot
        return Told(detail=f"capture {name} is removed{kept}; its topics stay")

    async def command(self, name: str, wanted: CaptureCommand) -> Told:
        capturing = self._capturing
        match wanted.command:
            case "pause":
                await future_of(acknowledged(lambda done: capturing.set_paused(name, True, done)))
                return Told(detail=f"capture {name} is paused")
            case "resume":
                await future_of(acknowledged(lambda done: capturing.resume(name, done)))
                return Told(detail=f"capture {name} goes on")
            case "rewind":
                if not wanted.lsn:
                    raise ApiError(
                        400, "invalid_request", "rewind: lsn is missing, such as 0/16B3748"
                    )
                rewind = Rewind(id="", lsn=wanted.lsn)
                await future_of(acknowledged(lambda done: capturing.tell(name, rewind, done)))
                return Told(detail=f"capture {name} goes on from {wanted.lsn}")
            case "snapshot":
                snapshot = Snapshot(id="", tables=wanted.tables)
                await future_of(acknowledged(lambda done: capturing.tell(name, snapshot, done)))
                what = ", ".join(wanted.tables) or "all its tables"
                return Told(detail=f"capture {name} reads {what} again")

    async def check(self, wanted: CaptureCheck) -> Findings:
        if wanted.definition is not None and wanted.name is None:
            definition = wanted.definition
        elif wanted.name is not None and wanted.definition is None:
            definition = self._capturing.definition(wanted.name)
        else:
            raise ApiError(400, "invalid_request", "give either a name or a definition")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[tuple[Finding, ...]] = loop.create_future()

        def take(findings: tuple[Finding, ...] | DragomanError) -> None:
            if found.done():
                return
            if isinstance(findings, DragomanError):
                found.set_exception(findings)
            else:
                found.set_result(findings)

        self._capturing.check(definition, take)
        return Findings(items=await found)


def _shown(definition: Definition) -> Definition:
    return msgspec.structs.replace(definition, dsn=without_secrets(definition.dsn))
