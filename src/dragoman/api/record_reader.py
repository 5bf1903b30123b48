"""Reading records of a partition in steps, so that no reader holds up the loop.

A step reads from the local replica, or from the leader's over the existing calls between nodes
(`broker/readers.py`), and only committed records. All readers of a node take turns (`Turns`): one
step in a turn of the loop, which reads a bounded number of bytes and records. A batch that expands
to more is expanded once, at most one in a turn, and kept in the node's bounded cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from dragoman.broker.errors import Overloaded
from dragoman.broker.readers import Readers
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.log.batch import Record
from dragoman.net.admission import MemoryBudget


class Turns:
    """At most one reader works in a turn of the loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        async with self._lock:
            yield
            # The next reader works in the next turn, after the clients of other listeners.
            await asyncio.sleep(0)


@contextmanager
def charged(budget: MemoryBudget, size: int) -> Iterator[None]:
    """Charge the node's memory budget while a reader works. Raises `Overloaded`."""
    if budget.room < size:
        raise Overloaded("the memory budget of the node is used up; try again")
    budget.take(size)
    try:
        yield
    finally:
        budget.give_back(size)


class PartitionReader:
    def __init__(
        self,
        readers: Readers,
        partition: PartitionMetadata,
        offset: int,
        turns: Turns,
        on_change: Callable[[], None],
    ) -> None:
        self._reader = readers.open(partition, offset, on_change)
        self._turns = turns

    @property
    def offset(self) -> int:
        """The offset of the next record."""
        return self._reader.offset

    @property
    def log_start_offset(self) -> int:
        return self._reader.log_start_offset

    async def read(self, bytes_max: int, count_max: int) -> list[Record]:
        """One step: the next records, in order; empty when there are none now. Raises what
        `LocalReader.read` raises.
        """
        async with self._turns.one():
            return self._reader.read(bytes_max, count_max)

    def wait(self) -> None:
        """Call `on_change` when there may be more. Raises `Overloaded`."""
        self._reader.wait()

    def seek(self, offset: int) -> None:
        self._reader.seek(offset)

    def close(self) -> None:
        self._reader.close()
