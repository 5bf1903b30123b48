"""Which step needs which: the tables that a query names, and an order in which all is there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from dragoman.errors import ConfigError

#: What is not code: strings, comments; then names, in backquotes or not, and punctuation.
_TOKEN = re.compile(
    r"""(?P<skip>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/|\s+)"""
    r"""|`(?P<quoted>[^`]+)`|(?P<word>[A-Za-z_]\w*)|(?P<other>.)""",
    re.DOTALL,
)
#: These end a list of tables.
_AFTER = frozenset((
    "select", "where", "group", "having", "order", "sort", "cluster", "distribute", "window",
    "qualify", "limit", "offset", "union", "intersect", "except", "minus",
))  # fmt: skip
#: These stand in a list of tables and are none.
_AMONG = frozenset(("lateral", "only", "on", "using"))


def tables_in(sql: str) -> list[str]:
    """First parts of what stands after FROM and JOIN, in small letters; may name more than tables.

    `extract(year FROM hour)` looks the same as a table from here, so callers keep what they know.
    """
    found: dict[str, None] = {}
    is_expected = False
    #: For each parenthesis that is open: whether it stands in a list of tables.
    lists = [False]
    before = ""
    for word, is_name in _tokens(sql):
        if word == "(":
            # What a parenthesis opens where a table is expected may be a join of tables.
            lists.append(is_expected)
        elif word == ")":
            if len(lists) > 1:
                lists.pop()
            is_expected = False
        elif word == "," and lists[-1]:
            is_expected = True
        elif word in ("from", "join"):
            is_expected = True
            lists[-1] = True
        elif word in _AFTER and is_name:
            is_expected = False
            lists[-1] = False
        elif word in _AMONG:
            pass
        elif is_expected and is_name and before != ".":
            found[word] = None
            is_expected = False
        before = word
    return list(found)


def _tokens(sql: str) -> Iterator[tuple[str, bool]]:
    """Each token in small letters, and whether it may be a name."""
    for each in _TOKEN.finditer(sql):
        if each["quoted"] is not None:
            yield each["quoted"].lower(), True
        elif each["word"] is not None:
            yield each["word"].lower(), True
        elif each["other"] is not None:
            yield each["other"], False


def in_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """Names so that each comes after those it needs. Raises `ConfigError` that shows a circle."""
    done: dict[str, None] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            circle = " → ".join([*path[path.index(name) :], name])
            raise ConfigError(f"steps.{name} needs itself: {circle}")
        path.append(name)
        for each in needs[name]:
            if each in needs:
                visit(each)
        path.pop()
        done[name] = None

    for name in needs:
        visit(name)
    return list(done)
