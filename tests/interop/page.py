"""The compatibility page, from the results of `make interop`.

    python tests/interop/page.py        write the page anew from compatibility.json

Results are kept as JSON beside the page: per client its version and, section by section, what came
of every operation: `pass`, `none` when the client has no such thing, nothing when it was not tried,
otherwise the reason of the failure. Beside them stands what clients reported at logins
(`login_results.py`). The page's own words stand in the page; only what lies between
the two marks is written here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NotRequired, TypedDict

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGE, RESULTS = FOLDER / "compatibility.md", FOLDER / "compatibility.json"
BEGIN = "<!-- results: written by tests/interop/page.py -->\n"
END = "<!-- end results -->\n"
SHOWN = {"pass": "pass", "none": "none", "": ""}


class Column(TypedDict):
    name: str
    version: str
    sections: dict[str, dict[str, str]]


class Results(TypedDict):
    dragoman: str
    clients: list[Column]
    #: By section, case and client.
    logins: NotRequired[dict[str, dict[str, dict[str, str]]]]


def read() -> Results:
    results: Results = json.loads(RESULTS.read_text())
    return results


def write(results: Results) -> None:
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(with_results(PAGE.read_text(), results))


def with_results(page: str, results: Results) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no place for the results")
    return before + BEGIN + tables(results) + END + after


def tables(results: Results) -> str:
    """One table a section, with a column for every client that was tried with it."""
    lines = [f"\nDragoman {results['dragoman']}.\n"]
    names = dict.fromkeys(name for each in results["clients"] for name in each["sections"])
    for section in names:
        columns = [each for each in results["clients"] if section in each["sections"]]
        lines += [f"### {section}\n", _table(section, columns), ""]
    for section, cases in results.get("logins", {}).items():
        lines += [f"### {section}\n", _login_table(cases), ""]
    failures = [
        f"- {each['name']} {each['version']}, {title}: `{cell}`"
        for each in results["clients"]
        for cells in each["sections"].values()
        for title, cell in cells.items()
        if cell not in SHOWN
    ]
    if failures:
        lines += ["### Failures\n", *failures, ""]
    return "\n".join(lines)


def _table(section: str, columns: list[Column]) -> str:
    titles = dict.fromkeys(title for each in columns for title in each["sections"][section])
    rows = [["", *(f"{each['name']} {each['version']}" for each in columns)]]
    rows.append(["---", *(":-:" for _ in columns)])
    for title in titles:
        cells = (each["sections"][section].get(title, "") for each in columns)
        rows.append([title, *(SHOWN.get(cell, "**fail**") for cell in cells)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _login_table(cases: dict[str, dict[str, str]]) -> str:
    clients = list(dict.fromkeys(client for cells in cases.values() for client in cells))
    rows = [["", *clients], ["---", *(":-:" for _ in clients)]]
    for title, cells in cases.items():
        said = (cells.get(client, "") for client in clients)
        rows.append([title, *(each if each in SHOWN else f"`{each}`" for each in said)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    write(read())
