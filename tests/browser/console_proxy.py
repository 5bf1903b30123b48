"""The console behind a proxy, by TLS, under a path, on a name of its own: search, live tail and
changes work as they do without, and nothing is asked for outside of the path.
"""

from __future__ import annotations

import ssl
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from browser.chromium import BrowserError, Chromium
from browser.console_page import Page
from browser.console_process import ConsoleProcess, settings_of
from browser.console_world import ADMIN, PASSWORD, World
from browser.reverse_proxy import ReverseProxy
from dragoman.certificates import Authority, write_pair

_HOST: Final = "console.example.org"
_BASE: Final = "/dragoman"
_STREAMED: Final = "document.querySelectorAll('tr[data-record]').length"


def run(world: World, pictures: Path) -> list[str]:
    with ExitStack() as stack:
        settings = settings_of(world.broker, base_path=_BASE, allowed_hosts=(_HOST,))
        console = stack.enter_context(ConsoleProcess(settings))
        proxy = stack.enter_context(ReverseProxy(_tls(stack), f"{_BASE}/", console.port))
        browser = stack.enter_context(Chromium({_HOST: "127.0.0.1"}))
        browser.command("Security.setIgnoreCertificateErrors", ignore=True)
        page = Page(browser, f"https://{_HOST}:{proxy.port}{_BASE}/")
        page.resize(1280)
        try:
            _use(page, world)
        except (AssertionError, BrowserError) as error:
            return [f"behind a proxy: {error}"]
        page.picture(pictures / "console-proxy-1280-light.png")
        print("behind a proxy: used", flush=True)
        return [f"behind a proxy: {each} was asked for" for each in proxy.strays]


def _tls(stack: ExitStack) -> ssl.SSLContext:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="browser-"))
    certificate, key = write_pair(folder, "proxy", Authority.create().server([_HOST]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def _use(page: Page, world: World) -> None:
    page.log_in(ADMIN, PASSWORD)
    (cookie,) = page.browser.command("Network.getCookies")["cookies"]
    found = {name: cookie[name] for name in ("secure", "httpOnly", "path", "sameSite")}
    expected = {"secure": True, "httpOnly": True, "path": f"{_BASE}/", "sameSite": "Strict"}
    assert found == expected, found
    page.open("#/topics/sales/records?from=earliest")
    page.type("Filter", "value.id == 7")
    page.click("Search")
    page.see("600 scanned", ".counters")
    page.wait(f"{_STREAMED} === 1", "the filter finds another number of records")
    page.reload()
    page.see("600 scanned", ".counters")
    page.open("#/topics/orders/records?tail=1")
    page.wait(f"{_STREAMED} > 20", "the tail does not stream")
    page.click("Pause")
    page.see("passed while paused", ".counters")
    page.click("Stop")
    page.open("#/topics")
    page.click("Create topic")
    page.type("Name", "proxied")
    page.click("Show what changes")
    page.click("Create", within="dialog")
    page.see("proxied is created.")
    assert world.ask("GET", "/api/v1/topics/proxied")["name"] == "proxied"
