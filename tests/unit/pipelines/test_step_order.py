"""Goal: a query's tables are found, and steps are put into an order in which each has its own."""

from __future__ import annotations

import pytest

from dragoman.errors import ConfigError
from dragoman.pipelines.step_order import in_order, tables_in


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select a from b", ["b"]),
        ("SELECT a FROM B x, c y WHERE d = e", ["b", "c"]),
        ("select f(a, b) from c left join d on c.e = d.e, g", ["c", "d", "g"]),
        ("select * from (select * from a) x, b", ["a", "b"]),
        ("select * from (a join b using (k)), c", ["a", "b", "c"]),
        ("with x as (select * from a) select * from x", ["a", "x"]),
        ("select 'from b', \"from c\" from a -- from d\n/* from e */", ["a"]),
        ("select * from `my table`.x", ["my table"]),
        ("select a from b union all select c from d", ["b", "d"]),
        ("select * from a where k in (select k from b) order by c, d", ["a", "b"]),
        ("select a.b, c.d from e", ["e"]),
        ("select 1", []),
    ],
)
def test_tables_of_a_query_are_found(sql: str, tables: list[str]) -> None:
    assert tables_in(sql) == tables


def test_each_step_comes_after_what_it_needs() -> None:
    needs = {"a": ["b", "source"], "b": ["d", "c"], "c": [], "d": ["c"]}

    assert in_order(needs) == ["c", "d", "b", "a"]


def test_a_circle_is_shown() -> None:
    with pytest.raises(ConfigError, match=r"steps.b depends on itself: b → c → b"):
        in_order({"a": ["b"], "b": ["c"], "c": ["b"]})


def test_a_step_that_names_itself_is_a_circle() -> None:
    with pytest.raises(ConfigError, match=r"steps.a depends on itself: a → a"):
        in_order({"a": ["a"]})
