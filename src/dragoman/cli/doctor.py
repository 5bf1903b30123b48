"""`dragoman doctor`: checks a running node, or a data directory, and says what to type."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Annotated

from cyclopts import App, Parameter

from dragoman.cli.diagnosis import directory as data_directory
from dragoman.cli.diagnosis import node
from dragoman.cli.diagnosis.finding import Finding, problem
from dragoman.cli.output import Output, show
from dragoman.cli.serve import read_configuration
from dragoman.cli.status import FAILED, OK, USAGE, CommandError
from dragoman.cli.target import DEFAULT_SERVER, Server
from dragoman.config.layers import ENVIRONMENT_FILE, Flags, load
from dragoman.errors import ConfigError
from dragoman.telemetry.logs import escape

app = App(name="doctor", help="Check a running node or a data directory, and say what to type.")


@app.default
def doctor(
    directory: str | None = None,
    /,
    *,
    config: Annotated[str, Parameter(help="Configuration file of the node, for DIRECTORY.")] = "",
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> int:
    """Check a running node over HTTP, or a data directory that no node uses.

    The exit status is 1 if there is a problem.

    Parameters
    ----------
    directory
        Data directory; without it, the node of --server is checked.
    """
    if directory is None and config:
        raise CommandError("--config is for a DIRECTORY", USAGE)
    if directory is not None and (server.server or server.context):
        raise CommandError("a DIRECTORY excludes --server and --context", USAGE)
    found = node.checks(node.Probe(server)) if directory is None else _of(directory, config)
    listed = _shown(found, output)
    return FAILED if any(each.level == "problem" for each in listed) else OK


def _of(directory: str, config: str) -> Iterator[Finding]:
    try:
        path = config or os.environ.get(ENVIRONMENT_FILE)
        file = read_configuration(path) if path else None
        settings = load(file=file, environment=os.environ, flags=Flags()).settings
    except (ConfigError, CommandError) as error:
        yield problem("configuration", str(error), "`dragoman config show` with the same options")
        return
    yield from data_directory.checks(directory, settings)


def _shown(found: Iterable[Finding], output: Output) -> list[Finding]:
    """Print the findings: text as they are made, other forms at the end."""
    listed = []
    for each in found:
        listed.append(each)
        if output == "table":
            print(escape(f"{each.level:<8} {each.check}: {each.what}"))
            if each.remedy:
                print(escape(f"{'':<8} → {each.remedy}"))
    if output != "table":
        show(output, listed, Finding)
    return listed
