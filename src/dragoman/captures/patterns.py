"""Patterns of tables and columns: `schema.table` and `schema.table.column`, with `*` and `?`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(1024)
def _expression(pattern: str) -> re.Pattern[str]:
    """Between two stars the first match is as good as any, and no other is tried: the time is
    bounded by the length of the pattern times that of the name.
    """
    first, *rest = [
        "".join("." if letter == "?" else re.escape(letter) for letter in piece)
        for piece in re.split(r"\*+", pattern)
    ]
    if rest:
        *middle, last = rest
        first += "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}"
    return re.compile(first, re.DOTALL)


def schema_and_name(pattern: str) -> tuple[str, str]:
    """Split a pattern. A name without a schema is in `public`."""
    schema, dot, name = pattern.partition(".")
    return (schema, name) if dot else ("public", schema)


def is_pattern(text: str) -> bool:
    return "*" in text or "?" in text


def table_matches(pattern: str, schema: str, table: str) -> bool:
    """Names are compared as in the catalogue, where they are lower case unless quoted."""
    wanted_schema, wanted_table = schema_and_name(pattern)
    return (
        _expression(wanted_schema).fullmatch(schema) is not None
        and _expression(wanted_table).fullmatch(table) is not None
    )


def any_matches(patterns: Iterable[str], schema: str, table: str) -> bool:
    return any(table_matches(each, schema, table) for each in patterns)
