"""Goal: the page about rights says what the matrices of rights prove.

Method: the tables of `docs/reference/rights.md`, built from the rows of the other tests here. Run
this file as a program to write them.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from dragoman.api.operations import OPERATIONS
from worlds.rights import Need

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[2] / "docs" / "reference" / "rights.md"
_CLASSES: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _rows(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"rows_{name}", HERE / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _words(needs: Iterable[Need]) -> str:
    """The needs of one row."""

    def one(need: Need) -> str:
        rights = dict.fromkeys(
            f"{operation.value} on {resource.value}".replace("_", " ")
            for operation, resource, _ in need
        )
        return " or ".join(rights)

    return ", ".join(dict.fromkeys(map(one, needs))) or "nothing"


def _table(rows: Mapping[str, Iterable[str]]) -> str:
    lines = ["| request | needs |", "|---|---|"]
    for name, needs in rows.items():
        lines += [f"| {name} | {each} |" for each in dict.fromkeys(needs)]
    return "\n".join(lines)


def tables() -> dict[str, str]:
    kafka, rocketmq, cursus, streams, http = map(
        _rows,
        (
            "test_kafka_rights",
            "test_rocketmq_rights",
            "test_cursus_rights",
            "test_stream_rights",
            "test_http_rights",
        ),
    )

    def words(rows: Iterable[object]) -> list[str]:
        return [_words(each.all_needs) for each in rows]  # type: ignore[attr-defined]

    paths = {each.name: f"`{each.method} {each.path}`" for each in OPERATIONS}
    return {
        "kafka": _table(
            {
                each.name.title().replace("_", ""): words(rows)
                for each, rows in sorted(kafka.ROWS.items())
            }
        ),
        "rocketmq": _table(
            {
                f"{int(each)} {each.name}": words(rows)
                for each, rows in sorted(rocketmq.ROWS.items())
                if rows
            }
        ),
        "cursus": _table({f"`{word}`": words(rows) for word, rows in cursus.ROWS.items()}),
        "minibroker": _table(
            {each.__name__: words(rows) for each, rows in streams.MINIBROKER_ROWS.items()}
        ),
        "mlog": _table({each.__name__: words(rows) for each, rows in streams.MLOG_ROWS.items()}),
        "http": _table({paths[name]: words(rows) for name, rows in http.ROWS.items()}),
    }


def _with_tables(page: str) -> str:
    for name, table in tables().items():
        begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
        before, _, rest = page.partition(begin)
        _, mark, after = rest.partition(end)
        assert mark, f"no place for the table {name}"
        page = before + begin + table + end + after
    return page


def test_tables_of_the_page_are_those_of_the_matrices() -> None:
    assert PAGE.read_text() == _with_tables(PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(_with_tables(PAGE.read_text()))
