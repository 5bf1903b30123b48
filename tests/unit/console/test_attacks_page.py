"""Every attack of the page on them is tried by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/console-attacks.md"


def test_each_attack_names_tests_that_exist() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!attack )", line)]
    assert len(rows) > 30
    for row in rows:
        found = re.findall(r"\[([^]]+)\]\(\.\./\.\./(tests/[^)]+)\)", row)
        assert found, row
        for title, path in found:
            text = (ROOT / path).read_text()
            name = title.replace(" ", "_")
            assert f"def test_{name}(" in text or title == Path(path).stem, title
