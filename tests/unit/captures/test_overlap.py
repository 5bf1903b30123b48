"""Captures whose records would end in one topic: known for certain, possible, wanted, or apart."""

from __future__ import annotations

from itertools import product

import pytest

from dragoman.captures.definition import Definition, table_matches
from dragoman.captures.topics import _meet, overlap


def capture(name: str = "a", database: str = "shop", **fields: object) -> Definition:
    given = {"name": name, "dsn": f"host=db dbname={database}", "tables": ("orders",), **fields}
    return Definition(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "topic"),
    [
        (capture(), capture("b", "crm"), "pgcdc.orders"),
        (capture(), capture("b", tables=("public.orders",)), "pgcdc.orders"),
        (capture(tables=("sales.x",)), capture("b", tables=("sales.x",)), "pgcdc.sales.x"),
        (
            capture(topics={"*.*": "cdc.{table}"}),
            capture("b", tables=("x.orders",), topics={"x.*": "cdc.{table}"}),
            "cdc.orders",
        ),
        (
            capture(tables=(), channels=("app:jobs",)),
            capture("b", tables=(), channels=("app:jobs",)),
            "app.jobs",
        ),
        (capture(), capture("b", tables=("x",), topics={"x": "pgcdc.orders"}), "pgcdc.orders"),
    ],
)
def test_certain(one: Definition, other: Definition, topic: str) -> None:
    for found in (overlap(one, other), overlap(other, one)):
        assert found is not None
        assert (found.topic, found.is_certain) == (topic, True)
        assert "capture b writes to the topic" in found.text("b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (capture(tables=("public.*",)), capture("b", "crm", tables=("public.*",))),
        (capture(), capture("b", tables=("*.*",))),
        (capture(tables=("*",)), capture("b", tables=("ord?rs",))),
        (
            capture(tables=("a.*",), topics={"*.*": "{schema}-{table}"}),
            capture("b", tables=("a.x*",), topics={"*.*": "{schema}-{table}"}),
        ),
        (capture(tables=(), outbox="box"), capture("b", tables=(), outbox="mail")),
    ],
)
def test_possible(one: Definition, other: Definition) -> None:
    for found in (overlap(one, other), overlap(other, one)):
        assert found is not None
        assert not found.is_certain
        assert "capture b may write to the topic" in found.text("b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (capture(), capture("b", tables=("users",))),
        (capture(tables=("public.*",)), capture("b", tables=("sales.*",))),
        (
            capture(tables=("*.*",), topics={"*.*": "{database}.{schema}.{table}"}),
            capture("b", "crm", tables=("*.*",), topics={"*.*": "{database}.{schema}.{table}"}),
        ),
        # In so many words, it is wanted.
        (capture(topics={"orders": "all"}), capture("b", "crm", topics={"orders": "all"})),
        (capture(tables=("*.*",), topics={"*.*": "all"}), capture("b", topics={"orders": "all"})),
    ],
)
def test_apart_or_wanted(one: Definition, other: Definition) -> None:
    assert overlap(one, other) is None
    assert overlap(other, one) is None


def test_forms_meet_as_their_names_do() -> None:
    """Compared with all short names of a small alphabet."""
    names = ["".join(each) for size in range(5) for each in product("ab.", repeat=size)]

    def fits(form: str, name: str) -> bool:
        if not form or not name:
            return not form.strip("*") and not name
        if form[0] == "*":
            return fits(form[1:], name) or (name[0] != "." and fits(form, name[1:]))
        return form[0] in (name[0], "?") and fits(form[1:], name[1:])

    forms = ["", "*", "a", "a*", "*b", "a*b", "*.*", "a.*", "?", "?*", "*.b", "b?"]
    for one, other in product(forms, repeat=2):
        assert _meet(one, other) is any(fits(one, each) and fits(other, each) for each in names)


def test_large_definitions_are_compared_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    def counted(*told: str) -> bool:
        nonlocal steps
        steps += 1
        return table_matches(*told)

    monkeypatch.setattr("dragoman.captures.topics.table_matches", counted)
    many = tuple(f"t{number}*" for number in range(3_000))
    topics = {f"x{number}*": f"y{number}*" for number in range(3_000)}
    overlap(capture(tables=many, topics=topics), capture("b", tables=many, topics=topics))
    assert steps <= 4 * 100**2
