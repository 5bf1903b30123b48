"""Checks that a database is the one that was captured so far, and has everything that was captured.

Otherwise, to continue would lose changes silently, or leave rows in topics that the database never
had. So each mismatch is an error that needs an operator.
"""

from __future__ import annotations

from dragoman.captures.definition import Definition
from dragoman.cdc.position import Position
from dragoman.cdc.source.connection import SourceError
from dragoman.cdc.source.replication import System
from dragoman.protocols.postgres.replication import format_lsn


def check_system(definition: Definition, position: Position, system: System) -> None:
    """Check the identifier of the database system and the end of its WAL. Raises `SourceError`."""
    if position.system and position.system != system.identifier:
        raise SourceError(
            f"the database is another one: its system identifier is {system.identifier}, the"
            f" capture began with {position.system}",
            f"correct the DSN; or {_again(definition)}, with a new snapshot",
        )
    if position.lsn > system.lsn:
        raise SourceError(
            f"the log of the database ends at {format_lsn(system.lsn)}, before what was captured"
            f" ({format_lsn(position.lsn)}): it was restored from a backup, or a standby has taken"
            " over that lacks changes",
            f"{_again(definition)}: a new snapshot puts the topics right",
        )


def check_timeline(definition: Definition, position: Position, end: int | None) -> None:
    """Check that a server that has taken over has everything that was captured before. It left the
    timeline of the position at `end`, if that is known. Raises `SourceError`.
    """
    if end is not None and position.lsn > end:
        raise SourceError(
            f"a standby has taken over that lacks changes which were captured already: it has those"
            f" up to {format_lsn(end)}, the capture those up to {format_lsn(position.lsn)}",
            f"{_again(definition)}: a new snapshot puts the topics right",
        )


def check_slot(definition: Definition, position: Position, confirmed: int) -> None:
    """Check that the slot reaches back to the position. Raises `SourceError`."""
    if position.slot and position.slot != definition.slot_name:
        raise SourceError(
            f"the capture began with the slot {position.slot}, not with {definition.slot_name}",
            f"{_again(definition)}, with a new snapshot",
        )
    if confirmed > position.lsn:
        raise SourceError(
            f"the slot {definition.slot_name} begins at {format_lsn(confirmed)}, behind what was"
            f" captured ({format_lsn(position.lsn)}): somebody has made it anew or moved it, and"
            " changes in between are gone",
            f"{_again(definition)}: a new snapshot makes up for what is missing",
        )


def _again(definition: Definition) -> str:
    return f"`dragoman cdc remove {definition.name}` and add it again"
