"""Goal: probes get the answers that they always had; people and programs see each check, and
strangers no names.

Method: the application over a fake node, for the forms; a broker on virtual time, for the checks.
"""

from __future__ import annotations

import socket
from typing import Any, cast

import httpx
import msgspec
import pytest

from dragoman.api import health_checks
from dragoman.api.health_checks import HealthChecks
from dragoman.api.values import Check
from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import Member, NodeRegistered
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.limits import CLOCK_JUMP_S, SLOW_SYNC_MEMORY_S
from dragoman.net.admission import MemoryBudget
from dragoman.net.listener import OpenListener
from dragoman.net.process_listener import ProcessListener
from dragoman.net.tls.contexts import CertificateState
from dragoman.security.access import Operation
from worlds.broker import World
from worlds.remote_leaders import propose

JSON = {"accept": "application/json"}


async def test_checks_in_json(client: httpx.AsyncClient) -> None:
    for response in (
        await client.get("/readyz", headers=JSON),
        await client.get("/readyz?format=json"),
    ):
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {
            "status": "degraded",
            "checks": [
                {"name": "recovery", "status": "ok", "detail": ""},
                {"name": "damage", "status": "warning", "detail": "in orders-0"},
            ],
        }


async def test_json_of_a_node_that_is_not_ready(client: httpx.AsyncClient, node) -> None:
    node.ready = False
    node.checks = (Check("recovery", "failed", "the node is starting"),)
    response = await client.get("/readyz", headers=JSON)
    assert response.status_code == 503
    assert response.json()["status"] == "not ready"


async def test_verbose_text_is_as_in_kubernetes(client: httpx.AsyncClient, node) -> None:
    node.checks = (*node.checks, Check("disk", "failed", "the disk is full"))
    node.reason = "the disk is full"
    response = await client.get("/readyz?verbose")
    assert response.status_code == 503
    assert response.text.splitlines() == [
        "[+]recovery ok",
        "[!]damage warning: in orders-0",
        "[-]disk failed: the disk is full",
        "readyz check failed",
    ]


@pytest.mark.parametrize("accept", ["*/*", "text/plain", "text/html, */*;q=0.1", ""])
async def test_plain_text_stays_the_answer_to_probes(
    client: httpx.AsyncClient, accept: str
) -> None:
    assert (await client.get("/readyz", headers={"accept": accept})).text == "ready\n"
    assert (await client.get("/livez", headers={"accept": accept})).text == "ok\n"


async def test_failed_log_is_not_live(client: httpx.AsyncClient, node) -> None:
    node.failed = "the log failed: no device"
    plain, found = await client.get("/livez"), await client.get("/livez?format=json")
    assert (plain.status_code, plain.text) == (503, "not live: the log failed: no device\n")
    assert (found.status_code, found.json()["status"]) == (503, "not live")


async def test_strangers_see_no_details(client: httpx.AsyncClient, node) -> None:
    node.authorizer.denied = {Operation.DESCRIBE}
    node.checks = (*node.checks, Check("disk", "failed", "the disk is full"))
    checks = (await client.get("/readyz", headers=JSON)).json()["checks"]
    assert [each["detail"] for each in checks] == ["", "", "the disk is full"]
    node.degraded = "in orders-0"
    plain = (await client.get("/readyz")).text
    assert plain == "ready, degraded: the data directory is damaged\n"
    assert "orders" not in (await client.get("/readyz?verbose")).text


async def test_pages_of_other_sites_see_no_details(client: httpx.AsyncClient, node) -> None:
    node.degraded = "in orders-0"
    for headers in ({"host": "evil.example.com"}, {"origin": "http://evil.example.com"}):
        assert "orders" not in (await client.get("/readyz", headers=headers)).text
        assert "orders" not in (await client.get("/readyz", headers=JSON | headers)).text


async def test_health_is_in_the_openapi_document(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path in ("/livez", "/readyz"):
        content = document["paths"][path]["get"]["responses"]["200"]["content"]
        assert content["application/json"]["schema"]["$ref"].endswith("/Health")


# ---- the checks


class Contexts:
    def __init__(self) -> None:
        self.found: list[CertificateState] = []

    def states(self) -> list[CertificateState]:
        return self.found


class Listeners:
    def __init__(self) -> None:
        self.budget = MemoryBudget(1000)
        self.contexts = Contexts()
        self.opened: list[object] = []


class Node:
    """The part of a node that the checks use, around a broker on virtual time."""

    def __init__(self, **settings: object) -> None:
        self.settings = Settings(listeners=(), **settings)  # type: ignore[arg-type]
        self.world = World(self.settings)
        self.broker = self.world.broker
        self.clock = self.broker.clock
        self.started_at = self.clock.monotonic()
        self.started_at_wall_ms = self.clock.wall_ms()
        self.listeners = Listeners()
        self.checks = HealthChecks(self)  # type: ignore[arg-type]

    def check(self, name: str) -> Check:
        return next(each for each in self.checks.run() if each.name == name)


def test_every_check_of_a_sound_node_is_ok() -> None:
    found = Node().checks.run()
    assert [each.name for each in found] == [
        *("recovery", "disk", "journal", "quorum", "listeners", "registration", "replication"),
        *("damage", "descriptors", "memory", "certificates", "console", "clock"),
    ]
    assert {each.status for each in found} == {"ok"}, found


def test_node_that_starts_or_stops() -> None:
    node = Node()
    node.broker.context.is_ready = False
    assert node.check("recovery") == Check("recovery", "failed", "the node is starting")
    node.broker.context.is_stopping = True
    assert node.check("recovery").detail == "the node is stopping"


def test_full_disk() -> None:
    node = Node()
    node.broker.store.directory.is_full = True
    assert node.check("disk") == Check("disk", "failed", "the disk is full")


def test_disk_with_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    monkeypatch.setattr(node.broker.store.directory, "free_bytes", lambda: 1 << 20)
    assert node.check("disk") == Check("disk", "warning", "1,048,576 bytes are free")


def test_slow_sync_is_a_warning_for_a_while() -> None:
    node = Node()
    node.broker.store.commits.slow_syncs.note(2.0, 1)
    assert node.check("journal").detail == "the disk is slow: a sync took 2.0 s"
    node.world.advance(SLOW_SYNC_MEMORY_S + 1)
    assert node.check("journal").status == "ok"


def test_failed_log_is_a_reason_for_a_new_start() -> None:
    node = Node()
    assert node.checks.failure() == ""
    node.broker.store.fail(OSError(5, "Input/output error"))
    assert "Input/output error" in node.checks.failure()
    assert node.check("journal").status == "failed"


def test_listener_that_is_not_open() -> None:
    node = Node()
    wanted = (Listener(name="kafka", bind=Address("127.0.0.1", 0)),)
    node.settings = msgspec.structs.replace(node.settings, listeners=wanted)
    assert node.check("listeners") == Check("listeners", "warning", "not open: kafka")


def _console(host: str) -> tuple[Listener, OpenListener]:
    listener = Listener(name="console", bind=Address(host, 8081))
    return listener, OpenListener(listener, cast(Any, None), listener.bind)


def test_console_that_others_reach_needs_users(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(console_base_path="/d")
    assert node.check("console") == Check("console", "ok", "it is off")
    wanted, opened = _console("0.0.0.0")
    node.settings = msgspec.structs.replace(node.settings, listeners=(wanted,))
    assert node.check("console").detail == "its listener is not open"
    node.listeners.opened = [opened]
    found = node.check("console")
    assert found.status == "warning"
    assert found.detail.startswith("http://0.0.0.0:8081/d/: no user can log in yet")
    node.listeners.opened = [_console("127.0.0.1")[1]]
    monkeypatch.setattr(health_checks, "missing_modules", lambda _: [])
    assert node.check("console") == Check("console", "ok", "http://127.0.0.1:8081/d/")
    monkeypatch.setattr(health_checks, "missing_modules", lambda _: ["duckdb"])
    found = node.check("console")
    assert (found.status, "SQL needs duckdb: pip install" in found.detail) == ("ok", True)


def test_console_whose_process_fails() -> None:
    node = Node()
    wanted, _ = _console("127.0.0.1")
    node.settings = msgspec.structs.replace(node.settings, listeners=(wanted,))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        console = ProcessListener(wanted, bound, cast(Any, None), cast(Any, None))
        console._failure = "it ended with status 1 after 0 s"
        node.listeners.opened = [console]
        found = node.check("console")
    assert found.status == "warning"
    assert found.detail.endswith("its process has failed: it ended with status 1 after 0 s")


def test_fenced_node_and_replicas_without_their_others() -> None:
    node = Node(cluster=("1@127.0.0.1:9190",), broker_session_timeout_ms=600_000)
    propose(node.world, NodeRegistered(node_id=2, incarnation=1))
    assert node.world.create_outcome(NewTopic(name="t", assignment=((1, 2),) * 3)) is None
    assert node.check("replication").status == "ok"
    node.broker.cluster.controller.fence(Member(2, 1))
    node.world.scheduler.run_ready()
    found = node.check("replication")
    assert found.status == "warning"
    assert "3 under-replicated, 0 without a leader" in found.detail
    assert node.check("registration").status == "ok"
    node.broker.image.fenced.add(1)
    assert node.check("registration").detail == "the cluster has fenced this node"


def test_memory_that_others_wait_for() -> None:
    node = Node()
    node.listeners.budget.take(1000)
    assert node.check("memory") == Check("memory", "warning", "1,000 of 1,000 bytes are in flight")


@pytest.mark.parametrize(
    ("left_days", "problem", "said"),
    [
        (100, "", ""),
        (3, "", "kafka: it expires in 3 days"),
        (-1, "", "kafka: it has expired"),
        (100, "no such file", "kafka: no such file"),
    ],
)
def test_certificates(left_days: int, problem: str, said: str) -> None:
    node = Node()
    expires = node.clock.wall_ms() + left_days * 86_400_000
    node.listeners.contexts.found = [CertificateState("kafka", "CN=x", expires, problem)]
    assert node.check("certificates") == Check("certificates", "warning" if said else "ok", said)


def test_clock_that_jumps() -> None:
    node = Node()
    node.started_at_wall_ms -= int(CLOCK_JUMP_S * 1000)
    assert (
        node.check("clock").detail
        == f"the clock has jumped by +{CLOCK_JUMP_S:.0f} s since the start"
    )


def test_descriptors_that_run_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.api.health_checks.open_files_max", lambda: 3)
    assert Node().check("descriptors").status == "warning"
