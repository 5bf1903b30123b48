"""Goal: the group machine behaves as kafka.md section 5 says, row by row, and can be read so.
Method: scenarios in `tests/script/groups/*.txt` hold commands and what came of them; this runs them
again.

After a change that is meant, regenerate them with `REWRITE_SCRIPTS=1 pytest <this file>` and read
the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worlds.group_script import GroupScript

FOLDER = Path(__file__).parents[2] / "script" / "groups"
SCRIPTS = sorted(FOLDER.glob("*.txt"))


def replay(text: str) -> str:
    """The script with the outcome of this run; `== title` starts a scenario of its own."""
    script = GroupScript()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *script.run(line[2:])]
        elif line.startswith("=="):
            script = GroupScript()
            lines.append(line)
        elif not line or line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_tells_the_same_story(path: Path) -> None:
    told = path.read_text()
    happened = replay(told)
    if os.environ.get("REWRITE_SCRIPTS"):
        path.write_text(happened)
    assert happened == told


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 6
