"""What becomes of the records that a search finds: they are listed, written to a file or counted.

`copies.py` writes them to another topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.console.errors import ConsoleError
from dragoman.console.records.files import Form, header, writer
from dragoman.console.records.search import Line, Result
from dragoman.console.records.shown import LISTED, Decoders, show_record
from dragoman.console.records.statistics import Counted
from dragoman.console.records.values import Lines, Search
from dragoman.limits import CONSOLE_SEARCH_FOUND_MAX
from dragoman.log.batch import Record


def result_of(search: Search, decoders: Decoders) -> Result:
    """Raises `ConsoleError`."""
    form = search.form
    if form == "statistics":
        return _Counting(decoders)
    if form == "records":
        if search.limit > CONSOLE_SEARCH_FOUND_MAX:
            raise ConsoleError(f"limit: a page shows at most {CONSOLE_SEARCH_FOUND_MAX} records")
        return _Listed(search.limit, decoders)
    return _Written(search, form, decoders)


class _Listed:
    def __init__(self, limit: int, decoders: Decoders) -> None:
        self.limit: int | None = limit
        self._decoders = decoders

    async def add(self, found: list[tuple[int, Record]]) -> Iterable[Line]:
        return [show_record(*each, self._decoders, LISTED) for each in found]

    def first(self) -> Iterable[Line]:
        return ()

    def so_far(self) -> Iterable[Line]:
        return ()


class _Written:
    """Lines of a file."""

    def __init__(self, search: Search, form: Form, decoders: Decoders) -> None:
        self.limit: int | None = search.limit
        self._header = header(form)
        self._write = writer(form, search.topic, decoders)

    async def add(self, found: list[tuple[int, Record]]) -> Iterable[Line]:
        return (Lines(text=self._write(found)),)

    def first(self) -> Iterable[Line]:
        return (Lines(text=self._header),) if self._header else ()

    def so_far(self) -> Iterable[Line]:
        return ()


class _Counting:
    def __init__(self, decoders: Decoders) -> None:
        #: Statistics hold no records, so only the budget limits them.
        self.limit: int | None = None
        self._counted = Counted(decoders)

    async def add(self, found: list[tuple[int, Record]]) -> Iterable[Line]:
        self._counted.add(found)
        return ()

    def first(self) -> Iterable[Line]:
        return ()

    def so_far(self) -> Iterable[Line]:
        return (self._counted.shown(),)
