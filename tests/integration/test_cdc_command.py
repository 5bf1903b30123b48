"""Goal: `dragoman cdc` from a database that is not fit to one that is captured, and what it says.

Method: a real PostgreSQL and a broker in this process; the command line as users type it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest
from confluent_kafka import Consumer

from demo.capture import Database
from demo.postgres import LocalPostgres
from dragoman.cli.main import main
from dragoman.testing import EphemeralBroker

WAIT_S = 60
ROWS = 500


@pytest.fixture(scope="module")
def postgres() -> Iterator[LocalPostgres]:
    server = LocalPostgres().start()
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as database:
            database.execute("CREATE TABLE orders (id int PRIMARY KEY, what text)")
            database.execute(
                "INSERT INTO orders SELECT n, 'thing ' || n FROM generate_series(1, %s) n", (ROWS,)
            )
            database.execute("CREATE ROLE reader LOGIN PASSWORD 'distinctive-word'")
        yield server
    finally:
        server.stop()
        server.remove()


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker() as running:
        yield running


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def cdc(broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        status = main(["cdc", *arguments, "--server", broker.http_url])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


def test_what_is_wrong_is_said_with_its_remedy_and_nothing_is_added(
    cdc: Callable[..., Ran], postgres: LocalPostgres
) -> None:
    good = postgres.dsn()
    for dsn, tables, words in (
        (good.replace(str(postgres.port), "1"), "orders", "nothing listens at"),
        (good.replace(postgres.password, "distinctive-word"), "orders", "password"),
        (good, "order_lines", "order_lines"),
        (
            good.replace(f"postgres:{postgres.password}", "reader:distinctive-word"),
            "orders",
            "repl",
        ),
    ):
        ran = cdc("add", "shop", "--dsn", dsn, "--tables", tables)
        assert ran.status == 1
        assert "problem: " in ran.err
        assert words in ran.err
        assert "nothing was added" in ran.err
        assert "distinctive-word" not in ran.err.replace(dsn, "")
        assert postgres.password not in ran.err
    assert cdc("list", "--output", "json").out.strip() == "[]"
    with psycopg.connect(good) as database:
        assert database.execute("SELECT FROM pg_replication_slots").fetchall() == []


def test_a_database_is_looked_at_from_here_as_well(
    cdc: Callable[..., Ran], postgres: LocalPostgres
) -> None:
    told = ("--dsn", postgres.dsn(), "--tables", "orders", "--output", "json")
    here, there = cdc("doctor", *told, "--local"), cdc("doctor", *told)
    assert (here.status, there.status) == (0, 0)
    said = [[each["what"] for each in json.loads(ran.out)["items"]] for ran in (here, there)]
    assert "wal_level is logical" in said[0]
    assert len(said[0]) == len(said[1])


def test_a_database_is_captured_with_what_is_in_it(
    broker: EphemeralBroker,
    cdc: Callable[..., Ran],
    postgres: LocalPostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added = cdc("add", "shop", "--dsn", postgres.dsn(), "--tables", "orders", "--output", "json")
    assert added.status == 0
    assert "added capture" not in added.err
    capture = json.loads(added.out)
    assert capture["status"]["tables"][0]["rows"] == ROWS
    assert postgres.password not in added.out
    assert ["public.orders", "all", str(ROWS)] in [
        line.split()[:3] for line in cdc("status", "shop").out.splitlines()
    ]
    assert len(events(broker, ROWS)) == ROWS
    again = cdc("snapshot", "shop", "--tables", "orders")
    assert (again.status, again.err) == (0, "capture shop snapshots orders again\n")
    assert len(events(broker, 2 * ROWS)) == 2 * ROWS
    refused = cdc("rewind", "shop", "--to", "0/1")
    assert refused.status == 1
    assert "0/1" in refused.err
    assert cdc("doctor", "shop").status == 0
    # The environment has the address of what was added: that is no question about another one.
    monkeypatch.setenv("DRAGOMAN_CDC_DSN", postgres.dsn())
    assert cdc("doctor", "shop").status == 0
    removed = cdc("remove", "shop")
    assert (removed.status, removed.err) == (0, "capture shop is removed; its topics remain\n")
    with psycopg.connect(postgres.dsn()) as database:
        assert database.execute("SELECT FROM pg_replication_slots").fetchall() == []
        assert database.execute("SELECT FROM pg_publication").fetchall() == []


def events(broker: EphemeralBroker, count: int) -> list[bytes]:
    """So many records, or those that there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"read {count}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["pgcdc.orders"])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        if message is None:
            break
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.close()
    return found


def test_a_capture_of_the_same_name_begins_anew(
    broker: EphemeralBroker, cdc: Callable[..., Ran], postgres: LocalPostgres
) -> None:
    for _ in range(2):
        told = ("--dsn", postgres.dsn(), "--tables", "orders", "--topic", "orders=again")
        added = cdc("add", "again", *told, "--output", "json")
        assert json.loads(added.out)["status"]["tables"][0]["rows"] == ROWS
        assert cdc("remove", "again").status == 0


def test_an_interrupted_demo_leaves_nothing_in_the_database(postgres: LocalPostgres) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('dragoman_demo', 'pgoutput')")
        database = Database(postgres.dsn())
        database.is_captured = True
        database.close()
        assert connection.execute("SELECT FROM pg_replication_slots").fetchall() == []
