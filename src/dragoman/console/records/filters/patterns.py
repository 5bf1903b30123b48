"""Patterns in RE2's syntax, which take time in proportion to what they search."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from dragoman.console.errors import ConsoleError
from dragoman.limits import CONSOLE_PATTERN_INSTRUCTIONS_MAX

_PATTERN_MEMORY: Final = 1 << 20
TOO_LARGE: Final = "the patterns are too large: repeat less, or look for less"


class PatternError(ConsoleError):
    code = "pattern"


@lru_cache(maxsize=64)
def compiled_pattern(pattern: str) -> Any:
    """Raises `PatternError`."""
    # Imported here: most searches have no pattern.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise PatternError("a pattern has no halves of characters") from None
    except re2.error as error:
        (reason,) = error.args
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise PatternError(f"{pattern[:80]!r} is no pattern of RE2: {text}") from None
    if int(compiled.programsize) > CONSOLE_PATTERN_INSTRUCTIONS_MAX:
        raise PatternError(TOO_LARGE)
    return compiled
