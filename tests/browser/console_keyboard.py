"""The console without a mouse, and its addresses: every dialog opens, holds the focus and gives it
back; every screen has an address that goes back, forward, to another window and over a reload.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from browser.chromium import BrowserError
from browser.console_page import Page
from browser.console_sights import DIALOGS, SCREENS, Sight
from browser.console_world import World

_DIALOG: Final = "document.querySelector('dialog[open]')"
#: The browser's own elements come between the last and the first of a dialog.
_IS_HELD: Final = (
    f"document.activeElement === document.body || {_DIALOG}.contains(document.activeElement)"
)
_STOPS: Final = (
    f"{_DIALOG}.querySelectorAll('button, input, select, textarea, summary, a, [tabindex]').length"
)
#: What tells one screen from another: its title, and the links that are marked as current.
_SIGNATURE: Final = (
    "JSON.stringify([...document.querySelectorAll('main h1, nav [aria-current]')]"
    ".map((each) => each.textContent))"
)


def dialogs_need_no_mouse(page: Page, world: World) -> None:
    faults = []
    for sight in _different(DIALOGS):
        try:
            _by_keyboard(page, sight)
        except (AssertionError, BrowserError) as error:
            faults.append(f"{sight.name}: {error}")
    assert not faults, "; ".join(faults)


def _different(sights: tuple[Sight, ...]) -> list[Sight]:
    """One of each dialog, in whatever state it is seen."""
    return list({(each.address.split("?")[0], each.opener): each for each in sights}.values())


def _by_keyboard(page: Page, sight: Sight) -> None:
    page.open(sight.address)
    if sight.before is not None:
        sight.before(page)
    page.focus(sight.opener)
    page.press("Enter")
    page.wait(_DIALOG, "Enter does not open it")
    page.wait(f"{_DIALOG}.contains(document.activeElement)", "it does not get the focus")
    stops = int(str(page.browser.evaluate(_STOPS)))
    for shift in (False, True):
        reached = 0
        for _ in range(stops + 2):
            page.press("Tab", shift=shift)
            assert page.browser.evaluate(_IS_HELD), f"the focus leaves it: {_focused(page)}"
            reached += bool(page.browser.evaluate(f"{_DIALOG}.contains(document.activeElement)"))
        assert reached, "Tab reaches nothing in it"
    page.press("Escape")
    page.wait(f"!{_DIALOG}", "Escape does not close it")
    assert _focused(page) == sight.opener, f"the focus returns to {_focused(page)!r}"


def _focused(page: Page) -> str:
    return str(page.browser.evaluate("document.activeElement.textContent.trim().slice(0, 80)"))


def navigation_is_skipped_by_keyboard(page: Page, world: World) -> None:
    page.open("#/")
    page.press("Tab")
    assert _focused(page) == "Skip to content"
    page.press("Enter")
    page.wait("document.activeElement.id === 'main'", "nothing is skipped")


def record_opens_and_closes_by_keyboard(page: Page, world: World) -> None:
    page.open("#/topics/values/records")
    page.wait("document.querySelector('button.row')")
    page.browser.evaluate("document.querySelector('button.row').focus()")
    page.press("Enter")
    page.wait("document.activeElement.id === 'record-title'", "the record gets no focus")
    page.press("Escape")
    page.wait("document.activeElement.matches('button.row')", "the focus does not return")


def addresses_go_back_forward_and_anywhere(page: Page, world: World) -> None:
    addresses = list(dict.fromkeys(each.address for each in SCREENS))
    # Where none of them begins: an address that is there already is no step.
    page.open("#/nowhere")
    page.forget_history()
    known = []
    for address in addresses:
        page.go(address)
        known.append(_signature(page))
    for expected in reversed(known[:-1]):
        page.back()
        _expect(page, expected, "back")
    for expected in known[1:]:
        page.forward()
        _expect(page, expected, "forward")
    for address, expected in zip(addresses, known, strict=True):
        page.open(address)
        _expect(page, expected, f"a permanent link to {address}")
        page.reload()
        _expect(page, expected, f"a reload of {address}")


def _signature(page: Page) -> str:
    page.wait("document.querySelector('main h1')")
    return str(page.browser.read(_SIGNATURE))


def _expect(page: Page, signature: str, way: str) -> None:
    wanted = json.dumps(signature)
    page.wait(f"{_SIGNATURE} === {wanted}", f"{way} does not show {signature}")


def current_link_is_in_sight(page: Page, world: World) -> None:
    page.resize(390)
    for address in ("#/sql", "#/security/certificates"):
        page.open(address)
        page.wait(
            "[...document.querySelectorAll('nav [aria-current]')].every((each) => {"
            " const { left, right } = each.getBoundingClientRect();"
            " return left >= 0 && right <= window.innerWidth + 1; })",
            f"the current link of {address} is out of sight",
        )
    page.resize(1280)


SCENARIOS: Final[tuple[Callable[[Page, World], None], ...]] = (
    dialogs_need_no_mouse,
    navigation_is_skipped_by_keyboard,
    record_opens_and_closes_by_keyboard,
    addresses_go_back_forward_and_anywhere,
    current_link_is_in_sight,
)
