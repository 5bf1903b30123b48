"""Hostile web pages in a real browser: `make browser`. Needs Chromium, and fails without it.

Two nodes are attacked: one that requires a login, whose user has typed name and password, which the
browser then adds to every request, and one that is open. Pages of another origin try to read
topics, to create and to delete them; then the page's own name is bound to the address of the node.
Nothing may be read, and topics and users are the same afterwards.

A third node allows the pages' names by `http.allowed.hosts`. There the attacks have to succeed:
otherwise it would not be the node that refuses them.

A fourth node is attacked through its console, whose user is logged in; `console.py` has what is the
console's own.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import sys
import urllib.parse
import urllib.request
from contextlib import ExitStack
from typing import Any, NamedTuple

from browser.chromium import BrowserError, Chromium
from browser.console import ConsoleUser, check
from browser.pages import FOREIGN, REBOUND, script
from browser.site import Site
from dragoman.testing import EphemeralBroker

_USER, _PASSWORD = "alice", "correct horse"
_EVIL, _REBOUND = "evil.example", "rebound.example"
_SITE_ADDRESS = "127.0.0.2"
_LISTENERS = ("kafka", "http")


class Found(NamedTuple):
    """What one attack came to."""

    node: str
    attack: str
    answers: str
    seen: str
    has_read: bool
    changes: tuple[str, ...]

    @property
    def succeeded(self) -> bool:
        return self.has_read or bool(self.changes)


class Attacked:
    """A node, and its state as its administrator sees it."""

    def __init__(
        self, name: str, broker: EphemeralBroker, *, needs_login: bool, listener: str = "http"
    ) -> None:
        """`listener` is the one that is attacked."""
        self.name = name
        self.url = f"http://{broker.address(listener)}"
        self.port = int(broker.address(listener).rpartition(":")[2])
        self._administered = broker.http_url
        login = base64.b64encode(f"{_USER}:{_PASSWORD}".encode()).decode()
        self.credentials = {"Authorization": f"Basic {login}"} if needs_login else {}
        self.needs_login = needs_login

    def prepare(self) -> None:
        if "kept" not in self.state():
            self._ask("POST", "/api/v1/topics", {"name": "kept"})

    def state(self) -> set[str]:
        """Names of topics, and of users."""
        topics = self._ask("GET", "/api/v1/topics")["items"]
        found = {str(each["name"]) for each in topics}
        if self.needs_login:
            users = self._ask("GET", "/api/v1/security/users")["items"]
            found |= {f"user {each['name']}" for each in users}
        return found

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.credentials, "Content-Type": "application/json"}
        request = urllib.request.Request(self._administered + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.load(answer))


class AttackedConsole(Attacked):
    """A console whose user is logged in; the node's administrator looks at its state."""

    def __init__(self, name: str, broker: EphemeralBroker) -> None:
        super().__init__(name, broker, needs_login=True, listener="console")
        self.user = ConsoleUser(broker, _USER, _PASSWORD)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.kafka = host, int(port)

    def write(self, name: str, clients: ExitStack) -> None:
        """Have a client with this name stay connected, and a group of this name exist."""
        group = f"/api/v1/groups/{urllib.parse.quote(name, safe='')}/reset"
        self._ask("POST", group, {"topics": ["kept"], "to": "earliest"})
        client = clients.enter_context(socket.create_connection(self.kafka))
        text = name.encode()
        request = struct.pack(">hhih", 18, 0, 1, len(text)) + text
        client.sendall(struct.pack(">i", len(request)) + request)
        client.recv(4)
        self._ask("POST", "/api/v1/topics/kept/records", {"records": [_record(name)]})
        if name.isprintable():
            user = {"name": name, "password": _PASSWORD}
            self._ask("POST", "/api/v1/security/users", user)
        rule = {"principal": f"User:{name}", "operation": "read", "resource": "topic", "name": name}
        self._ask("POST", "/api/v1/security/rules", {"rules": [rule]})
        quota = {"entity": {"user": name}, "set": {"producer_byte_rate": 1 << 40}}
        self._ask("POST", "/api/v1/security/quotas", quota)
        text = json.dumps({"avro": name}, ensure_ascii=False)
        self._ask("PATCH", "/api/v1/topics/kept", {"set": {"dragoman.value.schema": text}})


def _record(text: str) -> dict[str, Any]:
    return {"key": text, "value": text, "headers": [{"name": text, "value": text}]}


def log_in(browser: Chromium, node: Attacked) -> None:
    """The user types name and password once; the browser keeps them."""
    if isinstance(node, AttackedConsole):
        node.user.log_in(browser)
        browser.add_to_requests({"Cookie": node.user.cookie()})
        return
    at = node.url.removeprefix("http://")
    page = f"{node.url}/api/v1/topics"
    if node.needs_login:
        login = f"{_USER}:{urllib.parse.quote(_PASSWORD)}"
        browser.show(f"http://{login}@{at}/api/v1/topics")
    browser.show(page)
    if '"kept"' not in browser.text():
        raise BrowserError(f"the user cannot use the node: {browser.text()[:300]}")
    # Chromium keeps them from pages of other sites; browsers that do not shall be safe, too.
    browser.add_to_requests(node.credentials)


def attack(browser: Chromium, node: Attacked, title: str, expression: str, where: str) -> Found:
    node.prepare()
    before = node.state()
    browser.answers.clear()
    name = "evil-" + "".join(each for each in title if each.isalpha())
    seen = str(browser.evaluate(script(expression, where, name)))
    after = node.state()
    changes = [f"+{each}" for each in sorted(after - before)]
    changes += [f"-{each}" for each in sorted(before - after)]
    answers = ", ".join(browser.answers) or "not seen"
    return Found(node.name, title, answers, seen, "LEAKED" in seen, tuple(changes))


def run(node: Attacked) -> list[Found]:
    hosts = {_EVIL: "127.0.0.1", _REBOUND: _SITE_ADDRESS}
    found = []
    node.prepare()
    # To be the node to the browser, the page comes from the same port, at another address.
    with (
        Site("127.0.0.1") as evil,
        Site(_SITE_ADDRESS, node.port) as rebound,
        Chromium(hosts) as browser,
    ):
        log_in(browser, node)
        for title, expression in FOREIGN.items():
            browser.show(f"http://{_EVIL}:{evil.port}/")
            found.append(attack(browser, node, title, expression, node.url))
        browser.show(f"http://{_REBOUND}:{node.port}/")
        rebound.bound_to = ("127.0.0.1", node.port)
        for title, expression in REBOUND.items():
            found.append(attack(browser, node, title, expression, ""))
    return found


def _nodes() -> list[tuple[str, EphemeralBroker]]:
    names = {"http.allowed.hosts": f"{_EVIL},{_REBOUND}"}
    users = {_USER: _PASSWORD}
    return [
        ("login required", EphemeralBroker(users=users, listeners=_LISTENERS)),
        ("console", _with_console()),
        ("open", EphemeralBroker(listeners=_LISTENERS)),
        ("open, allows the pages", EphemeralBroker(settings=names, listeners=_LISTENERS)),
    ]


def _with_console() -> EphemeralBroker:
    # Kafka's clients need no login, so that hostile names need none.
    settings = {"listener.kafka.authentication": "off", "allow.everyone.if.no.acl.found": "true"}
    return EphemeralBroker(
        storage="directory",
        users={_USER: _PASSWORD},
        listeners=(*_LISTENERS, "console"),
        settings=settings,
    )


def console() -> list[str]:
    """The attacks that are the console's own; returns those that succeed."""
    with _with_console() as broker, ExitStack() as clients:
        node = AttackedConsole("console", broker)
        node.prepare()
        rows = check(node.user, lambda name: node.write(name, clients))
    print("| console: attack | result | harmless |")
    print("|---|---|---|")
    for attack_, result, is_harmless in rows:
        print(f"| {attack_} | {result} | {'yes' if is_harmless else 'NO'} |", flush=True)
    print()
    return [f"console: {attack_} succeeds" for attack_, _, is_harmless in rows if not is_harmless]


def main() -> int:
    faults = console()
    print("| node | attack | answers | the page sees | read | changed |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, broker in _nodes():
        with broker:
            is_console = name == "console"
            needs_login = name == "login required"
            found = run(
                AttackedConsole(name, broker)
                if is_console
                else Attacked(name, broker, needs_login=needs_login)
            )
        for each in found:
            seen = " ".join(each.seen.replace("|", "/").split())
            changes = ", ".join(each.changes) or "nothing"
            read = "yes" if each.has_read else "no"
            columns = (name, each.attack, each.answers, seen[:120], read, changes)
            print(f"| {' | '.join(columns)} |", flush=True)
        succeeded = {each.attack for each in found if each.succeeded}
        if "allows" in name:
            faults += [f"{each} fails even there" for each in REBOUND if each not in succeeded]
        else:
            faults += [f"{name}: {each} succeeds" for each in sorted(succeeded)]
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrowserError as error:
        sys.exit(f"browser: {error}")
