"""Scenarios: what people do in the console, one after the other, each timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from browser.chromium import BrowserError
from browser.console_page import Page

World = TypeVar("World")


def tried(
    scenarios: Iterable[Callable[[Page, World], None]], page: Page, world: World
) -> list[str]:
    """Faults. A scenario that fails does not keep the others from being tried."""
    faults = []
    for scenario in scenarios:
        name = scenario.__name__.replace("_", " ")
        began = time.monotonic()
        try:
            scenario(page, world)
        except (BrowserError, AssertionError, TimeoutError) as error:
            faults.append(f"{name}: {error}")
            print(f"FAULT {faults[-1]}", flush=True)
        else:
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return faults
