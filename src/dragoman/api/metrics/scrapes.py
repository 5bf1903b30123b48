"""The texts of scrapes: one is made at a time, whatever the number of scrapers.

A text is made over many turns of the loop, and each of several at once would take its part of every
turn. So a scrape waits for the one in progress, which began too early for it; those that wait
together get the same text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from dragoman.telemetry.catalogue import Stats
from dragoman.telemetry.exposition import TextFormat, pieces


class Scrapes:
    def __init__(self, snapshot: Callable[[], Iterator[Stats]]) -> None:
        self._snapshot = snapshot
        self._turn = asyncio.Lock()
        #: The number of the last text that was begun.
        self._begun = 0
        self._waiting = 0
        #: The last text of each format, with its number, while scrapes wait.
        self._made: dict[TextFormat, tuple[int, bytes]] = {}

    async def text(self, form: TextFormat) -> bytes:
        """A text that was begun after the call."""
        before = self._begun
        self._waiting += 1
        try:
            async with self._turn:
                number, text = self._made.get(form, (0, b""))
                if number <= before:
                    self._begun += 1
                    number, text = self._begun, await self._written(form)
                    self._made[form] = number, text
                return text
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._made.clear()

    async def _written(self, form: TextFormat) -> bytes:
        written: list[bytes] = []
        for piece in pieces(self._snapshot(), form):
            written.append(piece)
            # Other clients are served between two pieces.
            await asyncio.sleep(0)
        return b"".join(written)
