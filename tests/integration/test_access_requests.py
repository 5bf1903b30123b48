"""Goal: the HTTP operations about users and rules refuse every wrong request as the client's fault.

Method: a real node, and bodies that are wrong in one way each; no answer may have a secret.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from dragoman.testing.ephemeral import EphemeralBroker

USERS = "/api/v1/security/users"
RULES = "/api/v1/security/rules"
SECRET = "s3cret-w0rd"
RULE = {"principal": "User:a", "operation": "read", "resource": "topic", "name": "t"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker() as broker:
        yield broker


def ask(
    broker: EphemeralBroker, method: str, path: str, body: object = None
) -> tuple[int, dict[str, object]]:
    host, _, port = broker.address("http").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    connection.request(method, path, None if body is None else data, headers)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    assert b"w0rd" not in text
    return response.status, json.loads(text or b"{}")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (USERS, {}),
        (USERS, {"name": ""}),
        (USERS, {"name": "*", "password": SECRET}),
        (USERS, {"name": "a", "password": ""}),
        (USERS, {"name": "a", "password": SECRET + "\u0378"}),
        (USERS, {"name": "a", "password": SECRET + "\0"}),
        (USERS, {"name": "a", "password": SECRET * 200}),
        (USERS, {"name": "a", "password": [SECRET]}),
        (USERS, {"name": "a", "passwort": SECRET}),
        (USERS, b'{"name": "\\ud800"}'),
        (USERS, b'{"name": "\xff"}'),
        (USERS, {"name": "\ufeffa"}),
        (f"{USERS}/known/commands", {"command": "set_password"}),
        (f"{USERS}/known/commands", {"command": "enable", "secret": SECRET}),
        (f"{USERS}/known/commands", {"command": "set_signing_secret", "secret": ""}),
        (f"{USERS}/known/commands", {"command": "set_signing_secret", "secret": SECRET * 200}),
        (f"{USERS}/known/commands", {"command": "explode"}),
        (f"{USERS}/known/tokens", {"lifetime_ms": 0}),
        (f"{USERS}/known/tokens", {"lifetime_ms": 1 << 62}),
        (f"{USERS}/known/tokens", {"label": "x" * 256}),
        (f"{USERS}/known/tokens", {"label": "a\nb"}),
        (RULES, {"rules": [{**RULE, "principal": "a"}]}),
        (RULES, {"rules": [{**RULE, "principal": "User:"}]}),
        (RULES, {"rules": [{**RULE, "name": ""}]}),
        (RULES, {"rules": [{**RULE, "name": "x" * 1025}]}),
        (RULES, {"rules": [{**RULE, "name": "é" * 600}]}),
        (RULES, {"rules": [{**RULE, "host": "db.example"}]}),
        (RULES, {"rules": [{**RULE, "host": ""}]}),
        (RULES, {"rules": [{**RULE, "operation": "any"}]}),
        (RULES, {"rules": [{**RULE, "resource": "cluster"}]}),
        (RULES, {"rules": [{**RULE, "pattern": "match"}]}),
        (RULES, {"rules": [RULE] * 10_001}),
        (f"{RULES}/searches", {"limit": 0}),
        (f"{RULES}/searches", {"limit": 1_000_000}),
        (f"{RULES}/searches", {"after": -1}),
        (f"{RULES}/searches", {"filter": {"pattern": "regex"}}),
        (f"{RULES}/tests", {**RULE, "principal": "a"}),
        (f"{RULES}/tests", {**RULE, "operation": "all"}),
        ("/api/v1/security/mode", {"mode": "closed"}),
    ],
)
def test_wrong_request_is_the_clients_fault(
    broker: EphemeralBroker, path: str, body: object
) -> None:
    ask(broker, "POST", USERS, {"name": "known"})
    status, problem = ask(broker, "POST", path, body)
    assert status == 400, problem
    assert problem["detail"]
    _, found = ask(broker, "GET", USERS)
    assert [each["name"] for each in found["items"]] == ["known"]  # type: ignore[attr-defined]
    assert ask(broker, "POST", f"{RULES}/searches", {}) == (200, {"items": [], "next": None})


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{USERS}/none", None),
        ("DELETE", f"{USERS}/none", None),
        ("DELETE", f"{USERS}/none/tokens/1", None),
        ("POST", f"{USERS}/none/tokens", {}),
        ("POST", f"{USERS}/none/commands", {"command": "set_password", "secret": SECRET}),
        ("POST", f"{USERS}/none/commands", {"command": "set_signing_secret", "secret": SECRET}),
        ("POST", f"{USERS}/none/commands", {"command": "disable"}),
    ],
)
def test_unknown_user_is_not_found(
    broker: EphemeralBroker, method: str, path: str, body: object
) -> None:
    status, problem = ask(broker, method, path, body)
    assert (status, problem["code"]) == (404, "unknown_user")


def test_rules_are_listed_a_page_at_a_time(broker: EphemeralBroker) -> None:
    rules = [{**RULE, "name": f"t{number}"} for number in range(5)]
    assert ask(broker, "POST", RULES, {"rules": rules})[0] == 200
    names: list[str] = []
    after: object = 0
    while after is not None:
        status, page = ask(broker, "POST", f"{RULES}/searches", {"after": after, "limit": 2})
        assert status == 200
        names += [each["name"] for each in page["items"]]  # type: ignore[attr-defined]
        after = page["next"]
    assert names == [f"t{number}" for number in range(5)]
    status, removed = ask(broker, "POST", f"{RULES}/removals", {"principal": "User:a"})
    assert (status, removed["count"]) == (200, 5)
