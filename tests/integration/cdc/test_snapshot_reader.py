"""Chunks of real tables: put together they are the table, whatever its key is made of."""

from contextlib import asynccontextmanager

import psycopg
import pytest

from demo.postgres import LocalPostgres
from dragoman.captures.definition import Definition
from dragoman.cdc.snapshot import reader as snapshot_reader
from dragoman.cdc.snapshot.reader import open_reader
from dragoman.cdc.source import publication
from dragoman.cdc.source.connection import SourceError

#: Type of the key → values, some of them hard to quote, to escape or to order.
KEYS = {
    "int": ["1", "-5", "2147483647", "0"],
    "bigint": ["9223372036854775807", "-9223372036854775808", "7"],
    "text": ["", "a'b", "a\\b", "tab\there", "line\nend", "\\N", "zz", "ä€😀", '"q"', "A", "a"],
    "char(4)": ["a", "ab", "abcd", " x"],
    "numeric": ["1.10", "1.2", "-0.00001", "NaN", "123456789012345678901234567890.5"],
    "float8": ["0.1", "1e300", "NaN", "Infinity", "-Infinity", "0.30000000000000004"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"],
    "timestamptz": ["2024-02-29 12:00:00.123456+02", "infinity", "-infinity", "0044-03-15 BC"],
    "date": ["2024-01-01", "infinity", "4713-01-01 BC"],
    "interval": ["1 mon", "30 days 00:00:01", "-1 day"],
    "bytea": [r"\x00ff", r"\x", r"\x5c"],
    "bit(3)": ["101", "000", "111"],
    "boolean": ["t", "f"],
    "mood": ["sad", "it's ok", "happy"],
    "inet": ["10.0.0.1/8", "::1"],
    "int[]": ["{}", "{1,2}", "{1,NULL}"],
    "int4range": ["empty", "[1,5)", "(,3)"],
    "positive": ["3", "1"],
    'text COLLATE "C"': ["b", "B", "a"],
}


@pytest.fixture(scope="module")
def postgres():
    with LocalPostgres(18) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy')")
            connection.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
        yield server


def sql(postgres, *statements):
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        for each in statements:
            connection.execute(each)


@asynccontextmanager
async def reading(postgres, pattern, **fields):
    fields.setdefault("dsn", postgres.dsn())
    given = Definition(name="r", tables=(pattern,), **fields)
    async with open_reader(given) as reader:
        async with await reader.session() as connection:
            await publication.remove(connection, given)
            (table,) = (await publication.prepare(connection, given)).tables
        yield reader, table


async def chunks(reader, table, count_max):
    """Everything, chunk by chunk."""
    after, lines = None, []
    while True:
        await reader.begin(table)
        shape = await reader.describe(table)
        chunk = await reader.read(table, shape, after, count_max)
        await reader.end()
        lines += chunk.lines.values()
        if chunk.lines:
            after = list(chunk.lines)[-1]
        if chunk.is_last:
            return lines


def ordered(postgres, table, columns="*", order="k"):
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("SET timezone = UTC")
        with connection.cursor().copy(
            f"COPY (SELECT {columns} FROM {table} ORDER BY {order}) TO STDOUT"
        ) as copy:
            return [bytes(line) for line in copy]


@pytest.mark.parametrize("kind", KEYS)
async def test_a_table_is_read_in_chunks_by_a_key_of_any_type(postgres, kind):
    values = ", ".join(f"({psycopg.sql.Literal(v).as_string()}, 'x')" for v in KEYS[kind])
    sql(
        postgres,
        "DROP TABLE IF EXISTS keyed",
        f"CREATE TABLE keyed (v text, k {kind} PRIMARY KEY)",
        f"INSERT INTO keyed (k, v) VALUES {values}",
    )
    async with reading(postgres, "keyed") as (reader, table):
        for count_max in (1, 2, 100):
            assert await chunks(reader, table, count_max) == ordered(postgres, "keyed")


async def test_keys_of_several_columns_and_partitions(postgres):
    sql(
        postgres,
        "CREATE TABLE several (a text, b int, c date, v text, PRIMARY KEY (c, a, b))"
        " PARTITION BY RANGE (c)",
        "CREATE TABLE several_1 PARTITION OF several FOR VALUES FROM (MINVALUE) TO ('2024-01-03')",
        "CREATE TABLE several_2 PARTITION OF several FOR VALUES FROM ('2024-01-03') TO (MAXVALUE)",
        "INSERT INTO several SELECT chr(97 + i % 3), i % 5, date '2024-01-01' + i % 4, i::text"
        " FROM generate_series(1, 60) i ON CONFLICT DO NOTHING",
    )
    async with reading(postgres, "several*") as (reader, table):
        assert await chunks(reader, table, 7) == ordered(postgres, "several", order="c, a, b")


async def test_an_empty_table_is_one_empty_chunk(postgres):
    sql(postgres, "CREATE TABLE nothing (k int PRIMARY KEY)")
    async with reading(postgres, "nothing") as (reader, table):
        assert await chunks(reader, table, 10) == []


async def test_generated_columns_are_left_out_as_the_stream_leaves_them_out(postgres):
    sql(
        postgres,
        "CREATE TABLE made (k int PRIMARY KEY, twice int"
        " GENERATED ALWAYS AS (k * 2) STORED, v int)",
        "INSERT INTO made VALUES (1, DEFAULT, 5), (2, DEFAULT, 6)",
    )
    async with reading(postgres, "made") as (reader, table):
        assert await chunks(reader, table, 10) == [b"1\t5\n", b"2\t6\n"]


async def test_what_a_publication_hides_is_not_read(postgres):
    if postgres.version < 15:
        pytest.skip("publications of PostgreSQL 14 hide nothing")
    sql(
        postgres,
        "CREATE TABLE hidden (k int PRIMARY KEY, secret text, v int)",
        "INSERT INTO hidden SELECT i, 'secret', i % 3 FROM generate_series(1, 20) i",
        "CREATE PUBLICATION narrow FOR TABLE hidden (k, v) WHERE (k <> 5)",
    )
    async with reading(postgres, "hidden", publication="narrow") as (reader, table):
        expected = [line for line in ordered(postgres, "hidden", "k, v") if line != b"5\t2\n"]
        assert await chunks(reader, table, 3) == expected


async def test_a_chunk_ends_at_its_bytes(postgres, monkeypatch):
    monkeypatch.setattr(snapshot_reader, "SNAPSHOT_CHUNK_BYTES", 100_000)
    sql(
        postgres,
        "CREATE TABLE wide (k int PRIMARY KEY, v text)",
        "INSERT INTO wide SELECT i, repeat('x', 30000) FROM generate_series(1, 100) i",
    )
    async with reading(postgres, "wide") as (reader, table):
        await reader.begin(table)
        shape = await reader.describe(table)
        chunk = await reader.read(table, shape, None, 90)
        await reader.end()
        assert len(chunk.lines) == 4
        assert not chunk.is_last
        assert len(await chunks(reader, table, 90)) == 100


async def test_a_chunk_shows_the_table_as_it_was_when_it_began(postgres):
    sql(postgres, "CREATE TABLE moving (k int PRIMARY KEY)", "INSERT INTO moving VALUES (1)")
    async with reading(postgres, "moving") as (reader, table):
        visibility = await reader.begin(table)
        sql(postgres, "INSERT INTO moving VALUES (2)")
        shape = await reader.describe(table)
        assert list((await reader.read(table, shape, None, 10)).lines) == [(b"1",)]
        await reader.end()
        assert (await reader.visibility()).xmax > visibility.xmax


async def test_rows_that_a_policy_hides_are_a_problem_and_not_a_smaller_table(postgres):
    sql(
        postgres,
        "CREATE TABLE guarded (k int PRIMARY KEY)",
        "INSERT INTO guarded VALUES (1), (2)",
        "ALTER TABLE guarded ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON guarded USING (k = 1)",
        "CREATE ROLE reader LOGIN REPLICATION PASSWORD 'x'",
        "GRANT SELECT ON guarded TO reader",
        "CREATE PUBLICATION guarding FOR TABLE guarded",
    )
    dsn = postgres.dsn(user="reader", password="x")
    async with reading(postgres, "guarded", dsn=dsn, publication="guarding") as (reader, table):
        assert table.hides_rows
        await reader.begin(table)
        shape = await reader.describe(table)
        with pytest.raises(SourceError, match="row-level security"):
            await reader.read(table, shape, None, 10)
