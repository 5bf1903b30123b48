"""Rows of a real PostgreSQL become records, by the capturing process and a broker in the test.

Read back by confluent-kafka, committed records only; every change is there once and in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from msgspec import structs
from psycopg import Connection

from captures.process import WAIT_S, CaptureProcess
from demo.postgres import LocalPostgres
from dragoman.captures.control import Pause, Resume, Rewind
from dragoman.captures.definition import Definition
from dragoman.cdc.position import encode_position, last_position, positions_partition
from dragoman.cdc.source.connection import connect
from dragoman.cdc.source.publication import take_over
from dragoman.client.kafka import (
    BlockingKafkaClient,
    KafkaClient,
    NewTopic,
    ResourceType,
    TransactionOptions,
)
from dragoman.log.batch import Record
from dragoman.testing import EphemeralBroker
from nodes import full_disk


@pytest.fixture(scope="module")
def postgres() -> Iterator[LocalPostgres]:
    with LocalPostgres(18, {"logical_decoding_work_mem": "64kB"}) as server:
        yield server


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("kafka",)) as running:
        yield running


@pytest.fixture
def database(postgres: LocalPostgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own; its address."""
    name = f"t{crc32(request.node.name.encode()):08x}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield postgres.dsn(name)
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
            " WHERE database = %s AND active_pid IS NOT NULL",
            (name,),
        )
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s",
            (name,),
        )
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def definition(database: str, **fields: object) -> Definition:
    name = database.rpartition("/")[2]
    fields.setdefault("tables", ("public.*",))
    # Topics of different tests are different ones.
    fields.setdefault("topics", {"*": name + ".{table}"})
    return Definition(name=name, dsn=database, snapshot="never", **fields)  # type: ignore[arg-type]


def events(broker: EphemeralBroker, topic: str, count: int) -> list[dict[str, object]]:
    """All records of a topic once there are so many: key, value, headers."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    deadline = time.monotonic() + WAIT_S
    try:
        while True:
            # Consumers make no topics by asking for them.
            metadata = consumer.list_topics(topic, timeout=WAIT_S).topics[topic]
            partitions = list(metadata.partitions)
            if partitions:
                break
            assert time.monotonic() < deadline
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found = []
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None, message.error()
                found.append(message)
        # One that is there twice comes along with the last, or before it.
        found += consumer.consume(1000, 0.1)
    finally:
        consumer.close()
    return [
        {
            "partition": each.partition(),
            "key": each.key(),
            "value": None if each.value() is None else json.loads(each.value()),
            **{name: text.decode() for name, text in each.headers() or ()},
        }
        for each in found
    ]


def changed(event: dict[str, object]) -> tuple[object, object, object]:
    """What was done, to which key, and the row after it; None for a tombstone."""
    value = event["value"]
    row = value["row"] if isinstance(value, dict) else None
    return event["pgcdc-operation"], event["key"], row


def order(event: dict[str, object]) -> tuple[str, int]:
    return str(event["pgcdc-lsn"]), int(str(event["pgcdc-seq"]))


def test_changes_are_there_once_and_in_order(
    database: str, broker: EphemeralBroker, tmp_path: Path
) -> None:
    told = definition(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, status text)")
        with CaptureProcess(told, broker.bootstrap_servers, tmp_path / "spool") as capture:
            capture.until_state("streaming")
            connection.execute("INSERT INTO orders VALUES (1, 'new'), (2, 'new')")
            connection.execute("UPDATE orders SET status = 'sent' WHERE id = 1")
            connection.execute("DELETE FROM orders WHERE id = 2")
            found = events(broker, f"{told.name}.orders", 5)
            status = capture.until(lambda it: it.status is not None and it.status.rows == 4)
            assert status.transactions == 3
            assert capture.stop() == 0
    found.sort(key=order)
    assert [changed(each) for each in found] == [
        ("INSERT", b"1", {"id": 1, "status": "new"}),
        ("INSERT", b"2", {"id": 2, "status": "new"}),
        ("UPDATE", b"1", {"id": 1, "status": "sent"}),
        ("DELETE", b"2", {"id": 2}),
        ("DELETE", b"2", None),
    ]
    assert found[0]["pgcdc-lsn"] == found[1]["pgcdc-lsn"]


class Scene:
    """A capture, its database and what it has written."""

    def __init__(
        self, told: Definition, broker: EphemeralBroker, tmp_path: Path, connection: Connection
    ) -> None:
        self.name = told.name
        self.broker = broker
        self.connection = connection
        self.capture = CaptureProcess(told, broker.bootstrap_servers, tmp_path / "spool")

    def events(self, table: str, count: int) -> list[dict[str, object]]:
        found = events(self.broker, f"{self.name}.{table}", count)
        return sorted(found, key=order)

    def sql(self, *statements: str) -> None:
        for each in statements:
            self.connection.execute(each.encode())


Start = Callable[..., Scene]


@pytest.fixture
def start(database: str, broker: EphemeralBroker, tmp_path: Path) -> Iterator[Start]:
    """Makes tables, then starts a capture of them."""
    scenes: list[Scene] = []

    def begin(*tables: str, **fields: object) -> Scene:
        connection = psycopg.connect(database, autocommit=True)
        scene = Scene(definition(database, **fields), broker, tmp_path, connection)
        scenes.append(scene)
        scene.sql(*tables)
        scene.capture.start()
        scene.capture.until_state("streaming")
        return scene

    yield begin
    for scene in scenes:
        scene.capture.kill()
        scene.connection.close()


ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, status text)"


def test_topics_are_made_before_the_first_change(start: Start, broker: EphemeralBroker) -> None:
    """A consumer that was first to ask for one would make it with the broker's defaults."""
    outbox = "CREATE TABLE sent (id uuid PRIMARY KEY, aggregatetype text, payload text)"
    scene = start(ORDERS, outbox, outbox="public.sent", channels=("made:early",), partitions=5)
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        found = {name: len(each.partitions) for name, each in client.cluster().topics.items()}
    assert found[f"{scene.name}.orders"] == found["made.early"] == 5
    assert f"{scene.name}.sent" not in found


def test_tables_may_change_in_between(start: Start) -> None:
    scene = start(ORDERS, schema_changes=True)
    scene.sql(
        "INSERT INTO orders VALUES (1, 'a')",
        "ALTER TABLE orders ADD COLUMN price numeric DEFAULT 1.50",
        "INSERT INTO orders VALUES (2, 'b', 2.50)",
        "ALTER TABLE orders DROP COLUMN status",
        "UPDATE orders SET price = 3 WHERE id = 1",
    )
    assert [changed(each) for each in scene.events("orders", 3)] == [
        ("INSERT", b"1", {"id": 1, "status": "a"}),
        ("INSERT", b"2", {"id": 2, "status": "b", "price": "2.50"}),
        ("UPDATE", b"1", {"id": 1, "price": "3"}),
    ]
    mine = [
        each
        for each in events(scene.broker, "pgcdc._schema", 3)
        if each["key"] == scene.name.encode()
    ]
    # How it looked at first, and each change.
    assert [each["pgcdc-operation"] for each in mine] == ["SCHEMA_CHANGE"] * 3


def test_truncate_is_written_to_every_partition(start: Start) -> None:
    scene = start(ORDERS, partitions=3)
    scene.sql("INSERT INTO orders VALUES (1, 'a')", "TRUNCATE orders")
    found = scene.events("orders", 4)
    assert [each["pgcdc-operation"] for each in found] == ["INSERT", *["TRUNCATE"] * 3]
    assert {each["partition"] for each in found[1:]} == {0, 1, 2}
    assert len({order(each) for each in found[1:]}) == 1


@pytest.mark.parametrize("streaming", [True, False])
def test_large_transaction_comes_whole_without_what_was_rolled_back(
    start: Start, streaming: bool
) -> None:
    scene = start(ORDERS, streaming=streaming)
    insert = "INSERT INTO orders SELECT n, 'x' FROM generate_series({}, {}) n"
    with scene.connection.transaction():
        scene.sql(insert.format(1, 2000), "SAVEPOINT a", insert.format(2001, 4000))
        scene.sql("SAVEPOINT b", insert.format(4001, 5000), "ROLLBACK TO a")
        with psycopg.connect(scene.capture.definition.dsn, autocommit=True) as other:
            # Committed first, so it comes first.
            other.execute("INSERT INTO orders VALUES (0, 'first')")
        scene.sql(insert.format(5001, 6000))
    found = scene.events("orders", 3001)
    keys = [int(str(each["value"]["row"]["id"])) for each in found]  # type: ignore[index]
    assert keys == [0, *range(1, 2001), *range(5001, 6001)]
    assert len({each["pgcdc-lsn"] for each in found}) == 2


@pytest.mark.parametrize("two_phase", [True, False])
def test_prepared_transaction_is_sent_once(
    start: Start, postgres: LocalPostgres, two_phase: bool
) -> None:
    if two_phase and postgres.version < 15:
        pytest.skip("PostgreSQL 14 cannot send what is prepared")
    scene = start(ORDERS, two_phase=two_phase)
    name = f"prepared {two_phase}"
    scene.sql("BEGIN", "INSERT INTO orders VALUES (1, 'a')", f"PREPARE TRANSACTION '{name}'")
    if two_phase:
        assert len(scene.events("orders", 1)) == 1
    scene.sql(f"COMMIT PREPARED '{name}'", "INSERT INTO orders VALUES (2, 'b')")
    assert [each["key"] for each in scene.events("orders", 2)] == [b"1", b"2"]
    # After a restart too.
    scene.capture.kill()
    scene.capture.start()
    scene.capture.until_state("streaming")
    scene.sql("INSERT INTO orders VALUES (3, 'c')")
    assert [each["key"] for each in scene.events("orders", 3)] == [b"1", b"2", b"3"]


def test_transactions_are_marked_when_that_is_asked_for(start: Start) -> None:
    scene = start(ORDERS, transactions=True, heartbeat_s=0.1)
    with scene.connection.transaction():
        scene.sql("INSERT INTO orders VALUES (1, 'a')", "INSERT INTO orders VALUES (2, 'b')")
    rows = scene.events("orders", 2)
    marks = sorted(events(scene.broker, "pgcdc._txn", 2), key=order)
    mine = [each for each in marks if each["key"] == scene.name.encode()]
    assert [each["pgcdc-operation"] for each in mine] == ["BEGIN", "COMMIT"]
    assert order(mine[0]) < order(rows[0])
    assert order(rows[1]) < order(mine[1])


def test_paused_capture_goes_on_where_it_was(start: Start) -> None:
    scene = start(ORDERS)
    scene.sql("INSERT INTO orders VALUES (1, 'a')")
    scene.events("orders", 1)
    scene.capture.tell(Pause())
    scene.capture.until_state("paused")
    scene.sql("INSERT INTO orders VALUES (2, 'b')")
    scene.capture.kill()
    scene.capture.start(is_paused=True)
    scene.capture.until_state("paused")
    assert len(scene.events("orders", 1)) == 1
    scene.capture.tell(Resume())
    assert [each["key"] for each in scene.events("orders", 2)] == [b"1", b"2"]


def test_a_pause_within_a_transaction_waits_for_its_end(start: Start) -> None:
    """One that is sent whole, and takes longer than the buffers of the connection hold."""
    rows = 40_000
    scene = start(ORDERS, streaming=False)
    scene.sql(f"INSERT INTO orders SELECT n, repeat('x', 500) FROM generate_series(1, {rows}) n")
    scene.capture.until(lambda it: it.status is not None and it.status.bytes > 0)
    scene.capture.tell(Pause())
    scene.capture.until_state("paused")
    scene.capture.tell(Resume())
    assert len(scene.events("orders", rows)) == rows


def test_columns_that_an_index_only_includes_are_no_part_of_the_key(start: Start) -> None:
    scene = start(
        "CREATE TABLE wide (id int, v text, PRIMARY KEY (id) INCLUDE (v))",
        "CREATE TABLE whole (id int, v text, PRIMARY KEY (id) INCLUDE (v))",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
    )
    for table in ("wide", "whole"):
        scene.sql(f"INSERT INTO {table} VALUES (1, 'a')", f"UPDATE {table} SET v = 'b'")
        found = [changed(each)[:2] for each in scene.events(table, 2)]
        assert found == [("INSERT", b"1"), ("UPDATE", b"1")]


def test_a_process_that_is_frozen_loses_the_slot_to_its_successor(
    start: Start, tmp_path: Path
) -> None:
    scene = start(ORDERS)
    frozen, told = scene.capture, scene.capture.definition
    scene.sql("INSERT INTO orders VALUES (1, 'a')")
    scene.events("orders", 1)

    async def stranger() -> None:
        async with await connect(told.dsn, name="stranger") as connection:
            await take_over(connection, told, "dragoman 2 " + told.name)

    asyncio.run(stranger())
    holder = scene.connection.execute("SELECT active_pid FROM pg_replication_slots").fetchone()
    assert holder != (None,)
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        bootstrap = scene.broker.bootstrap_servers
        with CaptureProcess(told, bootstrap, tmp_path / "second") as second:
            second.until_state("streaming")
            scene.sql("INSERT INTO orders VALUES (2, 'b')")
            assert [each["key"] for each in scene.events("orders", 2)] == [b"1", b"2"]
            os.kill(frozen.pid, signal.SIGCONT)
            frozen.until_state("stopped")
            scene.sql("INSERT INTO orders VALUES (3, 'c')")
            assert [each["key"] for each in scene.events("orders", 3)] == [b"1", b"2", b"3"]
    finally:
        os.kill(frozen.pid, signal.SIGCONT)


def test_rewind_captures_again_what_the_database_has_kept(start: Start) -> None:
    scene = start(ORDERS, keep_wal_bytes=1 << 30)
    row = scene.connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    scene.sql("INSERT INTO orders VALUES (1, 'a')", "INSERT INTO orders VALUES (2, 'b')")
    first = scene.events("orders", 2)
    scene.capture.tell(Rewind(id="back", lsn=row[0]))
    scene.capture.until(lambda it: "back" in it.done)
    assert scene.capture.done["back"].problem == ""
    again = scene.events("orders", 4)
    # The same events by their ids, so that a reader that keeps ids can drop them.
    assert [each["pgcdc-event-id"] for each in again[::2]] == [
        each["pgcdc-event-id"] for each in first
    ]
    assert again[::2] == again[1::2]
    for lsn, problem in (("0/1", "out of reach"), ("FF/0", "out of reach"), ("x", "position")):
        scene.capture.tell(Rewind(id=lsn, lsn=lsn))
        scene.capture.until(lambda it, lsn=lsn: lsn in it.done)
        assert problem in scene.capture.done[lsn].problem
    scene.capture.until_state("streaming")
    scene.sql("INSERT INTO orders VALUES (3, 'c')")
    assert len(scene.events("orders", 5)) == 5


def slot(scene: Scene) -> str:
    return "dragoman_" + scene.name


def test_lost_slot_is_an_error_that_says_what_to_do(start: Start) -> None:
    scene = start(ORDERS)
    scene.capture.stop()
    scene.sql(
        f"SELECT pg_drop_replication_slot('{slot(scene)}')", "INSERT INTO orders VALUES (1, 'a')"
    )
    scene.capture.start()
    status = scene.capture.until_state("failed")
    assert "is gone" in status.problem
    assert "dragoman cdc remove" in status.problem
    # Nor is one taken that another session has made in its place.
    scene.sql(f"SELECT pg_create_logical_replication_slot('{slot(scene)}', 'pgoutput')")
    scene.capture.tell(Resume())
    status = scene.capture.until(
        lambda it: it.status is not None and "created again or advanced" in it.status.problem
    )
    assert status.state == "failed"


def test_another_database_under_the_same_address_is_refused(
    start: Start, broker: EphemeralBroker, tmp_path: Path
) -> None:
    scene = start(ORDERS)
    scene.capture.stop()
    with LocalPostgres(18) as other, psycopg.connect(other.dsn(), autocommit=True) as connection:
        connection.execute(ORDERS.encode())
        connection.execute(
            f"SELECT pg_create_logical_replication_slot('{slot(scene)}', 'pgoutput')".encode()
        )
        told = structs.replace(scene.capture.definition, dsn=other.dsn())
        with CaptureProcess(told, broker.bootstrap_servers, tmp_path / "other") as capture:
            status = capture.until_state("failed")
    assert "this is another database" in status.problem
    assert "correct the DSN" in status.problem


def test_second_process_takes_over_and_the_first_ends_quietly(
    start: Start, broker: EphemeralBroker, tmp_path: Path
) -> None:
    scene = start(ORDERS)
    with CaptureProcess(
        scene.capture.definition, broker.bootstrap_servers, tmp_path / "second"
    ) as second:
        # It waits for the slot until the first one has noticed.
        second.until(lambda it: it.status is not None and it.status.state != "starting")
        scene.sql("INSERT INTO orders VALUES (1, 'a')")
        status = scene.capture.until_state("stopped")
        assert "another process" in status.problem
        assert scene.capture.stop() == 0
        second.until_state("streaming")
        scene.sql("INSERT INTO orders VALUES (2, 'b')")
        assert [each["key"] for each in scene.events("orders", 2)] == [b"1", b"2"]


def test_busy_tables_of_others_do_not_hold_back_the_log(start: Start) -> None:
    scene = start(ORDERS, "CREATE TABLE busy (n int)", tables=("public.orders",), heartbeat_s=0.1)
    query = (
        "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots"
        f" WHERE slot_name = '{slot(scene)}'"
    )

    def confirmed() -> int:
        row = scene.connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    before = confirmed()
    scene.sql("INSERT INTO busy SELECT generate_series(1, 10000)")
    deadline = time.monotonic() + WAIT_S
    while confirmed() < before + 500_000:
        assert time.monotonic() < deadline
    assert events(scene.broker, "pgcdc._heartbeat", 1)


def test_wrong_address_waits_or_fails_with_a_reason_and_without_the_password(
    database: str, broker: EphemeralBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for dsn, state, text in (
        ("postgresql://nobody:s3cr3t@127.0.0.1:1/none", "waiting", "nothing listens"),
        (database.replace("postgres:", "postgres:s3cr3t"), "failed", "refuses the password"),
    ):
        told = Definition(name="wrong", dsn=dsn, tables=("a",), snapshot="never")
        with CaptureProcess(told, broker.bootstrap_servers, tmp_path) as capture:
            status = capture.until_state(state)
            assert text in status.problem
            assert "s3cr3t" not in str(status)
            assert capture.stop() == 0
    assert "s3cr3t" not in capfd.readouterr().err


def new_timeline(server: LocalPostgres) -> None:
    """What becomes of a server's log when a standby takes over, without the standby."""
    server.stop()
    (server.data / "recovery.signal").touch()
    shutil.chown(server.data / "recovery.signal", "nobody" if os.geteuid() == 0 else None)
    server.configure({"restore_command": "false"})
    server.start()
    deadline = time.monotonic() + WAIT_S
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        while connection.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
            assert time.monotonic() < deadline


def test_server_that_takes_over_must_have_what_was_captured(
    broker: EphemeralBroker, tmp_path: Path
) -> None:
    with LocalPostgres(18) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(ORDERS.encode())
            told = Definition(
                name="over", dsn=server.dsn(), tables=("orders",), topics={"*": "over.{table}"},
                snapshot="never",
            )  # fmt: skip
            capture = CaptureProcess(told, broker.bootstrap_servers, tmp_path / "spool").start()
            capture.until_state("streaming")
            connection.execute("INSERT INTO orders VALUES (1, 'a')")
            events(broker, "over.orders", 1)
        new_timeline(server)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("INSERT INTO orders VALUES (2, 'b')")
        assert len(events(broker, "over.orders", 2)) == 2
        capture.stop()
        # As if the capture had seen more of the first timeline than the second has.
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_lsn() - '0/0' + 10000").fetchone()
            assert row is not None
            connection.execute("INSERT INTO orders SELECT n, 'x' FROM generate_series(3, 999) n")
        asyncio.run(move(broker, "over", lsn=int(row[0]), timeline=1))
        capture.start()
        assert "lacks captured changes" in capture.until_state("failed").problem
        capture.stop()
        asyncio.run(move(broker, "over", lsn=1 << 40, timeline=2))
        capture.start()
        assert "restored from a backup" in capture.until_state("failed").problem
        capture.kill()


async def move(broker: EphemeralBroker, name: str, **fields: int) -> None:
    """Write another position of a capture that does not run."""
    async with KafkaClient(broker.bootstrap_servers) as client:
        producer = client.transactional_producer(
            TransactionOptions(transactional_id=f"__capture.{name}")
        )
        await producer.initialise()
        where = await positions_partition(client, name)
        found = await last_position(client, where, name)
        assert found is not None
        value = encode_position(structs.replace(found, **fields))
        await producer.write_records({where: [Record(key=name.encode(), value=value, timestamp=1)]})
        await producer.commit()


def test_full_disk_under_a_large_transaction_is_said_and_waited_for(
    database: str, broker: EphemeralBroker, tmp_path: Path
) -> None:
    if reason := full_disk.reason_against():
        pytest.skip(reason)
    told = definition(database)
    small = tmp_path / "small"
    capture = CaptureProcess(
        told,
        broker.bootstrap_servers,
        small / "spool",
        interpreter=full_disk.launcher(small, 2),
    )
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(ORDERS.encode())
        with capture:
            capture.until_state("streaming")
            disk = full_disk.SmallDisk(
                SimpleNamespace(process=SimpleNamespace(pid=capture.pid)),  # type: ignore[arg-type]
                small,
            )
            disk.fill()
            connection.execute("INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 5000) n")
            status = capture.until_state("waiting")
            assert "no space is left" in status.problem
            assert "free some" in status.problem
            connection.execute("INSERT INTO orders VALUES (0, 'later')")
            disk.empty()
            found = sorted(events(broker, f"{told.name}.orders", 5001), key=order)
    keys = [int(str(each["value"]["row"]["id"])) for each in found]  # type: ignore[index]
    assert keys == [*range(1, 5001), 0]


def test_row_that_its_topic_does_not_take_is_said_and_waited_for(
    database: str, start: Start, broker: EphemeralBroker
) -> None:
    topic = f"{definition(database).name}.orders"
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        client.create_topic(
            NewTopic(name=topic, partitions=2, config={"max.message.bytes": "2000"})
        )
        scene = start(ORDERS)
        # Many that fit, each by itself. They have to be there before one follows that does not: it
        # holds up all that is written together with it.
        scene.sql("INSERT INTO orders SELECT n, repeat('x', 500) FROM generate_series(1, 50) n")
        assert len(scene.events("orders", 50)) == 50
        scene.sql(
            "INSERT INTO orders VALUES (51, repeat('x', 5000))",
            "INSERT INTO orders VALUES (52, 'small')",
        )
        status = scene.capture.until_state("waiting")
        assert "raise max.message.bytes of the topic" in status.problem
        assert topic in status.problem
        client.alter_configs(ResourceType.TOPIC, topic, {"max.message.bytes": "100000"})
    keys = [int(str(each["key"], "ascii")) for each in scene.events("orders", 52)]  # type: ignore[arg-type]
    assert keys == list(range(1, 53))
    scene.capture.until_state("streaming")
