"""Benchmarks of an installed broker: `make bench ARGS="--output FILE"`.

Starts `dragoman serve` from this interpreter's environment as a process of its own, drives it over
loopback, and prints what it costs beside the bounds of the machine. Every loop is bounded in count
and time; everything started is stopped at the end.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from harness.broker import BenchmarkError, BrokerProcess, installed_command
from harness.context import Context
from harness.peers import installed_peers
from harness.processes import Neighbours, raise_open_files
from harness.report import (
    Run,
    ScenarioRun,
    describe_machine,
    file_system_of,
    show_figures,
    show_verdicts,
    write_json,
)
from harness.targets import verdicts
from rich.console import Console
from scenarios import SCENARIOS

_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "overlay")


def main() -> int:
    options = _parser().parse_args()
    console = Console()
    unknown = [name for name in options.only if name not in SCENARIOS]
    if unknown:
        console.print(f"no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
        return 2
    try:
        installed_command()
    except BenchmarkError as error:
        console.print(str(error))
        return 2
    BrokerProcess.profile_directory = options.profile
    raise_open_files()
    root = Path(tempfile.mkdtemp(prefix=".dragoman-bench-", dir=options.data or os.getcwd()))
    try:
        run = _measure(root, options, console)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if options.output:
        write_json(run, options.output)
    return 1 if any(each.trouble for each in run.scenarios) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Benchmarks of an installed broker.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="existing directory for the data")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="about a minute in all; rough figures")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="DIR",
        help="run brokers under cProfile, one file each; figures are then worth nothing",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"a scenario, may be given again: {', '.join(SCENARIOS)}",
    )
    return parser


def _measure(root: Path, options: argparse.Namespace, console: Console) -> Run:
    if (kind := file_system_of(root)) in _MEMORY_FILE_SYSTEMS:
        console.print(f"the data lies on {kind}: figures about durable writes mean nothing there")
    there, missing = installed_peers()
    for name in missing:
        console.print(f"{name} is not installed: not compared with it")
    context = Context(root, quick=options.quick, peers=there)
    runs = [_run_scenario(name, context, console) for name in options.only or SCENARIOS]
    found = verdicts(context.figures)
    show_verdicts(console, found)
    return Run(
        machine=describe_machine(root),
        quick=options.quick,
        peers_missing=missing,
        scenarios=runs,
        figures=context.figures,
        verdicts=found,
    )


def _run_scenario(name: str, context: Context, console: Console) -> ScenarioRun:
    module = import_module(f"scenarios.{SCENARIOS[name]}")
    context.scenario = name
    before = len(context.figures)
    neighbours, started = Neighbours(), time.monotonic()
    context.troubles.clear()
    try:
        module.run(context)
    except (BenchmarkError, OSError) as error:
        # The other scenarios still have something to say.
        context.troubles.append(f"{type(error).__name__}: {error}")
    for trouble in context.troubles:
        console.print(f"{name}: {trouble}")
    run = ScenarioRun(
        scenario=name,
        seconds=time.monotonic() - started,
        load_average=os.getloadavg()[0],
        neighbours_cpu_share=neighbours.cpu_share(),
        trouble="; ".join(context.troubles),
    )
    title = f"{name} ({run.seconds:.0f} s, others used {run.neighbours_cpu_share:.0%} of the CPUs)"
    show_figures(console, title, context.figures[before:])
    return run


if __name__ == "__main__":
    sys.exit(main())
