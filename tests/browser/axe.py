"""axe-core, which finds what keeps people from using a page. It is installed into `build` when it
is first needed, and is not part of this repository.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

from browser.chromium import BrowserError, Chromium

_VERSION = "4.14.1"
_BUILD = Path(__file__).parents[2] / "build" / "axe"
_SCRIPT = _BUILD / "node_modules" / "axe-core" / "axe.min.js"
#: Findings of these impacts are faults.
_SERIOUS = ("serious", "critical")


@cache
def _source() -> str:
    if not _SCRIPT.exists():
        package = f"axe-core@{_VERSION}"
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(_BUILD), package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrowserError(f"axe-core cannot be installed: {done.stderr[-300:]}")
    return _SCRIPT.read_text()


def serious_findings(browser: Chromium) -> list[str]:
    """What axe finds on the page that is shown: the rule, and the first elements."""
    # The page's policy allows no foreign script; the debugger's are no part of the page.
    if not browser.evaluate("'axe' in window"):
        browser.evaluate(f"{_source()}; true")
    text = browser.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify("
        "found.violations.map((each) => [each.impact, each.id, "
        "each.nodes.map((node) => node.html.slice(0, 120) + ' ' + (node.any[0]?.message ?? ''))])))"
    )
    return [
        f"{rule}: {len(nodes)}, such as {nodes[0]}"
        for impact, rule, nodes in json.loads(str(text))
        if impact in _SERIOUS
    ]
