"""Data on stdout: a table for people or JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from dragoman.telemetry.logs import escape

Output: TypeAlias = Annotated[
    Literal["table", "json"], Parameter(help="Form of the data on stdout.")
]

Cell: TypeAlias = str | int | bool | Sequence[int] | None


def print_json(value: msgspec.Struct | Sequence[msgspec.Struct]) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Columns of text; numbers stand to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    listed = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(listed) and all(_is_number(row[index]) for row in listed)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in listed:
        table.add_row(*(Text(_cell(value)) for value in row))
    _print_whole(table)


def print_fields(fields: Iterable[tuple[str, Cell]]) -> None:
    """One value a line, each behind its name."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for name, value in fields:
        table.add_row(Text(name), Text(_cell(value)))
    _print_whole(table)


def _print_whole(table: Table) -> None:
    """Print at full width: a shortened name would be worse than a line that the terminal wraps."""
    console = Console(file=sys.stdout, highlight=False)
    needed = Measurement.get(console, console.options.update(max_width=100_000), table).maximum
    Console(file=sys.stdout, highlight=False, width=max(needed, 1)).print(table)


def _is_number(value: Cell) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _cell(value: Cell) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str() | int():
            # Names come from clients, and a terminal obeys control characters.
            return escape(str(value))
        case _:
            return ",".join(map(str, value))
