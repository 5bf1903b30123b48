"""Chromium without a window, driven over a pipe by the DevTools protocol."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_PATIENCE_S = 30.0
#: What Chromium says when a page was left before a script has ended.
_LEFT = ("navigated or closed", "context was destroyed", "Cannot find context")
#: Where Chromium reads commands and writes what happened.
_COMMANDS, _EVENTS = 3, 4


class BrowserError(Exception):
    """There is no browser, or it did not do what it was commanded to."""


def find_chromium() -> str:
    for name in _NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    raise BrowserError(f"no browser found: install one of {', '.join(_NAMES)}")


class Chromium:
    """A browser with an empty profile. `hosts` are names and the addresses that they resolve to;
    no other name resolves.
    """

    def __init__(self, hosts: dict[str, str]) -> None:
        self._program = find_chromium()
        rules = [f"MAP {name} {address}" for name, address in hosts.items()]
        rules += ["MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1"]
        self._rules = ",".join(rules)
        self._number = 0
        self._received = b""
        self._session: str | None = None
        self._with_credentials: set[str] = set()
        #: What servers have answered: status, and whether the request had credentials.
        self.answers: list[str] = []

    def __enter__(self) -> Chromium:
        self._profile = tempfile.mkdtemp(prefix="browser-")
        commands, self._commands = _high_pipe()
        self._events, events = _high_pipe()
        arguments = [
            self._program,
            *_FLAGS,
            f"--user-data-dir={self._profile}",
            f"--host-resolver-rules={self._rules}",
            "about:blank",
        ]
        self._pid = os.posix_spawn(
            self._program,
            arguments,
            dict(os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, commands, _COMMANDS),
                (os.POSIX_SPAWN_DUP2, events, _EVENTS),
            ],
            setpgroup=0,
        )
        os.close(commands)
        os.close(events)
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.command("Page.enable")
        self.command("Network.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._commands)
        os.close(self._events)
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._profile, ignore_errors=True)

    def add_to_requests(self, headers: dict[str, str]) -> None:
        """Headers that each request has from now on, whatever page sends it."""
        self.command("Network.setExtraHTTPHeaders", headers=headers)

    def show(self, url: str) -> None:
        """Load a page, and wait until it is there."""
        result = self.command("Page.navigate", url=url)
        if "errorText" in result:
            raise BrowserError(f"{url}: {result['errorText']}")
        until = time.monotonic() + _PATIENCE_S
        while self.read("document.readyState") != "complete":
            if time.monotonic() > until:
                raise BrowserError(f"{url} does not load")

    def text(self) -> str:
        return str(self.evaluate("document.documentElement.innerText"))

    def read(self, script: str) -> object:
        """The value of an expression that changes nothing; None while the page is being left."""
        try:
            return self.evaluate(script)
        except BrowserError as error:
            if any(each in str(error) for each in _LEFT):
                return None
            raise

    def evaluate(self, script: str) -> object:
        """The value of an expression in the page, or of its promise."""
        found = self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return found["result"].get("value")

    def command(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                break
            self._note(str(answer.get("method")), answer.get("params", {}))
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _note(self, event: str, params: dict[str, Any]) -> None:
        match event:
            case "Network.requestWillBeSentExtraInfo":
                if "authorization" in {name.lower() for name in params["headers"]}:
                    self._with_credentials.add(params["requestId"])
            case "Network.responseReceivedExtraInfo":
                known = params["requestId"] in self._with_credentials
                self.answers.append(f"{params['statusCode']}{' to credentials' if known else ''}")

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._events], [], [], _PATIENCE_S)
            piece = os.read(self._events, 1 << 16) if ready else b""
            if not piece:
                raise BrowserError("the browser does not answer")
            self._received += piece
        message, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(message))


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends do not have the numbers that Chromium wants."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in ends)
    for each in ends:
        os.close(each)
    return high[0], high[1]
