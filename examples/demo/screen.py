"""What the demo looks like: one line per step, a bar while something counts, tables of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from dragoman import __version__

_TITLE_WIDTH = 34
_PURPOSE_WIDTH = 25
_SENTENCE = "One durable log; every client speaks its own protocol to it."

#: Says how far a count has come.
Advance: TypeAlias = Callable[[int], None]
Finish: TypeAlias = Callable[[str], None]


class _Count(MofNCompleteColumn):
    """Only where something is counted."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task)


class Screen:
    def __init__(self, console: Console | None = None) -> None:
        self._console = console if console is not None else Console(highlight=False)
        self._progress = self._new_progress()

    def _new_progress(self) -> Progress:
        """One line that shows what is under way and is gone afterwards."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            _Count(),
            TimeElapsedColumn(),
        )
        is_still = not self._console.is_terminal
        return Progress(*columns, console=self._console, transient=True, disable=is_still)

    def open_with_title(self) -> None:
        self._console.print()
        self._console.print(Text.assemble(("Dragoman ", "bold"), __version__, "  ", _SENTENCE))
        self._console.print()

    @contextmanager
    def step(self, title: str) -> Iterator[Finish]:
        """Shows that a step is under way; its result takes the same place."""
        result: list[str] = []
        with self._new_progress() as self._progress:
            self._progress.add_task(title.ljust(_TITLE_WIDTH), total=None)
            yield result.append
        line = Text.assemble((" ✓ ", "green"), title.ljust(_TITLE_WIDTH), (result[0], "cyan"))
        self._console.print(line, soft_wrap=True)

    def count(self, total: int) -> Advance:
        """Makes the bar of the step under way show a count. Call the answer with how far it is."""
        (task,) = self._progress.task_ids
        self._progress.update(task, total=total)
        return lambda completed: self._progress.update(task, completed=completed)

    def note(self, text: str) -> None:
        """What the step under way is waiting for, where it takes long."""
        if self._console.is_terminal:
            (task,) = self._progress.task_ids
            self._progress.update(task, description=text)
        else:
            self._console.print(Text(f"   {text} …"))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns whose cells all begin with a digit stand to the right."""
        # Five protocols stand beside each other in 80 columns.
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for index, column in enumerate(columns):
            numeric = all(row[index][:1].isdigit() for row in rows)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(Padding(Text(title, style="bold"), (1, 0, 0, 3), expand=False))
        self._console.print(Padding(table, (0, 0, 0, 3), expand=False))

    def show_what_next(self, lines: Sequence[tuple[str, str]]) -> None:
        self._offer("The broker keeps serving. To try:", lines)

    def show_console(self, address: str, login: str, pages: Sequence[tuple[str, str]]) -> None:
        self._offer(f"The console is at {address} ({login}). To try there:", pages)
        self._console.print("\nCtrl-C stops it.")

    def _offer(self, head: str, lines: Sequence[tuple[str, str]]) -> None:
        """Whole lines, without a frame: they are there to be copied."""
        self._console.print(Text(f"\n{head}\n"), soft_wrap=True)
        for purpose, line in lines:
            self._console.print(Text(f"   {purpose.ljust(_PURPOSE_WIDTH)}{line}"), soft_wrap=True)

    def say(self, message: str) -> None:
        self._console.print(Text(message))

    def complain(self, message: str, details: Sequence[str] = ()) -> None:
        self._console.print(Text.assemble(("\n ✗ ", "red"), message))
        for line in details:
            self._console.print(Text(f"   {line}", style="dim"))
