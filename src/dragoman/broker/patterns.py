"""Regular expressions that clients send, in RE2's syntax as in Kafka.

RE2 takes time linear in the text whatever the pattern, and bounded memory. Python's own module does
not: a pattern of twenty characters can keep it busy for ever, and a client must not be able to do
that to a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dragoman.broker.errors import InvalidRegularExpression
from dragoman.limits import PATTERN_MEMORY_BYTES_MAX, TOPIC_PATTERN_BYTES_MAX, TOPIC_PATTERNS_CACHED
from dragoman.types import TopicName


def full_match(pattern: str, bytes_max: int) -> Callable[[str], bool]:
    """Whether a text as a whole matches. Raises `InvalidRegularExpression`."""
    if len(pattern.encode("utf-8", "replace")) > bytes_max:
        raise InvalidRegularExpression(f"a pattern has at most {bytes_max} bytes")
    # Few clients send patterns, and only they need the library.
    import re2

    options = re2.Options()
    # A bad pattern is the client's business and not for this node's log.
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        # A set of one: its match tells yes or no without building an object for it.
        matcher = re2.Set.FullMatchSet(options)
        matcher.Add(pattern)
        matcher.Compile()
    except (re2.error, UnicodeEncodeError):
        raise InvalidRegularExpression(
            f"{pattern[:200]!r} is not a pattern that RE2 takes"
        ) from None
    return lambda text: matcher.Match(text) is not None


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
