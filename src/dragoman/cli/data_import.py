"""`dragoman import`: imports the data of other brokers into a data directory that no node uses."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from dragoman.cli.output import Output, show_change
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, complain
from dragoman.errors import DirectoryInUseError, DragomanError, FormatError
from dragoman.plural import plural
from dragoman.telemetry.logs import escape

if TYPE_CHECKING:
    from rich.progress import Progress

    from dragoman.config.settings import Settings
    from dragoman.protocols.minibroker.directory_import import Imported, SourceTopic

app = App(name="import", help="Import the data of other brokers.")


@app.command
def minibroker(
    directory: Path,
    /,
    *,
    data: str,
    skip_damaged: bool = False,
    output: Output = "table",
) -> int:
    """Import a data directory of minibroker: records with their offsets, and committed offsets.

    The node must be stopped. An interrupted import can be repeated.

    Parameters
    ----------
    directory
        minibroker's data directory, its option -dir.
    data
        Data directory of the node; created if it does not exist.
    skip_damaged
        Continue after damaged records. By default the rest of their partition is not imported.

    Examples
    --------
    dragoman import minibroker minibroker-data --data dragoman-data
    """
    from dragoman.protocols.minibroker.directory_import import Imported, SourceError, find_topics

    try:
        topics = find_topics(directory)
    except SourceError as error:
        raise CommandError(str(error), USAGE, code=error.code) from None
    except OSError as error:
        raise CommandError(str(error), USAGE) from None
    try:
        imported = _import(_settings(data), topics, skip_damaged=skip_damaged)
    except (DirectoryInUseError, FormatError) as error:
        raise CommandError(str(error), USAGE, code=error.code) from None
    except DragomanError as error:
        raise CommandError(str(error), code=error.code, hint="the import can be repeated") from None
    if output == "table":
        for problem in imported.problems:
            complain(escape(problem))
    message = (
        f"{plural(imported.topics, 'topic')}: {plural(imported.records, 'record')} and "
        f"{plural(imported.commits, 'committed offset')} imported; "
        f"{imported.records_present} and {imported.commits_present} existed"
    )
    show_change(output, message, imported, Imported)
    return OK if imported.is_complete else FAILED


def _settings(data: str) -> Settings:
    from dragoman.config.layers import Assignment, Flags, load

    flags = Flags(assignments=(Assignment("--data", "data", data),))
    return load(file=None, environment=os.environ, flags=flags).settings


def _import(settings: Settings, topics: list[SourceTopic], *, skip_damaged: bool) -> Imported:
    from dragoman.net.future import future_of
    from dragoman.process import offline_node
    from dragoman.protocols.minibroker.directory_import import Imported, Importer

    total = sum(each.size for topic in topics for part in topic.segments.values() for each in part)
    imported = Imported()
    with _progress() as progress:
        task = progress.add_task("importing", total=total)

        async def work() -> None:
            async with offline_node(settings) as node:
                importer = Importer(
                    node.broker,
                    topics,
                    imported,
                    skips_damaged=skip_damaged,
                    progress=lambda size: progress.advance(task, size),
                )
                await future_of(importer.run())

        asyncio.run(work())
    return imported


def _progress() -> Progress:
    """A bar with bytes, speed and time left; hidden unless stderr is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
    )
