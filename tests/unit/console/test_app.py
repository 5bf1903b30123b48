"""Goal: who may do what through the console, and what pages of other sites cannot.

Method: the application before a node that answers what the test says, without sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from dragoman.api.operations import OPERATIONS
from dragoman.console import app as module
from dragoman.console import readers
from dragoman.console.access import _TAKES_NO_LOGINS
from dragoman.console.records.routes import TooManyReadsError
from dragoman.console.sessions import Session
from dragoman.console.streams import within

JSON = {"content-type": "application/json"}
#: What pages of other sites send, or those that DNS rebinding has led here.
FOREIGN = [
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://127.0.0.1:9999"}, 403),
    ({"host": "evil.example:8081"}, 421),
    ({"host": "evil.example:8081", "origin": "http://evil.example:8081"}, 421),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, 403),
]


# ---- without a login


async def test_local_console_reads_and_changes_nothing(browser: Any, node: Any) -> None:
    state = (await browser.client.get("/session")).json()
    assert (state["user"], state["needs_login"], state["is_read_only"]) == (None, False, True)
    assert (await browser.client.get("/api/v1/topics")).status_code == 200
    for method in ("POST", "PATCH", "DELETE"):
        answer = await browser.client.request(method, "/api/v1/topics/a", json={})
        assert (answer.status_code, answer.json()["code"]) == (403, "read_only")
    assert {each[0] for each in node.asked} == {"GET"}


async def test_question_with_a_body_changes_nothing_and_is_passed_on(browser: Any) -> None:
    for operation in OPERATIONS:
        if operation.method == "POST" and "{" not in operation.path:
            answer = await browser.client.post(operation.path, json={"a": 1})
            assert answer.status_code == (200 if operation.is_question else 403), operation.path


async def test_console_that_others_reach_serves_its_page_only(
    browsers: Callable[..., Any], node: Any
) -> None:
    client = browsers(is_local=False).client
    for path in ("/api/v1/topics", "/lists/topics", "/health"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (401, "login_needed")
    assert not node.asked
    assert (await client.get("/")).status_code == 200
    assert (await client.get("/session")).json()["needs_login"]


async def test_page_says_what_to_do_while_there_are_no_users(
    browsers: Callable[..., Any], node: Any
) -> None:
    node.refusal = (403, {"code": "no_users", "detail": "create one"})
    state = (await browsers(is_local=False).client.get("/session")).json()
    assert (state["needs_login"], state["obstacle"]) == (True, "create one")


async def test_node_that_demands_logins_is_believed(browser: Any, node: Any) -> None:
    node.refusal = (401, {"code": "unauthenticated"})
    state = (await browser.client.get("/session")).json()
    assert (state["needs_login"], state["obstacle"]) == (True, "")


# ---- logins


async def test_login_opens_a_session_with_the_users_own_rights(browser: Any, node: Any) -> None:
    assert (await browser.log_in()).status_code == 204
    state = (await browser.client.get("/session")).json()
    assert (state["user"], state["is_read_only"]) == ("alice", False)
    node.asked.clear()
    await browser.client.post("/api/v1/topics", json={"name": "a"})
    assert [(each[0], each[2]["authorization"], each[3]) for each in node.asked] == [
        ("POST", "Basic YWxpY2U6eA==", b'{"name":"a"}')
    ]


async def test_cookie_is_for_this_console_and_for_no_script(browsers: Callable[..., Any]) -> None:
    browser = browsers(base_path="/dragoman")
    client = browser.other("192.0.2.7", "https://127.0.0.1:8081")
    answer = await client.post("/dragoman/session", json={"user": "alice", "password": "x"})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("dragoman_console_8081=")
    for each in ("HttpOnly", "Path=/dragoman/", "SameSite=strict", "Secure", "Max-Age=43200"):
        assert each in cookie
    plain = await browser.client.post("/dragoman/session", json={"token": "drg_1"})
    assert "Secure" not in plain.headers["set-cookie"]


async def test_page_that_a_proxy_encrypts_gets_a_secure_cookie(
    browsers: Callable[..., Any],
) -> None:
    client = browsers(allowed_hosts=("console.example.org",)).client
    headers = {"origin": "https://console.example.org"}
    answer = await client.post("/session", json={"token": "drg_1"}, headers=headers)
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user": "alice", "password": "x", "token": "drg_1"},
        {"user": "a:b", "password": "x"},
        {"user": "a\nb", "password": "x"},
        {"token": "a b"},
        {"token": "a\r\nx-y: 1"},
        {"token": "é"},
        {"user": "alice", "password": 1},
        {"user": "alice", "password": "x", "more": 1},
        [],
    ],
)
async def test_login_that_none_can_mean_is_refused(browser: Any, node: Any, body: object) -> None:
    answer = await browser.client.post("/session", json=body)
    assert answer.status_code == 400
    assert not node.asked


async def test_wrong_login_is_the_nodes_refusal_and_no_session(browser: Any) -> None:
    answer = await browser.log_in(password="wrong")
    assert (answer.status_code, answer.json()["code"]) == (401, "authentication_failed")
    assert "set-cookie" not in answer.headers
    assert len(browser.console.sessions) == 0


async def test_login_ends_the_session_before_it_and_takes_no_planted_name(browser: Any) -> None:
    planted = "dragoman_console_8081=planted"
    body = {"user": "alice", "password": "x"}
    answer = await browser.client.post("/session", json=body, headers={"cookie": planted})
    first = answer.cookies["dragoman_console_8081"]
    assert first != "planted"
    assert (await browser.log_in()).cookies["dragoman_console_8081"] != first
    assert len(browser.console.sessions) == 1


async def test_of_two_cookies_none_is_believed(browser: Any) -> None:
    name = (await browser.log_in()).cookies["dragoman_console_8081"]
    client = browser.other("192.0.2.8")
    for planted, user in (("other=1", "alice"), ("dragoman_console_8081=x", None)):
        cookie = f"dragoman_console_8081={name}; {planted}"
        state = (await client.get("/session", headers={"cookie": cookie})).json()
        assert state["user"] == user


async def test_logout_ends_the_session(browser: Any) -> None:
    name = (await browser.log_in()).cookies["dragoman_console_8081"]
    answer = await browser.client.delete("/session")
    assert 'dragoman_console_8081=""' in answer.headers["set-cookie"]
    cookie = {"cookie": f"dragoman_console_8081={name}"}
    assert (await browser.client.get("/session", headers=cookie)).json()["user"] is None


async def test_session_ends_by_time(browsers: Callable[..., Any], clock: Any) -> None:
    browser = browsers(session_idle_s=60, session_life_s=100)
    await browser.log_in()
    clock.now += 59
    assert (await browser.client.get("/session")).json()["user"] == "alice"
    clock.now += 60
    assert (await browser.client.get("/session")).json()["user"] is None


async def test_user_whom_the_node_no_longer_accepts_is_out(browser: Any, node: Any) -> None:
    await browser.log_in()
    node.users.clear()
    assert (await browser.client.get("/lists/topics")).status_code == 401
    assert len(browser.console.sessions) == 0
    assert (await browser.client.delete("/api/v1/topics/a")).status_code == 401


async def test_user_of_an_ended_session_is_no_caller_without_a_login(
    browsers: Callable[..., Any], clock: Any
) -> None:
    browser = browsers(session_idle_s=60)
    await browser.log_in()
    clock.now += 60
    answers = [
        await browser.client.get("/lists/topics"),
        await browser.client.post("/api/v1/topics", json={"name": "a"}),
    ]
    assert [(each.status_code, each.json()["code"]) for each in answers] == [
        (401, "login_needed")
    ] * 2
    # A page that begins anew does so without the cookie.
    assert (await browser.client.get("/session")).json()["user"] is None
    assert (await browser.client.get("/lists/topics")).status_code == 200


async def test_listener_that_takes_no_logins_accepts_none_here(
    browsers: Callable[..., Any], node: Any
) -> None:
    node.is_of_node = False
    node.users["Dragoman-Console"] = "anyone"
    browser = browsers(is_local=False)
    answer = await browser.log_in()
    assert (answer.status_code, answer.json()["code"]) == (403, "login_impossible")
    assert (await browser.client.get("/session")).json()["obstacle"] == _TAKES_NO_LOGINS
    del node.users["Dragoman-Console"]
    assert (await browser.log_in()).status_code == 204


async def test_records_are_for_those_who_see_topics(browser: Any, node: Any) -> None:
    # There is no such route: what is refused does not get so far.
    assert (await browser.client.get("/records/none")).status_code == 404
    node.refusal = (401, {"code": "unauthenticated"})
    answer = await browser.client.get("/records/none")
    assert (answer.status_code, answer.json()["code"]) == (401, "login_needed")
    await browser.log_in()
    assert (await browser.client.get("/records/none")).status_code == 404
    node.users.clear()
    assert (await browser.client.get("/records/none")).status_code == 401
    assert len(browser.console.sessions) == 0


async def test_queries_are_for_those_who_see_topics(browser: Any, node: Any) -> None:
    query = {"query": "select 1"}
    node.refusal = (401, {"code": "unauthenticated"})
    answer = await browser.client.post("/sql", json=query)
    assert (answer.status_code, answer.json()["code"]) == (401, "login_needed")
    await browser.log_in()
    node.users.clear()
    assert (await browser.client.post("/sql", json=query)).status_code == 401
    assert len(browser.console.sessions) == 0


@pytest.mark.parametrize("has_session", [True, False])
async def test_reader_is_examined_again_while_a_request_lasts(
    browser: Any, node: Any, monkeypatch: pytest.MonkeyPatch, has_session: bool
) -> None:
    monkeypatch.setattr(readers, "CHECK_INTERVAL_S", 0.001)
    if has_session:
        await browser.log_in()
    name = browser.client.cookies.get("dragoman_console_8081", "")
    begun = asyncio.Event()

    async def lasting(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        while not readers.is_refused(Request(scope)):
            await asyncio.sleep(0)

    app = readers.Readers(lasting, browser.console.access, "", module._on_error)
    headers = [(b"cookie", f"dragoman_console_8081={name}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/records/tail", "headers": headers}
    lasts = asyncio.ensure_future(app({**scope, "state": {}}, _unread, _unread))
    await begun.wait()
    # The first user is created, or this one is disabled.
    node.refusal = (401, {"code": "unauthenticated"})
    node.users.clear()
    await asyncio.wait_for(lasts, 30)
    assert len(browser.console.sessions) == 0


async def _unread(*_: Any) -> Any:
    raise AssertionError


async def test_stream_of_the_node_ends_with_the_session(browser: Any) -> None:
    await browser.log_in()
    (session,) = browser.console.sessions._sessions.values()
    has_ended = asyncio.Event()

    async def events() -> AsyncGenerator[bytes]:
        try:
            yield b"data: 1\n\n"
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    content = within(browser.console.sessions, session, events())
    assert await anext(content) == b"data: 1\n\n"
    waiting = asyncio.ensure_future(anext(content, b"end"))
    await asyncio.sleep(0)
    await browser.client.delete("/session")
    assert await asyncio.wait_for(waiting, 30) == b"end"
    assert has_ended.is_set()


async def test_browser_that_is_gone_before_the_first_byte_leaves_nothing_held(
    browser: Any, node: Any
) -> None:
    is_left = asyncio.Event()
    ask = node.ask

    @asynccontextmanager
    async def asked(*given: Any) -> Any:
        async with ask(*given) as answer:
            yield answer
        is_left.set()

    node.ask = asked
    received = iter([{"type": "http.request", "body": b""}])

    async def receive() -> dict[str, Any]:
        return next(received, {"type": "http.disconnect"})

    async def stuck(_: Any) -> None:
        await asyncio.Event().wait()

    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "headers": [],
        "query_string": b"",
        "path": "/api/v1/topics",
        "raw_path": b"/api/v1/topics",
        "client": ("192.0.2.7", 1),
    }
    await module.create_app(browser.console)(scope, receive, stuck)
    assert is_left.is_set()


# ---- pages of other sites


@pytest.mark.parametrize(("headers", "status"), FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_page_of_another_site_is_refused(
    browser: Any, node: Any, headers: dict[str, str], status: int, method: str
) -> None:
    await browser.log_in()
    node.asked.clear()
    for path in ("/api/v1/topics", "/session", "/lists/topics"):
        answer = await browser.client.request(method, path, headers=headers)
        assert answer.status_code == status
    assert not node.asked
    assert len(browser.console.sessions) == 1


async def test_own_and_allowed_pages_are_served(browsers: Callable[..., Any]) -> None:
    client = browsers(hosts=("box",), allowed_hosts=("console.example.org",)).client
    for headers in (
        {"origin": "http://127.0.0.1:8081"},
        {"host": "box:8081", "origin": "http://box:8081"},
        {"host": "localhost:8081", "origin": "http://localhost:8081"},
        {"origin": "https://console.example.org"},
    ):
        assert (await client.get("/session", headers=headers)).status_code == 200
    # The machine's name alone does not make other servers there part of the console.
    other = {"host": "box:8081", "origin": "http://box:9999"}
    assert (await client.get("/session", headers=other)).status_code == 403


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_body_that_a_form_can_send_is_refused(browser: Any, media_type: str) -> None:
    await browser.log_in()
    for path in ("/api/v1/topics", "/session"):
        answer = await browser.client.post(
            path, content=b'{"name":"evil"}', headers={"content-type": media_type}
        )
        assert answer.status_code == 400


async def test_every_response_forbids_frames_and_foreign_content(browser: Any, node: Any) -> None:
    node.answer = lambda method, target: (200, {"html": "<script>alert(1)</script>"})
    for path in ("/", "/static/app.js", "/session", "/nowhere", "/api/v1/topics", "/lists/none"):
        headers = (await browser.client.get(path)).headers
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == (
            "no-cache" if path in ("/", "/static/app.js") else "no-store"
        )


async def test_browser_adds_nothing_to_what_the_node_gets(browser: Any, node: Any) -> None:
    await browser.log_in()
    node.asked.clear()
    headers = {
        "dragoman-browser": "127.0.0.1 https",
        "authorization": "Bearer stolen",
        "forwarded": "for=10.0.0.1",
        "accept": "text/event-stream",
    }
    await browser.client.get("/api/v1/topics?limit=5&after=%2Fa%26b", headers=headers)
    ((_, target, named, _, asked_for),) = node.asked
    assert target == "/api/v1/topics?limit=5&after=%2Fa%26b"
    assert named == {"accept": "text/event-stream", "authorization": "Basic YWxpY2U6eA=="}
    assert asked_for == "192.0.2.7 http"


@pytest.mark.parametrize(
    "path", ["/metrics", "/livez", "/docs", "/api/v2/topics", "/static/../app.py"]
)
async def test_only_the_api_is_passed_on(browser: Any, node: Any, path: str) -> None:
    assert (await browser.client.get(path)).status_code == 404
    assert not node.asked


async def test_path_of_the_api_leads_nowhere_else(browser: Any, node: Any) -> None:
    for path in ("/api/v1/../../metrics", "/api/v1/%2e%2e/%2e%2e/metrics"):
        await browser.client.get(path)
    assert all("/api/v1/" in each[1] for each in node.asked)


async def test_header_that_the_node_cannot_get_is_refused(browser: Any, node: Any) -> None:
    for name in ("accept", "last-event-id"):
        answer = await browser.client.get("/api/v1/topics", headers={name: "\xe9".encode()})
        assert answer.status_code == 400
    assert not node.asked


# ---- bounds


async def test_place_to_continue_at_may_be_long_without_a_login(browser: Any) -> None:
    places = {str(n): 10**12 for n in range(1000)}
    body = {"topic": "t", "continue": {"positions": places, "ends": places}}
    answer = await browser.client.post("/records/search", json=body)
    assert answer.json()["code"] == "kafka_access"


async def test_one_user_leaves_others_room_to_ask_the_node(browser: Any, node: Any) -> None:
    await browser.log_in()
    waiting = asyncio.Event()
    ask = node.ask

    @asynccontextmanager
    async def slow(method: str, target: str, headers: Any = (), body: bytes = b"") -> Any:
        if dict(headers).get("authorization"):
            await waiting.wait()
        async with ask(method, target, headers, body) as answer:
            yield answer

    node.ask = slow
    asked = [asyncio.create_task(browser.client.get("/api/v1/topics")) for _ in range(50)]
    while sum(each.done() for each in asked) < 18:
        await asyncio.sleep(0)
    assert (await browser.other("192.0.2.9").get("/api/v1/topics")).status_code == 200
    waiting.set()
    statuses = sorted(each.status_code for each in await asyncio.gather(*asked))
    assert statuses == [200] * 32 + [503] * 18
    assert not browser.console._asked


def test_searches_of_all_sessions_of_a_user_count(browser: Any) -> None:
    alice = [Session.of_password("alice", "x") for _ in range(9)]
    with ExitStack() as running:
        for each in alice[:8]:
            running.enter_context(browser.console.records._counted(each))
        with pytest.raises(TooManyReadsError), browser.console.records._counted(alice[8]):
            raise AssertionError
        running.enter_context(browser.console.records._counted(Session.of_password("bob", "x")))
    assert not browser.console.records._reads


async def test_browser_that_was_gone_when_it_was_accepted_is_not_asked_for(
    browser: Any, node: Any
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "scheme": "http", "headers": [], "path": "/session"}
    await module.create_app(browser.console)({**scope, "client": None}, _unread, send)
    assert sent[0]["status"] == 400
    assert not node.asked


async def test_guesser_leaves_others_room_to_log_in(browser: Any, node: Any) -> None:
    waiting = asyncio.Event()
    ask = node.ask

    @asynccontextmanager
    async def slow(method: str, target: str, headers: Any = (), body: bytes = b"") -> Any:
        if dict(headers).get("authorization", "").startswith("Bearer g"):
            await waiting.wait()
        async with ask(method, target, headers, body) as answer:
            yield answer

    node.ask = slow
    guesser = browser.other("192.0.2.66")
    guesses = [
        asyncio.create_task(guesser.post("/session", json={"token": f"g{n}"})) for n in range(100)
    ]
    while sum(each.done() for each in guesses) < 92:
        await asyncio.sleep(0)
    assert (await browser.log_in()).status_code == 204
    waiting.set()
    statuses = sorted(each.status_code for each in await asyncio.gather(*guesses))
    assert statuses == [401] * 8 + [503] * 92
    assert not browser.console.access._logins


async def test_large_bodies_are_refused(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await browser.client.post("/session", content=b" " * 20_000, headers=JSON)
    assert (answer.status_code, "16384 bytes" in answer.text) == (400, True)
    await browser.log_in()
    large = b" " * (module.HTTP_BODY_BYTES_MAX + 1)
    assert (await browser.client.post("/api/v1/topics", content=large)).status_code == 400
    monkeypatch.setattr(module, "_BODIES_BYTES_MAX", 10)
    answer = await browser.client.post("/api/v1/topics", content=b" " * 11, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert browser.console._bodies_bytes == 0


async def test_body_that_does_not_arrive_is_given_up(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HTTP_REQUEST_SECONDS", 0.01)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    answer: httpx.Response = await browser.client.post("/session", content=never(), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (408, "request_timeout")


# ---- base path


async def test_base_path_is_part_of_every_address(browsers: Callable[..., Any], node: Any) -> None:
    client = browsers(base_path="/dragoman").client
    assert (await client.get("/dragoman")).headers["location"] == "/dragoman/"
    for path in ("/dragoman/", "/dragoman/static/app.js", "/dragoman/session"):
        assert (await client.get(path)).status_code == 200
    await client.get("/dragoman/api/v1/topics/a%2Fb")
    assert node.asked[-1][1] == "/api/v1/topics/a%2Fb"
    assert (await client.get("/session")).status_code == 404


async def test_files_are_asked_for_again_only_when_they_have_changed(browser: Any) -> None:
    found = await browser.client.get("/static/app.js")
    assert found.headers["content-type"].startswith("text/javascript")
    headers = {"if-none-match": found.headers["etag"]}
    assert (await browser.client.get("/static/app.js", headers=headers)).status_code == 304


# ---- lists of all nodes


def cluster(method: str, target: str) -> tuple[int, object]:
    """Three nodes, of which the third does not answer; the second has two pages."""
    path, _, query = target.partition("?")
    if path == "/api/v1/cluster":
        return 200, {"nodes": [{"node_id": node, "alive": node < 3} for node in (1, 2, 3)]}
    asked = dict(each.split("=") for each in query.split("&") if each)
    if asked.get("node") == "3":
        return 503, {"code": "cluster", "detail": "node 3 is not connected"}
    if asked.get("node") == "2" and "after" not in asked:
        return 200, {"items": [{"id": "a"}], "next": "a"}
    return 200, {"items": [{"id": f"of {asked.get('node')}"}], "next": None}


@pytest.mark.parametrize("name", ["connections", "delayed", "pipelines"])
async def test_list_has_the_items_of_all_nodes_and_names_silent_ones(
    browser: Any, node: Any, name: str
) -> None:
    node.answer = cluster
    found = (await browser.client.get(f"/lists/{name}")).json()
    assert found["items"] == [
        {"node": 1, "id": "of 1"},
        {"node": 2, "id": "a"},
        {"node": 2, "id": "of 2"},
    ]
    assert (found["unreachable"], found.get("has_more")) == ([3], None)


async def test_delayed_records_are_the_first_of_each_node(browser: Any, node: Any) -> None:
    node.answer = cluster
    found = (await browser.client.get("/lists/delayed-records?topic=%25RETRY%25a/b")).json()
    assert found["items"] == [{"node": 1, "id": "of 1"}, {"node": 2, "id": "a"}]
    assert (found["unreachable"], found["has_more"]) == ([3], True)
    asked = {each[1].partition("?")[0] for each in node.asked}
    assert asked == {"/api/v1/cluster", "/api/v1/topics/%25RETRY%25a%2Fb/delayed"}


async def test_who_may_not_see_the_cluster_gets_the_list_of_the_one_node(
    browser: Any, node: Any
) -> None:
    def answer(method: str, target: str) -> tuple[int, object]:
        if target == "/api/v1/cluster":
            return 403, {"code": "cluster_not_authorized"}
        assert "node=" not in target
        return 200, {"items": [{"name": "mine"}]}

    node.answer = answer
    found = (await browser.client.get("/lists/pipelines")).json()
    assert (found["items"], found["unreachable"]) == ([{"name": "mine"}], [])


async def test_refusal_by_one_node_is_the_answer(browser: Any, node: Any) -> None:
    def answer(method: str, target: str) -> tuple[int, object]:
        if "node=2" in target:
            return 403, {"code": "cluster_not_authorized"}
        return cluster(method, target)

    node.answer = answer
    found = await browser.client.get("/lists/connections")
    assert (found.status_code, found.json()["code"]) == (403, "cluster_not_authorized")
