"""Goal: the compatibility page says what the last runs found, and what it calls unsupported is.

Method: its tables are made again from the results beside it and compared; the API keys it names
are looked for among those that the broker advertises, and the table of protocols is read against
both.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from login_results import Found, merged

from dragoman import __version__
from dragoman.protocols.kafka.handlers.api_versions import served

ROOT = Path(__file__).parents[2]


def _load() -> ModuleType:
    path = ROOT / "tests" / "interop" / "page.py"
    specification = importlib.util.spec_from_file_location("interop_page", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


page = _load()


def test_page_and_results_agree() -> None:
    written = page.PAGE.read_text()
    assert page.with_results(written, page.read()) == written


def test_results_are_of_this_version_and_complete() -> None:
    results = page.read()
    assert results["dragoman"] == __version__
    for section in {name for each in results["clients"] for name in each["sections"]}:
        columns = [
            each["sections"][section] for each in results["clients"] if section in each["sections"]
        ]
        assert len({tuple(column) for column in columns}) == 1, f"{section}: other operations"


def test_failure_is_shown_with_its_reason() -> None:
    cells = {"good": "pass", "lacking": "none", "untried": "", "bad": "Error: why"}
    column = {"name": "client", "version": "1", "sections": {"Records": cells}}
    shown = page.tables({"dragoman": "0", "clients": [column]})
    for row in ("| good | pass |", "| lacking | none |", "| untried |  |", "| bad | **fail** |"):
        assert row in shown
    assert "- client 1, bad: `Error: why`" in shown


def test_login_that_is_refused_is_shown_by_its_error() -> None:
    logins = {"Logins": {"good": {"a": "pass", "b": "none"}, "bad": {"a": "LoginError"}}}
    shown = page.tables({"dragoman": "0", "clients": [], "logins": logins})
    for row in ("|  | a | b |", "| good | pass | none |", "| bad | `LoginError` |  |"):
        assert row in shown


@pytest.mark.parametrize(
    ("is_allowed", "said", "is_right"),
    [
        (True, "", True),
        (True, "LoginError", False),
        (False, "LoginError", True),
        (False, "", False),
        (True, "none", True),
    ],
)
def test_login_is_right_if_it_is_let_in_or_kept_out(
    is_allowed: bool, said: str, is_right: bool
) -> None:
    assert Found("Logins", "a", "case", is_allowed, said).is_right == is_right


@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("", "pass", "pass"),
        ("A", "A", "A"),
        ("A", "B", "A or B"),
        ("A or B", "A", "A or B"),
        ("none", "A", "A"),
        ("A", "pass", "pass"),
    ],
)
def test_errors_of_which_a_race_decides_are_all_kept(before: str, cell: str, after: str) -> None:
    assert merged(before, cell) == after


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        page.with_results("# Compatibility\n", page.read())


def test_what_the_page_calls_not_advertised_is_not() -> None:
    advertised = {each.api_key for each in served()}
    rows = re.findall(r"^\| .*?([\d, toand]+)\) \| not advertised", page.PAGE.read_text(), re.M)
    assert len(rows) == 4
    for row in rows:
        for found in re.finditer(r"(\d+)(?: (?:to|and) (\d+))?", row):
            first, last = int(found[1]), int(found[2] or found[1])
            assert not advertised & set(range(first, last + 1)), row


def test_table_of_protocols_names_the_clients_with_their_newest_versions() -> None:
    rows = re.findall(r"^\| (?:Kafka|RocketMQ) \|.*$", page.PAGE.read_text(), re.M)
    newest: dict[str, list[int]] = {}
    for client in page.read()["clients"]:
        # Behind a comma is what tells releases and settings of one client apart.
        name, _, _ = client["name"].partition(",")
        version = [int(number) for number in client["version"].split(".")[:2]]
        newest[name] = max(version, newest.get(name, version))
    for name, (major, minor) in newest.items():
        is_own = name.startswith("dragoman.")
        assert is_own or any(f"{name} {major}.{minor}" in row for row in rows), name
