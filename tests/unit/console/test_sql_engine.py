"""Goal: a query sees its tables and nothing else, and its failures say where they are.

Method: the engine over small Arrow tables, without a process.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from dragoman.console.sql.engine import Engine, failure, text_of
from dragoman.console.sql.errors import QueryError
from dragoman.limits import CONSOLE_QUERY_CELL_CHARS_MAX


def _table(count: int = 3) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([f"k{each}" for each in range(count)]),
            "value": pa.array([f'{{"amount": {each}.5}}' for each in range(count)]),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def _run(query: str, **tables: pa.Table) -> list[Sequence[object]]:
    engine = Engine()
    engine.tables_of(query)
    _, _, chunks, _ = engine.run(query, tables or {"orders": _table()})
    return [row for chunk in chunks for row in chunk]


def test_topics_of_a_query_are_its_tables_and_not_its_own_names() -> None:
    query = """
        with o as (select * from orders), key as (select 1)
        select 'from nowhere', (select max("offset") from users) from o -- from nobody
        join "pgcdc.items" i using (key) where key in (select key from shops)
    """
    found = Engine().tables_of(query)
    wanted = {each.name for each in found if not each.is_own}
    assert wanted == {"orders", "pgcdc.items", "shops", "users"}
    assert {each.name for each in found if each.is_own} == {"o"}
    assert all(query[each.position :].lstrip('"').startswith(each.name) for each in found)


def test_a_name_with_dots_needs_quotes() -> None:
    query = "select 'é' from pgcdc.orders"
    with pytest.raises(QueryError, match=r'write "pgcdc\.orders"'):
        Engine().tables_of(query)


def test_fields_of_json_are_read_by_their_path() -> None:
    assert _run("select sum((value->>'$.amount')::double) from orders") == [[4.5]]


def test_a_table_may_be_read_twice() -> None:
    assert _run("select count(*) from orders a join orders b using (key)") == [[3]]


@pytest.mark.parametrize(
    "query",
    [
        "create table t as select 1",
        "insert into orders values ('a', 'b', 1)",
        "select 1; select 2",
        "set memory_limit = '9GB'",
        "pragma database_list",
        "call pragma_version()",
        "",
    ],
)
def test_only_one_statement_that_reads_is_run(query: str) -> None:
    with pytest.raises(QueryError, match="only one query that reads"):
        Engine().tables_of(query)


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/etc/*')",
        "select * from read_parquet('https://example.com/a.parquet')",
        "copy (select 1) to '/tmp/dragoman-never'",
        "attach '/tmp/dragoman-never.db'",
        "install httpfs",
        "load httpfs",
        "select * from read_blob('/proc/self/environ')",
        "select * from read_duckdb('/tmp/dragoman-never.db')",
        "select * from sniff_csv('/etc/passwd')",
        "select getenv('HOME')",
        "select * from duckdb_secrets()",
        "select * from query('copy (select 1) to ''/tmp/dragoman-never''')",
        "select * from enable_logging(storage_path='/tmp/dragoman-never')",
        "select * from enable_profiling(format='json', save_location='/tmp/dragoman-never')",
        # Addresses of memory.
        "select * from arrow_scan(4096, 4096, 4096)",
        "select * from pandas_scan(4096::pointer)",
    ],
)
def test_files_networks_and_extensions_are_out_of_reach(query: str) -> None:
    with pytest.raises(QueryError):
        _run(query)


def test_variables_of_the_program_are_no_tables() -> None:
    secret = _table()
    assert secret.num_rows == 3
    with pytest.raises(QueryError, match="secret"):
        _run("select * from secret", orders=_table())


def test_an_error_says_where_it_is() -> None:
    query = "select 'é',\nfoo from orders"
    with pytest.raises(QueryError, match="foo") as found:
        _run(query)
    assert found.value.position == query.index("foo")


def test_a_syntax_error_says_where_it_is() -> None:
    with pytest.raises(QueryError) as found:
        Engine().tables_of("select from from orders")
    assert found.value.position is not None


def test_a_failure_of_another_form_keeps_its_text() -> None:
    assert str(failure("Error: not json")) == "Error: not json"


def test_a_failure_while_rows_are_made_is_a_failure_of_the_query() -> None:
    with pytest.raises(QueryError, match="abc"):
        _run("select cast(v as int) from t", t=pa.table({"v": ["1", "abc"]}))


def test_too_much_memory_is_a_failure_with_a_remedy() -> None:
    with pytest.raises(QueryError, match="fewer records"):
        _run("select list(a.range order by b.range) from range(20000) a, range(20000) b")


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("null", None),
        ("true", True),
        ("1::bigint", 1),
        ("9007199254740993::bigint", "9007199254740993"),
        ("-9007199254740993::bigint", "-9007199254740993"),
        ("1.50::decimal(10, 2)", "1.50"),
        ("'nan'::double", "nan"),
        ("'infinity'::double", "inf"),
        ("date '2026-01-31'", "2026-01-31"),
        ("timestamptz '2026-01-31 12:00:00+02'", "2026-01-31 10:00:00Z"),
        ("'a'::blob", "a"),
        (r"'\xff'::blob", "\\xff"),
        ("[1, 2]", "[1,2]"),
        ("{'a': 1, 'b': 1.5::decimal(3, 1)}", '{"a":1,"b":"1.5"}'),
        ("'<script>'", "<script>"),
    ],
)
def test_cells_are_what_json_and_browsers_hold_exactly(expression: str, shown: object) -> None:
    ((cell,),) = _run(f"select {expression}", orders=_table())
    assert cell == shown
    assert type(cell) is type(shown)


def test_long_cells_are_cut_and_counted() -> None:
    engine = Engine()
    query = f"select repeat('x', {CONSOLE_QUERY_CELL_CHARS_MAX + 1}), 'short'"
    _, _, chunks, cut = engine.run(query, {})
    (((long, short),),) = list(chunks)
    assert isinstance(long, str)
    assert len(long) == CONSOLE_QUERY_CELL_CHARS_MAX + 1
    assert long.endswith("…")
    assert short == "short"
    assert cut() == 1


def test_texts_of_values() -> None:
    assert text_of(Decimal("1E+3")) == "1000"
    assert text_of(dt.datetime(2026, 1, 31, tzinfo=dt.UTC)) == "2026-01-31 00:00:00Z"
    assert text_of(dt.timedelta(days=1)) == "1 day, 0:00:00"


def test_place_outside_of_the_query_is_none() -> None:
    with pytest.raises(QueryError) as caught:
        Engine().run("select * from query_table('missing')", {})
    assert caught.value.position is None
