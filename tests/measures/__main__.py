"""Prints the measures of a version: `make measures`, or with ARGS="--source ../before/src"."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

from measures.continuations import Continuations
from measures.hot_paths import BRIDGES, HOT_PATHS
from measures.source import ROOT, Module, code_lines, import_cycles, modules


def _functions(module: Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def nested_functions(module: Module) -> int:
    count = 0
    for function in _functions(module):
        for node in ast.walk(function):
            if node is not function and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count += 1
    return count


def gerunds(known: dict[str, Module]) -> list[str]:
    names = {name.rpartition(".")[2]: name for name in known}
    return sorted(full for last, full in names.items() if last.endswith("ing"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    parser.add_argument("--list", action="store_true", help="name what is counted")
    arguments = parser.parse_args()
    known = modules(arguments.source)
    lengths = sorted(
        ((module.text.count("\n"), name) for name, module in known.items()), reverse=True
    )
    cycles = import_cycles(known)
    found = Continuations(known).everywhere()
    hot = {*BRIDGES, *(module for modules_of in HOT_PATHS.values() for module in modules_of)}
    cold = [each for each in found if each.module not in hot]
    architecture = arguments.source.parent / "ARCHITECTURE.md"
    tests = arguments.source.parent / "tests"
    rows: list[tuple[str, object]] = [
        ("source files", len(known)),
        ("longest file, lines", lengths[0][0]),
        ("files over 600 lines", sum(length > 600 for length, _ in lengths)),
        ("source lines", sum(length for length, _ in lengths)),
        ("lines of code", sum(map(code_lines, known.values()))),
        ("import cycles", len(cycles)),
        ("modules in the largest cycle", len(cycles[0]) if cycles else 0),
        ("continuations", len(found)),
        ("continuations outside hot paths", len(cold)),
        ("nested functions", sum(map(nested_functions, known.values()))),
        ("modules named by a gerund", len(gerunds(known))),
        ("ARCHITECTURE.md, bytes", architecture.stat().st_size),
        ("loose modules in tests/", len({*tests.glob("*.py")} - {tests / "conftest.py"})),
        (
            "sys.path.insert in tests/",
            sum("sys.path" + ".insert(" in path.read_text() for path in tests.rglob("*.py")),
        ),
    ]
    for name, value in rows:
        print(f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |")
    if arguments.list:
        print(*("cycle: " + ", ".join(each) for each in cycles), sep="\n")
        print(*(f"{length} {name}" for length, name in lengths if length > 500), sep="\n")
        print(*gerunds(known), sep="\n")
        print(*(f"continuation: {each}" for each in cold), sep="\n")


if __name__ == "__main__":
    main()
