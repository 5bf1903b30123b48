"""Goal: the demo observes the broker from outside, as a user does.

Method: the imports of its modules, from their syntax trees.
"""

from __future__ import annotations

import ast
from pathlib import Path

DEMO = Path(__file__).parents[3] / "examples" / "demo"
INSIDE = ("broker", "cluster", "log", "net", "security", "server", "telemetry", "testing")


def _imported(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            names += [each.name for each in node.names]
    return names


def test_demo_imports_nothing_from_inside_a_node() -> None:
    modules = sorted(DEMO.glob("*.py"))
    assert len(modules) > 10
    for path in modules:
        for name in _imported(path):
            for package in INSIDE:
                assert not f"{name}.".startswith(f"dragoman.{package}."), f"{path}: {name}"


def test_no_module_but_the_spark_job_imports_pyspark() -> None:
    """The demo starts Java in a process of its own, which ends with the job."""
    for path in DEMO.glob("*.py"):
        if path.name != "spark_job.py":
            assert not any(name.startswith("pyspark") for name in _imported(path)), path
