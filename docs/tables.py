"""Writes the tables that repeat the code: limits, the map of files, Spark's options, the HTTP API.

    python docs/tables.py            rewrite them (`make docs`)

A table lies between `<!-- NAME: written by docs/tables.py -->` and `<!-- end NAME -->`. The one
line about a module is the first sentence of its docstring, so that there is one place to keep it
right. `tests/unit/test_documents.py` compares.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from dragoman import limits
from dragoman.api.operations import OPERATIONS
from dragoman.spark import options
from dragoman.telemetry.catalogue import METRICS, PREFIX

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dragoman"
PAGE = ROOT / "ARCHITECTURE.md"
SPARK_PAGE = ROOT / "docs" / "reference" / "spark.md"
HTTP_PAGE = ROOT / "docs" / "reference" / "http.md"

_LIMIT = re.compile(r"^([A-Z][A-Z0-9_]*) = ")
_SECTION = re.compile(r"^# ---- (.+)$")


def file_map() -> str:
    """One line a module, folder by folder. A package's own line is that of its folder."""
    lines = ["```"]
    for path in sorted(SOURCE.rglob("*.py"), key=_map_order):
        relative = path.relative_to(SOURCE)
        sentence = first_sentence(path)
        if path.name == "__init__.py":
            folder = "" if relative.parent == Path() else f"{relative.parent.as_posix()}/"
            lines.append(f"{folder or 'dragoman/'}{'  ' + sentence if sentence else ''}")
        else:
            lines.append(f"  {path.stem:<16} {sentence}")
    return "\n".join([*lines, "```"])


def _map_order(path: Path) -> tuple[tuple[str, ...], bool, str]:
    return path.relative_to(SOURCE).parent.parts, path.name != "__init__.py", path.name


def first_sentence(path: Path) -> str:
    """Of the module's docstring, on one line; empty when there is none."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[^.]\.) (?=[A-Z`])", paragraph, maxsplit=1)[0].rstrip(".")


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
    rows += [f"| `{each.method} {each.path}` | {each.summary} |" for each in OPERATIONS]
    return "\n".join(rows)


def metrics_table() -> str:
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for each in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append(f"| `{PREFIX}{each.name}` | {each.kind} | {labels} | {each.help} |")
    return "\n".join(rows)


TABLES = {"file map": file_map, "limits": limits_table}


SPARK_TABLES = {"options": options.table}
HTTP_TABLES = {"operations": operations_table, "metrics": metrics_table}


def with_tables(page: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
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
    PAGE.write_text(with_tables(PAGE.read_text()))
    SPARK_PAGE.write_text(with_tables(SPARK_PAGE.read_text(), SPARK_TABLES))
    HTTP_PAGE.write_text(with_tables(HTTP_PAGE.read_text(), HTTP_TABLES))
