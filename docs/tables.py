"""Writes the tables that repeat the code: limits, options for Spark, HTTP, metrics, the history.

    python docs/tables.py            rewrite them (`make docs`)

A table lies between `<!-- NAME: written by docs/tables.py -->` and `<!-- end NAME -->`.
`tests/unit/test_documents.py` compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from dragoman import limits
from dragoman.api.operations import OPERATIONS
from dragoman.spark import options
from dragoman.telemetry.catalogue import ALIASES, METRICS, PREFIX
from dragoman.telemetry.history.figures import FIGURES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dragoman"
LIMITS_PAGE = ROOT / "docs" / "reference" / "limits.md"
SPARK_PAGE = ROOT / "docs" / "reference" / "spark.md"
HTTP_PAGE = ROOT / "docs" / "reference" / "http.md"
METRICS_PAGE = ROOT / "docs" / "reference" / "metrics.md"
HISTORY_PAGE = ROOT / "docs" / "reference" / "history.md"

_LIMIT = re.compile(r"^([A-Z][A-Z0-9_]*) = ")
_SECTION = re.compile(r"^# ---- (.+)$")


def limits_table() -> str:
    """Every constant of limits.py with the comment above it."""
    rows = ["| limit | value | why, and what happens at it |", "|---|---|---|"]
    comment: list[str] = []
    for line in (SOURCE / "limits.py").read_text().splitlines():
        if section := _SECTION.match(line):
            rows.append(f"| **{section[1]}** | | |")
        elif line.startswith("#: "):
            comment.append(line[3:])
        elif found := _LIMIT.match(line):
            rows.append(f"| `{found[1]}` | {_value(found[1])} | {' '.join(comment)} |")
            comment = []
        else:
            comment = []
    return "\n".join(rows)


def _value(name: str) -> str:
    value = getattr(limits, name)
    return f"{value:,}" if isinstance(value, int) else str(value)


def operations_table() -> str:
    rows = ["| operation | does |", "|---|---|"]
    for each in OPERATIONS:
        link = f"http-operations.md#{anchor(each.method, each.path)}"
        rows.append(f"| [`{each.method} {each.path}`]({link}) | {each.summary} |")
    return "\n".join(rows)


def anchor(method: str, path: str) -> str:
    """Of the heading of an operation in http-operations.md, as forges spell it."""
    return re.sub(r"[^\w\- ]", "", f"{method} {path}".lower()).replace(" ", "-")


def metrics_table() -> str:
    rows = ["| metric | kind | labels | meaning | since |", "|---|---|---|---|---|"]
    for each in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in each.labels)
        name, cells = f"`{PREFIX}{each.name}`", f"{labels} | {each.help} | {each.since}"
        rows.append(f"| {name} | {each.kind} | {cells} |")
    return "\n".join(rows)


def aliases_table() -> str:
    rows = ["| alias | metric | kind | labels | meaning |", "|---|---|---|---|---|"]
    for program, metrics in ALIASES.items():
        for each in metrics.values():
            labels = ", ".join(f"`{label}`" for label in each.labels)
            rows.append(f"| `{program}` | `{each.name}` | {each.kind} | {labels} | {each.help} |")
    return "\n".join(rows)


def figures_table() -> str:
    rows = [
        "| figure | labels | unit | over time | over nodes | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for each in FIGURES.values():
        labels = ", ".join(f"`{label}`" for label in each.labels)
        nodes = each.over_nodes or "apart"
        rows.append(
            f"| `{each.name}` | {labels} | {each.unit} | {each.over_time} | {nodes} | {each.help} |"
        )
    return "\n".join(rows)


LIMITS_TABLES = {"limits": limits_table}
SPARK_TABLES = {"options": options.table}
HISTORY_TABLES = {"figures": figures_table}
HTTP_TABLES = {"operations": operations_table}
METRICS_TABLES = {"metrics": metrics_table, "aliases": aliases_table}


def with_tables(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """The page with every table as it should be. Raises `ValueError` when one has no place."""
    for name, make in tables.items():
        begin, end = f"<!-- {name}: written by docs/tables.py -->", f"<!-- end {name} -->"
        before, found_begin, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise ValueError(f"no place for the table {name!r}: {begin} … {end}")
        page = f"{before}{begin}\n{make()}\n{end}{after}"
    return page


if __name__ == "__main__":
    LIMITS_PAGE.write_text(with_tables(LIMITS_PAGE.read_text(), LIMITS_TABLES))
    SPARK_PAGE.write_text(with_tables(SPARK_PAGE.read_text(), SPARK_TABLES))
    HISTORY_PAGE.write_text(with_tables(HISTORY_PAGE.read_text(), HISTORY_TABLES))
    HTTP_PAGE.write_text(with_tables(HTTP_PAGE.read_text(), HTTP_TABLES))
    METRICS_PAGE.write_text(with_tables(METRICS_PAGE.read_text(), METRICS_TABLES))
