"""The HTTP surface over httpx's ASGI transport: operations, refusals, and the documents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from dragoman import limits
from dragoman.api.app import create_app
from dragoman.api.declaration import EventStream
from dragoman.api.operations import OPERATIONS
from dragoman.api.problems import STATUS_BY_CODE, status_of
from dragoman.captures.definition import Definition
from dragoman.errors import (
    AuthError,
    BrokerError,
    ClusterError,
    ConfigError,
    DiskFullError,
    DragomanError,
    LogStoppedError,
)
from dragoman.security.access import Caller


def assert_problem(response: httpx.Response, status: int, code: str) -> str:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem.keys() == {"type", "title", "status", "code", "detail"}
    assert (problem["status"], problem["code"]) == (status, code)
    return problem["detail"]


async def test_live_whatever_the_state(client: httpx.AsyncClient, node) -> None:
    node.ready = False
    response = await client.get("/livez")
    assert (response.status_code, response.text) == (200, "ok\n")


async def test_ready_follows_the_node(client: httpx.AsyncClient, node) -> None:
    assert (await client.get("/readyz")).status_code == 200
    node.ready = False
    refused = await client.get("/readyz")
    assert (refused.status_code, refused.text) == (503, "not ready: the node is starting\n")


async def test_a_node_that_clients_should_avoid_still_answers_operators(
    client: httpx.AsyncClient, node
) -> None:
    node.reason = "the disk is full"
    refused = await client.get("/readyz")
    assert (refused.status_code, refused.text) == (503, "not ready: the disk is full\n")
    assert (await client.get("/api/v1/cluster")).status_code == 200


async def test_a_degraded_node_is_ready_and_says_what_it_lacks(
    client: httpx.AsyncClient, node
) -> None:
    node.degraded = "a file is damaged"
    reply = await client.get("/readyz")
    assert (reply.status_code, reply.text) == (200, "ready, degraded: a file is damaged\n")


async def test_api_waits_for_the_node_but_metrics_do_not(client: httpx.AsyncClient, node) -> None:
    node.ready = False
    assert_problem(await client.get("/api/v1/topics"), 503, "not_ready")
    assert (await client.get("/metrics")).status_code == 200


async def test_metrics_are_scraped(client: httpx.AsyncClient, node) -> None:
    node.add_topic("orders")
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "\ndragoman_topics 1\n" in response.text
    node.add_topic("more")
    assert "\ndragoman_topics 2\n" in (await client.get("/metrics")).text


async def test_topic_is_created_described_listed_and_deleted(client: httpx.AsyncClient) -> None:
    body = {"name": "orders", "partitions": 2, "config": {"retention.ms": "1000"}}
    created = await client.post("/api/v1/topics", json=body)
    assert created.status_code == 201
    assert created.headers["location"] == "/api/v1/topics/orders"
    described = await client.get(created.headers["location"])
    assert described.json() == created.json()
    assert [each["partition"] for each in described.json()["partitions"]] == [0, 1]
    assert described.json()["config"] == [
        {"name": "retention.ms", "value": "1000", "source": "topic", "effective": True}
    ]
    listed = (await client.get("/api/v1/topics")).json()
    summary = {"name": "orders", "partitions": 2, "replication_factor": 1, "internal": False}
    assert listed == {"items": [summary], "next": None}
    deleted = await client.delete("/api/v1/topics/orders")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert_problem(await client.get("/api/v1/topics/orders"), 404, "unknown_topic")


async def test_answer_says_whose_clients_do_not_see_a_topic(client: httpx.AsyncClient) -> None:
    created = await client.post("/api/v1/topics", json={"name": "a/b"})
    assert (created.status_code, created.json()["hidden_from"]) == (201, ["kafka", "cursus"])
    described = await client.get(created.headers["location"])
    assert described.json()["hidden_from"] == ["kafka", "cursus"]


async def test_missing_topic_and_group_are_not_found(client: httpx.AsyncClient) -> None:
    detail = assert_problem(await client.get("/api/v1/topics/nope"), 404, "unknown_topic")
    assert detail == "there is no topic 'nope'"
    assert_problem(await client.delete("/api/v1/topics/nope"), 404, "unknown_topic")
    assert_problem(await client.get("/api/v1/groups/nope"), 404, "unknown_group")


async def test_existing_topic_is_a_conflict(client: httpx.AsyncClient, node) -> None:
    node.add_topic("orders")
    response = await client.post("/api/v1/topics", json={"name": "orders"})
    assert_problem(response, 409, "topic_exists")


@pytest.mark.parametrize("name", ["a/b", "%RETRY%g", "ä ö?#", "..", "a%2Fb", "x" * 249])
async def test_any_name_can_be_in_a_path(client: httpx.AsyncClient, name: str) -> None:
    created = await client.post("/api/v1/topics", json={"name": name})
    response = await client.get(created.headers["location"].replace("/..", "/%2E%2E"))
    assert response.json()["name"] == name


async def test_name_that_is_no_utf8_is_refused(client: httpx.AsyncClient) -> None:
    assert_problem(await client.get("/api/v1/topics/%FF"), 400, "invalid_request")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `name`"),
        (b'{"name": 3}', "Expected `str`, got `int` - at `$.name`"),
        (b'{"name": ""}', "length >= 1"),
        (b'{"name": "' + b"x" * 250 + b'"}', "length <= 249"),
        (b'{"name": "t", "partitions": 0}', ">= 1"),
        (b'{"name": "t", "partitions": 10001}', "<= 10000"),
        (b'{"name": "t", "partitions": "2"}', "Expected `int | null`"),
        (b'{"name": "t", "partitions": 1e99}', "Expected `int | null`"),
        (b'{"name": "t", "replication_factor": 40000}', "<= 32767"),
        (b'{"name": "t", "partition": 2}', "unknown field `partition`"),
        (b'{"name": "t", "config": {"a": 1}}', "Expected `str`"),
        (b'{"name": "\xff"}', "utf-8"),
        (b'{"name": "\\ud800"}', "truncated"),
        (b'{"name": "t", "x": ' + b"[" * 100_000, ""),
    ],
)
async def test_bad_body_is_refused(
    client: httpx.AsyncClient, node, body: bytes, words: str
) -> None:
    headers = {"content-type": "application/json"}
    response = await client.post("/api/v1/topics", content=body, headers=headers)
    detail = assert_problem(response, 400, "invalid_request")
    assert detail.startswith("request body: ")
    assert words in detail
    assert node.topics == {}


async def test_bad_config_is_refused_with_the_hint(client: httpx.AsyncClient) -> None:
    body = {"name": "t", "config": {"retention.msec": "1"}}
    detail = assert_problem(await client.post("/api/v1/topics", json=body), 400, "config")
    assert "did you mean 'retention.ms'?" in detail


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_body_of_another_type_is_refused(client: httpx.AsyncClient, media_type: str) -> None:
    """A web page can send these to a node on the loopback without being asked for permission."""
    headers = {"content-type": media_type}
    response = await client.post("/api/v1/topics", content=b'{"name": "t"}', headers=headers)
    assert_problem(response, 415, "unsupported_media_type")


async def test_media_type_may_have_parameters(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    response = await client.post("/api/v1/topics", content=b'{"name": "t"}', headers=headers)
    assert response.status_code == 201


async def test_announced_large_body_is_refused(client: httpx.AsyncClient) -> None:
    body = b'{"name": "' + b"x" * limits.HTTP_BODY_BYTES_MAX
    headers = {"content-type": "application/json"}
    response = await client.post("/api/v1/topics", content=body, headers=headers)
    assert_problem(response, 413, "body_too_large")


async def test_unannounced_large_body_is_refused_at_the_bound(client: httpx.AsyncClient) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 64 << 10
            yield bytes(64 << 10)

    headers = {"content-type": "application/json"}
    response = await client.post("/api/v1/topics", content=chunks(), headers=headers)
    assert_problem(response, 413, "body_too_large")
    assert sent <= limits.HTTP_BODY_BYTES_MAX + (128 << 10)


async def test_body_that_does_not_arrive_is_timed_out(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(limits, "HTTP_REQUEST_SECONDS", 0)
    headers = {"content-type": "application/json"}
    response = await client.post("/api/v1/topics", content=stalled(), headers=headers)
    assert_problem(response, 408, "request_timeout")


async def test_listing_is_paged_without_loss(client: httpx.AsyncClient, node) -> None:
    names = [f"t{index:02d}" for index in range(7)]
    for name in names:
        node.add_topic(name)
        node.add_group(name)
    for path, field in (("/api/v1/topics", "name"), ("/api/v1/groups", "group")):
        seen: list[str] = []
        after: str | None = ""
        pages = 0
        while after is not None:
            page = (await client.get(path, params={"after": after, "limit": 3})).json()
            seen += [item[field] for item in page["items"]]
            after = page["next"]
            pages += 1
        assert (seen, pages) == (names, 3)


async def test_full_last_page_has_no_next(client: httpx.AsyncClient, node) -> None:
    for name in ("a", "b"):
        node.add_topic(name)
    page = (await client.get("/api/v1/topics", params={"limit": 2})).json()
    assert (len(page["items"]), page["next"]) == (2, None)


@pytest.mark.parametrize(
    "limit", ["0", "-1", "1001", "x", "", "9" * 40, "\N{ARABIC-INDIC DIGIT ONE}"]
)
async def test_bad_limit_is_refused(client: httpx.AsyncClient, limit: str) -> None:
    response = await client.get("/api/v1/topics", params={"limit": limit})
    assert "limit: expected" in assert_problem(response, 400, "invalid_request")


async def test_group_is_described(client: httpx.AsyncClient, node) -> None:
    node.add_group("g/1")
    group = (await client.get("/api/v1/groups/g%2F1")).json()
    assert group["group"] == "g/1"
    assert group["members"][0]["assignment"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert [each["lag_records"] for each in group["offsets"]] == [3, None]


async def test_cluster_status_is_shown(client: httpx.AsyncClient) -> None:
    status = (await client.get("/api/v1/cluster")).json()
    assert status["nodes"][0]["listeners"] == [
        {"name": "kafka", "bound": "127.0.0.1:9092", "advertised": None}
    ]


async def test_unknown_path_is_a_problem(client: httpx.AsyncClient) -> None:
    for path in ("/", "/api", "/api/v1/topics/", "/api/v2/topics", "/api/v1/topics/a/b"):
        assert_problem(await client.get(path), 404, "not_found")


async def test_wrong_method_is_answered_with_the_right_ones(client: httpx.AsyncClient) -> None:
    response = await client.put("/api/v1/topics", json={})
    assert_problem(response, 405, "method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


async def test_head_is_answered_like_get(client: httpx.AsyncClient) -> None:
    response = await client.head("/api/v1/topics")
    assert response.status_code == 200


async def test_fault_is_a_500_that_tells_nothing(client: httpx.AsyncClient, node) -> None:
    node.failure = RuntimeError("secret")
    response = await client.get("/api/v1/topics/t")
    assert "secret" not in assert_problem(response, 500, "internal")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BrokerError("x"), 400, "broker"),
        (ConfigError("x"), 400, "config"),
        (AuthError("x"), 403, "auth"),
        (ClusterError("x"), 503, "cluster"),
        (LogStoppedError("x"), 503, "log_stopped"),
        (DiskFullError("x"), 507, "disk_full"),
        (DragomanError("x"), 500, "error"),
    ],
)
async def test_refusal_of_the_node_keeps_its_code(
    client: httpx.AsyncClient, node, error: DragomanError, status: int, code: str
) -> None:
    node.failure = error
    assert_problem(await client.get("/api/v1/topics/t"), status, code)
    assert status_of(error) == status


async def test_openapi_describes_every_operation(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    health = {("GET", "/livez"), ("GET", "/readyz")}
    assert described == health | {(each.method, each.path) for each in OPERATIONS}
    creation = document["paths"]["/api/v1/topics"]["post"]
    assert {"201", "400", "409", "413", "415", "500", "503"} <= creation["responses"].keys()


async def test_openapi_references_resolve(client: httpx.AsyncClient) -> None:
    text = (await client.get("/openapi.json")).text
    schemas = json.loads(text)["components"]["schemas"]
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references <= schemas.keys()
    assert schemas["NewTopic"]["additionalProperties"] is False
    assert schemas["Problem"]["required"] == ["title", "status", "code", "detail"]


async def test_answers_have_the_documented_types(client: httpx.AsyncClient, node) -> None:
    node.add_topic("t")
    node.add_group("t")
    await node.captures.add_capture(Caller(), Definition(name="t", dsn="host=db", tables=("t",)))
    for operation in OPERATIONS:
        if operation.method == "GET" and operation.answer is not EventStream:
            path = operation.path.replace("{name}", "t").replace("{partition}", "0")
            response = await client.get(path)
            assert operation.answer is not None
            msgspec.json.decode(response.content, type=operation.answer)


def test_codes_with_a_status_of_their_own_are_refusals() -> None:
    assert all(400 <= status < 600 for status in STATUS_BY_CODE.values())


async def test_a_flag_is_true_or_false(client: httpx.AsyncClient, node) -> None:
    for query, keeps_slot in (("", False), ("?keep_slot=true", True), ("?keep_slot=false", False)):
        assert (await client.delete(f"/api/v1/captures/shop{query}")).status_code == 200
        assert node.asked.pop() == ("shop", keeps_slot)
    wrong = await client.delete("/api/v1/captures/shop?keep_slot=1")
    assert wrong.status_code == 400
    assert "keep_slot: expected true or false, got '1'" in wrong.json()["detail"]
    described = (await client.get("/openapi.json")).json()["paths"]["/api/v1/captures/{name}"]
    assert [each["name"] for each in described["delete"]["parameters"]] == ["name", "keep_slot"]


async def test_operations_are_counted_with_their_errors(client: httpx.AsyncClient, node) -> None:
    await client.get("/api/v1/topics")
    await client.get("/api/v1/topics/gone")
    await client.get("/nowhere")
    counted = {each.name: each for each in node.requests.counters()}
    assert {name: each.count for name, each in counted.items()} == {
        "GET /api/v1/topics": 1,
        "GET /api/v1/topics/{name}": 1,
        "refused": 1,
    }
    assert counted["refused"].errors == {"not_found": 1}
    assert counted["GET /api/v1/topics/{name}"].errors == {"unknown_topic": 1}


async def test_requests_that_no_operation_gets_are_counted_by_their_refusal(node) -> None:
    transport = httpx.ASGITransport(create_app(node), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for _ in range(2):
            await client.get("/api/v1/topics", headers={"host": "rebound.example.com"})
        await client.get("/api/v1/topics", headers={"origin": "http://example.com"})
        await client.put("/api/v1/topics")
        node.ready = False
        await client.get("/api/v1/topics")
        await client.get("/readyz")
    (counted,) = node.requests.counters()
    assert counted.name == "refused"
    assert counted.count == 5
    assert counted.errors == {
        "host_not_allowed": 2,
        "origin_not_allowed": 1,
        "method_not_allowed": 1,
        "not_ready": 1,
    }


@pytest.mark.parametrize("path", ["/api/v1/topics", "/api/v1/topics/gone", "/docs", "/livez", "/x"])
async def test_browsers_neither_keep_responses_nor_guess_their_type(
    client: httpx.AsyncClient, path: str
) -> None:
    response = await client.get(path)
    assert response.headers.get_list("x-content-type-options") == ["nosniff"]
    assert response.headers.get_list("cache-control") == ["no-store"]
