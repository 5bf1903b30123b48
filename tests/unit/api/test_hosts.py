"""Requests that a web page of another site could have sent: refused, whatever they ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from dragoman.api.app import create_app

READS = ("/api/v1/topics", "/api/v1/cluster", "/metrics", "/openapi.json")


@pytest.fixture
async def browser(node) -> AsyncIterator[httpx.AsyncClient]:
    node.allowed_hosts = ("broker.example.org", "*.intra.example.org")
    node.add_topic("kept")
    transport = httpx.ASGITransport(create_app(node), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        yield client


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example.com:8080",
        "rebound.example.com",
        "127.0.0.1.example.com",
        "localhost.example.com",
        "notlocalhost",
        "intra.example.org",
        "evilbroker.example.org",
        "user@127.0.0.1",
        "127.1",
        "[::1",
        "[localhost]",
        "[app.localhost]:1",
        "",
    ],
)
async def test_foreign_host_reads_and_changes_nothing(browser, node, host: str) -> None:
    headers = {"host": host}
    for path in READS:
        assert (await browser.get(path, headers=headers)).status_code == 421
    refused = await browser.post("/api/v1/topics", json={"name": "t"}, headers=headers)
    assert refused.status_code == 421
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "host_not_allowed"
    assert (await browser.delete("/api/v1/topics/kept", headers=headers)).status_code == 421
    assert list(node.topics) == ["kept"]


@pytest.mark.parametrize(
    "host",
    [
        "localhost:8080",
        "LOCALHOST",
        "localhost.",
        "app.localhost:1",
        "127.0.0.1",
        "127.8.9.1:80",
        "[::1]:8080",
        "192.168.4.7:8080",
        "[fe80::1%25eth0]:8080",
        "node:8080",
        "broker.example.org",
        "Broker.Example.org.:8080",
        "a.intra.example.org",
    ],
)
async def test_own_hosts_are_served(browser, host: str) -> None:
    assert (await browser.get("/api/v1/topics", headers={"host": host})).status_code == 200


async def test_health_answers_any_host_and_origin(browser) -> None:
    headers = {"host": "rebound.example.com", "origin": "http://rebound.example.com"}
    for path in ("/livez", "/readyz"):
        assert (await browser.get(path, headers=headers)).status_code == 200


async def test_request_without_host_is_served(browser) -> None:
    """Of HTTP/1.0, as probes and scripts send it; browsers do not."""
    request = browser.build_request("GET", "/api/v1/topics")
    del request.headers["host"]
    assert (await browser.send(request)).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example.com",
        "https://127.0.0.1",
        "http://127.0.0.1:3000",
        "http://127.0.0.1.example.com:8080",
        "null",
        "",
        "file://",
        "chrome-extension://127.0.0.1:8080",
        "http://127.0.0.1:8080@evil.example.com",
    ],
)
async def test_foreign_origin_reads_and_changes_nothing(browser, node, origin: str) -> None:
    headers = {"origin": origin}
    refused = await browser.post("/api/v1/topics", json={"name": "t"}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (403, "origin_not_allowed")
    assert (await browser.delete("/api/v1/topics/kept", headers=headers)).status_code == 403
    assert (await browser.get("/api/v1/topics", headers=headers)).status_code == 403
    assert list(node.topics) == ["kept"]


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost"),
        ("broker.example.org", "https://broker.example.org"),
        ("127.0.0.1:8080", "https://broker.example.org"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
async def test_own_origin_is_served(browser, host: str, origin: str) -> None:
    headers = {"host": host, "origin": origin}
    created = await browser.post("/api/v1/topics", json={"name": "t"}, headers=headers)
    assert created.status_code == 201


@pytest.mark.parametrize(
    ("method", "fetch", "status"),
    [
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ("GET", {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
        ("GET", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
        ("POST", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
    ],
)
async def test_what_browsers_say_of_the_sending_site_counts(
    browser, method: str, fetch: dict[str, str], status: int
) -> None:
    body = {"json": {"name": "t"}} if method == "POST" else {}
    answer = await browser.request(method, "/api/v1/topics", headers=fetch, **body)
    assert answer.status_code == status


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None],
)
async def test_body_that_a_form_can_send_creates_nothing(browser, node, media_type) -> None:
    headers = {} if media_type is None else {"content-type": media_type}
    refused = await browser.post("/api/v1/topics", content=b'{"name": "t"}', headers=headers)
    assert refused.status_code == 415
    assert list(node.topics) == ["kept"]
