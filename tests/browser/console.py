"""What hostile pages, names and cookies do to the console, whose user is logged in.

The catalogue of `pages.py` runs against it as against a node: the paths are the same. The user's
cookie goes along with every request here, as with a browser that knows no `SameSite`. The rest is
the console's own: what clients may write is shown on its pages, a cookie is planted before the
login, and a page of another site frames it.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, cast

from browser.chromium import Chromium
from browser.site import Site
from dragoman.testing import EphemeralBroker

#: Names that clients choose freely; as markup, each would set `pwned`.
HOSTILE = (
    "<img src=x onerror=window.pwned=1>",
    "<script>window.pwned=1</script>",
    "\"'><svg onload=window.pwned=1>",
    "javascript:window.pwned=1//",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\u202egnp.exe</td><td onclick=window.pwned=1>",
)
_PATIENCE_S = 5.0
_SHOWN = """(async () => {
    const until = Date.now() + 5000;
    while (Date.now() < until && !document.querySelector('main h1')) {
        await new Promise((done) => setTimeout(done, 50));
    }
    while (Date.now() < until && document.querySelector('[aria-busy]')) {
        await new Promise((done) => setTimeout(done, 50));
    }
    // Handlers of elements that should not be there would run now.
    await new Promise((done) => setTimeout(done, 300));
    return document.querySelector('main')?.innerText ?? '';
})()"""
_RUN = """(async () => {
    document.querySelector('form button.primary').click();
    const until = Date.now() + 20000;
    const found = () => document.querySelector('#query-error .problem, #query-error p, table');
    while (Date.now() < until && !found()) await new Promise((done) => setTimeout(done, 50));
    await new Promise((done) => setTimeout(done, 300));
    return document.querySelector('main').innerText;
})()"""
#: Addresses that name no page, or would be code elsewhere.
_ADDRESSES = (
    "#/%E0%A4%A",
    "#/constructor",
    "#/__proto__",
    "#/topics/%",
    "#javascript:window.pwned=1",
    "#/javascript:window.pwned=1",
)
#: Pages whose address has a name, which their errors repeat.
_NAMED = ("topics", "captures", "pipelines", "dead-letters", "security/users")
#: Pages with records, rules, users and settings that clients have written.
_WRITTEN = (
    "security",
    "security/rules",
    "security/quotas",
    "topics/kept/records",
    "topics/kept/records?record=0:0",
    "topics/kept/configuration",
    "dead-letters/kept",
)
_FRAMED = """(async () => {
    const frame = document.createElement('iframe');
    const loaded = new Promise((done) => { frame.onload = done; });
    frame.src = 'CONSOLE';
    document.body.append(frame);
    await loaded;
    try { return 'readable: ' + frame.contentDocument.body.innerText.slice(0, 60); }
    catch (error) { return error.name; }
})()"""


class _Logged(Chromium):
    """Keeps what the browser says about security."""

    def __init__(self, hosts: dict[str, str]) -> None:
        super().__init__(hosts)
        self.complaints: list[str] = []

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Log.entryAdded":
            self.complaints.append(str(params["entry"]["text"]))
        super()._note(event, params)


class ConsoleUser:
    """A user of a console, and what it shows."""

    def __init__(self, broker: EphemeralBroker, user: str, password: str) -> None:
        self.url = f"http://{broker.address('console')}"
        self.port = broker.address("console").rpartition(":")[2]
        self._login = json.dumps({"user": user, "password": password}).encode()

    def cookie(self) -> str:
        """The cookie of a new login."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/session", self._login, headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.headers["Set-Cookie"]).partition(";")[0]

    def log_in(self, browser: Chromium) -> None:
        browser.show(f"{self.url}/")
        browser.evaluate(
            "fetch('session', {method: 'POST', headers: {'content-type': 'application/json'},"
            f" body: {json.dumps(self._login.decode())}}}).then((found) => found.status)"
        )

    def show(self, browser: Chromium, page: str) -> str:
        browser.show("about:blank")
        browser.show(f"{self.url}/#/{page}")
        return str(browser.evaluate(_SHOWN))


Row = tuple[str, str, bool]


def check(user: ConsoleUser, write: Callable[[str], None]) -> list[Row]:
    """Each attack, what came of it, and whether it was harmless. `write` has a client write what
    has the given name.
    """
    for name in HOSTILE:
        write(name)
    rows: list[Row] = []
    with Site("127.0.0.1") as evil, _Logged({"evil.example": "127.0.0.1"}) as browser:
        rows.append(_fixation(browser, user))
        rows += _names(browser, user)
        rows += _errors(browser, user)
        rows += _queries(browser, user)
        rows += _addresses(browser, user)
        rows.append(_pasted(browser, user))
        browser.command("Log.enable")
        browser.show(f"http://evil.example:{evil.port}/")
        seen = str(browser.evaluate(_FRAMED.replace("CONSOLE", f"{user.url}/")))
        until = time.monotonic() + _PATIENCE_S
        while not (refused := _refused_frame(browser)) and time.monotonic() < until:
            browser.evaluate("0")
        rows.append(("clickjacking: frame", f"{seen}, {refused or 'shown'}", bool(refused)))
    return rows


def _refused_frame(browser: _Logged) -> str:
    return next((each.strip() for each in browser.complaints if "frame-ancestors" in each), "")


def _fixation(browser: Chromium, user: ConsoleUser) -> Row:
    browser.show(f"{user.url}/")
    browser.evaluate(f"document.cookie = 'dragoman_console_{user.port}=planted; path=/'")
    user.log_in(browser)
    cookies = browser.command("Network.getCookies", urls=[user.url])["cookies"]
    values = [each["value"] for each in cookies if each["name"].endswith(user.port)]
    shown = browser.evaluate("document.cookie")
    is_harmless = len(values) == 1 and values[0] != "planted" and not shown
    return "session fixation", f"{len(values)} new cookie, scripts see {shown!r}", is_harmless


def _names(browser: Chromium, user: ConsoleUser) -> list[Row]:
    rows = []
    for page in ("", "topics", "groups", "connections"):
        text = user.show(browser, page)
        is_run = bool(browser.evaluate("window.pwned"))
        shown = sum(name in text for name in HOSTILE)
        rows.append((f"script in names: {page or 'overview'}", f"{shown} as text", not is_run))
    for name in HOSTILE:
        quoted = urllib.parse.quote(name, safe="")
        text = user.show(browser, f"groups/{quoted}")
        is_run = bool(browser.evaluate("window.pwned"))
        result = "as text" if name in text else "not shown"
        rows.append((f"script in a group's name: {name[:30]}", result, not is_run))
    return rows


def _errors(browser: Chromium, user: ConsoleUser) -> list[Row]:
    rows = []
    for page in _NAMED:
        is_run, shown = False, 0
        for name in HOSTILE:
            text = user.show(browser, f"{page}/{urllib.parse.quote(name, safe='')}")
            is_run = is_run or bool(browser.evaluate("window.pwned"))
            shown += name in text
        rows.append((f"script in an address: {page}", f"{shown} as text", not is_run))
    for page in _WRITTEN:
        text = user.show(browser, page)
        is_run = bool(browser.evaluate("window.pwned"))
        shown = sum(name in text for name in HOSTILE)
        rows.append(
            (f"script in what is stored: {page}", f"{shown} as text", bool(shown) and not is_run)
        )
    return rows


def _queries(browser: Chromium, user: ConsoleUser) -> list[Row]:
    rows = []
    literals = [f"'{name.replace(chr(39), chr(39) * 2)}'" for name in HOSTILE]
    columns = ", ".join(
        f"{text} as {chr(34)}{name.replace(chr(34), chr(34) * 2)}{chr(34)}"
        for text, name in zip(literals, HOSTILE, strict=True)
    )
    for title, query in (
        ("results", f"select {columns}"),
        ("errors", f"select error({literals[0]})"),
        ("unknown columns", 'select "<img src=x onerror=window.pwned=1>" from (select 1)'),
    ):
        user.show(browser, f"sql?q={urllib.parse.quote(query, safe='')}")
        text = str(browser.evaluate(_RUN))
        is_run = bool(browser.evaluate("window.pwned"))
        is_shown = "onerror=window.pwned" in text.replace(query, "")
        seen = "as text" if is_shown else "not shown"
        rows.append((f"script in SQL: {title}", seen, is_shown and not is_run))
    return rows


def _addresses(browser: Chromium, user: ConsoleUser) -> list[Row]:
    rows = []
    for address in _ADDRESSES:
        browser.show("about:blank")
        browser.show(f"{user.url}/{address}")
        text = str(browser.evaluate(_SHOWN))
        is_run = bool(browser.evaluate("window.pwned"))
        seen = " ".join(text.split())[:40]
        rows.append((f"address {address}", seen, not is_run and "No such page" in text))
    return rows


def _pasted(browser: Chromium, user: ConsoleUser) -> Row:
    """Names in command lines to copy, as a shell reads them."""
    user.show(browser, "")
    names = [
        *HOSTILE,
        "a'b\\c d",
        "$(id)`id`",
        "two\nlines",
        "\x03; id\r",
        "\x1b[201~id",
        "e\x85'\\x",
    ]
    script = (
        f"import('{user.url}/static/commands.js').then((m) => {json.dumps(names)}.map(m.shell))"
    )
    words = [str(each) for each in cast("list[str]", browser.evaluate(script))]
    have_controls = any(re.search(r"[\0-\x08\x0b-\x1f\x7f-\x9f]", each) for each in words)
    command = f"printf '%s\\0' {' '.join(words)}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    is_same = done.stdout.decode().split("\0")[:-1] == names
    return "names in command lines", f"{len(words)} words", is_same and not have_controls
