"""A capture that runs in the test, with a faster clock: snapshots that are repeated, resumed or
fail; new tables; the WAL that the database retains; commits that are not visible yet.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from captures import snapshot_tables as scene
from captures.in_process import is_read, running
from demo.postgres import RELEASES, LocalPostgres
from dragoman.captures.control import Pause, Snapshot
from dragoman.captures.definition import Definition
from dragoman.cdc import capture as capture_module
from dragoman.cdc.doctor import examine
from dragoman.cdc.snapshot import reader, taker
from dragoman.cdc.snapshot.reader import ChunkReader
from dragoman.cdc.snapshot.window import Visibility
from dragoman.cdc.source import wal_guard
from dragoman.cdc.source.publication import SourceTable
from dragoman.testing import EphemeralBroker


@pytest.fixture(scope="module", params=RELEASES)
def postgres(request: pytest.FixtureRequest) -> Iterator[LocalPostgres]:
    with LocalPostgres(request.param) as server:
        yield server


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with EphemeralBroker(listeners=("kafka",)) as running:
        yield running.bootstrap_servers


@pytest.fixture
def database(postgres: LocalPostgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """One of the test's own; its address."""
    name = f"database_{abs(hash(request.node.name))}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield postgres.dsn(name)
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s",
            (name,),
        )
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(autouse=True)
def _faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taker, "SNAPSHOT_NEW_TABLES_S", 0.05)
    monkeypatch.setattr(taker, "SNAPSHOT_RETRY_S", 0.05)
    monkeypatch.setattr(wal_guard, "GUARD_LOOK_S", 0.05)
    monkeypatch.setattr(capture_module, "CAPTURE_REPORT_S", 0.05)


async def test_tables_that_come_and_go_are_noticed(
    postgres: LocalPostgres, bootstrap: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE come_1 (id int PRIMARY KEY)")
        connection.execute("INSERT INTO come_1 VALUES (1), (2)")
        async with running(postgres.dsn(), bootstrap, tmp_path, "come") as it:
            await it.until(is_read({"come_1": 2}))
            connection.execute("CREATE TABLE come_2 (v int)")
            connection.execute("ALTER TABLE come_2 REPLICA IDENTITY FULL")
            for number in range(20):  # before, while and after it is published
                connection.execute("INSERT INTO come_2 VALUES (%s)", (number,))
            await it.until(lambda status: len(status.tables) == 2)
            connection.execute("INSERT INTO come_2 VALUES (20)")
            await it.until(lambda status: all(each.is_done for each in status.tables))
            connection.execute("DROP TABLE come_1")
            await it.until(lambda status: len(status.tables) == 1)
            await it.until_end()
        operations = await asyncio.to_thread(scene.check_bare, postgres.dsn(), bootstrap, "come_2")
        assert operations.total() == 21
        assert operations["SNAPSHOT"] > 0


async def test_a_publication_that_is_dropped_is_noticed_and_nothing_goes_on_over_the_gap(
    postgres: LocalPostgres, bootstrap: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE unsaid (id int PRIMARY KEY)")
        async with running(postgres.dsn(), bootstrap, tmp_path, "unsaid") as it:
            await it.until(is_read({"unsaid": 0}))
            await it.until_end()
            connection.execute("DROP PUBLICATION dragoman_unsaid")
            status = await it.until(lambda status: status.state == "failed")
            # The database says it, or, from 18 on, the scan for new tables.
            assert re.search('publication "?dragoman_unsaid"? is gone', status.problem)
            assert "add it again" in status.problem


async def test_a_capture_stops_when_the_database_keeps_too_much_and_a_pause_is_watched_too(
    postgres: LocalPostgres, bootstrap: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id int PRIMARY KEY)")
        limits = {"wal_warn_bytes": 1 << 20, "wal_limit_bytes": 4 << 20, "heartbeat_s": 0.0}
        async with running(postgres.dsn(), bootstrap, tmp_path, "kept", **limits) as it:
            await it.until(lambda status: status.state == "streaming")
            it.capture.take(Pause())
            await it.until(lambda status: status.state == "paused")
            for _ in range(6):
                connection.execute(
                    "SELECT pg_logical_emit_message(false, 'x', repeat('x', 1 << 20))"
                )
            status = await it.until(lambda status: bool(status.warnings))
            assert status.state == "paused"
            assert "of WAL for the slot dragoman_kept" in status.warnings[0]
            assert status.retained_bytes > 1 << 20
        # A transaction of another session holds the slot back, however fast it is read.
        with psycopg.connect(postgres.dsn()) as holding:
            holding.execute("INSERT INTO kept VALUES (1)")
            async with running(postgres.dsn(), bootstrap, tmp_path, "kept", **limits) as it:
                status = await it.until(lambda status: status.state == "failed")
                assert "the capture was stopped by its wal_policy" in status.problem
                assert "--wal-limit" in status.problem


async def test_row_whose_commit_is_sent_before_it_is_visible_is_not_undone(
    postgres: LocalPostgres, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit waits for a standby, and the capture's own sessions do not."""
    local = reader._SETTINGS | {"synchronous_commit": "local"}
    monkeypatch.setattr(reader, "_SETTINGS", local)
    looks = 0
    begin = ChunkReader.begin

    async def counted(reader: ChunkReader, table: SourceTable) -> Visibility:
        nonlocal looks
        looks += 1
        return await begin(reader, table)

    monkeypatch.setattr(ChunkReader, "begin", counted)
    fields = {"snapshot": "never", "heartbeat_s": 0.0}
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute("CREATE TABLE unseen (id int PRIMARY KEY, v int)")
        connection.execute("INSERT INTO unseen VALUES (1, 0), (2, 0)")
        async with running(postgres.dsn(), bootstrap, tmp_path, "unseen", **fields) as it:
            await it.until(lambda status: status.state == "streaming")
            _set_standby(connection, "nobody")
            update, count = await _update_until_one_waits(postgres.dsn(), connection)
            await it.until(lambda status: status.rows == count)
            seen = connection.execute("SELECT v FROM unseen WHERE id = 1").fetchone()
            assert seen == (count - 1,)
            it.capture.take(Snapshot(id="again"))
            await it.until(lambda _: looks > 3)
            assert not update.done()
            _set_standby(connection, "")
            await update
            await it.until(is_read({"unseen": 2}))
            await it.until_end()
        await asyncio.to_thread(scene.check_keyed, postgres.dsn(), bootstrap, "unseen")


async def _update_until_one_waits(
    dsn: str, connection: psycopg.Connection
) -> tuple[asyncio.Task[None], int]:
    """The server takes a moment to know of its standby. Also how many there were."""
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    for count in range(1, 10_000):
        statement = "UPDATE unseen SET v = v + 1 WHERE id = 1"
        update = asyncio.create_task(asyncio.to_thread(_execute, dsn, statement))
        while not update.done():
            await asyncio.sleep(0)
            if connection.execute(waiting).fetchone() is not None:
                return update, count
    raise AssertionError("no commit waits")


def _execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def _set_standby(connection: psycopg.Connection, name: str) -> None:
    """Returns when sessions have it."""
    connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'".encode())
    connection.execute("SELECT pg_reload_conf()")
    while connection.execute("SHOW synchronous_standby_names").fetchone() != (name,):
        pass


async def test_a_table_is_sent_again_on_demand_and_others_are_not(
    database: str, bootstrap: str, tmp_path: Path
) -> None:
    scene.make_tables(database, 600)
    capture = (database, bootstrap, tmp_path, "again")
    fields = {"tables": ("public.*",), "snapshot": "never", "snapshot_rows": 100}
    async with running(*capture, **fields) as it:
        await it.until(lambda status: status.state == "streaming")
        assert all(each.is_done for each in it.status.tables)
        it.capture.take(Snapshot(id="wrong", tables=("absent",)))
        await it.until(lambda _: "wrong" in it.done)
        assert "public.items" in it.done["wrong"].problem
        it.capture.take(Snapshot(id="right", tables=("items", "bare")))
        await it.until(lambda _: "right" in it.done)
        assert it.done["right"].problem == ""
        await it.until(is_read({"items": 600, "bare": 150, "pairs": 0, "nothing": 0}))
        await it.until_end()
    async with running(*capture, **fields) as it:  # what was sent is not sent again
        await it.until(lambda status: status.state == "streaming")
        it.capture.take(Snapshot(id="pairs", tables=("pairs",)))
        await it.until(is_read({"items": 600, "bare": 150, "pairs": 150, "nothing": 0}))
        await it.until_end()
    for check, table, count in (
        (scene.check_keyed, "items", 600),
        (scene.check_bare, "bare", 150),
        (scene.check_keyed, "pairs", 150),
    ):
        assert await asyncio.to_thread(check, database, bootstrap, table) == {"SNAPSHOT": count}


async def test_an_outbox_is_sent_once_and_what_was_written_before_a_table_was_published_is_not_lost(
    database: str, bootstrap: str, tmp_path: Path
) -> None:
    insert = (
        "INSERT INTO outbox SELECT i, 'order', i, 'made', '{}'"
        " FROM generate_series(%s::int, %s::int) i"
    )
    capture = (database, bootstrap, tmp_path, "late")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid int,"
            " type text, payload json)"
        )
        connection.execute(insert, (1, 10))
        async with running(*capture, outbox="outbox") as it:
            await it.until(is_read({"outbox": 10}))
            connection.execute(insert, (11, 20))
            await it.until_end()
        connection.execute("CREATE TABLE late (id int PRIMARY KEY)")
        connection.execute("INSERT INTO late SELECT generate_series(1, 30)")
        early = psycopg.connect(database)
        early.execute("INSERT INTO late VALUES (99)")  # too early to be in the stream
        async with running(*capture, outbox="outbox") as it:
            await it.until(lambda status: any("waits for" in each for each in status.warnings))
            early.commit()
            early.close()
            await it.until(is_read({"outbox": 10, "late": 31}))
            connection.execute("INSERT INTO late VALUES (31)")
            await it.until_end()
    sent = await asyncio.to_thread(
        lambda: list(scene.read_records(bootstrap, "outbox.event.order"))
    )
    assert sorted(int(key) for key, _, _ in sent) == list(range(1, 21))
    found = await asyncio.to_thread(scene.check_keyed, database, bootstrap, "late")
    assert found == {"SNAPSHOT": 31, "INSERT": 1}


async def test_a_table_that_may_not_be_read_holds_up_no_other(
    database: str, postgres: LocalPostgres, bootstrap: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE ROLE narrow LOGIN REPLICATION PASSWORD 'x'")
        for name in ("closed", "opened"):
            connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)".encode())
            connection.execute(f"INSERT INTO {name} VALUES (1), (2)".encode())
        connection.execute("GRANT SELECT ON opened TO narrow")
        connection.execute("CREATE PUBLICATION ours FOR TABLE closed, opened")
        dsn = database.replace(f"{postgres.user}:{postgres.password}", "narrow:x")
        fields = {"tables": ("public.*",), "publication": "ours"}
        async with running(dsn, bootstrap, tmp_path, "narrow", **fields) as it:
            status = await it.until(lambda status: bool(status.warnings))
            assert "the snapshot of public.closed waits" in status.warnings[0]
            await it.until(is_read({"opened": 2}))
            connection.execute("INSERT INTO closed VALUES (3)")  # changes are sent all the same
            await it.until_end()
            assert it.status.rows >= 3
            connection.execute("GRANT SELECT ON closed TO narrow")
            await it.until(is_read({"opened": 2, "closed": 3}))
            await it.until_end()
        found = await asyncio.to_thread(scene.check_keyed, database, bootstrap, "closed")
        assert found == {"SNAPSHOT": 3, "INSERT": 1}
        connection.execute("DROP OWNED BY narrow")
        connection.execute("DROP ROLE narrow")


async def test_a_table_that_was_away_or_is_another_one_now_is_sent_again(
    database: str, bootstrap: str, tmp_path: Path
) -> None:
    capture = (database, bootstrap, tmp_path, "away")
    with psycopg.connect(database, autocommit=True) as connection:
        for name in ("away_left", "away_replaced"):
            connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)".encode())
            connection.execute(f"INSERT INTO {name} VALUES (1), (2)".encode())
        async with running(*capture) as it:
            await it.until(is_read({"away_left": 2, "away_replaced": 2}))
            await it.until_end()
        connection.execute("ALTER PUBLICATION dragoman_away DROP TABLE away_left")
        connection.execute("INSERT INTO away_left VALUES (3)")
        connection.execute("DROP TABLE away_replaced")
        connection.execute("CREATE TABLE away_replaced (id int PRIMARY KEY)")
        connection.execute("INSERT INTO away_replaced VALUES (4)")
        async with running(*capture) as it:
            status = await it.until(is_read({"away_left": 3, "away_replaced": 1}))
            assert any("away_left had left the publication" in each for each in status.warnings)
            await it.until_end()
    left = await asyncio.to_thread(lambda: list(scene.read_topic(bootstrap, "pgcdc.away_left")))
    assert [operation for _, operation, _ in left] == ["SNAPSHOT"] * 5
    replaced = await asyncio.to_thread(
        lambda: list(scene.read_topic(bootstrap, "pgcdc.away_replaced"))
    )
    assert sorted(value["row"]["id"] for _, _, value in replaced) == [1, 2, 4]


async def test_column_that_is_added_with_a_default_is_warned_of_until_a_snapshot(
    database: str, bootstrap: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE wide (id int PRIMARY KEY)")
        connection.execute("INSERT INTO wide VALUES (1), (2)")
        async with running(database, bootstrap, tmp_path, "wide") as it:
            await it.until(is_read({"wide": 2}))
            connection.execute("INSERT INTO wide VALUES (3)")
            connection.execute("ALTER TABLE wide ADD COLUMN plain int")
            connection.execute("INSERT INTO wide VALUES (4)")
            await it.until_end()
            assert it.status.warnings == ()
            connection.execute("ALTER TABLE wide ADD COLUMN rank int DEFAULT 7")
            # Many tools drop it again.
            connection.execute("ALTER TABLE wide ALTER COLUMN rank DROP DEFAULT")
            connection.execute("INSERT INTO wide VALUES (5)")
            status = await it.until(lambda status: bool(status.warnings))
            assert "rank was added to public.wide with a default" in status.warnings[0]
            assert "dragoman cdc snapshot wide --tables public.wide" in status.warnings[0]
            given = Definition(name="wide", dsn=database, tables=("wide",))
            found = [each async for each in examine(given)]
            assert [each.remedy for each in found if "rank" in each.what] == [
                "dragoman cdc snapshot wide --tables public.wide"
            ]
            it.capture.take(Snapshot(id="again", tables=("wide",)))
            await it.until(lambda status: not status.warnings)
        given = Definition(name="new", dsn=database, tables=("wide",))
        assert not [each async for each in examine(given) if "rank" in each.what]


async def test_tables_whose_names_differ_by_dots_have_topics_of_their_own(
    database: str, bootstrap: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute('CREATE TABLE "dot.ted" (id int PRIMARY KEY)')
        connection.execute('INSERT INTO "dot.ted" VALUES (1)')
        tables = ("public.*", "dot.*")
        async with running(database, bootstrap, tmp_path, "dots", tables=tables) as it:
            await it.until(is_read({"dot.ted": 1}))
            connection.execute("CREATE SCHEMA dot")
            connection.execute("CREATE TABLE dot.ted (id int PRIMARY KEY)")
            connection.execute("INSERT INTO dot.ted VALUES (2)")
            # Row 2 may come with the snapshot of the new table, which the stream does not wait for.
            await it.until(lambda status: [each.is_done for each in status.tables] == [True] * 2)
            connection.execute("INSERT INTO dot.ted VALUES (3)")
            connection.execute('INSERT INTO "dot.ted" VALUES (4)')
            status = await it.until(lambda status: bool(status.warnings))
            await it.until_end()
        apart = re.search(r"pgcdc\.dot\.ted-[0-9a-f]{8}", status.warnings[0])
        assert apart is not None
        async with running(database, bootstrap, tmp_path, "dots", tables=tables) as it:
            connection.execute('INSERT INTO "dot.ted" VALUES (5)')
            connection.execute("INSERT INTO dot.ted VALUES (6)")
            await it.until_end()
    shared = list(scene.read_records(bootstrap, "pgcdc.dot.ted"))
    assert {key for key, _, _ in shared} == {b"1", b"2", b"3", b"6"}
    moved = list(scene.read_records(bootstrap, apart[0]))
    assert sorted(key for key, _, _ in moved) == [b"4", b"5"]
    for _, _, headers in (*shared, *moved):
        assert headers["pgcdc-capture"] == b"dots"
        assert headers["pgcdc-database"] == database.rpartition("/")[2].encode()
