"""Entry point of the command `dragoman`, and the tree of its commands.

`serve` and `--version` are dispatched by hand: importing the parser of the other commands takes a
tenth of a second, which a node's start does not have. Each other noun is a module with an `app`,
imported when one of its commands runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman import __version__
from dragoman.cli.status import OK, USAGE, CommandError, complain
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from cyclopts import App

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status (see `status.py`)."""
    try:
        status = _dispatch(sys.argv[1:] if arguments is None else list(arguments))
        # Here and not at exit, where a reader that has gone away could no longer be forgiven.
        sys.stdout.flush()
        return status
    except CommandError as error:
        complain(str(error))
        return error.status
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except SystemExit as error:
        # argparse leaves this way after --help.
        return error.code if isinstance(error.code, int) else OK
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough. What is left in the buffer
        # must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130


def _dispatch(arguments: list[str]) -> int:
    match arguments:
        case ["serve", *rest]:
            from dragoman.cli.serve import serve

            return serve(rest)
        case ["--version"]:
            print(f"dragoman {__version__}")
            return OK
        case _:
            return _run_command(arguments)


def _run_command(arguments: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    try:
        status = build()(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise CommandError(str(error), USAGE) from None
    return status if isinstance(status, int) else OK


def build() -> App:
    """The tree of commands."""
    from cyclopts import App

    app = App(
        name="dragoman",
        help="One durable log; every client speaks its own protocol to it.",
        version=f"dragoman {__version__}",
        # Markdown in help texts would load a parser for it.
        help_format="plaintext",
        result_action="return_value",
    )
    # Listed by the help. `_dispatch` runs it without this parser.
    app.command("dragoman.cli.serve:serve", name="serve", help="Run a node.", help_flags=[])
    for noun, text in _NOUNS.items():
        app.command(f"dragoman.cli.{_MODULES.get(noun, noun)}:app", name=noun, help=text)
    return app


if __name__ == "__main__":
    sys.exit(main())
