"""What the stream of changes and the part that takes snapshots say to each other.

The stream calls; nothing here waits. Calls come in the order in which the database has committed:
for each transaction `begin`, then its changes and messages, whatever the database sent when. What
`message` returns is written at this place of the stream, in the same transaction of the log as the
progress it names, so that after a crash the two agree.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import Protocol, TypeAlias

import msgspec

from dragoman.captures.control import TableProgress
from dragoman.cdc.events.records import EventRecord
from dragoman.cdc.events.transaction import Transaction
from dragoman.protocols.postgres import messages as m

#: Kept in the position record as it is; what is in it is the snapshots' own affair.
Progress: TypeAlias = dict[str, object]
Change: TypeAlias = m.Insert | m.Update | m.Delete | m.Truncate


class Chunk(msgspec.Struct, frozen=True):
    """What is written at a mark."""

    #: Taken one after the other, with pauses for the event loop in between. `TopicNeeded` may come
    #: out of it; the next record that is asked for is the same one then.
    records: Iterable[EventRecord] | AsyncIterable[EventRecord]
    progress: Progress


class Snapshots(Protocol):
    #: Whether `changed` is wanted; asked before every change, so it has to cost nothing.
    is_watching: bool
    #: Tables that were requested, and would be forgotten if the session ended now.
    pending: tuple[str, ...]

    def begin(self, transaction: Transaction) -> None:
        """What follows, up to the next call, belongs to this transaction."""

    def changed(self, relation: m.Relation, change: Change) -> bool:
        """Whether the change is still to be sent: not when a snapshot has it, or will have."""

    def message(self, prefix: str, content: bytes) -> Chunk | None:
        """A message of `pg_logical_emit_message`, whoever has sent it."""

    def replaced(self, progress: Progress) -> None:
        """The stream begins, or begins again, behind this progress: windows are forgotten."""

    async def run(self) -> None:
        """Beside the stream, until it is cancelled: take what is to be taken. Raises `CdcError`
        for what somebody has to act on, other errors for what may go away by itself.
        """

    def request(self, tables: tuple[str, ...]) -> None:
        """Take these tables again (all: none named). Raises `CdcError`."""

    @property
    def tables(self) -> tuple[TableProgress, ...]:
        """For reports."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What holds up a table, for reports."""
