"""A consumer: records in order, from a position that it keeps over lost connections.

mlog has no pushes: records are fetched in batches, and a topic that is exhausted is looked at again
after a pause, or by a request that the server holds. A record that was handed out is not handed out
again by the same consumer, whatever happens to its connections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from dragoman.protocols.mlog.messages import Entry

if TYPE_CHECKING:
    from dragoman.protocols.mlog.client.client import MlogClient


class Consumer:
    """Iterate over it with `async for`, or call `next_entries`."""

    def __init__(
        self,
        client: MlogClient,
        topic: str,
        *,
        id: str,  # noqa: A002
        offset: int | None,
        max_count: int,
        wait: bool,
    ) -> None:
        self.topic = topic
        self.id = id
        self._client = client
        self._max_count = max_count
        self._wait = wait
        #: Of the next record to be fetched; None until the committed one is known.
        self._next_fetched = offset
        self._fetched: deque[Entry] = deque()
        self._handed_out: int | None = None

    @property
    def position(self) -> int | None:
        """The offset behind the last record that was handed out; None before the first."""
        return self._handed_out

    async def next_entries(self) -> list[Entry]:
        """What can be had now, in order; empty when there is nothing yet."""
        if not self._fetched:
            await self._fetch()
        found = list(self._fetched)
        self._fetched.clear()
        if found:
            self._handed_out = found[-1].offset + 1
        return found

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Entry:
        while not self._fetched:
            await self._fetch()
            if not self._fetched and not self._wait:
                await asyncio.sleep(self._client.settings.poll_interval_s)
        entry = self._fetched.popleft()
        self._handed_out = entry.offset + 1
        return entry

    async def commit(self) -> None:
        """Remember, on the server, that everything handed out is done."""
        if self._handed_out is not None:
            await self._client.commit(self.topic, self._handed_out, id=self.id)

    async def _fetch(self) -> None:
        if self._next_fetched is None:
            self._next_fetched = await self._client.committed(self.topic, id=self.id)
        found = await self._client.fetch_batch(
            self.topic,
            self._next_fetched,
            max_count=self._max_count,
            id=self.id,
            wait=self._wait,
        )
        if found:
            self._fetched.extend(found)
            self._next_fetched = found[-1].offset + 1
