"""Regular expressions that clients send, in RE2's syntax as in Kafka.

RE2 takes time linear in the text whatever the pattern, and bounded memory. Python's own module does
not: a pattern of twenty characters can keep it busy for ever, and a client must not be able to do
that to a broker.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.errors import InvalidRegularExpression
from dragoman.limits import PATTERN_MEMORY_BYTES_MAX


def full_match(pattern: str, bytes_max: int) -> Callable[[str], bool]:
    """Whether a text as a whole matches. Raises `InvalidRegularExpression`."""
    if len(pattern.encode("utf-8", "replace")) > bytes_max:
        raise InvalidRegularExpression(f"a pattern has at most {bytes_max} bytes")
    # Few clients send patterns; the others shall not pay for the library.
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
