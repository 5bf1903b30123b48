"""Goal: on a node that requires logins and enforces rules, a capture works with the rights of its
user, and stops without them.

Method: a real PostgreSQL, a broker in this process, and the command line of two users.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer

from demo.postgres import LocalPostgres
from dragoman.broker.administration import Actor
from dragoman.cli.main import main
from dragoman.net.future import future_of
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.security.rule_filter import RuleFilter
from dragoman.security.rules import Pattern, Permission, Rule
from dragoman.testing import EphemeralBroker

PASSWORDS = {"admin": "admin's", "alice": "alice's", "reader": "reader's"}
TOPIC = "pgcdc.orders"
ROWS = 50
WAIT_S = 60
ACTOR = Actor(caller=Caller(), protocol="testing")


def rule(name: str, operation: Operation, resource: Resource, what: str) -> Rule:
    return Rule(f"User:{name}", "*", operation, Permission.ALLOW, resource, Pattern.LITERAL, what)


WRITE = rule("alice", Operation.WRITE, Resource.TOPIC, TOPIC)
RULES = [
    WRITE,
    *(
        rule("alice", operation, Resource.TOPIC, f"pgcdc.{mark}")
        for mark in ("_snapshot", "_heartbeat")
        for operation in (Operation.WRITE, Operation.CREATE)
    ),
    rule("alice", Operation.CREATE, Resource.TOPIC, TOPIC),
    rule("alice", Operation.CREATE, Resource.CAPTURE, "shop"),
    rule("alice", Operation.DESCRIBE, Resource.CAPTURE, "shop"),
    rule("alice", Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME),
    rule("reader", Operation.READ, Resource.TOPIC, TOPIC),
    rule("reader", Operation.READ, Resource.GROUP, "*"),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[LocalPostgres]:
    server = LocalPostgres().start()
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as database:
            database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
            database.execute("INSERT INTO orders SELECT generate_series(1, %s)", (ROWS,))
        yield server
    finally:
        server.stop()
        server.remove()


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    locked = EphemeralBroker(users=PASSWORDS, settings={"super.users": "User:admin"})
    with locked as running:
        yield running


def change(broker: EphemeralBroker, added: list[Rule], removed: list[Rule]) -> None:
    node = broker._node
    assert node is not None
    rules = node.broker.access.rules

    async def apply() -> None:
        if added:
            await future_of(rules.add(added, ACTOR))
        if removed:
            filters = [
                RuleFilter(principal=each.principal, operation=each.operation, name=each.name)
                for each in removed
            ]
            await future_of(rules.remove(filters, ACTOR))

    broker._call(apply())


@pytest.fixture
def cdc(
    broker: EphemeralBroker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    def run(user: str, *arguments: str) -> tuple[int, str]:
        password = tmp_path / user
        password.write_text(PASSWORDS[user])
        password.chmod(0o600)
        login = ("--user", user, "--password-file", str(password))
        status = main(["cdc", *arguments, "--server", broker.http_url, *login])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def state(cdc: Callable[..., tuple[int, str]]) -> dict[str, str]:
    status, out = cdc("alice", "status", "shop", "--output", "json")
    assert status == 0, out
    found: dict[str, str] = json.loads(out)["status"]
    return found


def wait_for(cdc: Callable[..., tuple[int, str]], wanted: str) -> dict[str, str]:
    deadline = time.monotonic() + WAIT_S
    while (found := state(cdc))["state"] != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def captured(broker: EphemeralBroker, count: int, **settings: str) -> set[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "reader",
            "sasl.password": PASSWORDS["reader"],
            "group.id": f"read-{count}",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([TOPIC])
    found: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None and message.key():
            found.add(int(message.key()))
    consumer.close()
    return found


def test_a_capture_works_with_the_rights_of_its_user_and_stops_without(
    broker: EphemeralBroker, cdc: Callable[..., tuple[int, str]], postgres: LocalPostgres
) -> None:
    add = ("add", "shop", "--dsn", postgres.dsn(), "--tables", "orders", "--partitions", "1")
    status, said = cdc("alice", *add, "--no-check", "--detach")
    assert status == 1
    assert "alice may not create capture 'shop'" in said
    change(broker, [each for each in RULES if each != WRITE], [])
    status, said = cdc("alice", *add, "--no-check", "--detach")
    assert status == 1
    assert f"User:alice, which may not write to the topic {TOPIC}" in said
    change(broker, [WRITE], [])
    status, said = cdc("alice", *add)
    assert status == 0, said
    assert captured(broker, ROWS) == set(range(1, ROWS + 1))

    change(broker, [], [WRITE])
    found = wait_for(cdc, "failed")
    assert "may not write to the topic" in found["problem"]
    with psycopg.connect(postgres.dsn(), autocommit=True) as database:
        database.execute("INSERT INTO orders VALUES (%s)", (ROWS + 1,))
    change(broker, [WRITE], [])
    wait_for(cdc, "streaming")
    assert captured(broker, ROWS + 1) == set(range(1, ROWS + 2))
    status, said = cdc("admin", "remove", "shop")
    assert status == 0, said


def test_a_capture_connects_to_listeners_that_demand_tls(
    postgres: LocalPostgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password = tmp_path / "admin"
    password.write_text(PASSWORDS["admin"])
    locked = EphemeralBroker(users=PASSWORDS, settings={"super.users": "User:admin"}, tls=True)
    with locked as broker:
        change(broker, RULES, [])
        login = ("--user", "admin", "--password-file", str(password), "--ca-file", broker.ca_file)
        where = ("--server", broker.http_url.replace("127.0.0.1", "localhost"), *login)
        add = ("add", "encrypted", "--dsn", postgres.dsn(), "--tables", "orders", "--no-check")
        assert main(["cdc", *add, *where]) == 0, capsys.readouterr().err
        trust = {"security.protocol": "sasl_ssl", "ssl.ca.location": broker.ca_file}
        assert len(captured(broker, ROWS, **trust)) == ROWS
        assert main(["cdc", "remove", "encrypted", *where]) == 0, capsys.readouterr().err
