"""Runbooks as their reader follows them: the blocks of commands, and what they print.

A block `sh` is run by a shell, as it is written. A block `text` after it has lines that it prints,
in this order, with `…` for anything.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from deploy_check.command import ROOT, CheckError
from deploy_check.faults.rules import faster

RUNBOOKS = ROOT / "docs" / "runbooks"
_BLOCK = re.compile(
    r"^(?P<indent> *)```sh\n(?P<commands>.*?)\n *```\n(?:\s*```text\n(?P<shown>.*?)\n *```\n)?",
    re.MULTILINE | re.DOTALL,
)
_TIMEOUT_S = 180
_PATIENCE_S = 60


class Step(NamedTuple):
    commands: str
    shown: tuple[str, ...]


def steps(page: Path) -> dict[str, list[Step]]:
    """By section."""
    found = {}
    for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        found[title] = [_step(block) for block in _BLOCK.finditer(body)]
    return found


def _step(block: re.Match[str]) -> Step:
    indent = re.compile(f"^{block['indent']}", re.MULTILINE)
    shown = block["shown"] or ""
    return Step(indent.sub("", block["commands"]), tuple(indent.sub("", shown).splitlines()))


def follow(
    step: Step, *, environment: Mapping[str, str], launcher: Sequence[str], patiently: bool
) -> None:
    """Run a step. `patiently`: until it prints what it should, for it only looks."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        done = subprocess.run(
            (*launcher, "bash", "-e", "-c", _queries_faster(step.commands)),
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        missing = _missing(step.shown, done.stdout, environment)
        if done.returncode == 0 and missing is None:
            return
        if not patiently or time.monotonic() > deadline:
            said = f"{done.stdout}{done.stderr}".strip()
            wanted = f"; missing: {missing}" if missing is not None else ""
            raise CheckError(f"{step.commands}\nended with {done.returncode}{wanted}\n{said}")
        time.sleep(0.5)


def _queries_faster(commands: str) -> str:
    lines = commands.splitlines()
    return "\n".join(faster(each) if "promtool query" in each else each for each in lines)


def _missing(shown: tuple[str, ...], said: str, values: Mapping[str, str]) -> str | None:
    """The first line that was not printed after those before it."""
    lines = iter(_even(line) for line in said.splitlines())
    for line in shown:
        parts = _even(Template(line).safe_substitute(values)).split("…")
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in parts))
        if not any(pattern.search(each) for each in lines):
            return line
    return None


def _even(line: str) -> str:
    return " ".join(line.split())
