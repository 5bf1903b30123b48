"""What the measures are taken from: the modules of the package, and which import which."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Module(NamedTuple):
    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def modules(source: Path = ROOT / "src") -> dict[str, Module]:
    """The package's modules by name."""
    found = {}
    for path in sorted((source / "dragoman").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        found[name] = Module(name, path, text, ast.parse(text))
    return found


def code_lines(module: Module) -> int:
    """Lines that are neither blank, comment nor docstring."""
    docstrings = set()
    for node in ast.walk(module.tree):
        is_documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, is_documented) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            docstrings.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    lines: set[int] = set()
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def imports(module: Module, known: dict[str, Module]) -> Iterator[str]:
    """Modules of the package that this one imports when it is loaded or type-checked.

    Imports inside functions are left out: they run later. Importing a name from a package counts
    as importing the submodule of that name, if there is one, and the package otherwise.
    """
    todo: list[ast.stmt] = list(module.tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in known:
            for each in node.names:
                full = f"{node.module}.{each.name}"
                yield full if full in known else node.module
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                todo += getattr(node, field, [])
            for handler in getattr(node, "handlers", []):
                todo += handler.body


def import_cycles(known: dict[str, Module]) -> list[list[str]]:
    """Groups of modules that import each other, the largest first."""
    graph = {name: sorted(set(imports(module, known)) - {name}) for name, module in known.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in graph:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        work = [(root, iter(graph[root]))]
        while work:
            name, edges = work[-1]
            for edge in edges:
                if edge not in index:
                    index[edge] = low[edge] = len(index)
                    stack.append(edge)
                    work.append((edge, iter(graph[edge])))
                    break
                if edge in stack:
                    low[name] = min(low[name], index[edge])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[name])
                if low[name] == index[name]:
                    cycle = []
                    while not cycle or cycle[-1] != name:
                        cycle.append(stack.pop())
                    if len(cycle) > 1:
                        found.append(sorted(cycle))
    return sorted(found, key=len, reverse=True)
