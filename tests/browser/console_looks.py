"""How screens and dialogs look: by axe, in light and dark, in windows of 1280 and 390 pixels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from browser.axe import serious_findings
from browser.chromium import BrowserError
from browser.console_page import Page
from browser.console_sights import Sight

LOOKS: Final = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))


def look(page: Page, sights: Iterable[Sight], pictures: Path) -> list[str]:
    """Faults; a picture of each sight in each look is written into the folder."""
    faults: list[str] = []
    for sight in sights:
        page.resize(*LOOKS[0])
        try:
            sight.open(page)
        except BrowserError as error:
            faults.append(f"{sight.name}: {error}")
            continue
        for width, scheme in LOOKS:
            page.resize(width, scheme)
            page.picture(pictures / f"{sight.name}-{width}-{scheme}.png")
            where = f"{sight.name} at {width} px, {scheme}"
            faults += [f"{where}: {each}" for each in serious_findings(page.browser)]
            if page.overflows():
                faults.append(f"{where}: wider than the window")
        print(f"{sight.name}: seen", flush=True)
    return faults
