"""The guard on kept log, and notifications, with a real PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from captures import snapshot_tables as scene
from demo.postgres import LocalPostgres
from dragoman.captures.definition import Definition
from dragoman.cdc.source import publication
from dragoman.cdc.source.connection import SourceError, connect
from dragoman.cdc.source.wal_guard import WalGuard
from dragoman.limits import GUARD_LOOKS
from dragoman.testing import EphemeralBroker


@pytest.fixture(scope="module")
def postgres() -> Iterator[LocalPostgres]:
    with LocalPostgres(16) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        yield server


@pytest.mark.parametrize("policy", ["stop", "drop"])
async def test_too_much_log_is_warned_about_and_then_acted_on(
    postgres: LocalPostgres, policy: str
) -> None:
    definition = Definition(
        name=f"guarded-{policy}",
        dsn=postgres.dsn(),
        tables=("t",),
        wal_warn_bytes=1 << 20,
        wal_limit_bytes=3 << 20,
        wal_policy=policy,  # type: ignore[arg-type]
    )
    stopped: list[SourceError] = []
    guard = WalGuard(definition, stopped.append)
    async with await connect(definition.dsn, name="test") as connection:

        async def write(megabytes: int) -> None:
            content = "x" * (1 << 20)
            for _ in range(megabytes):
                await connection.execute(
                    "SELECT pg_logical_emit_message(true, 'filler', %s::text)", (content,)
                )

        await guard.check(connection)
        assert guard.retained_bytes == -1
        await publication.prepare(connection, definition)
        await guard.check(connection)
        assert guard.warnings == ()
        await write(2)
        await guard.check(connection)
        assert "MiB of WAL for the slot dragoman_guarded" in guard.warnings[0]
        await write(2)
        for _ in range(GUARD_LOOKS):
            await guard.check(connection)
        assert guard.retained_bytes > 3 << 20
        assert len(stopped) == 1
        slot = await publication.find_slot(connection, definition.slot_name)
        if policy == "drop":
            assert "the slot was dropped" in stopped[0].what
            assert "cdc remove guarded-drop" in stopped[0].remedy
            assert slot is None
        else:
            assert "was stopped by its wal_policy" in stopped[0].what
            assert slot is not None
        await publication.remove(connection, definition)


def test_a_capture_whose_slot_is_gone_fails_and_says_why(
    postgres: LocalPostgres, tmp_path: Path
) -> None:
    with EphemeralBroker(listeners=("kafka",)) as broker:
        process = scene.capture(postgres.dsn(), broker.bootstrap_servers, tmp_path, tables=("t",))
        with process, psycopg.connect(postgres.dsn(), autocommit=True) as connection:
            process.until(scene.is_complete)
            scene.wait_for_end(process, postgres.dsn())
            connection.execute(
                "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
            )
            # It may be back before the slot is dropped; then the event is repeated.
            for _ in range(100):
                try:
                    connection.execute("SELECT pg_drop_replication_slot('dragoman_snap')")
                    break
                except psycopg.errors.ObjectInUse:
                    connection.execute(
                        "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
                    )
            status = process.until_state("failed")
            assert "the slot dragoman_snap is gone" in status.problem
            assert "dragoman cdc remove snap" in status.problem
            connection.execute("DROP PUBLICATION dragoman_snap")


def test_notifications_become_records_and_a_gap_is_said(
    postgres: LocalPostgres, tmp_path: Path
) -> None:
    with EphemeralBroker(listeners=("kafka",)) as broker:
        bootstrap = broker.bootstrap_servers
        process = scene.capture(
            postgres.dsn(), bootstrap, tmp_path, tables=(), channels=("news", "pgcdc:Odd")
        )
        with process:
            process.until(lambda it: bool(it.status and it.status.rows == 1))  # it listens
            with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
                connection.execute("SELECT pg_notify('news', 'plain text')")
                connection.execute("""SELECT pg_notify('news', '{"op": "SALE", "id": 7}')""")
                connection.execute("SELECT pg_notify('pgcdc:Odd', '[1]')")
                connection.execute("SELECT pg_notify('other', 'not listened to')")
            process.until(lambda it: bool(it.status and it.status.rows == 4))
            postgres.restart()
            process.until(lambda it: bool(it.status and it.status.rows == 5))
            assert process.status is not None
            assert "notifications of that time are lost" in process.status.warnings[0]
            with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
                connection.execute("SELECT pg_notify('news', 'again')")
            process.until(lambda it: bool(it.status and it.status.rows == 6))
            assert process.stop() == 0
        news = {
            (headers["pgcdc-operation"], value)
            for _, value, headers in scene.read_records(bootstrap, "news")
        }
        assert news == {
            (b"NOTIFY", b'"plain text"'),
            (b"SALE", b'{"op": "SALE", "id": 7}'),
            (b"NOTIFY", b'"again"'),
        }
        assert len(list(scene.read_records(bootstrap, "pgcdc.Odd"))) == 1
        marks = [
            json.loads(value or b"")
            for _, value, _ in scene.read_records(bootstrap, "pgcdc._notifications")
        ]
        assert sorted(each["away_since"] is None for each in marks) == [False, True]
