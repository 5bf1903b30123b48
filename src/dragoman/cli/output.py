"""Prints data on stdout: as tables for people, as JSON or CSV for programs.

    show(output, topics, TopicSummary, Table(("NAME", …), rows))     data, in any form
    show_change(output, "created topic 'a'", topic, TopicDescription)    what a command changed
    note(output, "next: ...")                                            for people only
    Stream(output, TopicSummary)                                     items as they are found

JSON is the value. CSV (RFC 4180, with line feeds) has a header and one row an item, with the fields
of JSON in their order; a nested value is JSON text, and null is empty. Tables escape control
characters, which a terminal would interpret; JSON and CSV have names as they are.

rich draws the tables. It is imported with the first table, because importing it takes time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import IO, TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from cyclopts import Parameter

from dragoman.cli.status import say
from dragoman.telemetry.logs import escape

if TYPE_CHECKING:
    from rich.table import Table as Grid

OutputForm: TypeAlias = Literal["table", "json", "csv"]
Output: TypeAlias = Annotated[OutputForm, Parameter(help="Form of the data on stdout.")]

Cell: TypeAlias = str | int | bool | Sequence[int] | None


class Table(NamedTuple):
    """A table with a heading. Columns of numbers are aligned to the right."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]


class Fields(NamedTuple):
    """One name and value a line."""

    pairs: Iterable[tuple[str, Cell]]


class Change(msgspec.Struct, frozen=True):
    """What a command changed, where the node returns no data about it."""

    name: str
    detail: str


class Lines(NamedTuple):
    """Text, a line each."""

    lines: Iterable[str]


#: What the table form of data consists of. Text may have several lines.
Part: TypeAlias = Table | Fields | Lines | str


def show(
    output: OutputForm,
    data: msgspec.Struct | Sequence[msgspec.Struct],
    kind: type[msgspec.Struct],
    *parts: Part,
) -> None:
    """Print data. `kind` is the type of the data or of its items.

    The parts are the table form, with an empty line between two. Without any, it is a table with a
    column for each field.
    """
    items = (data,) if isinstance(data, msgspec.Struct) else data
    if output == "json":
        print_json(data)
    elif output == "csv":
        columns, write = csv_columns(kind), csv_writer()
        write(columns)
        for each in items:
            write(csv_cells(each, columns))
    else:
        _print_parts(parts or (_table_of(items, kind),))


def show_change(
    output: OutputForm,
    message: str,
    data: msgspec.Struct | Sequence[msgspec.Struct],
    kind: type[msgspec.Struct],
) -> None:
    """Print what a command has changed: a message on stderr, or the data on stdout."""
    note(output, message)
    if output != "table":
        show(output, data, kind)


def note(output: OutputForm, message: str) -> None:
    """Print on stderr, for people only: what programs need is in the data."""
    if output == "table":
        say(message)


class Stream:
    """Prints items as they are found: one JSON document a line, or rows of CSV below a header.

    Items of several kinds share the columns of CSV.
    """

    def __init__(self, output: Literal["json", "csv"], *kinds: type[msgspec.Struct]) -> None:
        self._output = output
        self._columns = csv_columns(*kinds)
        self._write_row = csv_writer()
        if output == "csv":
            self._write_row(self._columns)
            sys.stdout.flush()

    def show(self, item: msgspec.Struct) -> None:
        if self._output == "csv":
            self._write_row(csv_cells(item, self._columns))
        else:
            sys.stdout.buffer.write(msgspec.json.encode(item) + b"\n")
        sys.stdout.flush()


# ---- JSON and CSV


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def csv_columns(*kinds: type[msgspec.Struct]) -> Sequence[str]:
    names: list[str] = []
    for kind in kinds:
        tag = kind.__struct_config__.tag_field
        names += ([] if tag is None else [tag]) + list(kind.__struct_encode_fields__)
    return list(dict.fromkeys(names))


def csv_cells(item: msgspec.Struct, columns: Sequence[str]) -> list[str]:
    # Not the encoded value, which may lack fields that have their default.
    fields = zip(item.__struct_encode_fields__, item.__struct_fields__, strict=True)
    cells = {encoded: _text(getattr(item, name)) for encoded, name in fields}
    config = item.__struct_config__
    if config.tag_field is not None:
        cells[config.tag_field] = str(config.tag)
    return [cells.get(column, "") for column in columns]


def csv_line(cells: Sequence[str]) -> bytes:
    line = BytesIO()
    csv_writer(line)(cells)
    return line.getvalue()


def csv_writer(out: IO[bytes] | None = None) -> Callable[[Iterable[str]], object]:
    """Writes rows to stdout, or as bytes elsewhere."""
    # Imported here: most commands print tables.
    import csv

    if out is None:
        sys.stdout.flush()
        out = sys.stdout.buffer
    # Line feeds alone, as the programs of a shell expect.
    return csv.writer(_Utf8(out), lineterminator="\n").writerow


class _Utf8:
    """Text as bytes: the system must change neither its line ends nor its encoding."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(text.encode())


def _text(value: object) -> str:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    match plain := msgspec.to_builtins(value):
        case None:
            return ""
        case str():
            return plain
        case _:
            return msgspec.json.encode(plain).decode()


# ---- tables


def _table_of(items: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> Table:
    names = kind.__struct_fields__
    return Table(
        [name.replace("_", " ").upper() for name in names],
        ([_cell_of(getattr(item, name)) for name in names] for item in items),
    )


def _cell_of(value: object) -> Cell:
    match plain := msgspec.to_builtins(value):
        case None | str() | int():
            return plain
        case _:
            return _text(value)


def _print_parts(parts: Sequence[Part]) -> None:
    for number, part in enumerate(parts):
        if number:
            print()
        match part:
            case Table():
                print_table(part.columns, part.rows)
            case Fields():
                print_fields(part.pairs)
            case Lines():
                _print_lines(part.lines)
            case _:
                _print_lines(part.split("\n"))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(escape(line))


def grid(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Grid:
    """A table in which columns of numbers are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Grid

    found = Grid(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    listed = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(listed) and all(_is_number(row[index]) for row in listed)
        found.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in listed:
        _add_row(found, row)
    return found


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    _print(grid(columns, rows))


def print_fields(fields: Iterable[tuple[str, Cell]]) -> None:
    """Print one name and value per line."""
    from rich.table import Table as Grid

    found = Grid(box=None, pad_edge=False, show_header=False)
    found.add_column(no_wrap=True)
    found.add_column(no_wrap=True)
    for each in fields:
        _add_row(found, each)
    _print(found)


def _add_row(grid: Grid, row: Sequence[Cell]) -> None:
    from rich.text import Text

    # As Text, a name with brackets is not interpreted as markup.
    grid.add_row(*(Text(_cell(value)) for value in row))


def _print(grid: Grid) -> None:
    """Print at full width: a truncated name would be worse than a line that the terminal wraps."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(file=sys.stdout, highlight=False)
    needed = Measurement.get(console, console.options.update(max_width=100_000), grid).maximum
    Console(file=sys.stdout, highlight=False, width=max(needed, 1)).print(grid)


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
