"""`dragoman serve`: settings, logging, and then the node until it stops."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dragoman.cli.node_options import configuration, node_parser
from dragoman.cli.status import USAGE, CommandError
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError, DirectoryInUseError, FormatError

DESCRIPTION = "Run a node until it is told to stop (SIGTERM or SIGINT; a second one forces)."


def serve(arguments: Sequence[str]) -> int:
    """Run a node and return its exit status."""
    options = node_parser("serve", DESCRIPTION).parse_args(arguments)
    if not __debug__:
        # The assertions are part of what keeps the log right.
        raise CommandError("refusing to run without assertions: leave out python -O", USAGE)
    settings = configuration(options).settings
    try:
        return _run(settings)
    except (ConfigError, DirectoryInUseError, FormatError) as error:
        raise CommandError(str(error), USAGE) from None


def _run(settings: Settings) -> int:
    # After the settings are known to be right: a mistake in them should be told at once.
    from dragoman.telemetry.logs import configure

    configure(settings.log_format, settings.log_level, sys.stderr)
    from dragoman.process import run

    return run(settings, _announce)


def _announce(line: str) -> None:
    print(line, flush=True)
