"""A run as JSON and as tables on the terminal."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.context import Figure
from harness.targets import Verdict


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    processor: str
    cores: int
    memory_gb: float
    kernel: str
    file_system: str
    python: str
    dragoman: str


class ScenarioRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a scenario went, and how busy the machine was with other things meanwhile."""

    scenario: str
    seconds: float
    load_average: float
    neighbours_cpu_share: float
    #: Why there are no figures, or fewer than usual; empty when all went well.
    trouble: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    machine: Machine
    quick: bool
    peers_missing: list[str]
    scenarios: list[ScenarioRun]
    figures: list[Figure]
    verdicts: list[Verdict]


def describe_machine(data: Path) -> Machine:
    information = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in information if line.startswith("model name")]
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return Machine(
        processor=names[0] if names else platform.machine(),
        cores=os.cpu_count() or 1,
        memory_gb=round(memory_kb / 1024 / 1024, 1),
        kernel=platform.release(),
        file_system=file_system_of(data),
        python=platform.python_version(),
        dragoman=version("dragoman"),
    )


def file_system_of(path: Path) -> str:
    """Type of the file system that holds `path`: that of the longest mount point above it."""
    whole = str(path.resolve())
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    fitting = [
        (len(mount[1]), mount[2])
        for mount in mounts
        if mount[1] == "/" or whole == mount[1] or whole.startswith(mount[1] + "/")
    ]
    return max(fitting)[1]


def write_json(run: Run, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def read_json(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


def show_figures(console: Console, title: str, figures: Sequence[Figure]) -> None:
    table = Table(title=title, title_justify="left", show_lines=False)
    table.add_column("case", overflow="fold")
    table.add_column("figures", overflow="fold")
    table.add_column("rate against bounds", overflow="fold")
    for figure in figures:
        metrics = "  ".join(f"{name} {number(value)}" for name, value in figure.metrics.items())
        ratios = "\n".join(f"{value:.2f} x {name}" for name, value in figure.ratios.items())
        table.add_row(escape(figure.case), metrics, ratios)
    console.print(table)


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    table = Table(title="targets", title_justify="left")
    for column in ("target", "bound", "got", ""):
        table.add_column(column)
    for each in verdicts:
        table.add_row(each.text, each.bound, number(each.got), "met" if each.is_met else "MISSED")
    console.print(table)


def number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
