"""The first load of the console: when something is seen, and how many bytes it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from browser.chromium import Chromium
from browser.console_page import Page
from dragoman.testing import EphemeralBroker

_PAINT_MS_MAX: Final = 1000
_BYTES_MAX: Final = 1_500_000
#: Other programs of the machine may delay a load; of so many, one is as quick as it should be.
_ATTEMPTS: Final = 5
_MEASURE: Final = """(() => {
  const entries = ['navigation', 'resource'].flatMap((each) => performance.getEntriesByType(each));
  return [
    performance.getEntriesByName('first-contentful-paint')[0].startTime,
    entries.reduce((sum, each) => sum + each.transferSize, 0),
    entries.length,
  ];
})()"""


class _Load(NamedTuple):
    paint_ms: float
    bytes: int
    requests: int


def run(_: Path) -> list[str]:
    """Faults; says what was measured.

    How soon a process starts depends on the machine: the bound on time is for one that runs.
    """
    started: list[_Load] = []
    running: list[_Load] = []
    while len(running) < _ATTEMPTS and not (_is_quick(started) and _is_quick(running)):
        listeners = ("kafka", "http", "console")
        with EphemeralBroker(storage="directory", listeners=listeners) as node:
            url = f"http://{node.address('console')}/"
            # The first connection starts the process of the console.
            started.append(_load(url))
            running.append(_load(url))
    faults = []
    for what, loads in (("starts the process", started), ("of a running process", running)):
        best = min(loads)
        said = f"first load, {what}: painted after {best.paint_ms:.0f} ms, {best.bytes:,} bytes"
        print(f"{said}, {best.requests} requests, best of {len(loads)}", flush=True)
        if best.bytes > _BYTES_MAX or (loads is running and not _is_quick(loads)):
            faults.append(said)
    return faults


def _is_quick(loads: list[_Load]) -> bool:
    return bool(loads) and min(loads).paint_ms <= _PAINT_MS_MAX


def _load(url: str) -> _Load:
    """Of a browser that has nothing in its cache."""
    with Chromium({}) as browser:
        page = Page(browser, url)
        page.resize(1280)
        page.open("#/")
        page.wait("performance.getEntriesByName('first-contentful-paint').length")
        return _Load(*browser.evaluate(_MEASURE))  # type: ignore[misc]
