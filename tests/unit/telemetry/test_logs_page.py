"""docs/reference/logs.md lists messages: each stands in the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/logs.md").read_text()
#: Python joins literals that follow each other.
_JOINT = re.compile(r'"\n\s*f?"')
SOURCE = "\n".join(
    _JOINT.sub("", path.read_text()) for path in sorted((ROOT / "src/dragoman").rglob("*.py"))
)
MESSAGES = [found[1] for line in PAGE.splitlines() if (found := re.match(r"\| `([^`]+)` \|", line))]


def test_page_lists_messages() -> None:
    assert len(MESSAGES) > 30
    assert len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_message_is_in_the_source(message: str) -> None:
    is_whole = f'"{message}"' in SOURCE
    # Messages with values in their text are listed by a part of it.
    assert is_whole or re.search(rf'"[^"\n]*{re.escape(message)}[^"\n]*"', SOURCE), message
