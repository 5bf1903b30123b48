"""Goal: continuations exist on hot paths only; all other code awaits outcomes.

Method: the parameters and nested functions of the package, found by their annotations, against the
list of hot paths; and small modules that show what counts as a continuation.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from measures.continuations import Continuations
from measures.hot_paths import BRIDGES, HOT_PATHS
from measures.source import ROOT, Module, modules

# ---- the package

KNOWN = modules()
FOUND = Continuations(KNOWN).everywhere()
ALLOWED = [*BRIDGES, *(module for path in HOT_PATHS.values() for module in path)]


def test_continuations_exist_on_hot_paths_only() -> None:
    assert [str(each) for each in FOUND if each.module not in ALLOWED] == []


def test_every_module_of_a_hot_path_has_a_continuation() -> None:
    assert sorted(set(ALLOWED) - {each.module for each in FOUND}) == []
    assert len(ALLOWED) == len(set(ALLOWED)), "a module belongs to one path"


def test_architecture_names_the_same_paths() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    (row,) = (
        after.splitlines()[2]
        for after in text.split("\n\n")
        if after.startswith("| `async def` | callbacks |")
    )
    _, _awaited, called_back, _ = row.split("|")
    assert called_back.strip() == ", ".join(HOT_PATHS)


# ---- what counts

HEAD = """
from collections.abc import Callable
from typing import TypeAlias
from dragoman.errors import DragomanError
from dragoman.types_of_a import Done, Report
class Refused(DragomanError): ...
"""
ALIASES = """
from collections.abc import Callable
from typing import TypeAlias
from dragoman import errors
Done: TypeAlias = Callable[[errors.DragomanError | None], None]
Report: TypeAlias = Callable[[int], None]
"""
ERRORS = "class DragomanError(Exception): ..."


def _found(source: str) -> list[str]:
    texts = {
        "dragoman.a": HEAD + source,
        "dragoman.types_of_a": ALIASES,
        "dragoman.errors": ERRORS,
    }
    known = {
        name: Module(name, Path(f"{name}.py"), text, ast.parse(text))
        for name, text in texts.items()
    }
    return [
        each.function if each.parameter is None else each.parameter
        for each in Continuations(known).everywhere()
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(then: Callable[[int | DragomanError], None]): ...", ["then"]),
        ("def f(x: Callable[[int | Refused], None]): ...", ["x"]),
        ("def f(x: Callable[[OSError | None], None]): ...", ["x"]),
        ("def f(x: Done | None = None): ...", ["x"]),
        ("def f(x: 'Done'): ...", ["x"]),
        ("def f(*, x: Callable[[bytes, Done], int]): ...", ["x"]),
        ("def f(reply: Report): ...", ["reply"]),
        ("class A:\n  def f(self, done: Report): ...", ["done"]),
        ("def f():\n  def g(result: int | DragomanError): ...", ["g"]),
        ("def f():\n  def g(error: Refused | None): ...", ["g"]),
        # No continuations: a value, a listener, a conversion, and handling of an error.
        ("def f(error: DragomanError): ...", []),
        ("def f(done: int): ...", []),
        ("def f(x: Report): ...", []),
        ("def f(on_lost: Callable[[DragomanError], None]): ...", []),
        ("def f(convert: Callable[[DragomanError], bytes]): ...", []),
        ("def f(error: DragomanError | None): ...", []),
        ("def f():\n  def g(error: DragomanError): ...", []),
        ("def f():\n  class A:\n    def g(self, error: DragomanError | None): ...", []),
    ],
)
def test_continuation_is_recognised_by_its_annotation(source: str, found: list[str]) -> None:
    assert _found(source) == found
