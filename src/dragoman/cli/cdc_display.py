"""Shows captures on a terminal: tables of their state, findings, and progress bars of snapshots."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from dragoman.api.values import CaptureDescription
from dragoman.captures.control import Finding, Status, TableProgress
from dragoman.cli.output import Fields, Part, Table
from dragoman.cli.status import CommandError, say

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_POLL_S = 0.5
#: How long the command waits for a capture that neither snapshots nor streams.
_PATIENCE_S = 30.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def list_table(captures: Sequence[CaptureDescription]) -> Table:
    columns = ("NAME", "STATE", "NODE", "TABLES", "CHANNELS", "ENVELOPE", "DATABASE")
    return Table(columns, (_listed(each) for each in captures))


def _listed(capture: CaptureDescription) -> tuple[str | int | None, ...]:
    definition = capture.definition
    shown = (capture.name, capture.status.state, capture.node)
    if definition is None:
        return (*shown, None, None, None, None)
    outbox = [f"outbox {definition.outbox}"] if definition.outbox else []
    tables = ",".join([*definition.tables, *outbox])
    channels = ",".join(definition.channels)
    return (*shown, tables or None, channels or None, definition.envelope, definition.dsn)


def states_table(captures: Sequence[CaptureDescription]) -> Table:
    return Table(
        ("NAME", "STATE", "NODE", "ROWS", "ROWS/S", "LAG", "BEHIND", "RETAINED", "PROBLEM"),
        (
            (
                each.name,
                each.status.state,
                each.node,
                each.rows,
                f"{each.status.rows_per_s:.0f}",
                size_text(each.status.lag_bytes),
                time_text(each.status.lag_s),
                size_text(each.status.retained_bytes),
                each.status.problem or None,
            )
            for each in captures
        ),
    )


def state_parts(capture: CaptureDescription) -> Iterator[Part]:
    status = capture.status
    yield Fields(
        (
            ("name", capture.name),
            ("database", capture.definition.dsn if capture.definition else None),
            ("state", status.state),
            ("problem", status.problem or None),
            ("node", capture.node),
            ("captured up to", status.lsn or None),
            ("lag", size_text(status.lag_bytes)),
            ("behind", time_text(status.lag_s)),
            ("retained WAL", size_text(status.retained_bytes)),
            ("rows", capture.rows),
            ("rows per second", f"{status.rows_per_s:.0f}"),
            ("transactions", status.transactions),
            ("bytes", size_text(status.bytes)),
            ("restarts", capture.restarts),
        )
    )
    if status.tables:
        yield Table(
            ("TABLE", "READ", "ROWS", "OF ABOUT", "BYTES", "LEFT"),
            (_progress(each) for each in status.tables),
        )


def _progress(table: TableProgress) -> tuple[str | int | None, ...]:
    expected = table.rows_expected if table.rows_expected >= 0 else None
    state = "all" if table.is_done else "some"
    left = None if table.is_done else time_text(table.seconds_left)
    return table.table, state, table.rows, expected, size_text(table.bytes), left


def size_text(size: int) -> str | None:
    if size < 0:
        return None
    number, unit = float(size), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit else f"{size} B"


def time_text(seconds: float) -> str | None:
    if seconds < 0:
        return None
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def print_findings(findings: Iterable[Finding]) -> None:
    for each in findings:
        say(f"{each.level}: {each.what}")
        if each.remedy:
            say(f"    {each.remedy}")


# ---- waiting


def wait_until_it_runs(look: Callable[[], CaptureDescription]) -> CaptureDescription:
    """Returns when the capture streams or is paused. Raises `CommandError` if it fails or waits
    too long.

    A terminal shows a progress bar for each table that is being read.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows, {task.fields[size]}, {task.fields[left]} left"),
    )
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        tasks: dict[str, TaskID] = {}
        waits_since: float | None = None
        while True:
            capture = look()
            status = capture.status
            for table in status.tables:
                _advance(progress, tasks, table)
            if status.state in ("streaming", "paused"):
                return capture
            if status.state == "failed":
                raise CommandError(
                    f"capture {capture.name} was added, but has failed: {status.problem}"
                )
            now = time.monotonic()
            waits_since = None if status.state == "snapshotting" else waits_since or now
            if waits_since is not None and now - waits_since > _PATIENCE_S:
                raise CommandError(_not_running(capture.name, status))
            time.sleep(_POLL_S)


def _not_running(name: str, status: Status) -> str:
    why = f": {status.problem}" if status.problem else ""
    return (
        f"capture {name} was added, but is {status.state}{why}; it is retried; "
        f"`dragoman cdc status {name}` shows its state"
    )


def _advance(progress: Progress, tasks: dict[str, TaskID], table: TableProgress) -> None:
    if table.table not in tasks:
        tasks[table.table] = progress.add_task(table.table, size="", left="")
    total = table.rows if table.is_done else max(table.rows_expected, table.rows)
    progress.update(
        tasks[table.table],
        completed=table.rows,
        total=total,
        size=size_text(table.bytes),
        left="nothing" if table.is_done else time_text(table.seconds_left) or "some time",
    )


def watch(show: Callable[[], None]) -> None:
    """Call `show` repeatedly until the user interrupts it."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    with console.screen() if sys.stdout.isatty() else nullcontext():
        while True:
            if sys.stdout.isatty():
                console.clear()
            show()
            sys.stdout.flush()
            time.sleep(2 * _POLL_S)
