"""Who asks: credentials, connections and their combinations, good and bad.

The application behind the check answers with the caller that it was given.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.api.app import create_app
from dragoman.api.authentication import Authentication, caller_of
from dragoman.api.origin import ORIGIN, Origin
from dragoman.config.listeners import ListenerSecurity, Requirement
from dragoman.errors import AuthenticationFailedError, LoginsOverloadedError
from dragoman.security.access import ANONYMOUS, Caller, Principal

LOOPBACK, REMOTE = "127.0.0.1", "10.1.2.3"
CERTIFIED = Principal("User", "carol")
Get = Callable[..., httpx.AsyncClient]


class Connected:
    """Serves requests as if they came from a connection of this origin."""

    def __init__(self, app: ASGIApp, origin: Origin) -> None:
        self._app = app
        self._origin = origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {ORIGIN: self._origin}
        await self._app(scope, receive, send)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    caller = caller_of(Request(scope))
    await PlainTextResponse(f"{caller.principal}@{caller.host}")(scope, receive, send)


def origin_of(
    authentication: Requirement = "optional",
    *,
    host: str = LOOPBACK,
    principal: Principal = ANONYMOUS,
    is_encrypted: bool = False,
    is_operator: bool = False,
) -> Origin:
    return Origin(
        security=lambda: ListenerSecurity(authentication=authentication),
        initial=lambda: Caller(principal, host),
        is_encrypted=is_encrypted,
        is_operator=is_operator,
    )


@pytest.fixture
def ask(node) -> Callable[..., object]:
    async def ask(
        origin: Origin, *credentials: str, method: str = "GET", path: str = "/api/v1/topics"
    ) -> httpx.Response:
        app = Connected(Authentication(echo, node, frozenset({"/livez"})), origin)
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        headers = [("authorization", each) for each in credentials]
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return await client.request(method, path, headers=headers)

    return ask


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def test_without_credentials_the_connection_names_the_caller(ask) -> None:
    assert (await ask(origin_of(host=REMOTE))).text == f"User:ANONYMOUS@{REMOTE}"
    certified = origin_of("required", host=REMOTE, principal=CERTIFIED)
    assert (await ask(certified)).text == f"User:carol@{REMOTE}"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_token_names_the_caller_from_anywhere(ask, scheme: str) -> None:
    for requirement in ("optional", "required"):
        origin = origin_of(requirement, host=REMOTE, principal=CERTIFIED)
        assert (await ask(origin, f"{scheme} full", method="DELETE")).text == f"User:alice@{REMOTE}"


async def test_read_only_token_reads_and_changes_nothing(ask) -> None:
    for method in ("GET", "HEAD"):
        assert (await ask(origin_of(), "Bearer reads", method=method)).status_code == 200
    for method in ("POST", "DELETE", "PUT", "PATCH", "OPTIONS"):
        refused = await ask(origin_of(), "Bearer reads", method=method)
        assert (refused.status_code, refused.json()["code"]) == (403, "read_only_token")
        assert "www-authenticate" not in refused.headers


async def test_read_only_token_asks_for_rules_and_changes_none(ask) -> None:
    asked = partial(ask, origin_of(), "Bearer reads")
    for question in ("searches", "tests"):
        path = f"/api/v1/security/rules/{question}"
        assert (await asked(method="POST", path=path)).status_code == 200
        assert (await asked(method="DELETE", path=path)).status_code == 403
        assert (await asked(method="POST", path=f"{path}/")).status_code == 403
    for path in ("/api/v1/security/rules", "/api/v1/security/rules/removals"):
        assert (await asked(method="POST", path=path)).status_code == 403


async def test_password_with_colon_and_umlaut_names_the_caller(ask) -> None:
    good = basic("alice", "würde:tief")
    assert (await ask(origin_of(), good)).text == f"User:alice@{LOOPBACK}"
    assert (await ask(origin_of(), good.replace("Basic", "bAsIc"))).status_code == 200


@pytest.mark.parametrize("host", [REMOTE, "", "::2", "127.0.0.1.example.com", "unknown"])
async def test_password_that_others_can_read_is_refused_unexamined(ask, node, host: str) -> None:
    origin, good = origin_of("required", host=host), basic("alice", "würde:tief")
    refused = await ask(origin, good)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="dragoman"'
    assert node.logins.hosts == []
    node.accepts_readable_passwords = True
    assert (await ask(origin, good)).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
async def test_password_from_the_machine_itself_is_accepted(ask, host: str) -> None:
    assert (await ask(origin_of(host=host), basic("alice", "würde:tief"))).status_code == 200


async def test_password_over_tls_is_accepted_from_anywhere(ask) -> None:
    origin = origin_of("required", host=REMOTE, is_encrypted=True)
    assert (await ask(origin, basic("alice", "würde:tief"))).text == f"User:alice@{REMOTE}"


@pytest.mark.parametrize(
    "credentials",
    [
        basic("alice", "wrong"),
        basic("alice", ""),
        basic("bob", ""),
        basic("nobody", "x"),
        "Basic",
        "Basic ",
        "Basic %%%",
        "Basic " + base64.b64encode(b"alice").decode(),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Bearer",
        "Bearer  ",
        "Bearer wrong",
        "Bearer " + "x" * 60_000,
        "Digest username=alice",
        "alice",
        "",
    ],
)
async def test_wrong_credentials_are_refused_and_never_anonymous(ask, credentials: str) -> None:
    for requirement in ("optional", "required"):
        origin = origin_of(requirement, principal=CERTIFIED)
        refused = await ask(origin, credentials)
        assert refused.status_code == 401
        assert refused.headers["content-type"] == "application/problem+json"
        # Browsers look only at the first challenge of a header.
        challenges = refused.headers.get_list("www-authenticate")
        assert challenges == ['Bearer realm="dragoman"', 'Basic realm="dragoman", charset="UTF-8"']
        assert len(refused.content) < 1000


async def test_two_headers_of_credentials_are_refused(ask) -> None:
    refused = await ask(origin_of(), "Bearer full", "Bearer full")
    assert refused.status_code == 401


async def test_listener_that_requires_a_login_refuses_anonymous_requests(ask) -> None:
    refused = await ask(origin_of("required"))
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert "Bearer" in refused.headers["www-authenticate"]


async def test_listener_without_logins_looks_at_no_credentials(ask, node) -> None:
    answer = await ask(origin_of("off"), basic("alice", "wrong"))
    assert answer.text == f"User:ANONYMOUS@{LOOPBACK}"
    assert node.logins.hosts == []


async def test_operator_needs_no_login(ask) -> None:
    operator = Principal("Operator", "root")
    origin = origin_of("required", host="", principal=operator, is_operator=True)
    assert (await ask(origin)).text == "Operator:root@"
    assert (await ask(origin, "Bearer wrong")).text == "Operator:root@"


async def test_overload_of_logins_is_a_503_without_challenge(ask, node) -> None:
    node.logins.failure = LoginsOverloadedError("too many logins wait; retry later")
    refused = await ask(origin_of(), basic("alice", "würde:tief"))
    assert (refused.status_code, refused.json()["code"]) == (503, "logins_overloaded")
    assert "www-authenticate" not in refused.headers


async def test_health_is_open_and_metrics_are_by_setting(node) -> None:
    app = Connected(create_app(node), origin_of("required", host=REMOTE))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        for path in ("/livez", "/readyz"):
            assert (await client.get(path)).status_code == 200
            assert (await client.get(path, headers={"authorization": "Bearer x"})).is_success
        assert (await client.get("/metrics")).status_code == 401
        (counted,) = node.requests.counters()
        assert (counted.name, counted.errors) == ("refused", {"unauthenticated": 1})
        assert (await client.get("/metrics", headers={"authorization": "Bearer reads"})).is_success
        for path in ("/docs", "/docs/docs_page.css", "/docs/docs_page.js"):
            assert (await client.get(path)).status_code == 200
        for path in ("/docs/", "/docs/openapi.json", "/docs/../api/v1/topics"):
            assert (await client.get(path)).status_code == 401
        for path in ("/openapi.json", "/api/v1/topics", "/api/v1/cluster", "/%6divez", "/nothing"):
            assert (await client.get(path)).status_code == 401
        assert (await client.post("/livez/../api/v1/topics", json={})).status_code == 401
        node.metrics_require_login = False
        assert (await client.get("/metrics")).status_code == 200


async def test_rebound_page_gets_nothing_even_with_the_password_of_its_browser(node) -> None:
    """After DNS rebinding the browser sends what it remembers; the host still is another's."""
    app = Connected(create_app(node), origin_of("required"))
    transport = httpx.ASGITransport(app)
    credentials = {"authorization": basic("alice", "würde:tief")}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        rebound = {**credentials, "host": "rebound.example.com"}
        assert (await client.get("/api/v1/topics", headers=rebound)).status_code == 421
        foreign = {**credentials, "origin": "http://evil.example.com"}
        refused = await client.post("/api/v1/topics", json={"name": "t"}, headers=foreign)
        assert refused.status_code == 403
        assert node.logins.hosts == []
        assert list(node.topics) == []
        own = {**credentials, "origin": "http://127.0.0.1"}
        created = await client.post("/api/v1/topics", json={"name": "t"}, headers=own)
        assert created.status_code == 201


@pytest.mark.parametrize("authentication", ["off", "optional", "required"])
async def test_certificate_of_a_disabled_user_names_nobody(ask, node, authentication) -> None:
    origin = origin_of(authentication, principal=Principal("User", "alice"))
    assert (await ask(origin)).text.startswith("User:alice@")
    node.logins.disabled.add("alice")
    answer = await ask(origin)
    if authentication == "required":
        assert answer.status_code == 401
    else:
        assert answer.text.startswith("User:ANONYMOUS@")


# ---- what changes while a request arrives


async def answer_to_a_slow_request(
    node, origin: Origin, credentials: str, meanwhile: Callable[[], object]
) -> str:
    """The caller that the operation behind the check gets, or the refusal."""
    found: list[str] = []

    async def operation(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await Request(scope, receive).body()
        except AuthenticationFailedError as error:
            found.append(str(error))
        else:
            found.append(f"{caller_of(Request(scope)).name} {body.decode()}")

    parts = iter([(b"slow", True), (b"ly", False)])

    async def receive() -> Message:
        body, has_more = next(parts)
        if not has_more:
            meanwhile()
        return {"type": "http.request", "body": body, "more_body": has_more}

    async def send(_message: Message) -> None: ...

    headers = [(b"authorization", credentials.encode())] if credentials else []
    scope = {"type": "http", "method": "POST", "path": "/api/v1/topics", "headers": headers}
    check = Authentication(operation, node, frozenset())
    await Connected(check, origin)(scope, receive, send)
    return found[0]


ENDED = "the login has ended while the request arrived"


async def test_token_that_is_revoked_while_the_body_comes_is_refused(node) -> None:
    asked = answer_to_a_slow_request
    assert await asked(node, origin_of(), "Bearer full", int) == "alice slowly"
    revoke = partial(node.logins.tokens.pop, "full")
    assert await asked(node, origin_of(), "Bearer full", revoke) == ENDED


async def test_user_that_is_disabled_while_the_body_comes_is_refused(node) -> None:
    asked, good = answer_to_a_slow_request, basic("alice", "würde:tief")
    assert await asked(node, origin_of(), good, int) == "alice slowly"
    assert await asked(node, origin_of(), good, lambda: node.logins.disabled.add("alice")) == ENDED


async def test_listener_that_demands_more_while_the_body_comes_refuses(node) -> None:
    now = ListenerSecurity()
    origin = Origin(security=lambda: now, initial=lambda: Caller(host=LOOPBACK))

    def demand(security: ListenerSecurity) -> None:
        nonlocal now
        now = security

    asked = partial(answer_to_a_slow_request, node, origin, "")
    assert await asked(int) == "ANONYMOUS slowly"
    assert await asked(partial(demand, ListenerSecurity(authentication="required"))) == ENDED
    now = ListenerSecurity()
    assert await asked(partial(demand, ListenerSecurity(tls="required"))) == ENDED


async def test_plain_connection_of_before_is_refused_where_tls_is_demanded(ask) -> None:
    for is_encrypted, is_operator, status in (
        (False, False, 403),
        (True, False, 200),
        (False, True, 200),
    ):
        origin = Origin(
            security=lambda: ListenerSecurity(tls="required"),
            initial=lambda: Caller(host=REMOTE),
            is_encrypted=is_encrypted,
            is_operator=is_operator,
        )
        assert (await ask(origin)).status_code == status
