"""Goal: modules do not import each other in cycles, and the broker is put together in one place.

Method: the syntax trees say which module imports which. Imports for the type checker count: a
module that needs another one to be understood depends on it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from measures.source import Module, import_cycles, imports, modules


@pytest.fixture(scope="module")
def known() -> dict[str, Module]:
    """Not a constant: every worker would parse the package, and keep the trees to the end."""
    return modules(Path(__file__).parents[2] / "src")


def test_no_modules_import_each_other_in_a_cycle(known: dict[str, Module]) -> None:
    assert import_cycles(known) == []


def test_only_the_composition_root_and_the_test_kit_import_the_broker(
    known: dict[str, Module],
) -> None:
    importers = [
        name for name, module in known.items() if "dragoman.broker.broker" in imports(module, known)
    ]
    assert [each for each in importers if not each.startswith("dragoman.testing")] == [
        "dragoman.server"
    ]


def test_no_process_of_python_takes_modules_from_the_working_directory() -> None:
    # Others may write there. `-I` leaves it out, too.
    for path in (Path(__file__).parents[2] / "src").rglob("*.py"):
        for found in re.finditer(r'sys\.executable, "(-[^"]+)"', path.read_text()):
            assert found[1] in ("-P", "-I"), path
