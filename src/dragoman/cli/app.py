"""The tree of commands. Each command lives in the module of its noun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from dragoman import __version__
from dragoman.cli.status import OK, USAGE, CommandError

#: Tokens that a command parses itself, `--help` included.
Verbatim = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]


#: Each noun is a module with an `app`, imported when one of its commands runs.
_NOUNS = {
    "produce": "Write records to a topic.",
    "consume": "Read records of a topic.",
    "sql": "Query topics with SQL.",
    "pipeline": "Pipelines on Spark: from topics and captured changes to topics and tables.",
    "topic": "Topics of a running node.",
    "group": "Groups of a running node.",
    "cluster": "State of the cluster.",
    "cdc": "Captures of databases: changes of rows become records.",
    "rocketmq": "Administration of RocketMQ clusters, Dragoman's and others.",
    "config": "Settings of a node.",
    "log": "Data directories, read without a node.",
    "import": "Take over the data of other brokers.",
}
#: Nouns whose module cannot have their name.
_MODULES = {"import": "data_import"}


def build() -> App:
    app = App(
        name="dragoman",
        help="One durable log; every client speaks its own protocol to it.",
        version=f"dragoman {__version__}",
        # Markdown in help texts would load a parser for it.
        help_format="plaintext",
        result_action="return_value",
    )
    # Run by `main` without coming here; registered so that the help lists it.
    app.command(_serve, name="serve", help_flags=[])
    for noun, text in _NOUNS.items():
        app.command(f"dragoman.cli.{_MODULES.get(noun, noun)}:app", name=noun, help=text)
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
