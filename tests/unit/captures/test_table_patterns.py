"""Patterns of tables: `*` and `?`, a missing schema, and everything else as it is."""

from itertools import product

import pytest

from dragoman.captures.definition import any_matches, is_pattern, table_matches


@pytest.mark.parametrize(
    ("pattern", "schema", "table", "is_match"),
    [
        ("orders", "public", "orders", True),
        ("orders", "shop", "orders", False),
        ("shop.orders", "shop", "orders", True),
        ("shop.*", "shop", "orders", True),
        ("*.orders", "shop", "orders", True),
        ("order?", "public", "orders", True),
        ("order?", "public", "order", False),
        ("order", "public", "orders", False),
        ("Orders", "public", "orders", False),
        ("a[b].c", "ab", "c", False),
        ("a[b].c", "a[b]", "c", True),
        ("shop.a.b", "shop", "a.b", True),
    ],
)
def test_pattern_matches_the_whole_name(pattern, schema, table, is_match):
    assert table_matches(pattern, schema, table) is is_match


def test_any_of_several_patterns():
    assert any_matches(["a", "b.*"], "b", "x")
    assert not any_matches([], "b", "x")


def test_a_plain_name_is_no_pattern():
    assert is_pattern("a.*")
    assert is_pattern("a?")
    assert not is_pattern("public.orders")


def test_stars_mean_anything_at_all() -> None:
    """Compared with the plain definition, for all short patterns and names."""

    def fits(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return fits(pattern[1:], name) or (bool(name) and fits(pattern, name[1:]))
        return bool(name) and pattern[0] in (name[0], "?") and fits(pattern[1:], name[1:])

    names = ["".join(each) for size in range(1, 5) for each in product("ab", repeat=size)]
    for size in range(1, 5):
        for pattern in map("".join, product("ab*?", repeat=size)):
            for name in names:
                assert table_matches(f"s.{pattern}", "s", name) is fits(pattern, name)


def test_many_stars_come_to_an_end() -> None:
    """Trying all places for all stars would take longer than any client waits."""
    assert not table_matches("*a" * 60 + "*b", "public", "a" * 2_000)
    assert table_matches("*a" * 60 + "*", "public", "a" * 2_000)
