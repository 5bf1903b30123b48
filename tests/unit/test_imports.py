"""Goal: modules do not import each other in cycles, and the broker is put together in one place.

Method: the syntax trees say which module imports which. Imports for the type checker count: a
module that needs another one to be understood depends on it.
"""

from __future__ import annotations

from pathlib import Path

from measures.source import import_cycles, imports, modules

KNOWN = modules(Path(__file__).parents[2] / "src")


def test_no_modules_import_each_other_in_a_cycle() -> None:
    assert import_cycles(KNOWN) == []


def test_only_the_composition_root_and_the_test_kit_import_the_broker() -> None:
    importers = [
        name for name, module in KNOWN.items() if "dragoman.broker.broker" in imports(module, KNOWN)
    ]
    assert [each for each in importers if not each.startswith("dragoman.testing")] == [
        "dragoman.server"
    ]
