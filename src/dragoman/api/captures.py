"""Captures of databases in the HTTP API. Any node serves the captures of all nodes."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TypeVar

import msgspec

from dragoman.api.access import Access, Rights
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.pages import page_of
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    CapturePage,
    DatabaseTables,
    Findings,
    Told,
)
from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import UnknownCapture
from dragoman.captures.addresses import borrowed
from dragoman.captures.control import Rewind, Snapshot
from dragoman.captures.definition import Definition
from dragoman.captures.service import Captures
from dragoman.captures.supervisor import CaptureState
from dragoman.config.user_names import problem_of
from dragoman.errors import ConfigError, DragomanError
from dragoman.limits import CAPTURE_TABLES_LISTED_MAX
from dragoman.net.future import future_of
from dragoman.security.access import ANONYMOUS, Caller, Operation, Principal, Resource
from dragoman.security.audit import AuditLog, administration

T = TypeVar("T")


class CaptureService:
    def __init__(
        self, context: NodeContext, captures: Captures, rights: Rights, audit: AuditLog
    ) -> None:
        self._context = context
        self._audit = audit
        self._access = Access(rights)
        self._captures = captures

    # ---- state

    async def list_captures(self, caller: Caller, after: str, limit: PageLimit) -> CapturePage:
        shown = self._access.shown(caller, Resource.CAPTURE, self._context.image.captures)
        names, following = page_of(shown, after, limit)
        return CapturePage(items=tuple(await self._describe(names)), next=following)

    async def describe_capture(self, caller: Caller, name: str) -> CaptureDescription:
        self._access.require(caller, Operation.DESCRIBE, Resource.CAPTURE, name)
        return await self._describe_one(name)

    async def _describe_one(self, name: str) -> CaptureDescription:
        if name not in self._context.image.captures:
            raise UnknownCapture(f"there is no capture {name!r}")
        found = await self._describe([name])
        if not found:
            raise UnknownCapture(f"capture {name} has just been removed")
        (described,) = found
        warnings = (*described.status.warnings, *self._captures.overlaps(name))
        status = msgspec.structs.replace(described.status, warnings=warnings)
        return msgspec.structs.replace(described, status=status)

    async def _describe(self, names: Sequence[str]) -> list[CaptureDescription]:
        states = await future_of(self._captures.states(names))
        # A capture may have been removed in the meantime.
        present = [name for name in names if name in self._context.image.captures]
        return [self._described(states[name]) for name in present]

    def _described(self, state: CaptureState) -> CaptureDescription:
        try:
            definition: Definition | None = self._captures.definition(state.name)
        except ConfigError:
            definition = None
        return CaptureDescription(
            name=state.name,
            definition=definition,
            principal=self._captures.principal(state.name),
            paused=self._context.image.captures[state.name].is_paused,
            node=state.node if state.node != NO_NODE else None,
            status=state.status,
            restarts=state.restarts,
            rows=state.rows,
        )

    # ---- changes

    async def add_capture(
        self, caller: Caller, definition: Definition, principal: str
    ) -> CaptureDescription:
        self._require_to_define(caller, definition)
        owner = self._owner(caller, principal)
        await self._recorded(
            "capture.create", caller, definition.name, self._captures.add(definition, owner)
        )
        return await self._describe_one(definition.name)

    def _require_to_define(self, caller: Caller, definition: Definition) -> None:
        self._access.require(caller, Operation.CREATE, Resource.CAPTURE, definition.name)
        if borrowed(definition.dsn):
            # The node would use its own credentials, against a server that the caller chooses.
            self._access.require_cluster(caller, Operation.ALTER)

    def _owner(self, caller: Caller, wanted: str) -> Principal:
        """The principal that the caller wants a capture to run as; empty: as the caller itself.
        Only those who may change the cluster choose another one.
        """
        if wanted in ("", str(caller.principal)):
            return caller.principal
        kind, _, name = wanted.partition(":")
        # A capture of an open node runs as an anonymous caller.
        is_possible = name == ANONYMOUS.name or not problem_of(name)
        if kind != ANONYMOUS.kind or not is_possible:
            raise ApiError(400, "invalid_request", f"principal: expected User:NAME, got {wanted!r}")
        self._access.require_cluster(caller, Operation.ALTER)
        return Principal(kind, name)

    async def _recorded(
        self, action: str, caller: Caller, name: str, work: Coroutine[object, None, T]
    ) -> T:
        """Do an act of administration, and record it with its result."""
        resource = f"{Resource.CAPTURE.value}:{name}"
        failure = ""
        try:
            return await future_of(work)
        except DragomanError as error:
            # The text may quote the definition, whose address a client may have mistyped.
            failure = error.code
            raise
        finally:
            self._audit.record(
                administration(action, caller, "http", resource=resource, failure=failure)
            )

    async def remove_capture(self, caller: Caller, name: str, keep_slot: bool) -> Told:
        self._access.require(caller, Operation.DELETE, Resource.CAPTURE, name)
        await self._recorded(
            "capture.delete", caller, name, self._captures.remove(name, keeps_slot=keep_slot)
        )
        kept = "; its slot stays in the database, which retains WAL for it" * keep_slot
        return Told(detail=f"capture {name} is removed{kept}; its topics remain")

    async def command_capture(self, caller: Caller, name: str, wanted: CaptureCommand) -> Told:
        self._access.require(caller, Operation.ALTER, Resource.CAPTURE, name)
        work, detail = self._command(caller, name, wanted)
        await self._recorded(f"capture.{wanted.command}", caller, name, work)
        return Told(detail=f"capture {name} {detail}")

    def _command(
        self, caller: Caller, name: str, wanted: CaptureCommand
    ) -> tuple[Coroutine[object, None, None], str]:
        """A command, and what has become of the capture afterwards."""
        captures = self._captures
        match wanted.command:
            case "pause":
                return captures.set_paused(name, True), "is paused"
            case "resume":
                return captures.resume(name), "is resumed"
            case "rewind":
                if not wanted.lsn:
                    raise ApiError(
                        400, "invalid_request", "rewind: lsn is missing, such as 0/16B3748"
                    )
                command = captures.command(name, Rewind(id="", lsn=wanted.lsn))
                return command, f"resumes from {wanted.lsn}"
            case "snapshot":
                what = ", ".join(wanted.tables) or "all its tables"
                command = captures.command(name, Snapshot(id="", tables=wanted.tables))
                return command, f"snapshots {what} again"
            case "run_as":
                owner = self._owner(caller, wanted.principal)
                return captures.run_as(name, owner), f"runs as {owner}"

    async def check_capture(self, caller: Caller, wanted: CaptureCheck) -> Findings:
        """A check connects to the database, so a definition needs the rights to create its
        capture.
        """
        if wanted.definition is not None and wanted.name is None:
            definition = wanted.definition
            self._require_to_define(caller, definition)
            found = await future_of(self._captures.check(definition))
        elif wanted.name is not None and wanted.definition is None:
            self._access.require(caller, Operation.DESCRIBE, Resource.CAPTURE, wanted.name)
            found = await future_of(self._captures.check_existing(wanted.name))
        else:
            raise ApiError(400, "invalid_request", "give either a name or a definition")
        return Findings(items=found)

    async def database_tables(self, caller: Caller, definition: Definition) -> DatabaseTables:
        """Raises what the creation of the capture would raise for the lack of a right."""
        self._require_to_define(caller, definition)
        work = self._captures.tables(definition)
        found = await self._recorded("capture.tables", caller, definition.name, work)
        most = CAPTURE_TABLES_LISTED_MAX
        return DatabaseTables(items=found[:most], has_more=len(found) > most)
