"""Captures of databases: any node answers for all of them, whichever node runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from dragoman.api.errors import ApiError
from dragoman.api.operations import PageLimit
from dragoman.api.topics import page_of
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    CapturePage,
    Findings,
    Told,
)
from dragoman.broker.errors import UnknownCapture
from dragoman.broker.neighbours import CaptureState
from dragoman.broker.placement import NOBODY
from dragoman.captures.addresses import without_secrets
from dragoman.captures.control import Finding, Rewind, Snapshot
from dragoman.captures.definition import Definition
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import ConfigError
from dragoman.net.future import future_of
from dragoman.outcome import Acknowledge, Callback, Outcome, acknowledged
from dragoman.telemetry.catalogue import Stats


class CaptureControl(Protocol):
    """Captures, wherever they run."""

    def states(
        self, names: Iterable[str], done: Callable[[dict[str, CaptureState]], None]
    ) -> None: ...

    def running_here(self) -> tuple[CaptureState, ...]: ...

    def definition(self, name: str) -> Definition: ...

    def overlaps(self, name: str) -> tuple[str, ...]: ...

    def add(self, definition: Definition, done: Acknowledge) -> None: ...

    def remove(self, name: str, keeps_slot: bool, done: Acknowledge) -> None: ...

    def set_paused(self, name: str, is_paused: bool, done: Acknowledge) -> None: ...

    def resume(self, name: str, done: Acknowledge) -> None: ...

    def tell(self, name: str, command: Rewind | Snapshot, done: Acknowledge) -> None: ...

    def check(self, definition: Definition, done: Callback[tuple[Finding, ...]]) -> None: ...


class CaptureBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def capturing(self) -> CaptureControl: ...


class CaptureService:
    def __init__(self, broker: CaptureBroker) -> None:
        self._image = broker.image
        self._control = broker.capturing

    # ---- state

    async def list_captures(self, after: str, limit: PageLimit) -> CapturePage:
        names, following = page_of(self._image.captures, after, limit)
        return CapturePage(items=tuple(await self._describe(names)), next=following)

    async def describe_capture(self, name: str) -> CaptureDescription:
        if name not in self._image.captures:
            raise UnknownCapture(f"there is no capture {name!r}")
        found = await self._describe([name])
        if not found:
            raise UnknownCapture(f"capture {name} was removed meanwhile")
        (described,) = found
        warnings = (*described.status.warnings, *self._control.overlaps(name))
        status = msgspec.structs.replace(described.status, warnings=warnings)
        return msgspec.structs.replace(described, status=status)

    async def _describe(self, names: Sequence[str]) -> list[CaptureDescription]:
        found: Outcome[dict[str, CaptureState]] = Outcome()
        self._control.states(names, found.succeed)
        states = await future_of(found)
        # Some may have been removed meanwhile.
        return [self._described(states[name]) for name in names if name in self._image.captures]

    def _described(self, state: CaptureState) -> CaptureDescription:
        try:
            definition: Definition | None = self._control.definition(state.name)
        except ConfigError:
            definition = None
        return CaptureDescription(
            name=state.name,
            definition=definition and _shown(definition),
            paused=self._image.captures[state.name].is_paused,
            node=state.node if state.node != NOBODY else None,
            status=state.status,
            restarts=state.restarts,
            rows=state.rows,
        )

    def stats(self) -> Stats:
        running = self._control.running_here()
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

    # ---- changes and commands

    async def add_capture(self, definition: Definition) -> CaptureDescription:
        await future_of(acknowledged(lambda done: self._control.add(definition, done)))
        return await self.describe_capture(definition.name)

    async def remove_capture(self, name: str, keep_slot: bool) -> Told:
        await future_of(acknowledged(lambda done: self._control.remove(name, keep_slot, done)))
        kept = "; its slot is still in the database, which keeps its log for it" * keep_slot
        return Told(detail=f"capture {name} is removed{kept}; its topics stay")

    async def command_capture(self, name: str, wanted: CaptureCommand) -> Told:
        control = self._control
        match wanted.command:
            case "pause":
                await future_of(acknowledged(lambda done: control.set_paused(name, True, done)))
                return Told(detail=f"capture {name} is paused")
            case "resume":
                await future_of(acknowledged(lambda done: control.resume(name, done)))
                return Told(detail=f"capture {name} goes on")
            case "rewind":
                if not wanted.lsn:
                    raise ApiError(
                        400, "invalid_request", "rewind: lsn is missing, such as 0/16B3748"
                    )
                rewind = Rewind(id="", lsn=wanted.lsn)
                await future_of(acknowledged(lambda done: control.tell(name, rewind, done)))
                return Told(detail=f"capture {name} goes on from {wanted.lsn}")
            case "snapshot":
                snapshot = Snapshot(id="", tables=wanted.tables)
                await future_of(acknowledged(lambda done: control.tell(name, snapshot, done)))
                what = ", ".join(wanted.tables) or "all its tables"
                return Told(detail=f"capture {name} reads {what} again")

    async def check_capture(self, wanted: CaptureCheck) -> Findings:
        if wanted.definition is not None and wanted.name is None:
            definition = wanted.definition
        elif wanted.name is not None and wanted.definition is None:
            definition = self._control.definition(wanted.name)
        else:
            raise ApiError(400, "invalid_request", "give either a name or a definition")
        found: Outcome[tuple[Finding, ...]] = Outcome()
        self._control.check(definition, found.settle)
        return Findings(items=await future_of(found))


def _shown(definition: Definition) -> Definition:
    return msgspec.structs.replace(definition, dsn=without_secrets(definition.dsn))
