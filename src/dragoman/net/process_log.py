"""Log lines of processes that a node starts, which it logs at their own levels."""

from __future__ import annotations

import logging
import re

#: The format of the lines, for `logging.basicConfig` in such a process.
FORMAT = "%(levelname)s %(name)s: %(message)s"
_LEVELED = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+: ")


def leveled(text: str) -> tuple[int, str]:
    """The level of a line, and its text without the level. Other lines are information."""
    found = _LEVELED.match(text)
    if found is None:
        return logging.INFO, text
    level: int = getattr(logging, found[1])
    return level, text[found.end() :]
