"""The console in a real browser: part of `make browser`. Needs Chromium, and npm for axe-core.

Pictures of all screens and dialogs are written into `build/console`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from browser import (
    console_cluster,
    console_cluster_actions,
    console_interruptions,
    console_keyboard,
    console_loading,
    console_many,
    console_operations,
    console_proxy,
    console_screens,
)
from browser.chromium import BrowserError, Chromium
from browser.console_looks import look
from browser.console_page import Page
from browser.console_sights import DIALOGS, MISSING, SCREENS, screens_of_nothing
from browser.console_world import ADMIN, PASSWORD, World
from browser.scenarios import tried

_PICTURES = Path(__file__).parents[2] / "build" / "console"
_SCENARIOS = (
    *console_screens.SCENARIOS,
    *console_operations.SCENARIOS,
    *console_interruptions.SCENARIOS,
    *console_keyboard.SCENARIOS,
)


def used_and_seen(pictures: Path) -> list[str]:
    """All scenarios of one node, and then how everything looks."""
    with World() as world, Chromium({}) as browser:
        page = Page(browser, world.url)
        page.resize(1280)
        page.log_in(ADMIN, PASSWORD)
        faults = tried(_SCENARIOS, page, world)
        faults += console_proxy.run(world, pictures)
        faults += look(page, (*SCREENS, *MISSING, *DIALOGS), pictures)
        faults += look(Page(browser, world.open_url), screens_of_nothing(), pictures)
        if browser.evaluate("window.hacked"):
            faults.append("text of clients was run as a script")
    return faults


_PARTS: Final[dict[str, Callable[[Path], list[str]]]] = {
    "node": used_and_seen,
    "cluster": console_cluster.run,
    "cluster-actions": console_cluster_actions.run,
    "many": console_many.run,
    "loading": console_loading.run,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*_PARTS, []], help="all by default")
    _PICTURES.mkdir(parents=True, exist_ok=True)
    faults = []
    for name in parser.parse_args().parts or _PARTS:
        began = time.monotonic()
        faults += _PARTS[name](_PICTURES)
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrowserError as error:
        sys.exit(f"browser: {error}")
