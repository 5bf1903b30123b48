"""Goal: the layer rules of pyproject.toml hold what they promise.

Method: `make layers` checks that the code keeps the rules. Here, a copy of the code is made to
break every one of them, and each contract must notice; a rule that nothing can break is worth
nothing. What import rules cannot see (async functions, names of modules) is checked on the syntax
trees.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter comes with the extra dev")

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dragoman"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]

#: For every contract, a module and an import in it that breaks the rule.
VIOLATIONS = {
    "layers": ("errors.py", "import dragoman.limits"),
    "sans-io": ("protocols/kafka/codec.py", "import socket"),
    "protocols": ("protocols/mlog/codec.py", "import dragoman.protocols.kafka.codec"),
    "raft": ("raft/core.py", "import dragoman.log.journal"),
    "shared": ("protocols/session.py", "import dragoman.broker.broker"),
    "no-network": ("log/batch.py", "import asyncio"),
    "handlers": ("protocols/kafka/handlers/topics.py", "import asyncio"),
    "ports": ("broker/topics.py", "import time"),
    "clients": ("protocols/kafka/client/broker.py", "import dragoman.net.channel"),
    "broker": ("cli/topic.py", "import dragoman.broker.topics"),
    "telemetry": ("broker/fetch.py", "import dragoman.telemetry.metrics"),
    "testing": ("server.py", "import dragoman.testing.memory"),
    "terminal": ("api/values.py", "import rich"),
    "api-ports": ("api/topics.py", "import dragoman.broker.broker"),
    "spark": ("client/kafka.py", "import pyarrow"),
    "libraries": ("config/keys.py", "import starlette"),
}

#: Packages whose functions return when they are done.
SYNCHRONOUS = ("config", "log", "telemetry")
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}


def _lint(directory: Path) -> subprocess.CompletedProcess[str]:
    """Contracts of the project on the package below `directory`."""
    return subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                "from importlinter.cli import lint_imports_command as run; run()",
            ),
            *("--config", str(ROOT / "pyproject.toml"), "--no-cache"),
        ],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory), "COLUMNS": "200"},
        check=False,
    )


def test_every_contract_has_a_violation_that_is_tried() -> None:
    assert {contract["id"] for contract in CONTRACTS} == VIOLATIONS.keys()


def test_every_contract_notices_a_violation(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "dragoman", ignore=shutil.ignore_patterns("__pycache__"))
    for path, statement in VIOLATIONS.values():
        module = tmp_path / "dragoman" / path
        module.parent.mkdir(exist_ok=True)
        text = module.read_text() if module.exists() else ""
        module.write_text(f"{text}\n{statement}\n")
    report = _lint(tmp_path)
    assert report.returncode == 1, report.stdout + report.stderr
    for contract in CONTRACTS:
        assert f"{contract['name']} BROKEN" in report.stdout, report.stdout


def _modules(*packages: str) -> list[Path]:
    return [path for package in packages for path in (SOURCE / package).rglob("*.py")]


def test_what_only_works_on_values_and_files_is_not_async() -> None:
    modules = _modules(*SYNCHRONOUS)
    assert len(modules) > 40
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"{path}:{node.lineno}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    for path in SOURCE.rglob("*.py"):
        assert path.stem not in VAGUE_NAMES, path


def test_no_handler_for_errors_takes_everything() -> None:
    """A bare `except` swallows cancellation and interrupts."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{path}:{node.lineno}"
