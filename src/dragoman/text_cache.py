"""Caches results by a text that a client has sent.

A cache by the number of its entries holds any memory if clients choose how long they are: four
thousand names of megabytes. Long texts are rare, so only short ones are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from dragoman.limits import CACHED_TEXT_CHARACTERS_MAX

T = TypeVar("T")


def cached_by_text(entries_max: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Keep the results of a function of one text. The least recently used goes first."""

    def decorate(function: Callable[[str], T]) -> Callable[[str], T]:
        cached = lru_cache(entries_max)(function)

        @wraps(function)
        def call(text: str) -> T:
            return cached(text) if len(text) <= CACHED_TEXT_CHARACTERS_MAX else function(text)

        return call

    return decorate
