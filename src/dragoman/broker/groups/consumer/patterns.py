"""Subscriptions by regular expression: which topics a pattern means.

Patterns come from clients, so they are RE2's: matching takes time linear in the name whatever the
pattern, and memory is bounded. A pattern must match a whole name. The library is imported with the
first pattern.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dragoman.broker.errors import InvalidRegularExpression
from dragoman.limits import (
    TOPIC_PATTERN_BYTES_MAX,
    TOPIC_PATTERN_MEMORY_BYTES_MAX,
    TOPIC_PATTERNS_CACHED,
)
from dragoman.types import TopicName


class _Matcher(Protocol):
    def Match(self, text: str) -> list[int] | None: ...  # noqa: N802


class TopicPattern:
    """One compiled pattern, which remembers the names it has seen."""

    __slots__ = ("_matcher", "_matches", "_revision", "_seen")

    def __init__(self, pattern: str) -> None:
        """Raises `InvalidRegularExpression`."""
        self._matcher = _compiled(pattern)
        self._seen: frozenset[TopicName] = frozenset()
        self._matches: frozenset[TopicName] = frozenset()
        self._revision = -1

    def matching(self, names: Iterable[TopicName], revision: int) -> frozenset[TopicName]:
        """The names that match. Equal revisions promise equal names."""
        if revision != self._revision:
            current = frozenset(names)
            match = self._matcher.Match
            new = {name for name in current - self._seen if match(name) is not None}
            self._matches = (self._matches & current) | new
            self._seen = current
            self._revision = revision
        return self._matches


class Patterns:
    """Compiled patterns, shared by all groups."""

    def __init__(self) -> None:
        self._compiled: dict[str, TopicPattern] = {}

    def get(self, pattern: str) -> TopicPattern:
        """Raises `InvalidRegularExpression`."""
        found = self._compiled.pop(pattern, None)
        if found is None:
            found = TopicPattern(pattern)
            if len(self._compiled) >= TOPIC_PATTERNS_CACHED:
                del self._compiled[next(iter(self._compiled))]
        self._compiled[pattern] = found
        return found


def _compiled(pattern: str) -> _Matcher:
    if len(pattern.encode("utf-8", "replace")) > TOPIC_PATTERN_BYTES_MAX:
        raise InvalidRegularExpression(f"a pattern has at most {TOPIC_PATTERN_BYTES_MAX} bytes")
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = TOPIC_PATTERN_MEMORY_BYTES_MAX
    try:
        # A set of one: its match tells yes or no without building an object for it.
        matcher: _Matcher = re2.Set.FullMatchSet(options)
        matcher.Add(pattern)  # type: ignore[attr-defined]
        matcher.Compile()  # type: ignore[attr-defined]
    except (re2.error, UnicodeEncodeError):
        raise InvalidRegularExpression(
            f"{pattern[:200]!r} is not a pattern that RE2 takes"
        ) from None
    return matcher
