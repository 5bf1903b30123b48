"""Patterns of tables: `*` and `?`, a missing schema, and everything else as it is."""

import pytest

from dragoman.captures.patterns import any_matches, is_pattern, table_matches


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
