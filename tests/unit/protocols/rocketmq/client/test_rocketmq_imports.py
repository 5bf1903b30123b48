"""Goal: the modules of the client import each other in one direction only.

Method: the imports of every module are read from its syntax tree, those for the type checker
included, and modules that nothing left imports are taken away until none is left.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = "dragoman.protocols.rocketmq.client"
SOURCE = Path(__file__).parents[5] / "src" / Path(*PACKAGE.split("."))


def _imports(path: Path, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules or {node.module} & modules
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
    return found


def test_there_is_no_cycle() -> None:
    paths = {f"{PACKAGE}.{path.stem}": path for path in SOURCE.glob("*.py")}
    paths[PACKAGE] = paths.pop(f"{PACKAGE}.__init__")
    graph = {name: _imports(path, set(paths)) for name, path in paths.items()}
    assert sum(map(len, graph.values())) > 30
    while leaves := {name for name, imported in graph.items() if not imported & graph.keys()}:
        graph = {name: imported for name, imported in graph.items() if name not in leaves}
    assert not graph
