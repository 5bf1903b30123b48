"""`dragoman log`: read a data directory that no node is using.

The work is done by `dragoman.log.inspect`: `inspect_directory(path)` and `verify_directory(path)`
are generators that yield lines or structs to print and return the exit status.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from typing import TypeAlias

import msgspec
from cyclopts import App

from dragoman.cli.output import Output
from dragoman.telemetry.logs import escape

app = App(name="log", help="Data directories, read without a node.")

Report: TypeAlias = Generator[str | msgspec.Struct, None, int]


@app.command
def inspect(directory: str, /, *, output: Output = "table") -> int:
    """Show what a data directory holds.

    Parameters
    ----------
    directory
        Data directory of a stopped node.
    """
    return _print_report(_reader("inspect_directory")(directory), output)


@app.command
def verify(directory: str, /, *, output: Output = "table") -> int:
    """Check every byte of a data directory; exit status 1 when there is damage.

    Parameters
    ----------
    directory
        Data directory of a stopped node.
    """
    return _print_report(_reader("verify_directory")(directory), output)


def _reader(name: str) -> Callable[[str], Report]:
    reader: Callable[[str], Report] = getattr(importlib.import_module("dragoman.log.inspect"), name)
    return reader


def _print_report(report: Report, output: Output) -> int:
    """Print items as they come: a large directory should show progress."""
    while True:
        try:
            item = next(report)
        except StopIteration as stop:
            status: int = stop.value
            return status
        if output == "json":
            print(msgspec.json.encode(item).decode())
        else:
            print(escape(item) if isinstance(item, str) else _line(item))


def _line(item: msgspec.Struct) -> str:
    fields = msgspec.to_builtins(item)
    return " ".join(f"{name}={escape(str(value))}" for name, value in fields.items())
