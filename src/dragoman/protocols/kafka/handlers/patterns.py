"""Regular expressions that clients send, in RE2's syntax as in Kafka.

RE2 takes time linear in the text. Python's own module does not: a pattern of twenty characters can
keep it busy for ever, and a client must not be able to do that to a broker.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.errors import BrokerError
from dragoman.limits import ID_PATTERN_BYTES_MAX


class PatternError(BrokerError):
    code = "invalid_pattern"


def full_match(pattern: str) -> Callable[[str], bool]:
    """Whether a text as a whole matches. Raises `PatternError`."""
    if len(pattern.encode()) > ID_PATTERN_BYTES_MAX:
        raise PatternError(f"a pattern has at most {ID_PATTERN_BYTES_MAX} bytes")
    # Few clients send patterns; the others shall not pay for the library.
    import re2

    options = re2.Options()
    # A bad pattern is the client's business and not for this node's log.
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise PatternError(f"{pattern!r}: {error}") from None
    return lambda text: compiled.fullmatch(text) is not None
