"""Goal: the OpenAPI document has an example for every body, each example is one of its schema, a
running node answers every GET as the examples say, and the page at `/docs` escapes everything and
needs nothing from elsewhere.

Method: examples decoded as their types; a node over real sockets with what the examples name; the
page parsed, also for a document with hostile texts.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
import uvloop

from dragoman import __version__
from dragoman.api.declaration import EventStream, Operation
from dragoman.api.docs_page import page_of
from dragoman.api.examples import example_of, parameter_example
from dragoman.api.openapi import openapi_document
from dragoman.api.operations import OPERATIONS
from dragoman.cli.remote import Remote
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from nodes.thread import Running

#: What the examples name and a node of its own cannot have: a database to capture.
UNKNOWN = {"describe_capture"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_examples_are_of_their_schema_and_in_the_document(operation: Operation) -> None:
    document: Any = openapi_document()
    described = document["paths"][operation.path][operation.method.lower()]
    if operation.body is not None:
        example = described["requestBody"]["content"]["application/json"]["example"]
        assert example == example_of(operation.body.type)
        msgspec.json.decode(msgspec.json.encode(example), type=operation.body.type)
    if operation.answer is not None and operation.answer is not EventStream:
        answer = described["responses"][str(operation.status)]
        example = answer["content"]["application/json"]["example"]
        found = msgspec.json.decode(msgspec.json.encode(example), type=operation.answer)
        # Nothing that the answers have is left out.
        assert json.loads(msgspec.json.encode(found)).keys() == example.keys()
    for each in operation.parameters:
        example = parameter_example(operation, each)
        if example is not None:
            each.type.parse(each.name, example)
        assert example is not None or each.place != "path"


# ---- a running node


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    listeners = tuple(
        Listener(name=name, bind=Address("127.0.0.1", 0)) for name in ("kafka", "http")
    )
    real = Running(uvloop.new_event_loop, Settings(listeners=listeners))
    yield real
    real.stop()


def ask(node: Running, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    opened = node.node.listeners.find("http")
    assert opened is not None
    sent = b"" if body is None else msgspec.json.encode(body)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", opened.bound.port), timeout=60) as connection:
        connection.sendall(head.encode() + sent)
        reply = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head_of_reply, _, found = reply.partition(b"\r\n\r\n")
    return int(head_of_reply.split()[1]), found


def path_of(operation: Operation) -> str:
    path, query = operation.path, []
    for each in operation.parameters:
        example = parameter_example(operation, each)
        if each.place == "path":
            assert example is not None
            path = path.replace(f"{{{each.name}}}", quote(example, safe=""))
        elif example is not None:
            query.append(f"{each.name}={quote(example)}")
    return path + ("?" + "&".join(query) if query else "")


def example_body(name: str) -> object:
    (operation,) = [each for each in OPERATIONS if each.name == name]
    assert operation.body is not None
    return example_of(operation.body.type)


def test_running_node_answers_the_examples(running: Running) -> None:
    posts = ("create_topic", "write_records", "reset_group", "create_user")
    for operation in OPERATIONS:
        if operation.name in posts:
            status, body = ask(running, "POST", path_of(operation), example_body(operation.name))
            assert status == operation.status, body
    for operation in OPERATIONS:
        if operation.method != "GET" or operation.answer in (None, EventStream):
            continue
        status, body = ask(running, "GET", path_of(operation))
        if operation.name in UNKNOWN:
            assert status == 404
            continue
        assert status == 200, (operation.name, body)
        assert operation.answer is not None
        msgspec.json.decode(body, type=operation.answer)


# ---- the page


class Page(HTMLParser):
    """Elements, their attributes, and the targets of links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.found.append((tag, named))
        self.ids.add(named.get("id") or "")
        for name in ("href", "src"):
            if name in named:
                self.links.add(named[name] or "")


async def test_page_shows_every_operation_and_loads_only_its_own(
    client: httpx.AsyncClient,
) -> None:
    response = await client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    page = Page(response.text)
    assert {each.name for each in OPERATIONS} <= page.ids
    assert {each[1:] for each in page.links if each.startswith("#")} <= page.ids
    others = {each for each in page.links if not each.startswith("#")}
    assert others == {"/openapi.json", "/docs/docs_page.css", "/docs/docs_page.js"}
    for each in others:
        assert (await client.get(each)).status_code == 200
    # The policy forbids these.
    assert not any(name.startswith("on") or name == "style" for _, a in page.found for name in a)
    assert [a for tag, a in page.found if tag == "script" and "src" not in a] == []


async def test_token_stays_in_the_memory_of_the_page(client: httpx.AsyncClient) -> None:
    text = (await client.get("/docs")).text
    (field,) = (a for tag, a in Page(text).found if a.get("id") == "token")
    assert (field["type"], field["autocomplete"]) == ("password", "off")
    # Browsers store and restore what is in a form, or has a name.
    assert "name" not in field
    assert text.index('id="token"') < text.index("<form")
    assert f"Version {__version__}" not in text
    script = (await client.get("/docs/docs_page.js")).text
    assert "Bearer ${token}" in script
    for keeper in ("localStorage", "sessionStorage", "cookie", "indexedDB", "innerHTML"):
        assert keeper not in script


def test_hostile_texts_stay_texts() -> None:
    evil = "\"'><script>alert(1)</script>"
    document = {
        "info": {"title": evil, "version": evil},
        "paths": {
            f"/{evil}": {
                "get": {
                    "operationId": evil,
                    "summary": evil,
                    "parameters": [
                        {
                            "name": evil,
                            "in": evil,
                            "schema": {"type": evil, "enum": [evil, f"#{evil}"]},
                            "example": evil,
                        }
                    ],
                    "requestBody": {"content": {evil: {"schema": {}, "example": {evil: evil}}}},
                    "responses": {"200": {"description": evil, "content": {}}},
                }
            }
        },
        "components": {
            "schemas": {evil: {"description": evil, "properties": {evil: {"$ref": f"/{evil}"}}}}
        },
    }
    page = Page(page_of(document))
    assert [a for tag, a in page.found if tag == "script"] == [
        {"src": "/docs/docs_page.js", "defer": None}
    ]
    assert not any(name.startswith("on") for _, a in page.found for name in a)


def test_commands_show_all_pages_of_a_topic_and_a_group(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = running.node.listeners.find("http")
    assert opened is not None
    ask(running, "POST", "/api/v1/topics", {"name": "wide", "partitions": 5})
    reset = {"to": "latest", "topics": ["wide"]}
    ask(running, "POST", "/api/v1/groups/paged/reset", reset)
    remote = Remote(f"http://127.0.0.1:{opened.bound.port}")
    get = remote.get
    two_at_a_time = lambda path, kind: get(f"{path}{'&' if '?' in path else '?'}limit=2", kind)  # noqa: E731
    monkeypatch.setattr(remote, "get", two_at_a_time)
    topic, group = remote.topic("wide"), remote.group("paged")
    assert ([each.partition for each in topic.partitions], topic.next) == ([0, 1, 2, 3, 4], None)
    assert ([each.partition for each in group.offsets], group.next) == ([0, 1, 2, 3, 4], None)
