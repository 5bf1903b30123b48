"""The console in a real browser: part of `make browser`. Needs Chromium, and npm for axe-core.

Pictures of all pages are written into `build/console`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from browser import console_cluster, console_many, console_screens
from browser.chromium import BrowserError

_PICTURES = Path(__file__).parents[2] / "build" / "console"
_PARTS = (console_screens, console_cluster, console_many)


def main() -> int:
    _PICTURES.mkdir(parents=True, exist_ok=True)
    faults = [fault for part in _PARTS for fault in part.run(_PICTURES)]
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrowserError as error:
        sys.exit(f"browser: {error}")
