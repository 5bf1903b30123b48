"""The doctor and the setup against a real PostgreSQL: what is missing is found, said and made."""

import json
import subprocess
import sys

import msgspec
import psycopg
import pytest

from demo.postgres import LocalPostgres
from dragoman.captures.definition import Definition
from dragoman.cdc.doctor import drop_all, examine
from dragoman.cdc.source import publication
from dragoman.cdc.source.connection import SourceError, connect
from dragoman.cdc.tables import tables_of

SECRET = "distinctive-5ecret"


@pytest.fixture(scope="module", params=[16, 18])
def postgres(request):
    with LocalPostgres(request.param) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE SCHEMA shop")
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
            connection.execute("CREATE TABLE shop.items (a int, b text, PRIMARY KEY (b, a))")
            connection.execute("CREATE TABLE keyless (v text)")
            connection.execute("CREATE TABLE whole (v text)")
            connection.execute("ALTER TABLE whole REPLICA IDENTITY FULL")
            connection.execute(
                "CREATE TABLE parts (id int, day date, PRIMARY KEY (id, day))"
                " PARTITION BY RANGE (day)"
            )
            connection.execute(
                "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (MAXVALUE)"
            )
            connection.execute(f"CREATE ROLE weak LOGIN PASSWORD '{SECRET}'")
        yield server


def definition(postgres, **fields):
    fields.setdefault("tables", ("orders",))
    fields.setdefault("dsn", postgres.dsn())
    return Definition(name=fields.pop("name", "shop"), **fields)


async def findings(given):
    return [each async for each in examine(given)]


async def problems(given):
    return [each for each in await findings(given) if each.level == "problem"]


async def test_a_database_that_is_ready_has_no_problems(postgres):
    given = definition(postgres, tables=("orders", "shop.*", "parts"))
    found = await findings(given)
    assert [each for each in found if each.level == "problem"] == []
    said = " ".join(each.what for each in found)
    assert "shop.items has the key b, a" in said
    assert "public.parts has the key id, day (its partitions" in said
    assert "the slot dragoman_shop is created when the capture starts" in said


async def test_tables_are_listed_with_what_keeps_them_from_being_captured(postgres):
    found = {f"{each.schema}.{each.name}": each for each in await tables_of(definition(postgres))}
    assert list(found) == sorted(found)
    assert found["shop.items"].key == ("b", "a")
    assert found["public.orders"].findings == ()
    assert found["public.parts"].is_partitioned
    assert "public.parts_1" not in found
    (finding,) = found["public.keyless"].findings
    assert (finding.level, "no primary key" in finding.what) == ("problem", True)
    assert found["public.whole"].replica_identity == "full"
    (finding,) = found["public.whole"].findings
    assert finding.level == "warning"


async def test_tables_of_a_database_that_refuses_are_an_error(postgres):
    wrong = f"postgresql://weak:{SECRET}x@127.0.0.1:{postgres.port}/postgres"
    with pytest.raises(SourceError) as caught:
        await tables_of(definition(postgres, dsn=wrong))
    assert SECRET not in str(caught.value)
    program = [sys.executable, "-m", "dragoman.cdc.tables"]
    given = msgspec.json.encode(definition(postgres, dsn=wrong))
    done = subprocess.run(program, input=given, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"refuses the password of weak" in done.stderr
    assert SECRET.encode() not in done.stderr


@pytest.mark.parametrize(
    ("address", "what"),
    [
        (f"postgresql://weak:{SECRET}x@127.0.0.1:PORT/postgres", "refuses the password of weak"),
        (f"postgresql://weak:{SECRET}@127.0.0.1:PORT/absent", "the database absent does not exist"),
        (f"postgresql://weak:{SECRET}@127.0.0.1:1/postgres", "nothing listens at 127.0.0.1:1"),
        (f"postgresql://weak:{SECRET}@127.0.0.1:PORT/postgres?sslmode=require", "TLS with"),
        (f"{SECRET} without a sign", "the DSN is not valid"),
        (f"postgresql://weak:{SECRET} @127.0.0.1:x/y z", "the DSN is not valid"),
    ],
)
async def test_an_address_that_leads_nowhere_is_explained_without_its_password(
    postgres, address, what
):
    given = definition(postgres, dsn=address.replace("PORT", str(postgres.port)))
    (finding,) = await findings(given)
    assert finding.level == "problem"
    assert what in finding.what
    assert finding.remedy
    assert SECRET not in finding.what + finding.remedy


async def test_error_for_a_weak_role_names_missing_privileges(postgres):
    given = definition(postgres, dsn=postgres.dsn(user="weak", password=SECRET))
    found = await findings(given)
    remedies = " ".join(each.remedy for each in found if each.level == "problem")
    assert 'ALTER ROLE "weak" REPLICATION' in remedies
    assert "GRANT SELECT ON" in remedies
    assert 'CREATE PUBLICATION dragoman_shop FOR TABLE "public"."orders"' in remedies


async def test_prepare_makes_publication_and_slot_once_and_remove_drops_them(postgres):
    given = definition(postgres, tables=("orders", "parts*", "keyless"), name="made")
    async with await connect(given.dsn, name="made") as connection:
        first = await publication.prepare(connection, given)
        assert first.is_new
        assert [each.label for each in first.tables] == ["public.orders", "public.parts"]
        assert any("keyless is not captured" in each for each in first.warnings)
        again = await publication.prepare(connection, given, is_known=True)
        assert not again.is_new
        assert again.tables == first.tables
        published = await publication.find_publication(connection, "dragoman_made")
        assert published is not None
        assert set(published.tables) == {"public.orders", "public.parts"}
        assert [each for each in await findings(given) if each.level == "problem"] != []  # keyless

        await publication.remove(connection, given)
        assert await publication.find_slot(connection, "dragoman_made") is None
        assert await publication.find_publication(connection, "dragoman_made") is None
        await publication.remove(connection, given)  # nothing left to drop


async def test_a_table_that_matches_later_is_added(postgres):
    given = definition(postgres, tables=("late_*",), name="late")
    async with await connect(given.dsn, name="late") as connection:
        assert (await publication.prepare(connection, given)).tables == ()
        await connection.execute("CREATE TABLE late_1 (id int PRIMARY KEY)")
        later = await publication.prepare(connection, given, is_known=True)
        assert [each.label for each in later.tables] == ["public.late_1"]
        await publication.remove(connection, given)
        await connection.execute("DROP TABLE late_1")


async def test_publication_of_another_owner_is_neither_changed_nor_dropped(postgres):
    given = definition(postgres, tables=("orders", "whole"), name="foreign", publication="theirs")
    async with await connect(given.dsn, name="foreign") as connection:
        await connection.execute("CREATE PUBLICATION theirs FOR TABLE orders")
        (problem,) = await problems(given)
        assert 'ALTER PUBLICATION theirs ADD TABLE "public"."whole"' in problem.remedy
        prepared = await publication.prepare(connection, given)
        assert [each.label for each in prepared.tables] == ["public.orders"]
        assert any("public.whole" in each for each in prepared.warnings)
        await publication.remove(connection, given)
        assert await publication.find_publication(connection, "theirs") is not None
        await connection.execute("DROP PUBLICATION theirs")


async def test_a_slot_that_is_gone_is_not_made_again_by_itself(postgres):
    given = definition(postgres, name="gone")
    async with await connect(given.dsn, name="gone") as connection:
        await publication.prepare(connection, given)
        await publication.drop_slot(connection, given.slot_name)
        with pytest.raises(SourceError, match="the slot dragoman_gone is gone") as caught:
            await publication.prepare(connection, given, is_known=True)
        assert "cdc remove gone" in caught.value.remedy
        await publication.remove(connection, given)


async def test_a_slot_of_another_plugin_is_refused(postgres):
    given = definition(postgres, name="other", slot="decoding")
    async with await connect(given.dsn, name="other") as connection:
        await connection.execute("SELECT pg_create_physical_replication_slot('decoding')")
        (problem,) = await problems(given)
        assert "--slot" in problem.remedy
        with pytest.raises(SourceError, match="plugin none"):
            await publication.prepare(connection, given)
        await publication.remove(connection, given)


async def test_what_is_missing_and_must_not_be_made_is_asked_for(postgres):
    given = definition(postgres, name="strict", create=False)
    remedies = " ".join(each.remedy for each in await problems(given))
    assert "CREATE PUBLICATION dragoman_strict FOR TABLE" in remedies
    assert "pg_create_logical_replication_slot('dragoman_strict', 'pgoutput')" in remedies
    async with await connect(given.dsn, name="strict") as connection:
        with pytest.raises(SourceError, match="the publication dragoman_strict does not exist"):
            await publication.prepare(connection, given)
        await connection.execute("CREATE PUBLICATION dragoman_strict FOR TABLE orders")
        with pytest.raises(SourceError, match="the slot dragoman_strict does not exist"):
            await publication.prepare(connection, given)
        await connection.execute("DROP PUBLICATION dragoman_strict")


async def test_prepared_transactions_that_hold_a_slot_back_are_named(postgres):
    with psycopg.connect(postgres.dsn(), autocommit=True) as session:
        session.execute("BEGIN")
        session.execute("INSERT INTO orders VALUES (1, 'held')")
        session.execute("PREPARE TRANSACTION 'held back'")
        found = await findings(definition(postgres))
        session.execute("ROLLBACK PREPARED 'held back'")
    assert any("ROLLBACK PREPARED 'held back'" in each.remedy for each in found)


def test_the_doctor_is_a_program(postgres):
    given = msgspec.json.encode(definition(postgres))
    command = [sys.executable, "-m", "dragoman.cdc.doctor"]
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert lines[0]["what"] == "connected to postgres as postgres"
    bad = subprocess.run(command, input=b'{"name": "?"}', capture_output=True, check=False)
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["level"] == "problem"


async def test_too_low_wal_level_error_names_the_setting():
    with LocalPostgres(18, {"wal_level": "replica"}) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        given = definition(server)
        (problem,) = await problems(given)
        assert "ALTER SYSTEM SET wal_level = 'logical'" in problem.remedy
        async with await connect(given.dsn, name="shop") as connection:
            with pytest.raises(SourceError, match="wal_level"):
                await publication.prepare(connection, given)


async def test_what_a_capture_had_in_the_database_is_dropped_or_named(postgres):
    given = definition(postgres, name="dropped")
    async with await connect(given.dsn, name="dropped") as connection:
        await publication.prepare(connection, given)
        assert (await drop_all(given)).level == "ok"
        assert await publication.find_slot(connection, given.slot_name) is None
    away = definition(postgres, name="dropped", dsn=f"postgresql://a:{SECRET}@127.0.0.1:1/b")
    finding = await drop_all(away)
    assert finding.level == "problem"
    assert "SELECT pg_drop_replication_slot('dragoman_dropped');" in finding.remedy
    assert SECRET not in finding.what + finding.remedy


async def test_a_publication_that_is_gone_is_not_made_again_by_itself(postgres):
    given = definition(postgres, name="unsaid")
    async with await connect(given.dsn, name="unsaid") as connection:
        await publication.prepare(connection, given)
        await connection.execute("DROP PUBLICATION dragoman_unsaid")
        with pytest.raises(SourceError, match="the publication dragoman_unsaid is gone") as caught:
            await publication.prepare(connection, given, is_known=True)
        assert "cdc remove unsaid" in caught.value.remedy
        await publication.remove(connection, given)


async def test_later_table_of_another_owner_does_not_block_the_others(postgres):
    with psycopg.connect(postgres.dsn(), autocommit=True) as owner:
        owner.execute("CREATE SCHEMA mine AUTHORIZATION weak")
        owner.execute("ALTER ROLE weak REPLICATION")
        owner.execute("GRANT CREATE ON DATABASE postgres TO weak")
        dsn = postgres.dsn(user="weak", password=SECRET)
        given = definition(postgres, name="mine", dsn=dsn, tables=("mine.*",))
        async with await connect(dsn, name="mine") as connection:
            await connection.execute("CREATE TABLE mine.first (id int PRIMARY KEY)")
            await publication.prepare(connection, given)
            owner.execute("CREATE TABLE mine.theirs (id int PRIMARY KEY)")
            await connection.execute(
                "CREATE TABLE mine.second (id int, v text, PRIMARY KEY (id) INCLUDE (v))"
            )
            found = await publication.prepare(connection, given, is_known=True)
            assert [each.label for each in found.tables] == ["mine.first", "mine.second"]
            assert [each.key for each in found.tables] == [("id",), ("id",)]
            assert found.added == ("mine.second",)
            assert any("mine.theirs" in each for each in found.warnings)
        await drop_all(given)
