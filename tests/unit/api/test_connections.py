"""Goal: operators see the connections of a node, close one, and see what is damaged on its disk.

Method: a node over real sockets, with a client of Kafka and one of HTTP; and a data directory in
memory with a file in quarantine.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from dragoman.api.damage import DamageService
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.protocols.kafka import messages as m
from dragoman.security.access import Caller
from nodes.thread import Running
from worlds.broker import World
from worlds.http import ask as ask_service

CALLER = Caller()


@pytest.fixture
def node() -> Iterator[Running]:
    listeners = tuple(
        Listener(name=name, bind=Address("127.0.0.1", 0)) for name in ("kafka", "http")
    )
    running = Running(uvloop.new_event_loop, Settings(listeners=listeners))
    yield running
    running.stop()


def ask(node: Running, path: str, method: str = "GET") -> tuple[int, Any]:
    opened = node.node.listeners.find("http")
    assert opened is not None
    with socket.create_connection(("127.0.0.1", opened.bound.port), timeout=60) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        reply = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head_of_reply, _, body = reply.partition(b"\r\n\r\n")
    return int(head_of_reply.split()[1]), json.loads(body) if body else None


def test_connections_are_listed_and_closed(node: Running) -> None:
    client = node.connect()
    client.ask(m.ApiVersionsRequest(), 2, m.ApiVersionsResponse)
    status, page = ask(node, "/api/v1/connections")
    assert (status, page["node_id"], page["next"]) == (200, node.node.settings.node_id, None)
    kafka, http = sorted(page["items"], key=lambda each: each["protocol"], reverse=True)
    assert (http["protocol"], http["listener"], http["bytes"]) == ("http", "http", None)
    assert (kafka["protocol"], kafka["listener"]) == ("kafka", "kafka")
    assert kafka["user"] == http["user"] == "User:ANONYMOUS"
    assert kafka["bytes"] > 0
    assert kafka["age_ms"] >= kafka["idle_ms"] >= 0
    assert kafka["peer"].startswith("127.0.0.1:")
    _, page = ask(node, "/api/v1/connections?listener=kafka&limit=1")
    assert [each["id"] for each in page["items"]] == [kafka["id"]]
    assert ask(node, "/api/v1/connections?listener=nope")[1]["items"] == []
    assert ask(node, f"/api/v1/connections/{kafka['id']}", "DELETE") == (204, None)
    node.wait_until(lambda: not node.node.listeners.channels["kafka"].open)
    status, problem = ask(node, f"/api/v1/connections/{kafka['id']}", "DELETE")
    assert (status, problem["code"]) == (404, "unknown_connection")
    client.__exit__()


def test_connections_come_a_page_at_a_time(node: Running) -> None:
    clients = [node.connect() for _ in range(3)]
    for each in clients:
        each.ask(m.ApiVersionsRequest(), 2, m.ApiVersionsResponse)
    found, after = [], ""
    while after is not None:
        _, page = ask(node, f"/api/v1/connections?listener=kafka&limit=2&after={after}")
        found += [each["id"] for each in page["items"]]
        after = page["next"]
    assert found == sorted(set(found))
    assert len(found) == 3
    for each in clients:
        each.__exit__()


def test_damage_shows_what_was_kept_aside() -> None:
    world = World()
    service = DamageService(world.broker)
    page = ask_service(world, service.list_damage(CALLER, None, "", PageLimit(10)))
    assert (page.items, page.next, page.quarantine, page.quarantined_bytes) == ((), None, (), 0)
    world.disk.make_directory("quarantine")
    file = world.disk.open("quarantine/a.log", "create")
    file.write([b"12345"], 0)
    page = ask_service(world, service.list_damage(CALLER, None, "", PageLimit(10)))
    assert [(each.path, each.size_bytes) for each in page.quarantine] == [("quarantine/a.log", 5)]
    assert page.quarantined_bytes == 5
    for bad in ("x", "-1", "9" * 20):
        with pytest.raises(ApiError):
            ask_service(world, service.list_damage(CALLER, None, bad, PageLimit(10)))
