"""The tree of commands. Each command lives in the module of its noun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from dragoman import __version__
from dragoman.cli import cluster, config, group, log, topic
from dragoman.cli.status import OK, USAGE, CommandError

#: Tokens that a command parses itself, `--help` included.
Verbatim = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]


def build() -> App:
    app = App(
        name="dragoman",
        help="One durable log; every client speaks its own protocol to it.",
        version=f"dragoman {__version__}",
        result_action="return_value",
    )
    # Run by `main` without coming here; registered so that the help lists it.
    app.command(_serve, name="serve", help_flags=[])
    for noun in (topic, group, cluster, config, log):
        app.command(noun.commands())
    return app


def run(arguments: Sequence[str]) -> int:
    try:
        status = build()(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise CommandError(str(error), USAGE) from None
    return status if isinstance(status, int) else OK


def _serve(*arguments: Verbatim) -> int:
    """Run a node."""
    from dragoman.cli.serve import serve

    return serve(arguments)
