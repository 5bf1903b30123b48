"""Prints data on stdout, as a table for people or as JSON for programs.

rich draws the tables. It is imported with the first table, because importing it takes time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from dragoman.telemetry.logs import escape

if TYPE_CHECKING:
    from rich.table import Table

Output: TypeAlias = Annotated[
    Literal["table", "json"], Parameter(help="Format of the data on stdout.")
]

Cell: TypeAlias = str | int | bool | Sequence[int] | None


def print_json(value: msgspec.Struct | Sequence[msgspec.Struct]) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table in which columns of numbers are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    listed = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(listed) and all(_is_number(row[index]) for row in listed)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    _print_rows(table, listed)


def print_fields(fields: Iterable[tuple[str, Cell]]) -> None:
    """Print one name and value per line."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    _print_rows(table, fields)


def _print_rows(table: Table, rows: Iterable[Sequence[Cell]]) -> None:
    """Print at full width: a truncated name would be worse than a line that the terminal wraps."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.text import Text

    for row in rows:
        # As Text, a name with brackets is not interpreted as markup.
        table.add_row(*(Text(_cell(value)) for value in row))
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
            # Names come from clients and may contain control characters, which a terminal would
            # interpret.
            return escape(str(value))
        case _:
            return ",".join(map(str, value))
