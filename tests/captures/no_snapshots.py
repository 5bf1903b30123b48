"""A capture that takes no snapshots, for tests of what it does beside them."""

from __future__ import annotations

from dragoman.captures.control import TableProgress
from dragoman.cdc.events.records import Transaction
from dragoman.cdc.position import Progress
from dragoman.cdc.stream import Change, SnapshotChunk
from dragoman.errors import CdcError
from dragoman.protocols.postgres import messages as m


class NoSnapshots:
    """For those who take none."""

    is_watching = False
    pending: tuple[str, ...] = ()
    tables: tuple[TableProgress, ...] = ()
    warnings: tuple[str, ...] = ()

    def begin(self, transaction: Transaction) -> None: ...

    def changed(self, _relation: m.Relation, _change: Change) -> bool:
        return True

    def message(self, _prefix: str, _content: bytes) -> SnapshotChunk | None:
        return None

    def replaced(self, progress: Progress) -> None: ...

    async def run(self) -> None: ...

    def request(self, _tables: tuple[str, ...]) -> None:
        raise CdcError("this capture takes no snapshots")
