"""A page of the console in a browser: clicks and reads as a user does, by what elements say."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

from browser.chromium import BrowserError, Chromium

_PATIENCE_S = 30.0
_HEIGHT_MAX = 2400
_POLL_S = 0.02
_SHIFT = 8
_SHOWN = "document.querySelector('main:not([aria-busy]) h1')"
_OVERFLOWS = """document.documentElement.scrollWidth > window.innerWidth + 1
    || [...document.querySelectorAll('dialog[open]')].some(
        (each) => each.scrollWidth > each.clientWidth + 1)"""


class Page:
    def __init__(self, browser: Chromium, url: str) -> None:
        self.browser = browser
        self._url = url

    # ---- going

    def open(self, address: str) -> None:
        """Show a page by its part behind `#`, and wait for it."""
        # The same document with another fragment would not be loaded again.
        self.browser.show("about:blank")
        self.browser.show(f"{self._url}{address}")
        self.wait(_SHOWN, f"no page at {address}")

    def go(self, address: str) -> None:
        """Follow a link within the console."""
        self.browser.evaluate("document.querySelector('main .page')?.setAttribute('data-old', '')")
        self.browser.evaluate(f"location.hash = {json.dumps(address)}; true")
        self.wait("document.querySelector('main .page:not([data-old])')", f"no page at {address}")

    def log_in(self, user: str, password: str) -> None:
        self.browser.show(self._url)
        self.wait("document.querySelector('header .account button')")
        self.click("Log in")
        self.type("User", user)
        self.type("Password", password)
        self.click("Log in", within="form")
        self.wait("document.querySelector('main .page')", "no page after the login")

    def forget_history(self) -> None:
        """Chromium keeps 50 steps: these begin anew, from the page that is shown."""
        self.browser.command("Page.resetNavigationHistory")

    def back(self) -> None:
        self.browser.evaluate("history.back()")

    def forward(self) -> None:
        self.browser.evaluate("history.forward()")

    def reload(self) -> None:
        self.browser.evaluate("window.isOld = true")
        self.browser.command("Page.reload")
        self.wait(f"!window.isOld && {_SHOWN}", "no page after a reload")

    def resize(self, width: int, scheme: str = "light", height: int = 900) -> None:
        self.browser.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        # A picture in the middle of a transition shows neither scheme.
        media = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in media.items()]
        self.browser.command("Emulation.setEmulatedMedia", features=features)

    # ---- acting

    def click(self, text: str, within: str = "body") -> None:
        """Click the button or link that says this."""
        found = _clickable(text, within)
        self.wait(found, f"there is no button {text!r} to click")
        self.browser.evaluate(f"{found}.click()")

    def type(self, label: str, text: str) -> None:
        """Type into the input with this label."""
        found = (
            "[...document.querySelectorAll('label')].find((each) => "
            f"each.firstChild.textContent.trim().startsWith({json.dumps(label)}))"
            "?.querySelector('input, select, textarea')"
        )
        self.wait(found, f"there is no input {label!r}")
        self.browser.evaluate(
            f"(() => {{ const input = {found}; input.focus(); input.value = {json.dumps(text)}; "
            "for (const name of ['input', 'change']) "
            "input.dispatchEvent(new Event(name, {bubbles: true})); })()"
        )

    def type_filter(self, text: str) -> None:
        """Type into the filter of the page's first table."""
        found = "document.querySelector('main input[type=search]')"
        self.wait(found)
        self.browser.evaluate(
            f"{found}.value = {json.dumps(text)}; "
            f"{found}.dispatchEvent(new Event('input', {{bubbles: true}}))"
        )

    def press(self, key: str, *, shift: bool = False) -> None:
        code, text = {"Escape": (27, ""), "Enter": (13, "\r"), "Tab": (9, "")}[key]
        for kind in ("keyDown", "keyUp"):
            self.browser.command(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                modifiers=_SHIFT if shift else 0,
                text=text if kind == "keyDown" else "",
            )

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.browser.command("Input.insertText", text=text)

    def focus(self, text: str, within: str = "main") -> None:
        """Give the focus to the button or link that says this."""
        found = _clickable(text, within)
        self.wait(found, f"there is no button {text!r}")
        self.browser.evaluate(f"{found}.focus()")

    # ---- reading

    def text(self, selector: str = "main") -> str:
        return str(
            self.browser.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText")
        )

    def see(self, text: str, selector: str = "body") -> None:
        """Wait until an element says this."""
        found = f"document.querySelector({json.dumps(selector)})?.innerText.includes"
        self.wait(f"{found}({json.dumps(text)})", f"the page does not say {text!r}")

    def wait(self, expression: str, complaint: str = "") -> None:
        until = time.monotonic() + _PATIENCE_S
        while not self.browser.read(f"Boolean({expression})"):
            if time.monotonic() > until:
                said = " ".join(self.text("body").split())[:1500]
                raise BrowserError(f"{complaint or expression}; the page says: {said}")
            time.sleep(_POLL_S)

    def overflows(self) -> bool:
        """Whether the page or its dialog is wider than its window."""
        return bool(self.browser.evaluate(_OVERFLOWS))

    def picture(self, path: Path) -> None:
        script = "[window.innerWidth, document.documentElement.scrollHeight]"
        width, height = self.browser.evaluate(script)  # type: ignore[misc]
        if self.browser.evaluate("Boolean(document.querySelector('dialog[open]'))"):
            # A dialog is in the middle of the window.
            height = self.browser.evaluate("window.innerHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, _HEIGHT_MAX), "scale": 1}
        found = self.browser.command(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        path.write_bytes(base64.b64decode(found["data"]))


def _clickable(text: str, within: str) -> str:
    """An expression for the button or link that says this."""
    return (
        f"[...document.querySelectorAll({json.dumps(within)})].flatMap((each) => "
        "[...each.querySelectorAll('button, a, summary, label')]).find((each) => "
        f"each.textContent.trim() === {json.dumps(text)} && !each.disabled)"
    )
