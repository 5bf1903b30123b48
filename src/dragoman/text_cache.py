"""Caches results by a text that a client has sent.

A cache by the number of its entries holds any memory if clients choose how long they are: four
thousand names of megabytes. Long texts are rare, so only short ones are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dragoman.limits import CACHED_TEXT_CHARACTERS_MAX

T = TypeVar("T")


class _Results(dict[str, T]):
    """The results of a function. Those that it has are found without a call of Python code."""

    def __init__(self, function: Callable[[str], T], entries_max: int) -> None:
        self._function = function
        self._entries_max = entries_max

    def __missing__(self, text: str) -> T:
        result = self._function(text)
        if len(text) <= CACHED_TEXT_CHARACTERS_MAX:
            if len(self) >= self._entries_max:
                self.clear()
            self[text] = result
        return result


def cached_by_text(entries_max: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Keep the results of a function of one text. All are forgotten when there are too many."""

    def decorate(function: Callable[[str], T]) -> Callable[[str], T]:
        return _Results(function, entries_max).__getitem__

    return decorate
