"""Which messages a consumer wants: expressions over tags and conditions over properties (spec 8.4).

Tags are compared themselves, not their hashes: consumers check again, and what has the same hash
by chance need not be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from dragoman.limits import FILTER_CHARACTERS_MAX, FILTERS_CACHED_MAX
from dragoman.protocols.rocketmq.constants import Property
from dragoman.protocols.rocketmq.sql92 import FilterError, compile_condition

TAG: Final = "TAG"
SQL92: Final = "SQL92"
_EVERYTHING: Final = ("", "*")


class Filter:
    """`tags` are those that are wanted: None when not only tags decide."""

    __slots__ = ("matches", "tags", "takes_all")

    def __init__(
        self,
        matches: Callable[[Mapping[str, str]], bool],
        tags: frozenset[str] | None = None,
        *,
        takes_all: bool = False,
    ) -> None:
        #: Takes the properties of a message.
        self.matches = matches
        self.tags = tags
        #: Every message matches: properties need not be looked at.
        self.takes_all = takes_all


TAKES_ALL: Final = Filter(lambda _: True, takes_all=True)


@lru_cache(FILTERS_CACHED_MAX)
def compile_filter(kind: str | None, expression: str) -> Filter:
    """Kinds are `TAG`, which it also is when none is named, and `SQL92`. Raises `FilterError`."""
    if len(expression) > FILTER_CHARACTERS_MAX:
        raise FilterError(
            f"an expression of more than {FILTER_CHARACTERS_MAX} characters", FILTER_CHARACTERS_MAX
        )
    if kind in (None, "", TAG):
        return _tag_filter(expression)
    if kind != SQL92:
        raise FilterError(f"no filters of the kind {kind!r}", 0)
    condition = compile_condition(expression)
    return Filter(lambda properties: condition(properties) is True)


def _tag_filter(expression: str) -> Filter:
    if expression.strip() in _EVERYTHING:
        return TAKES_ALL
    tags = frozenset(filter(None, map(str.strip, expression.split("||"))))
    if not tags:
        raise FilterError("no tag between bars", 0)
    return Filter(lambda properties: properties.get(Property.TAGS) in tags, tags)
