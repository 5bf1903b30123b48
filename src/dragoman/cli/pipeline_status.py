"""The status of a running pipeline: on the terminal, and in reports to a node."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from dragoman.cli.output import Cell
from dragoman.cli.remote import Remote
from dragoman.cli.status import CommandError, say
from dragoman.pipelines.state import Progress, Status
from dragoman.plural import plural
from dragoman.telemetry.logs import escape

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table


COLUMNS = ("PART", "STATE", "BATCH", "ROWS", "ROWS/S", "LAG", "BATCH MS", "STATE ROWS", "STATE")
#: Seconds between two lines about a pipeline whose state does not change.
_LINE_S = 10.0
#: Seconds between two reports of the same state.
_PAUSE_S = 2.0
#: Seconds that the end of a pipeline waits for its last report.
_LAST_REPORT_S = 5.0
#: Seconds before the last report is repeated, because a node considers a silent pipeline dead.
_AGAIN_S = 10.0


def row(part: Progress) -> tuple[Cell, ...]:
    return (
        part.part,
        part.state,
        part.batch_id if part.batch_id >= 0 else None,
        part.rows,
        round(part.rows_per_s),
        part.lag_records if part.lag_records >= 0 else None,
        part.batch_ms,
        part.state_rows,
        _size(part.state_bytes),
    )


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


class StatusView:
    """Shows the status on stderr, since stdout may carry data of a job."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._last_state = ""
        self._line_at = 0.0

    def __enter__(self) -> StatusView:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: Status) -> None:
        if self._live is not None:
            self._live.update(_table(status))
        else:
            self._say(status)

    def _say(self, status: Status) -> None:
        """Print lines when the state changes, and every few seconds."""
        now = time.monotonic()
        if status.state != self._last_state:
            say(f"{status.name} is {status.state}")
        elif now - self._line_at < _LINE_S:
            return
        self._last_state = status.state
        self._line_at = now
        for part in status.parts:
            if part.batches or part.note:
                say(line(part))


def line(part: Progress) -> str:
    lag = f", {part.lag_records:,} behind" if part.lag_records >= 0 else ""
    state = f", state {plural(part.state_rows, 'row')}" if part.state_rows else ""
    note = f", {part.note}" if part.note else ""
    # Jobs without a streaming query have no figures per batch.
    batch = f"batch {part.batch_id}, " if part.batch_id >= 0 else ""
    pace = f", {part.rows_per_s:,.0f} rows/s" if part.rows_per_s or batch else ""
    duration = f", {part.batch_ms:,} ms a batch" if part.batch_ms or batch else ""
    return f"{part.part}: {batch}{plural(part.rows, 'row')}{pace}{lag}{duration}{state}{note}"


def _table(status: Status) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{status.name} · {status.state}", justify="left")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    for part in status.parts:
        cells = ("-" if cell is None else cell for cell in row(part))
        shown = (f"{cell:,}" if isinstance(cell, int) else escape(str(cell)) for cell in cells)
        table.add_row(*map(Text, shown))
        if part.note or part.problem:
            table.add_row(Text(escape(f"  {part.problem or part.note}"), overflow="fold"))
    return table


# ---- reports


class StatusReports:
    """Sends reports to a node from a thread, so that an unreachable node does not delay the
    pipeline.

    Only the newest status is kept; it replaces an unsent one.
    """

    def __init__(self, server: str) -> None:
        self._remote = Remote(server) if server else None
        self._is_new = threading.Event()
        self._is_over = threading.Event()
        self._newest: Status | None = None
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> StatusReports:
        if self._remote is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._is_new.set()
        if self._remote is not None:
            self._thread.join(_LAST_REPORT_S)

    def send(self, status: Status) -> None:
        self._newest = status
        self._is_new.set()

    def _run(self) -> None:
        assert self._remote is not None
        while True:
            self._is_new.wait(_AGAIN_S)
            self._is_new.clear()
            # Read before the status, so that the last one is sent.
            is_over = self._is_over.is_set()
            try:
                if self._newest is not None:
                    self._remote.send("/api/v1/pipelines", self._newest)
            except CommandError as error:
                if not self._has_warned:
                    say(f"the pipeline runs, but its status is not reported: {error}")
                self._has_warned = True
            if is_over:
                return
            self._is_over.wait(_PAUSE_S)
