"""The first load of the console: when something is seen, and how many bytes it takes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from browser.chromium import Chromium
from browser.console_page import Page
from dragoman.testing import EphemeralBroker

_PAINT_MS_MAX: Final = 1000
_BYTES_MAX: Final = 1_500_000
_MEASURE: Final = """(() => {
  const entries = ['navigation', 'resource'].flatMap((each) => performance.getEntriesByType(each));
  return [
    performance.getEntriesByName('first-contentful-paint')[0].startTime,
    entries.reduce((sum, each) => sum + each.transferSize, 0),
    entries.length,
  ];
})()"""


def run(_: Path) -> list[str]:
    """Faults; says what was measured. A new browser has nothing in its cache; the first connection
    starts the process of the console, too.
    """
    faults = []
    with ExitStack() as stack:
        listeners = ("kafka", "http", "console")
        node = stack.enter_context(EphemeralBroker(storage="directory", listeners=listeners))
        url = f"http://{node.address('console')}/"
        for attempt in ("with the start of its process", "of a running process"):
            browser = stack.enter_context(Chromium({}))
            page = Page(browser, url)
            page.resize(1280)
            page.open("#/")
            page.wait("performance.getEntriesByName('first-contentful-paint').length")
            paint, size, requests = browser.evaluate(_MEASURE)  # type: ignore[misc]
            measured = f"painted after {paint:.0f} ms; {size:,} bytes, {requests} requests"
            said = f"first load {attempt}: {measured}"
            print(said, flush=True)
            if paint > _PAINT_MS_MAX or size > _BYTES_MAX:
                faults.append(said)
    return faults
