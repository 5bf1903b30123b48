"""Goal: a node serves its console: users log in and act with their own rights, the node sees the
browser's address, and no process is left when either side dies.

Method: nodes with real directories, the console's real process, and an HTTP client as the browser.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dragoman.limits import CONSOLE_PROCESS_BYTES_MAX, HTTP_HEADER_BYTES_MAX
from dragoman.testing import EphemeralBroker
from nodes.process import ServedNode

LISTENERS = ("kafka", "http", "console")
USERS = {"alice": "correct horse", "bob": "battery staple"}


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[EphemeralBroker]:
    with EphemeralBroker(
        storage="directory",
        directory=str(tmp_path / "data"),
        users=USERS,
        listeners=LISTENERS,
        # Kafka's listener demands nothing. The node enforces its rules, as one does whose listeners
        # demand logins from the start.
        settings={
            "authentication": "off",
            "listener.http.authentication": "required",
            "super.users": "User:alice",
        },
    ) as broker:
        yield broker


def browser(
    broker: EphemeralBroker, address: str = "127.0.0.1", scheme: str = "http", **tls: object
) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address, **tls)  # type: ignore[arg-type]
    return httpx.Client(
        transport=transport, base_url=f"{scheme}://{broker.address('console')}", timeout=30
    )


def log_in(client: httpx.Client, user: str = "alice") -> httpx.Response:
    return client.post("/session", json={"user": user, "password": USERS.get(user, "x")})


def test_user_acts_with_own_rights_and_is_out_once_disabled(locked: EphemeralBroker) -> None:
    with browser(locked) as client, browser(locked) as other:
        assert client.get("/session").json()["needs_login"]
        assert log_in(client, "mallory").status_code == 401
        assert log_in(client).status_code == 204
        assert client.post("/api/v1/topics", json={"name": "orders"}).status_code == 201
        change = {"set": {"retention.ms": "1000"}}
        found = client.patch("/api/v1/topics/orders", json=change)
        assert found.status_code in (200, 204), found.text
        assert [each["name"] for each in client.get("/lists/topics").json()["items"]] == ["orders"]
        assert log_in(other, "bob").status_code == 204
        assert other.delete("/api/v1/topics/orders").status_code == 403
        assert other.get("/session").json()["user"] == "bob"
        done = client.post("/api/v1/security/users/bob/commands", json={"command": "disable"})
        assert done.status_code == 200, done.text
        assert other.get("/lists/topics").status_code == 401
        assert other.get("/session").json()["user"] is None


def test_audit_log_names_the_browser(locked: EphemeralBroker, tmp_path: Path) -> None:
    with browser(locked, "127.0.0.9") as client:
        log_in(client, "mallory")
        log_in(client)
        client.post("/api/v1/topics", json={"name": "orders"})
    locked.stop()
    lines = map(json.loads, (tmp_path / "data" / "audit.log").read_text().splitlines())
    ours = [each for each in lines if each.get("host") == "127.0.0.9"]
    assert {(each["kind"], each["principal"], each["result"]) for each in ours} >= {
        ("login", "User:mallory", "failed"),
        ("login", "User:alice", "succeeded"),
    }


def test_guesser_delays_nobody_else(locked: EphemeralBroker) -> None:
    with browser(locked, "127.0.0.9") as guesser, browser(locked) as client:
        for _ in range(4):
            assert guesser.post(
                "/session", json={"user": "mallory", "password": "guess"}
            ).status_code in (401, 503)
        began = time.monotonic()
        assert log_in(client).status_code == 204
        # The guesser's next attempt waits for seconds.
        assert time.monotonic() - began < 10


def test_node_without_users_is_read_only() -> None:
    with (
        EphemeralBroker(storage="directory", listeners=LISTENERS) as broker,
        browser(broker) as client,
    ):
        state = client.get("/session").json()
        assert (state["needs_login"], state["is_read_only"]) == (False, True)
        assert client.get("/lists/topics").json()["items"] == []
        assert client.post("/api/v1/topics", json={"name": "a"}).status_code == 403
        assert log_in(client).status_code == 401


def test_first_user_makes_the_console_ask_for_a_login(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        EphemeralBroker(storage="directory", directory=str(data), listeners=LISTENERS) as broker,
        browser(broker) as client,
    ):
        assert not client.get("/session").json()["needs_login"]
        user = {"name": "alice", "password": USERS["alice"]}
        created = httpx.post(f"{broker.http_url}/api/v1/security/users", json=user)
        assert created.status_code == 201
        assert client.get("/session").json()["needs_login"]
        assert client.get("/lists/topics").status_code == 401
        assert log_in(client).status_code == 204
        assert client.get("/lists/topics").status_code == 200
    # No other listener takes logins, and the audit log is written all the same.
    assert '"User:alice"' in (data / "audit.log").read_text()


def test_console_needs_no_other_listener() -> None:
    with (
        EphemeralBroker(storage="directory", listeners=("console",)) as broker,
        browser(broker) as client,
    ):
        state = client.get("/session").json()
        assert (state["server"], state["bootstrap"]) == ("", "")
        assert client.get("/lists/topics").status_code == 200


def test_pages_and_cookies_travel_by_tls() -> None:
    settings = {"listener.console.tls": "required"}
    with EphemeralBroker(
        storage="directory", listeners=LISTENERS, users=USERS, tls=True, settings=settings
    ) as broker:
        verify = ssl.create_default_context(cafile=str(broker.ca_file))
        with browser(broker, scheme="https", verify=verify) as client:
            assert client.get("/").status_code == 200
            assert "Secure" in log_in(client).headers["set-cookie"]
            assert client.get("/session").json()["user"] == "alice"


def test_command_reads_records_over_tls_by_the_one_mechanism_that_is_offered(
    tmp_path: Path,
) -> None:
    settings = {
        "super.users": "User:alice",
        "listener.kafka.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with EphemeralBroker(
        storage="directory",
        directory=str(tmp_path),
        listeners=LISTENERS,
        users=USERS,
        tls=True,
        settings=settings,
    ) as broker:
        at_node = ("--server", broker.http_url, "--ca-file", broker.ca_file)
        at_brokers = ("--bootstrap", broker.bootstrap_servers, "--tls")
        command = (sys.executable, "-m", "dragoman.cli.main", "console", *at_node, *at_brokers)
        process = subprocess.Popen(
            (*command, "--listen", "127.0.0.1:0"), stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[2].rstrip(",")
            with httpx.Client(base_url=url, timeout=30) as client:
                assert log_in(client).status_code == 204
                created = client.post("/api/v1/topics", json={"name": "orders", "partitions": 1})
                assert created.status_code == 201, created.text
                record = {"records": [{"value": "x"}]}
                written = client.post("/api/v1/topics/orders/records", json=record)
                assert written.status_code == 200, written.text
                lines = client.post("/records/search", json={"topic": "orders"}).text
                assert '"offset":0' in lines, lines
        finally:
            process.terminate()
            process.communicate()


def consoles() -> set[int]:
    """Processes of consoles that this process has started."""
    found = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        for each in (task / "children").read_text().split():
            if b"dragoman.console" in Path(f"/proc/{each}/cmdline").read_bytes():
                found.add(int(each))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")
def test_process_ends_with_the_node_and_is_replaced_when_killed() -> None:
    with EphemeralBroker(storage="directory", listeners=LISTENERS) as broker:
        assert consoles() == set()
        with browser(broker) as client:
            client.get("/session")
        (process,) = consoles()
        os.kill(process, signal.SIGKILL)
        with browser(broker) as client:
            while True:
                try:
                    assert client.get("/session").status_code == 200
                    break
                except httpx.TransportError:
                    continue
        (other,) = consoles()
        assert other != process
    assert consoles() == set()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")
def test_node_that_was_killed_starts_again_beside_its_old_console(tmp_path: Path) -> None:
    def arguments(port: int) -> tuple[str, ...]:
        return ("--data", str(tmp_path), "--listen", f"console=127.0.0.1:{port}")

    with ServedNode(*arguments(0)) as node:
        address = node.ready().listeners["console"]
        # A client that stays connected keeps the process busy.
        with httpx.Client(base_url=f"http://{address}", timeout=30) as client:
            assert client.get("/session").status_code == 200
            node.signal(signal.SIGKILL)
            node.finish()
            with ServedNode(*arguments(int(address.rpartition(":")[2]))) as again:
                again.ready()
                with httpx.Client(base_url=f"http://{address}", timeout=30) as other:
                    assert other.get("/session").status_code == 200
                assert again.stop() == 0


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")
def test_memory_of_the_process_is_bounded() -> None:
    with (
        EphemeralBroker(storage="directory", listeners=LISTENERS) as broker,
        browser(broker) as client,
    ):
        client.get("/session")
        (process,) = consoles()
        limits = Path(f"/proc/{process}/limits").read_text()
        (line,) = (each for each in limits.splitlines() if each.startswith("Max data size"))
        assert line.split()[3:5] == [str(CONSOLE_PROCESS_BYTES_MAX)] * 2


def test_queries_and_records_need_a_login_although_kafka_demands_none(
    locked: EphemeralBroker,
) -> None:
    with browser(locked) as client, browser(locked) as nobody:
        log_in(client)
        client.post("/api/v1/topics", json={"name": "orders"})
        query = {"query": "select 1"}
        assert client.post("/sql", json=query).status_code == 200
        for path, body in (("/sql", query), ("/records/search", {"topic": "orders"})):
            answer = nobody.post(path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (401, "login_needed")


def test_smuggled_and_oversized_requests_are_refused(locked: EphemeralBroker) -> None:
    host, _, port = locked.address("console").rpartition(":")
    head = b"POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for sent in (
        head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        head + b"Content-Length: 2\r\nTransfer-Encoding: gzip, chunked\r\n\r\n{}",
        head + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        head + b"X: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (HTTP_HEADER_BYTES_MAX + 1),
    ):
        with socket.create_connection((host, int(port)), timeout=30) as connected:
            connected.sendall(sent)
            assert re.match(rb"HTTP/1\.1 (400|431|501) ", connected.recv(1 << 16))
