"""Dependencies of steps: the tables that a query names, and an order of steps that satisfies
them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from dragoman.errors import ConfigError

#: Strings, comments and space, which are skipped; names, quoted or not; and punctuation.
_TOKEN = re.compile(
    r"""(?P<skip>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/|\s+)"""
    r"""|`(?P<quoted>[^`]+)`|(?P<word>[A-Za-z_]\w*)|(?P<other>.)""",
    re.DOTALL,
)
#: Keywords that end a list of tables.
_AFTER = frozenset((
    "select", "where", "group", "having", "order", "sort", "cluster", "distribute", "window",
    "qualify", "limit", "offset", "union", "intersect", "except", "minus",
))  # fmt: skip
#: Keywords within a list of tables.
_AMONG = frozenset(("lateral", "only", "on", "using"))


def tables_in(sql: str) -> list[str]:
    """The first parts of names after FROM and JOIN, in lower case; a superset of the tables.

    `extract(year FROM hour)` looks like a table, so callers keep only known names.
    """
    found: dict[str, None] = {}
    is_expected = False
    #: For each open parenthesis, whether it is in a list of tables.
    lists = [False]
    before = ""
    for word, is_name in _tokens(sql):
        if word == "(":
            # Where a table is expected, parentheses may hold a join of tables.
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
    """Each token in lower case, and whether it may be a name."""
    for each in _TOKEN.finditer(sql):
        if each["quoted"] is not None:
            yield each["quoted"].lower(), True
        elif each["word"] is not None:
            yield each["word"].lower(), True
        elif each["other"] is not None:
            yield each["other"], False


def in_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """Names in an order in which each follows those that it needs.

    Raises `ConfigError` that shows a cycle.
    """
    done: dict[str, None] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            cycle = " → ".join([*path[path.index(name) :], name])
            raise ConfigError(f"steps.{name} depends on itself: {cycle}")
        path.append(name)
        for each in needs[name]:
            if each in needs:
                visit(each)
        path.pop()
        done[name] = None

    for name in needs:
        visit(name)
    return list(done)
