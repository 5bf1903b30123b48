"""Subscriptions by regular expression: which topics a pattern means.

A pattern must match a whole name.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.broker.patterns import full_match
from dragoman.limits import TOPIC_PATTERN_BYTES_MAX, TOPIC_PATTERNS_CACHED
from dragoman.types import TopicName


class TopicPattern:
    """One compiled pattern, which remembers the names it has seen."""

    __slots__ = ("_is_match", "_matches", "_revision", "_seen")

    def __init__(self, pattern: str) -> None:
        """Raises `InvalidRegularExpression`."""
        self._is_match = full_match(pattern, TOPIC_PATTERN_BYTES_MAX)
        self._seen: frozenset[TopicName] = frozenset()
        self._matches: frozenset[TopicName] = frozenset()
        self._revision = -1

    def matching(self, names: Iterable[TopicName], revision: int) -> frozenset[TopicName]:
        """The names that match. Equal revisions promise equal names."""
        if revision != self._revision:
            current = frozenset(names)
            self._matches &= current
            self._matches |= frozenset(filter(self._is_match, current - self._seen))
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
