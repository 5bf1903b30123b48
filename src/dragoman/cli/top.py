"""`dragoman top`: what a cluster does right now, on a screen that renews itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dragoman.cli.diagnosis.node import Probe
from dragoman.cli.output import Output, Table, grid, show
from dragoman.cli.overview import GroupOrder, Overview, TopicLoad, TopicOrder, overview, tables
from dragoman.cli.status import USAGE, CommandError
from dragoman.cli.target import DEFAULT_SERVER, Server
from dragoman.telemetry.logs import escape

if TYPE_CHECKING:
    from rich.console import Console

app = App(name="top", help="Show the rates, lag and health of a cluster as they change.")


@app.default
def top(
    *,
    once: Annotated[bool, Parameter(negative="", help="Show it once, and end.")] = False,
    interval: Annotated[float, Parameter(help="Seconds between two looks.")] = 5.0,
    sort: Annotated[TopicOrder, Parameter(help="Order of topics.")] = "in",
    sort_groups: Annotated[GroupOrder, Parameter(help="Order of groups.")] = "records",
    rows: Annotated[int, Parameter(help="Topics and groups to show.")] = 10,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Show the nodes, the rates by protocol, the busiest topics, the groups with most lag, and
    what is wrong. q ends it.

    Rates are of the last 15 seconds, of all nodes. JSON is printed once; CSV has the topics.

    Examples
    --------
    dragoman top
    dragoman top --sort out --interval 15
    dragoman top --once --output json
    """
    if interval <= 0 or rows < 1:
        raise CommandError("--interval and --rows must be positive", USAGE)
    remote = Probe(server)

    def look() -> Overview:
        return overview(remote, rows, topics=sort, groups=sort_groups)

    if output == "csv":
        show(output, look().topics, TopicLoad)
    elif once or output == "json":
        found = look()
        show(output, found, Overview, *tables(found))
    elif sys.stdout.isatty():
        _screen(look, interval)
    else:
        _lines(look, interval)


def _lines(look: Callable[[], Overview], interval: float) -> None:
    """For a file or another program: one overview after the other."""
    while True:
        found = look()
        show("table", found, Overview, *tables(found))
        print(flush=True)
        time.sleep(interval)


def _screen(look: Callable[[], Overview], interval: float, console: Console | None = None) -> None:
    # Imported here: other forms need no screen.
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    def drawn(found: Overview) -> Group:
        heading = f"{found.cluster}  {time.strftime('%H:%M:%S')}  q ends"
        parts: list[object] = [Text(escape(heading), style="bold")]
        for part in tables(found):
            parts.append(Text(""))
            if isinstance(part, Table):
                parts.append(grid(part.columns, part.rows))
            else:
                parts += [Text(escape(line)) for line in str(part).split("\n")]
        return Group(*parts)  # type: ignore[arg-type]

    found = look()
    screen = Live(drawn(found), console=console, screen=True, auto_refresh=False)
    with _keys() as pressed, screen as live:
        while pressed(interval) != "q":
            try:
                found = look()
            except CommandError as error:
                # It may come back: the node is started again.
                live.update(Text(escape(str(error))), refresh=True)
                continue
            live.update(drawn(found), refresh=True)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Waits for a key, without Enter; empty if none is pressed in time."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import select
    import termios
    import tty

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return sys.stdin.read(1) if ready else ""

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""
